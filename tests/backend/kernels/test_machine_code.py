"""Inner loops of micro-kernels in machine code: what the compiler makes of them is what was designed.

A loop that spills an accumulator, or broadcasts an element lane by lane, gives correct results at half the speed.
Timings show it only on a machine with that instruction set, counts of instructions on every one."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target
from rewrite.backend.toolchain.compiler import Compiler
from rewrite.benchmarks import harness, machine_code
from rewrite.benchmarks.machine_code import Counts, Instruction, MicroKernel
from rewrite.engine.ir.graph import DType, Node, TensorType

Measured = list[tuple[MicroKernel, Counts]]


@pytest.fixture(scope="module", params=["avx512", "avx2", "portable"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Counts of all micro-kernels of a target, from one compilation."""
    if platform.machine() != "x86_64":
        pytest.skip("counts are those of x86-64")
    if machine_code.find_disassembler() is None:
        pytest.skip("there is neither objdump nor llvm-objdump")
    if shutil.which("gcc") is None:
        pytest.skip("counts are those of gcc")
    return machine_code.measure(make_target(request.param), tmp_path_factory.mktemp("code"))


def test_register_tiles(measured: Measured, request: pytest.FixtureRequest) -> None:
    """A step of k is MR x NV products, NV loads and MR broadcasts, and nothing else of weight.

    A product of SSE2 overwrites a vector: it is loaded once more for another row, in place of a copy."""
    overwrites = request.node.callspec.params["measured"] == "portable"
    tiles = [(loop, counts) for loop, counts in measured if loop.rows]
    assert len(tiles) == 14
    wrong = []
    for loop, counts in tiles:
        products, halves = loop.rows * loop.vectors, counts.products // (loop.rows * loop.vectors)
        # products that the instruction set lacks are made of two halves, each with its own loads
        narrow, one = "bf16" in loop.label or "int8" in loop.label, loop.vectors == 1
        assert halves == 1 or (halves == 2 and narrow) or (halves == 4 and one), loop
        # the accumulators, a row of B and an element of A take one register more than there are in 7 x 4
        spilled = 2 if (loop.rows, loop.vectors) == (7, 4) else 0
        # where caches are small, a tile fetches two streams ahead, which takes one pointer more
        fetches = loop.kernel.params.get("prefetch") and loop.kernel.params["tiles"].get("near")
        if fetches and loop.rows == 8:
            spilled = min(counts.stack, 1)
        if one:  # more rows than registers for pointers: each is loaded once for several steps
            spilled = min(counts.stack, loop.rows)
        designed = Counts(halves * products, halves * loop.vectors, halves * loop.rows, 0, spilled, 0)
        if halves == 2:  # constants and products of integers take registers, too
            spilled = min(counts.stack, 14 if overwrites else 12)
            designed = Counts(designed.products, counts.loads, designed.broadcasts, 0, spilled, 0)
        if overwrites and loop.rows < loop.vectors:
            designed = replace(designed, loads=min(max(counts.loads, designed.loads), designed.products))
        if counts != designed:
            wrong.append(f"{loop.label}{loop.function}: {counts}; designed: {designed}")
    assert not wrong, "\n".join(wrong)


def test_tiles_of_several_panels(tmp_path: Path) -> None:
    """Their sums and addresses fit the registers: a step loads each vector of each panel once."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    target = make_target("avx2")
    for columns, vectors in ((512, 2), (192, 3)):
        graph = harness.make_graph(
            [Node("MatMul", ("x", "w"), ("y",))],
            {"x": np.ones((5, 64), np.float32)},
            constants={"w": np.ones((64, columns), np.float32)},
            symbolic_shapes={"x": ("M", 64)},
        )
        items, _ = harness.lower(graph, target=target)
        [kernel] = [item.kernel for item in items or () if isinstance(item, Step)]
        tiles = kernel.params["tiles"]
        assert tiles["nv"] == vectors
        functions = machine_code.compiled([kernel], target, tmp_path)
        for rows, panels in tiles["few"]:
            found = [machine_code.inner_loop(code) for name, code in functions.items() if f"_few{rows}" in name]
            loads = panels * vectors
            assert found == [Counts(rows * loads, loads, rows, 0, 0, 0)]


def test_other_loops(measured: Measured) -> None:
    """Transforms, depthwise filters and recurrences insert no lanes and keep their sums in registers."""
    wrong = [
        f"{loop.label}{loop.function}: {counts}"
        for loop, counts in measured
        if not loop.rows
        and (not counts.products or counts.shuffles > 4 or counts.stack > 12)
        and not loop.label.startswith("winograd 6 x 6")
    ]
    assert not wrong, "\n".join(wrong)


def test_winograd_transforms_store_results_only(measured: Measured) -> None:
    """36 inputs become 36 vectors, and 36 sums 16 outputs; nothing is stored between the two dimensions."""
    found = {(loop.label, loop.function): counts for loop, counts in measured if loop.label.startswith("winograd")}
    for label in ("winograd", "winograd nhwc"):
        assert found[label, "_read"].stores == 36
        assert found[label, "_read"].loads == 84
        assert found[label, "_write"].stores == 16


def test_winograd_transforms_of_6_x_6(measured: Measured, request: pytest.FixtureRequest) -> None:
    """64 inputs become 64 vectors, and 64 sums 36 outputs. Only 16 registers are too few for what is between."""
    few = request.node.callspec.params["measured"] != "avx512"
    found = {(loop.label, loop.function): counts for loop, counts in measured if loop.label.startswith("winograd")}
    for label in ("winograd 6 x 6", "winograd 6 x 6 nhwc"):
        for function, stores in (("_read", 64), ("_write", 36)):
            counts = found[label, function]
            assert counts.stores == stores
            assert counts.shuffles == 0
            assert counts.stack <= (200 if few else 12)
            assert few or counts.loads == 26 * 8


def test_depthwise_filters_load_each_vector_once(measured: Measured) -> None:
    """A tile of R rows loads (R + 2) x 3 vectors, and uses each for all rows that read it, as it does a weight."""
    for loop, counts in measured:
        if loop.label == "depthwise":
            in_place = loop.kernel.template == "depthwise_rows"
            rows = loop.kernel.params["rows"][0] if in_place else loop.kernel.params["rows"]
            assert counts.products == 9 * rows
            assert counts.loads == 3 * (rows + 2)
            assert not in_place or counts.broadcasts == 9


def test_copied_lines_of_depthwise_filters_load_each_vector_once(measured: Measured) -> None:
    """A line of the filter is some columns at a time: their weights, and the inputs under them, once for each row."""
    [(loop, counts)] = [(loop, counts) for loop, counts in measured if loop.label == "depthwise nhwc, lines"]
    params = loop.kernel.params
    assert loop.kernel.template == "depthwise_lines_nhwc"
    rows, columns, held = params["rows"][0], params["columns"][0], params["held"]
    widths = [min(held, 5 - first) for first in range(0, 5, held)]
    loads = sum(width + rows * (columns + width - 1) for width in widths)
    assert counts == Counts(5 * rows * columns, loads, 0, 0, 0, 0)


def test_dot_products_load_each_vector_once(measured: Measured) -> None:
    """A step is R x n products of R vectors of A and n of B; sums stay in registers."""
    found = [(loop.kernel.params, counts) for loop, counts in measured if loop.label.startswith("dot")]
    assert len(found) == 2
    for params, counts in found:
        rows, columns, unroll = params["rows"], params["n"], params["unroll"]
        assert counts == Counts(unroll * rows * columns, unroll * (rows + columns), 0, 0, 0, 0)


def test_padding_of_lines_is_stored_by_vectors(tmp_path: Path) -> None:
    """A line ends in a few zeros: `rep stos` for each of them takes longer than the average of its windows."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("instructions are those of gcc for x86-64")
    target = make_target("avx2")
    graph = harness.make_graph(
        [Node("AveragePool", ("x",), ("y",), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)})],
        {"x": np.ones((1, 8, 16, 28, 76), np.float32)},
    )
    items, _ = harness.lower(graph, target=target)
    steps = [item for item in items or () if isinstance(item, Step)]
    assert [step.kernel.template for step in steps] == ["depthwise_pool"]
    functions = machine_code.compiled([step.kernel for step in steps], target, tmp_path)
    assert not [at for code in functions.values() for at in code if at.mnemonic.startswith("stos")]


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_interleaved_rows_are_shuffled_as_vectors(isa: str, tmp_path: Path) -> None:
    """Images of any size: two rows of unknown distance become pairs of neighbors, not element by element."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("instructions are those of gcc for x86-64")
    target = make_target(isa)
    graph = harness.make_graph(
        [Node("DepthToSpace", ("x",), ("y",), {"blocksize": 2})],
        {"x": np.ones((1, 8, 48, 48), np.float32)},
        symbolic_shapes={"x": (1, 8, "H", "W")},
    )
    items, _ = harness.lower(graph, target=target)
    (kernel,) = (item.kernel for item in items or () if isinstance(item, Step))
    assert kernel.template == "copy"
    functions = machine_code.compiled([kernel], target, tmp_path)
    code = [at for name, found in functions.items() if "some" not in name for at in found]
    assert not [at for at in code if at.mnemonic.lstrip("v") in ("pinsrd", "insertps", "movd")]
    assert [at for at in code if "unpck" in at.mnemonic or "punpck" in at.mnemonic or "perm" in at.mnemonic]


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(("channels", "fetched"), [(768, 1), (64, 0)])
def test_weights_from_memory_are_fetched_ahead(isa: str, channels: int, fetched: int, tmp_path: Path) -> None:
    """A step of k fetches one line of large weights, a page ahead, and else consists of what a register tile needs."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    target = replace(make_target(isa), l2=2 << 20)
    graph = harness.make_graph(
        [Node("Conv", ("x", "w"), ("y",))],
        {"x": np.ones((1, channels, 320), np.float32)},
        constants={"w": np.ones((channels, channels, 1), np.float32)},
    )
    items, _ = harness.lower(graph, target=target)
    (kernel,) = (item.kernel for item in items or () if isinstance(item, Step))
    assert kernel.template == "conv"
    rows, vectors = (kernel.params["tiles"][name] for name in ("mr", "nv"))
    functions = machine_code.compiled([kernel], target, tmp_path)
    (code,) = (code for name, code in functions.items() if re.search(rf"_{rows}x{vectors}(\.\w+)*$", name))
    # a product of no steps jumps back to its stores, which is no loop
    body = max(machine_code.loops(code), key=lambda stretch: machine_code.count(stretch, code).products)
    lines = -(-vectors * target.vector_bytes // 64) if "near" in kernel.params["tiles"] else 0  # of the inputs
    assert sum(at.mnemonic == "prefetcht0" for at in body) == lines + fetched
    counts = machine_code.count(body, code)
    assert (counts.products, counts.loads, counts.broadcasts) == (rows * vectors, vectors, rows)
    assert counts.stack <= 2


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_copied_lines_of_few_channels_are_read_once(isa: str, tmp_path: Path) -> None:
    """A step is an input channel under a tap: a vector of each line, a weight of each channel, and their products."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    graph = harness.make_graph(
        [Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (5, 5)})],
        {"x": np.ones((1, 40, 20, 100), np.float32)},
        constants={"w": np.ones((12, 40, 5, 5), np.float32)},
    )
    target = make_target(isa)
    items, _ = harness.lower(graph, target=target)
    (kernel,) = (item.kernel for item in items or () if isinstance(item, Step))
    assert kernel.template == "conv_lines"
    rows, vectors = (kernel.params["tiles"][name] for name in ("mr", "nv"))
    functions = machine_code.compiled([kernel], target, tmp_path)
    _, counts = inner_loop(functions, f"_{rows}x{vectors}")
    assert (counts.products, counts.loads, counts.broadcasts) == (rows * vectors, vectors, rows)
    assert (counts.shuffles, counts.stack) == (0, 0)


@pytest.mark.parametrize("op", ["rewrite.MatMulBf16", "MatMulInteger", "rewrite.ChannelsLastConvBf16"])
def test_tiles_of_amx(op: str, tmp_path: Path) -> None:
    """A step of k is two loads of A, two of B and four products, and touches no stack; every target compiles it."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    known = subprocess.run(["as", "-o", tmp_path / "a.o", "-"], input="tilerelease", capture_output=True, text=True)
    if known.returncode:
        pytest.skip("this assembler does not know AMX")
    features = ("avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")
    target = replace(make_target("avx512"), features=features)
    left, right = (np.uint8, np.int8) if op == "MatMulInteger" else (ml_dtypes.bfloat16, np.float32)
    x, w = np.ones((90, 200), left), np.ones((200, 150), right)
    attrs = {}
    if op.endswith("ConvBf16"):
        attrs = {"pads": (1, 1, 1, 1)}
        x, w = np.ones((1, 9, 9, 64), ml_dtypes.bfloat16), np.ones((150, 64, 3, 3), right)
    shape = (1, 9, 9, 150) if attrs else (90, 150)
    kind = TensorType(DType.I32 if left is np.uint8 else DType.F32, shape)
    graph = harness.make_graph([Node(op, ("x", "w"), ("y",), attrs)], {"x": x}, constants={"w": w}, types={"y": kind})
    items, _ = harness.lower(graph, target=target)
    kernels = [item.kernel for item in items or () if isinstance(item, Step)]
    functions = machine_code.compiled(kernels, target, tmp_path)
    tiles = [code for name, code in functions.items() if re.fullmatch(r"n_amx_\w+2x2(\.\w+)*", name)]
    assert tiles
    for code in tiles:
        # the loop over steps contains that of prefetching
        products = [b for b in machine_code.all_loops(code) if any(at.mnemonic.startswith("tdp") for at in b)]
        body = min(products, key=len)
        names = Counter(at.mnemonic for at in body)
        assert names["tileloadd"] == 4
        assert sum(count for name, count in names.items() if name.startswith("tdp")) == 4
        assert names["tilestored"] == names["tilezero"] == 0
        assert machine_code.count(body, code).stack == 0
        assert len(body) < 40


def inner_loop(functions: Mapping[str, Sequence[Instruction]], suffix: str) -> tuple[Counter[str], Counts]:
    """Mnemonics and counts of the longest innermost loop of the function whose name ends so."""
    (code,) = (code for name, code in functions.items() if re.search(rf"{suffix}(\.\w+)*$", name))
    body = max(machine_code.loops(code), key=len)
    return Counter(at.mnemonic for at in body), machine_code.count(body, code)


def test_products_of_pairs_of_bytes_load_each_vector_once(tmp_path: Path) -> None:
    """With AVX2 a step of an int8 convolution widens its weights once, and multiplies and adds them for each pixel."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    graph = harness.make_graph(
        [Node("rewrite.ChannelsLastConvInteger", ("x", "w"), ("y",))],
        {"x": np.ones((1, 4, 7, 256), np.uint8)},
        constants={"w": np.ones((64, 256, 1, 1), np.int8)},
        types={"y": TensorType(DType.I32, (1, 4, 7, 64))},
    )
    target = make_target("avx2")
    items, _ = harness.lower(graph, target=target)
    (kernel,) = (item.kernel for item in items or () if isinstance(item, Step))
    assert kernel.params["tiles"]["mr"] == 6
    assert kernel.params["tiles"]["rest"] == [4]
    functions = machine_code.compiled([kernel], target, tmp_path)
    for rows in (6, 4):
        names, counts = inner_loop(functions, f"_{rows}")
        assert (names["vpmaddwd"], names["vpaddd"], names["vpmovsxbw"]) == (2 * rows, 2 * rows, 2)
        assert (counts.loads, counts.broadcasts, counts.stack) == (2, rows, 0)


def test_winograd_of_bytes_multiplies_pairs(tmp_path: Path) -> None:
    """A step of its products is a product and a sum for each vector of a tile, and nothing is on the stack."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    graph = harness.make_graph(
        [Node("rewrite.ChannelsLastConvInteger", ("x", "w"), ("y",), {"pads": (1, 1, 1, 1)})],
        {"x": np.ones((1, 12, 12, 64), np.uint8)},
        constants={"w": np.ones((64, 64, 3, 3), np.int8)},
        types={"y": TensorType(DType.I32, (1, 12, 12, 64))},
    )
    target = make_target("avx2")
    items, _ = harness.lower(graph, target=target)
    (kernel,) = (item.kernel for item in items or () if isinstance(item, Step))
    assert kernel.template == "winograd_nhwc_int8"
    rows, vectors = kernel.params["tiles"]["mr"], kernel.params["tiles"]["nv"]
    functions = machine_code.compiled([kernel], target, tmp_path)
    names, counts = inner_loop(functions, f"_{rows}x{vectors}")
    assert (names["vpmaddwd"], names["vpaddd"]) == (rows * vectors, rows * vectors)
    assert (counts.loads, counts.broadcasts, counts.stack) == (vectors, rows, 0)
    _, counts = inner_loop(functions, "_read")
    assert (counts.stores, counts.loads, counts.stack) == (16, 24, 0)


def test_recurrences_have_chains_enough(measured: Measured) -> None:
    """Eight sums or more, as a multiply-add takes four cycles and two begin in each."""
    found = [counts for loop, counts in measured if loop.label.startswith("lstm")]
    assert found
    assert all(counts.products >= 8 for counts in found)


def test_a_row_times_four_bits_keeps_its_sums_in_registers(tmp_path: Path) -> None:
    """With AVX2 a block of 32 rows and 16 columns takes 48 products of bytes, and none is stored before it is added."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    target = make_target("avx2")
    constants = {"q": np.ones((256, 64), ml_dtypes.int4), "s": np.ones((8, 64), np.float32)}
    graph = harness.make_graph(
        [Node("rewrite.MatMulBlockwise", ("x", "q", "s"), ("y",), {"block_size": 32}, name="product")],
        {"x": np.ones((1, 256), np.float32)},
        constants=constants,
        types={"y": TensorType(DType.F32, (1, 64))},
    )
    items, _ = harness.lower(graph, target=target)
    functions = machine_code.compiled([i.kernel for i in items or () if isinstance(i, Step)], target, tmp_path)
    (row,) = (code for name, code in functions.items() if name.endswith("_single2"))
    (loop,) = machine_code.loops(row)
    assert sum(at.mnemonic == "vpmaddubsw" for at in loop) == 48
    assert machine_code.count(loop, row).stack <= 12


def test_attention_to_few_keys_is_small(tmp_path: Path) -> None:
    """The last keys are packed by a short loop: gcc can make more code of that than of all else, and it runs slower."""
    if shutil.which("gcc") is None or machine_code.find_disassembler() is None or platform.machine() != "x86_64":
        pytest.skip("counts are those of gcc for x86-64")
    target = make_target("avx512")
    graph = harness.make_graph(
        [Node("Attention", ("q", "k", "v"), ("y",), name="attention")],
        {name: np.ones((64, 3, 49, 32), np.float32) for name in "qkv"},
    )
    items, _ = harness.lower(graph, target=target)
    functions = machine_code.compiled([i.kernel for i in items or () if isinstance(i, Step)], target, tmp_path)
    assert functions
    assert sum(map(len, functions.values())) < 4000


def test_aarch64_multiplies_by_element(tmp_path: Path) -> None:
    """With NEON an element of A is an operand of the multiply-add: no lane is inserted, hardly one is broadcast."""
    command = "aarch64-linux-gnu-gcc"
    if shutil.which(command) is None or shutil.which("aarch64-linux-gnu-objdump") is None:
        pytest.skip(f"{command} or its objdump is not installed")
    target = make_target("neon")
    assert target.registers == 32
    tiles = [
        (loop, counts)
        for loop, counts in machine_code.measure(target, tmp_path, Compiler((command,), command))
        if loop.rows and "int8" not in loop.label and "bf16" not in loop.label
    ]
    assert tiles
    for loop, counts in tiles:
        assert counts.products == loop.rows * loop.vectors, (loop.label, counts)
        assert counts.shuffles == 0, (loop.label, counts)
        assert counts.stack <= 2, (loop.label, counts)
        assert counts.broadcasts <= 2, (loop.label, counts)
