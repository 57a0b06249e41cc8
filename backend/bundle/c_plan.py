"""The plan of a bundle for the C library: `plan.bin`, which holds what `link` decides, for all sizes.

Python reads a plan as JSON, assigns buffers and links it. For C all of that is done when the bundle is saved: pointers
of steps are a base and an offset, and only sizes are left to compute. `runtime/c_library/plan.h` describes the format.

Steps, views, concatenations in place, shapes, conditions on data and versions by size are supported. What Python
drives, loops and strings are not, and the library says so when it opens the bundle.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...engine.ir.graph import Constant, DType, TensorType, ValueType, symbols_of
from ...engine.ir.symbolic import Dim
from ...version import VERSION
from ..ir.dim_program import postfix
from ..ir.kernel import UNKNOWN_WORK, Kernel
from ..ir.kernel_graph import Control, Fallback, Guard, Loop, Measure, ModelPlan, Shape, Step
from ..ir.target import Target
from ..memory.arena import Buffer, place
from ..memory.buffer_assignment import SCRATCH, Storage, assign_buffers, native_results, nbytes, shareable

MAGIC = b"RWPLAN\0\1"
FORMAT = 1
"""Version of the format: `PLAN_FORMAT` in plan.h."""
NAME = "plan.bin"
MAX_RANK = 32
_ARENA, _WEIGHTS, _SHAPES, _FIRST = 2, 3, 4, 5


class Weights(Protocol):
    """The file of weights, as far as plans refer to it."""

    def offset(self, constant: Constant) -> int:
        """Return the offset of a constant in the file."""


@dataclass(frozen=True)
class Variant:
    """The model for one target, with the names of its kernels and modules in the bundle."""

    target: Target
    plan: ModelPlan
    kernels: Mapping[Kernel, str]
    modules: Sequence[str]


def write_plan(
    variants: Sequence[Variant], files: Mapping[str, tuple[int, int]], weights: Weights, threads: int
) -> bytes:
    """Return the contents of `plan.bin`. `files` are the sizes and checksums of the other files."""
    out = _Words()
    out.word(FORMAT)
    out.text(VERSION)
    out.word(threads)
    out.word(len(files))
    for name, about in files.items():
        out.text(name)
        out.words(*about)
    out.word(len(variants))
    for variant in variants:
        target = variant.target
        out.text(target.machine)
        out.text(target.isa)
        out.texts(target.features)
        body = _Words()
        _PlanWriter(body, variant, weights).write()
        out.word(len(body.data) // 8)
        out.data += body.data
    return MAGIC + struct.pack("<Q", zlib.crc32(out.data)) + out.data


def refusal(plan: ModelPlan) -> str:
    """Return why a plan, or one of its versions, cannot run without Python; empty if it can."""
    items = [item for item in plan.all_items() if not isinstance(item, Step)]
    alone = [item.node.op for item in items if isinstance(item, Fallback)]
    driven = ["If" if item.op == "Branch" else item.op for item in items if isinstance(item, Control)]
    sized = [item.name for item in items if isinstance(item, Measure)]
    loops = [item.op for item in items if isinstance(item, Loop)]
    reasons = []
    if alone:
        reasons.append(f"these operators have no kernel: {_names(alone)}")
    if driven:
        reasons.append(f"Python drives these operators: {_names(driven)}")
    if sized:
        reasons.append(f"data determine the sizes of what these nodes return: {_names(sized)}")
    if loops:
        advice = "compile the body as a model of its own, and iterate in C"
        reasons.append(f"these operators iterate, which the C library does not: {_names(loops)} ({advice})")
    reasons += [
        f"{name!r} is {why}" for name in (*plan.inputs, *plan.outputs) if (why := _foreign(plan.types.get(name)))
    ]
    return "; ".join(reasons)


def _names(operators: Sequence[str]) -> str:
    return ", ".join(sorted(set(operators)))


def _foreign(kind: ValueType | None) -> str:
    """Return what is wrong with the type of an input or output for C; empty if nothing is."""
    if not isinstance(kind, TensorType):
        return "not a tensor"
    if kind.dtype is None or kind.shape is None:
        return "a tensor of unknown rank or element type"
    if kind.dtype is DType.STRING:
        return "a tensor of strings"
    return f"of rank {len(kind.shape)}" if len(kind.shape) > MAX_RANK else ""


class _Words:
    """Data under construction."""

    def __init__(self) -> None:
        self.data = bytearray()

    def word(self, value: int) -> None:
        self.data += struct.pack("<q", value)

    def words(self, *values: int) -> None:
        self.data += struct.pack(f"<{len(values)}q", *values)

    def text(self, text: str) -> None:
        data = text.replace("\0", "").encode()
        self.word(len(data))
        self.data += data + bytes(-len(data) % 8)

    def texts(self, texts: Sequence[str]) -> None:
        self.word(len(texts))
        for text in texts:
            self.text(text)


class _PlanWriter:
    """Writer of the plan of one variant."""

    def __init__(self, out: _Words, variant: Variant, weights: Weights) -> None:
        self.out, self.plan, self.weights, self.modules = out, variant.plan, weights, variant.modules
        self.kernels = {name: number for number, name in enumerate(dict.fromkeys(variant.kernels.values()))}
        self.names = variant.kernels
        found = dict.fromkeys(name for value in self.plan.inputs for name in _symbols(self.plan.types.get(value)))
        self.symbols = {name: number for number, name in enumerate(found)}

    def write(self) -> None:
        out, plan = self.out, self.plan
        out.texts(self.modules)
        out.texts(list(self.kernels))
        refused = refusal(plan)
        if refused:  # no inputs, outputs and kernels: nothing else is read
            out.words(0, 0, 0, 1, 0, 0)
            out.text(refused)
            return
        rest = self.out = _Words()  # dims name symbols, whose number comes first
        for values in (plan.inputs, plan.outputs):
            rest.word(len(values))
            for value in values:
                self._port(value)
        bodies = [((), plan, plan.fails)] if not plan.versions else [(v.guards, v.plan, v.fails) for v in plan.versions]
        unmet = [[(Guard(r.excess, 0, equal=False), r.reason) for r in body.requirements] for _, body, _ in bodies]
        rest.word(len(bodies) + sum(map(len, unmet)))
        for (guards, body, fails), failing in zip(bodies, unmet, strict=True):  # the first whose guards hold is taken
            for guard, reason in failing:
                self._version((*guards, guard), fails=True, reason=reason)
            self._version(guards, fails=fails or body.fails)
            if not (fails or body.fails):
                _VersionWriter(self, body, assign_buffers(body)).write()
        out.word(len(self.symbols))
        out.data += rest.data

    def _version(self, guards: Sequence[Guard], *, fails: bool, reason: str = "") -> None:
        """Write the conditions of a version; one that fails has a reason, or none is known, and no steps."""
        self.out.word(len(guards))
        for guard in guards:
            self.dim(guard.left)
            self.dim(guard.right)
            self.out.word(guard.equal)
        self.out.word(fails)
        self.out.text(reason)

    def dim(self, dim: Dim) -> None:
        """Write a dim: the number of its operations and those, or 0 and its value."""
        if isinstance(dim, int):
            self.out.words(0, dim)
            return
        operations = postfix(dim, self.symbols)
        self.out.word(len(operations))
        for operation in operations:
            self.out.words(*operation)

    def _port(self, value: str) -> None:
        kind, default = self.plan.type(value), self.plan.defaults.get(value)
        assert kind.dtype is not None
        assert kind.shape is not None
        self.out.text(value)
        self.out.words(kind.dtype.onnx, kind.dtype.numpy.itemsize, len(kind.shape))
        for dim in kind.shape:
            self.dim(dim)
            self.out.text("" if isinstance(dim, int) else str(dim))
        fixed = default is not None and kind.shape == default.array.shape
        self.out.word(self.weights.offset(default) if default is not None and fixed else -1)


def _symbols(kind: ValueType | None) -> list[str]:
    return sorted(symbols_of(kind)) if kind is not None else []


class _VersionWriter:
    """Writer of the steps of one version, which has one stage and no loops."""

    def __init__(self, whole: _PlanWriter, plan: ModelPlan, storage: Storage) -> None:
        self.whole, self.out, self.plan, self.storage = whole, whole.out, plan, storage
        self.bases = _FIRST + max(0, storage.bases - SCRATCH - 2)
        self.inputs = {value: self._input_base(value) for value in plan.inputs}
        shapes = {item.output: item for item in plan.items if isinstance(item, Shape)}
        read = [value for stage in storage.stages for value in (item.output for item in stage.numbers)]
        read += [root for value in plan.outputs if (root := storage.root(value)) in shapes]
        self.shapes = {value: shapes[value] for value in dict.fromkeys(read)}
        self.shape_numbers = {value: number for number, value in enumerate(self.shapes)}
        self.buffers: dict[str, tuple[Dim, int, int]] = {}
        for item in plan.items:
            for root in map(storage.root, native_results(item)):
                if root not in storage.shared and root not in storage.outputs:
                    self.buffers[root] = (nbytes(plan.type(root)), *storage.lifetime[root])
        self.numbers = {root: number for number, root in enumerate(self.buffers)}
        sizes = [(root, size, first, last) for root, (size, first, last) in self.buffers.items()]
        fixed = [Buffer(root, size, first, last) for root, size, first, last in sizes if isinstance(size, int)]
        self.placement = place(fixed) if len(fixed) == len(sizes) else None

    def _input_base(self, value: str) -> int:
        own = self.storage.base.get(value)
        if own is not None:
            return self._base(own)
        self.bases += 1  # no kernel reads it, but an output may be it
        return self.bases - 1

    def _base(self, own: int) -> int:
        """Return the number in C of a base of the storage: there are four of other kinds before those of arrays."""
        return _ARENA if own == SCRATCH + 1 else _FIRST + own - SCRATCH - 2

    def write(self) -> None:
        out, plan, storage = self.out, self.plan, self.storage
        out.word(self.bases)
        out.word(-1 if self.placement is None else self.placement.size)
        out.word(0 if self.placement is not None else len(self.buffers))
        for size, first, last in self.buffers.values() if self.placement is None else ():
            self.whole.dim(size)
            out.words(first, last)
        out.word(len(self.shapes))
        for item in self.shapes.values():
            kind = plan.type(item.output).dtype
            assert kind is not None
            out.words(kind.numpy.itemsize, len(item.dims))
            for dim in item.dims:
                self.whole.dim(dim)
        out.words(*self.inputs.values())
        for value in plan.outputs:
            root = storage.root(value)
            if storage.outputs.get(root) == value:
                out.words(self._base(storage.base[root]), _WEIGHTS, -1, 0, 0, 0, 0)
            else:
                out.word(0)
                self._pointer(value)
        pairs = [(plan.inputs.index(value), plan.outputs.index(output)) for value, output in shareable(storage)]
        out.word(len(pairs))
        for pair in pairs:
            out.words(*pair)
        steps = [item for item in plan.items if isinstance(item, Step)]
        out.word(len(steps))
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        out, dim = self.out, self.whole.dim
        out.word(self.whole.kernels[self.whole.names[step.kernel]])
        out.words(len(step.inputs), len(step.outputs), step.scratch != 0, len(step.when))
        for value in (*step.inputs, *step.outputs, *(value for value, _ in step.when)):
            self._pointer(value)
        out.word(sum(1 << number for number, (_, wanted) in enumerate(step.when) if wanted))
        dim(step.scratch)
        dim(step.threads if step.threads != 0 else UNKNOWN_WORK)
        out.word(len(step.dims))
        for one in step.dims:
            dim(one)
        out.word(len(step.only))
        for pair in step.only:
            for one in pair:
                dim(one)

    def _pointer(self, value: str) -> None:
        """Write the base of a value, the buffer or shape that it is in, its offset there, and its size."""
        storage, at = self.storage, self.storage.locate(value)
        part, offset = -1, at.offset
        if at.root in self.plan.constants:
            base, offset = _WEIGHTS, self.whole.weights.offset(self.plan.constants[at.root]) + at.offset
        elif at.root in self.shape_numbers:
            base, part = _SHAPES, self.shape_numbers[at.root]
        elif at.root in self.inputs:
            base = self.inputs[at.root]
        else:
            base = self._base(storage.base[at.root])
            if base == _ARENA:
                holder = storage.holder(at.root)
                if self.placement is None:
                    part = self.numbers[holder]
                else:
                    offset = self.placement.offsets[holder] + at.offset
        self.out.words(base, part)
        self.whole.dim(offset)
        constant = self.plan.constants.get(value)
        self.whole.dim(constant.array.nbytes if constant is not None else nbytes(self.plan.type(value)))
