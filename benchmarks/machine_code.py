"""Machine code of kernels: what the inner loop of a micro-kernel consists of.

    python -m benchmarks.machine_code [--targets avx512,avx2,portable]

compiles each micro-kernel at a representative problem and prints the counts of its inner loops. A timing shows that a
kernel is slow only on a machine that has its instructions, and not why; counts show both on any machine. They need
`objdump` or `llvm-objdump`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rewrite.backend.codegen.render import kernel_name, render_kernel
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, make_target
from rewrite.backend.toolchain.builder import build
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType
from rewrite.system.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rewrite.backend.ir.kernel import Kernel
    from rewrite.backend.toolchain.compiler import Compiler

    Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction in AT&T syntax; `target` is the address that it branches to, else None."""

    address: int
    mnemonic: str
    operands: str
    target: int | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of instructions of each kind in a stretch of code. An operand in memory counts as a load of its own.

    Attributes:
        products: multiply-adds of vectors: FMA, dot products, or multiplications where the target has no FMA.
        loads: whole vectors read from memory outside the stack.
        broadcasts: elements copied to all lanes, from memory or a register.
        shuffles: inserts, extracts and permutations of lanes.
        stack: operands on the stack.
        stores: vectors written to memory outside the stack.
    """

    products: int = 0
    loads: int = 0
    broadcasts: int = 0
    shuffles: int = 0
    stack: int = 0
    stores: int = 0

    def __str__(self) -> str:
        return (
            f"{self.products} products, {self.loads} loads, {self.broadcasts} broadcasts, {self.shuffles} shuffles, "
            f"{self.stack} on the stack, {self.stores} stores"
        )


_FUNCTION = re.compile(r"^[0-9a-f]+ <(\S+)>:$")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:(?:lock|rep\w*|bnd|notrack) )?(\S+)\s*(.*?)\s*(?:(?:#|//|;).*)?$")
_BRANCH = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)$")
_ADDRESS = re.compile(r"(?:^|[ ,])(?:0x)?([0-9a-f]+)(?: <|$)")

_X86 = {
    "products": r"vfn?m(add|sub)\d+ps|vpdpbusds?|vdpbf16ps|v?pmaddwd|mulps",
    "broadcasts": r"v(p?broadcast\w+)|v?p?shuf(ps|d) \$0x0,.*",
    "shuffles": r"v?(p?insert|pinsr|p?extr|perm|pperm|p?shuf|p?unpck|punpck|movh?lh?ps|palign|blendps|pblendw)\w*",
}
_ARM = {
    "products": r"fmla|fmls|[su]+dot|mla|smlal2?",
    "broadcasts": r"ld1r|dup",
    "shuffles": r"ins|zip[12]|uzp[12]|trn[12]|ext|tbl|smov|umov",
}


def find_disassembler() -> str | None:
    """Return the command that disassembles object files, None if there is none."""
    return shutil.which("objdump") or shutil.which("llvm-objdump")


def disassemble(file: Path, machine: str = "x86_64") -> dict[str, list[Instruction]]:
    """Return the instructions of each function of an object file, by its name in the symbol table.

    Raises FileNotFoundError without a disassembler."""
    cross = shutil.which(f"{machine}-linux-gnu-objdump") or shutil.which("llvm-objdump")
    command = find_disassembler() if machine == "x86_64" else cross
    if command is None:
        raise FileNotFoundError("objdump")
    options = ["-d", "--no-show-raw-insn", str(file)]
    text = subprocess.run([command, *options], capture_output=True, text=True, check=True).stdout
    functions: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        if found := _FUNCTION.match(line):
            current = functions.setdefault(found[1], [])
        elif found := _LINE.match(line):
            mnemonic, operands = found[2], found[3]
            place = _ADDRESS.search(operands) if _BRANCH.match(mnemonic) else None
            current.append(Instruction(int(found[1], 16), mnemonic, operands, int(place[1], 16) if place else None))
    return functions


def _ends(function: Sequence[Instruction]) -> dict[int, int]:
    """Return the index of the first instruction of each loop by that of the branch to it."""
    index = {instruction.address: i for i, instruction in enumerate(function)}
    return {i: index[at.target] for i, at in enumerate(function) if at.target in index and index[at.target] <= i}


def all_loops(function: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """Yield the loops of a function: stretches that end in a branch to their start."""
    for end, start in _ends(function).items():
        yield function[start : end + 1]


def loops(function: Sequence[Instruction]) -> Iterator[Sequence[Instruction]]:
    """Yield the innermost loops of a function: stretches that end in a branch to their start and contain no other."""
    ends = _ends(function)
    for end, start in ends.items():
        if not any(start <= other_start and other < end for other, other_start in ends.items() if other != end):
            yield function[start : end + 1]


def inner_loop(function: Sequence[Instruction], machine: str = "x86_64") -> Counts:
    """Return the counts of the innermost loop with the most products."""
    return max((count(body, function, machine) for body in loops(function)), key=lambda c: c.products, default=Counts())


def count(body: Sequence[Instruction], function: Sequence[Instruction], machine: str = "x86_64") -> Counts:
    """Return the counts of a stretch of a function."""
    kinds = _X86 if machine == "x86_64" else _ARM
    numbers = dict.fromkeys(Counts.__dataclass_fields__, 0)
    stack = _stack_registers(function, machine)
    for at in body:
        text = f"{at.mnemonic} {at.operands}"
        kind = next((name for name, pattern in kinds.items() if _kind(pattern).match(text)), None)
        if kind:
            numbers[kind] += 1
        if at.mnemonic in ("lea", "prefetcht0", "prefetcht1", "prfm", "nop", "nopw", "nopl"):
            continue
        if stack.search(at.operands):
            numbers["stack"] += 1
        elif machine == "x86_64":
            _count_memory(at, kind, numbers)
        elif at.mnemonic in ("ldr", "ldp", "ld1", "ldur") and re.match(r"q|\{?v", at.operands):
            numbers["loads"] += 2 if at.mnemonic == "ldp" else 1
        elif at.mnemonic in ("str", "stp", "st1", "stur") and re.match(r"q|\{?v", at.operands):
            numbers["stores"] += 2 if at.mnemonic == "stp" else 1
    return Counts(**numbers)


def _count_memory(at: Instruction, kind: str | None, numbers: dict[str, int]) -> None:
    """Count the operand in memory of an x86 instruction on vectors."""
    if "(" not in at.operands or not re.search(r"%[xyz]mm", at.operands) or re.match(r"v?movs[sd]", at.mnemonic):
        return
    if "{1to" in at.operands:
        numbers["broadcasts"] += 1
    elif at.operands.endswith(")") or at.operands.endswith("}"):
        numbers["stores"] += kind != "broadcasts"
    elif kind != "broadcasts":
        numbers["loads"] += 1


@cache
def _kind(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})(?: |$)")


def _stack_registers(function: Sequence[Instruction], machine: str) -> re.Pattern[str]:
    """Return a pattern of operands on the stack; the frame pointer is one where the function sets it up."""
    if machine != "x86_64":
        return re.compile(r"\[(?:sp|x29)[],]")
    framed = any(at.mnemonic == "mov" and at.operands == "%rsp,%rbp" for at in function)
    return re.compile(r"\(%r[sb]p" if framed else r"\(%rsp")


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """A loop to look at: the function that contains it, by a pattern of what follows the kernel's name in its own.

    `rows` and `vectors` are the register tile, 0 for loops that are no products of a tile."""

    label: str
    kernel: Kernel
    function: str
    rows: int = 0
    vectors: int = 0


def micro_kernels(target: Target) -> list[MicroKernel]:
    """Return the micro-kernels of a target, each at a representative problem."""
    found = []
    for label, graph, reassociate in _problems():
        items, _ = harness.lower(graph, target=target, reassociate=reassociate)
        assert items is not None, label
        steps = [item for item in items if isinstance(item, Step)]
        kernels = [step.kernel for step in steps]  # the largest does the work; that of a recurrence is the smaller one
        kernel = max(kernels, key=lambda k: (k.template == "recurrent", render_kernel(k, target).weight))
        found += [MicroKernel(label, kernel, *loop) for loop in _loops_of(kernel)]
    return found


def _loops_of(kernel: Kernel) -> list[tuple[str, int, int]]:
    """Return pattern, rows and vectors of the loops of a kernel."""
    tiles = kernel.params.get("tiles")
    if kernel.template == "attention":
        rows, vectors = kernel.params["tile_rows"], kernel.params["tile_vectors"]
        return [(f"_scores{vectors}", rows, vectors), ("_values", rows, vectors)]
    if kernel.template == "recurrent":
        return [(f"_step{r}", 0, 0) for r in kernel.params["rows"]]
    if kernel.template == "dot":
        return [(f"_{kernel.params['rows']}", 0, 0)]
    if tiles is None:
        return [(r"(_\d+x\d+|_inner|)", 0, 0)]
    if kernel.template.startswith("conv_nhwc"):
        return [(f"_{tiles['mr']}", tiles["mr"], tiles["nv"])]
    loops_ = [(f"_{tiles['mr']}x{tiles['nv']}", tiles["mr"], tiles["nv"])]
    return loops_ + ([("_read", 0, 0), ("_write", 0, 0)] if kernel.template.startswith("winograd") else [])


def _problems() -> Iterator[tuple[str, Graph, bool]]:
    """Yield label and graph of each problem, and whether algorithms may be chosen that round differently."""
    f32, u8, i8 = DType.F32, DType.U8, DType.I8
    products = [("gemm", "MatMul", f32, f32), ("gemm bf16", "rewrite.MatMulBf16", DType.BF16, f32)]
    for label, op, left, right in [*products, ("gemm int8", "MatMulInteger", u8, i8)]:
        yield label, _graph(op, {"x": _ones(96, 256, dtype=left)}, {"w": _ones(256, 192, dtype=right)}), False
    for columns in (1, 2):
        yield f"dot {columns}", _graph("MatMul", {"x": _ones(96, 1024)}, {"w": _ones(1024, columns)}), False
    for label, size, rounds in (("conv", 48, False), ("winograd", 20, True), ("winograd 6 x 6", 48, True)):
        yield label, _conv(_ones(1, 64, size, size), _ones(64, 64, 3, 3)), rounds
        x, w = _ones(1, size, size, 64), _ones(192, 64, 3, 3)
        yield f"{label} nhwc", _conv(x, w, "rewrite.ChannelsLastConv"), rounds
    one = _ones(16, 64, 3, 3)
    yield "conv nhwc, one vector", _conv(_ones(1, 48, 48, 64), one, "rewrite.ChannelsLastConv"), False
    yield "conv small", _conv(_ones(1, 64, 7, 7), _ones(192, 64, 3, 3)), False
    x, w = _ones(1, 28, 28, 64, dtype=u8), _ones(192, 64, 5, 5, dtype=i8)
    yield "conv nhwc int8", _conv(x, w, "rewrite.ChannelsLastConvInteger"), False
    yield "depthwise", _conv(_ones(1, 64, 56, 56), _ones(64, 1, 3, 3), group=64), False
    w = _ones(64, 1, 3, 3)
    yield "depthwise nhwc", _conv(_ones(1, 56, 56, 64), w, "rewrite.ChannelsLastConv", group=64), False
    x, w = _ones(1, 16, 16, 1024), _ones(1024, 1, 5, 5)  # pixels of any cache share sets
    yield "depthwise nhwc, lines", _conv(x, w, "rewrite.ChannelsLastConv", group=1024), False
    yield "attention", _graph("Attention", {name: _ones(1, 8, 128, 64) for name in "qkv"}, {}), False
    for label, batch, size in (("lstm, one sequence", 1, 96), ("lstm", 8, 128)):
        weights = {"w": _ones(1, 4 * size, 32), "r": _ones(1, 4 * size, size)}
        yield label, _graph("LSTM", {"x": _ones(5, batch, 32)}, weights, {"hidden_size": size}), False


def _ones(*shape: int, dtype: DType = DType.F32) -> Array:
    return np.ones(shape, dtype.numpy_name)


def _conv(x: Array, w: Array, op: str = "Conv", group: int = 1) -> Graph:
    return _graph(op, {"x": x}, {"w": w}, {"pads": (1, 1, 1, 1), "group": group})


def _graph(
    op: str, inputs: Mapping[str, Array], constants: Mapping[str, Array], attrs: Mapping[str, Any] | None = None
) -> Graph:
    first = next(iter(inputs.values()))
    whole = {"y": TensorType(DType.I32, (*first.shape[:-1], 192))} if first.dtype == np.uint8 else {}
    nodes = [Node(op, (*inputs, *constants), ("y",), dict(attrs or {}))]
    return harness.make_graph(nodes, inputs, constants=constants, types=whole)


def compiled(
    kernels: Sequence[Kernel], target: Target, folder: Path, compiler: Compiler | None = None
) -> dict[str, list[Instruction]]:
    """Compile kernels and return the instructions of their functions."""
    functions: dict[str, list[Instruction]] = {}
    for file in build(list(dict.fromkeys(kernels)), target, Store(folder), compiler=compiler).files.values():
        functions |= disassemble(file, target.machine)
    return functions


def measure(target: Target, folder: Path, compiler: Compiler | None = None) -> list[tuple[MicroKernel, Counts]]:
    """Return the counts of each micro-kernel's inner loop; `compiler` is the one of this machine if None."""
    loops_ = micro_kernels(target)
    functions = compiled([loop.kernel for loop in loops_], target, folder, compiler)
    found = []
    for loop in loops_:
        pattern = re.compile(kernel_name(loop.kernel, target) + loop.function + r"(\.\w+)*$")

        def counts(code: Mapping[str, Sequence[Instruction]], pattern: re.Pattern[str] = pattern) -> Counts:
            bodies = (inner_loop(body, target.machine) for name, body in code.items() if pattern.match(name))
            return max(bodies, key=lambda c: c.products, default=Counts())

        best = counts(functions)
        if not best.products:  # of equal functions of two kernels gcc keeps one
            best = counts(compiled([loop.kernel], target, folder / "alone", compiler))
        found.append((loop, best))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.machine_code", description=__doc__)
    parser.add_argument("--targets", default="avx512,avx2,portable", help="comma-separated names of targets")
    arguments = parser.parse_args()
    for name in arguments.targets.split(","):
        target = make_target(name)
        print(f"{target.isa}: vectors of {target.lanes} floats, {target.registers} registers")
        with tempfile.TemporaryDirectory() as folder:
            for loop, counts in measure(target, Path(folder)):
                tile = f" {loop.rows} x {loop.vectors}" if loop.rows else ""
                print(f"  {loop.label + loop.function + tile:34} {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
