"""Programs: compiled models that run.

A run binds the extents of the inputs, takes a frame (the memory of one run in progress), and goes through the stages of
the plan: stretches of native steps are one call each into the runtime, what has no kernel runs from Python in between.
Layouts are kept for the extents seen last, so that a run with known extents plans nothing.
"""

from __future__ import annotations

import difflib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from ..engine.graph import DType, TensorType, ValueType
from ..errors import RewriteError, UserError
from .control import run_control
from .fallback import Runner
from .kernel_graph import ALL, Control, Fallback, Guarded, Kernel, ModelPlan, Shape, Step, Target, writes
from .storage import SCRATCH, Layout, Storage, aligned, is_aligned, lay_out, make_storage, nbytes, shape_value

if TYPE_CHECKING:
    from ..engine.machine import Machine
    from .profile import Profile

Array = NDArray[Any]
LAYOUTS = 16  # layouts kept for each stage: programs are run with few different extents


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program."""

    name: str
    type: ValueType

    @property
    def dtype(self) -> DType | None:
        """Its element type, None if unknown or no tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """Its shape, symbolic dims as text; None if unknown or no tensor."""
        shape = self.type.shape if isinstance(self.type, TensorType) else None
        return None if shape is None else tuple(d if isinstance(d, int) else str(d) for d in shape)


@dataclass(frozen=True, slots=True)
class Launch:
    """One step of a recorded run: of a kernel, or of a node that Python runs.

    `spans` [threads, 2] says when each thread began and ended it, in seconds of the monotonic clock (zeros: it took no
    part); `buffers` what a kernel reads and then writes, each as (address, bytes, whether it is written); `extents` the
    sizes of the run."""

    item: Step | Fallback | Control
    spans: NDArray[np.float64]
    buffers: tuple[tuple[int, int, bool], ...]
    extents: Mapping[str, int]
    plan: ModelPlan


@dataclass(slots=True)
class _Bound:
    """A stage's layout with the runtime's bindings of its walks."""

    layout: Layout
    bindings: list[Any]
    made: list[_Made]


@dataclass(frozen=True, slots=True)
class _Made:
    """An output of the model that a stage's kernels write straight into an array, which is root to other values."""

    value: str
    root: str
    base: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    root_shape: tuple[int, ...]


class _Stage:
    """What a stage does: walks of native steps, and in between functions of the run in progress."""

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self.symbols = symbols
        self.actions: list[tuple[Any, list[Step]] | Callable[[_Run], None]] = []
        self.hosts: list[Fallback | Control | None] = []  # what each action is; None: a walk
        self.outputs: list[str] = []  # roots that are made straight in an output array
        self.bound: OrderedDict[tuple[int, ...], _Bound] = OrderedDict()
        self.lock = threading.Lock()


class _Run:
    """One run in progress: extents, values that live in Python, and the frame."""

    __slots__ = ("arrays", "extents", "frame", "layouts", "program", "record")

    def __init__(self, program: Program, frame: Any) -> None:
        self.program = program
        self.frame = frame
        self.extents: dict[str, int] = {}
        self.arrays: dict[str, Any] = {}  # inputs, results of fallbacks, outputs made in place
        self.layouts: list[Layout] = []
        self.record: list[Launch] | None = None

    def get(self, value: str) -> Any:
        """A value as an array (of memory that the run may use again: to be copied if kept) or other object."""
        if value in self.arrays:
            return self.arrays[value]
        program = self.program
        constant = program.plan.constants.get(value)
        if constant is not None:
            return constant.array
        at = program.storage.locate(value)
        if at.root in program.numbers:
            whole = shape_value(program.plan, program.numbers[at.root], self.extents)
        elif at.root in self.arrays or at.root in program.plan.constants:
            whole = self.get(at.root)
        else:
            whole = None
        kind = program.plan.type(value)
        if whole is not None and at.root == value:
            return whole
        assert kind.dtype is not None
        assert kind.shape is not None
        shape = tuple(symbolic.evaluate(d, self.extents) for d in kind.shape)
        offset = symbolic.evaluate(at.offset, self.extents)
        dtype = kind.dtype.numpy
        if whole is not None:
            flat = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
            return (
                flat[offset : offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize].view(dtype).reshape(shape)
            )
        holder = program.storage.holder(at.root)
        if holder in self.arrays:  # an output array that is being made
            whole = self.arrays[holder]
            return np.ndarray(shape, dtype, whole.reshape(-1).view(np.uint8), offset)
        stage = program.storage.base[at.root] - SCRATCH - 1
        address = self.layouts[stage].offset[holder] + offset
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        return np.frombuffer(self.frame.memory(program.storage.base[at.root], address, size), dtype).reshape(shape)

    def put(self, value: str, found: Any, *, own: bool = False) -> None:
        """Notes a value made in Python, checks it against its type and learns the extents it tells.

        The run keeps an array as it is if it is its `own`: nobody else has it. Raises RewriteError if it isn't what was
        inferred."""
        kind = self.program.plan.types.get(value)
        if isinstance(found, np.ndarray) and isinstance(kind, TensorType):
            if kind.dtype is not None and kind.dtype is not DType.STRING and found.dtype != kind.dtype.numpy:
                found = found.astype(kind.dtype.numpy)  # some reference implementations compute in another precision
            if kind.shape is not None:
                self._learn(value, kind.shape, found.shape)
            base = self.program.storage.base.get(value)
            if not own or (base is not None and not is_aligned(found)):
                fresh = aligned(found.shape, found.dtype) if found.dtype.kind != "O" else np.empty(found.shape, object)
                fresh[...] = found
                found = fresh
            if base is not None:
                self.frame.set(base, found.__array_interface__["data"][0])
        elif isinstance(found, list):
            found = [np.array(v) if isinstance(v, np.ndarray) else v for v in found]
        self.arrays[value] = found

    def fill(self, value: str, found: Any) -> None:
        """Copies an array made in Python into the buffer that steps make this value in on other conditions.

        Raises RewriteError if it isn't what was inferred."""
        import ctypes

        target = self.get(value)
        if not isinstance(found, np.ndarray) or found.dtype != target.dtype or found.shape != target.shape:
            raise RewriteError(f"value {value} is not the {target.dtype}{list(target.shape)} that was inferred")
        found = np.ascontiguousarray(found)
        to, source = target.__array_interface__["data"][0], found.__array_interface__["data"][0]
        ctypes.memmove(to, source, found.nbytes)

    def _learn(self, value: str, shape: Sequence[symbolic.Dim], actual: Sequence[int]) -> None:
        if len(shape) != len(actual):
            raise RewriteError(f"value {value} has rank {len(actual)}, inferred was {len(shape)}")
        for dim, extent in zip(shape, actual, strict=True):
            if dim == extent:
                continue
            name = symbolic.symbol_name(dim)
            if name is not None and name not in self.extents:
                self.extents[name] = extent
            elif symbolic.symbols(dim) <= self.extents.keys() and symbolic.evaluate(dim, self.extents) != extent:
                raise RewriteError(f"value {value} has shape {tuple(actual)}, inferred was {tuple(map(str, shape))}")


class Program:
    """A compiled model. `run` may be called from several threads at once.

    Attributes:
        plan: what is run.
        threads: how many threads a run uses.
        inputs, outputs: the interface, in the model's order.
    """

    def __init__(
        self,
        plan: ModelPlan,
        addresses: Mapping[Kernel, int],
        *,
        threads: int = 1,
        variants: Sequence[tuple[Target, ModelPlan]] = (),
    ) -> None:
        """Links a plan with its kernels: `addresses` has the address of each one's function.

        The modules that these come from must stay loaded. `variants` are what `save` writes: the plans for all targets
        that the model was compiled for, this one's among them."""
        self.plan = plan
        self.variants = tuple(variants)
        self.threads = max(1, threads)
        self.inputs = tuple(Port(v, plan.types.get(v, TensorType())) for v in plan.inputs)
        self.outputs = tuple(Port(v, plan.types.get(v, TensorType())) for v in plan.outputs)
        self.numbers = {item.output: item for item in plan.items if isinstance(item, Shape)}
        self.storage: Storage = make_storage(plan)
        self._addresses = addresses
        self._weights: dict[str, Array] = {}
        self._frames: list[Any] = []
        self._specs = [_InputSpec(port, self.storage.base.get(port.name)) for port in self.inputs]
        self._names = frozenset(plan.inputs)
        self._stages = [self._make_stage(number) for number in range(len(self.storage.stages))]
        self._versions = [Program(v.plan, addresses, threads=threads) for v in plan.versions]
        self._chosen: OrderedDict[tuple[int, ...], Program] = OrderedDict()
        self._choosing = threading.Lock()

    # --- making -----------------------------------------------------------------------------------------------------

    def _make_stage(self, number: int) -> _Stage:
        planned = self.storage.stages[number]
        stage = _Stage(planned.symbols)
        steps: list[Step] = []

        def flush() -> None:
            if steps:
                stage.actions.append((self._walk(steps), list(steps)))
                stage.hosts.append(None)
                steps.clear()

        for item in planned.items:
            if isinstance(item, Step):
                steps.append(item)
                stage.outputs += [v for v in item.outputs if v in self.storage.outputs and v not in stage.outputs]
            elif isinstance(item, Fallback | Control):
                flush()
                stage.actions.append(self._host(item))
                stage.hosts.append(item)
        flush()
        return stage

    def _walk(self, steps: Sequence[Step]) -> Any:
        from .runtime.executor import Walk

        rows, bases = [], []
        groups: dict[Guarded, int] = {(): 0}
        for step in steps:
            pointers = [*(self._base(v) for v in (*step.inputs, *step.outputs))]
            if step.scratch != 0:
                pointers.append(SCRATCH)
            pointers += [self._base(v) for v, _ in step.when]
            bases += pointers
            address = self._addresses[step.kernel]
            group = groups.setdefault(step.when, len(groups))
            rows.append((address, len(pointers), len(step.dims), group, [w for _, w in step.when]))
        return Walk(rows, bases)

    def _base(self, value: str) -> int:
        return self.storage.base.get(self.storage.locate(value).root, 0)

    def _host(self, item: Fallback | Control) -> Callable[[_Run], None]:
        if isinstance(item, Fallback):
            runner = Runner(item.node)
            outputs = writes(item)
            operands = [v for v in item.node.inputs if v]

            def fall_back(run: _Run) -> None:
                for value, found in zip(outputs, runner.run([run.get(v) for v in operands]), strict=True):
                    run.put(value, found)

            return fall_back
        bodies = [Program(body, self._addresses, threads=self.threads) for body in item.bodies]

        own = item.op in (
            "If",
            "Branch",
        )  # the outputs of a body are fresh arrays; what loops give may be what they were given

        def control(run: _Run) -> None:
            operands = [run.get(v) if v else None for v in item.inputs]
            captured = [[run.get(v) for v in values] for values in item.captures]
            calls = [partial(body.call, extents=run.extents) for body in bodies]
            found = run_control(item, operands, captured, calls)
            for value, result in zip(item.outputs, found, strict=False):
                if value and item.op == "Branch" and self.storage.lifetime.get(value) is not None:
                    run.fill(value, result)
                elif value:
                    run.put(value, result, own=own)

        return control

    def _bind(self, number: int, extents: Mapping[str, int]) -> _Bound:
        """The layout of a stage and its bindings for these extents, made or remembered."""
        from .runtime.executor import Binding

        stage = self._stages[number]
        key = tuple([extents[s] for s in stage.symbols])
        found = stage.bound.get(key)
        if found is not None:
            if len(stage.bound) > 1:
                with stage.lock:
                    if key in stage.bound:
                        stage.bound.move_to_end(key)
            return found
        layout = lay_out(self.storage, number, extents)
        bindings: list[Any] = []
        for action, host in zip(stage.actions, stage.hosts, strict=True):
            if not isinstance(action, tuple):
                guards = host.when if isinstance(host, Control) else ()
                bindings.append([(self._base(v), self._offset(v, layout, number, extents), w) for v, w in guards])
                continue
            walk, steps = action
            offsets: list[int] = []
            dims: list[int] = []
            threads: list[int] = []
            for step in steps:
                offsets += [self._offset(v, layout, number, extents) for v in (*step.inputs, *step.outputs)]
                if step.scratch != 0:
                    offsets.append(0)
                offsets += [self._offset(v, layout, number, extents) for v, _ in step.when]
                dims += [symbolic.evaluate(d, extents) for d in step.dims]
                full = any(symbolic.evaluate(nbytes(self.plan.type(v)), extents) > 0 for v in step.outputs)
                threads.append(min(step.most_threads(extents), ALL) if full else 0)
            bindings.append(Binding(walk, offsets, dims, threads))
        found = _Bound(layout, bindings, [self._made(root, extents) for root in stage.outputs])
        with stage.lock:
            stage.bound[key] = found
            while len(stage.bound) > LAYOUTS:
                stage.bound.popitem(last=False)
        return found

    def _made(self, root: str, extents: Mapping[str, int]) -> _Made:
        value = self.storage.outputs[root]
        kind = self.plan.type(value)
        assert kind.shape is not None
        assert kind.dtype is not None
        shape = tuple([symbolic.evaluate(d, extents) for d in kind.shape])
        own = tuple([symbolic.evaluate(d, extents) for d in self.plan.type(root).shape or ()])
        return _Made(value, root, self.storage.base[root], kind.dtype.numpy, shape, own)

    def _offset(self, value: str, layout: Layout, number: int, extents: Mapping[str, int]) -> int:
        at = self.storage.locate(value)
        offset = symbolic.evaluate(at.offset, extents)
        if at.root in self.plan.constants:
            return int(self._weight(at.root).__array_interface__["data"][0]) + offset
        if at.root in layout.shapes:
            return int(layout.shapes[at.root].__array_interface__["data"][0]) + offset
        base = self.storage.base[at.root]
        if SCRATCH < base <= SCRATCH + len(self._stages):
            holder = self.storage.holder(at.root)
            own = base - SCRATCH - 1
            if own != number:  # made by an earlier stage, whose layout hangs on its own extents
                layout = self._bind(own, extents).layout
            return layout.offset[holder] + offset
        return offset

    def _weight(self, name: str) -> Array:
        """A constant where kernels can read it."""
        if name not in self._weights:
            array = self.plan.constants[name].array
            mapped = isinstance(array.base, np.memmap)  # from a bundle: laid out for kernels, with slack after each
            if not mapped and not is_aligned(array):
                copy = aligned(array.shape, array.dtype)
                copy[...] = array
                array = copy
            self._weights[name] = array
        return self._weights[name]

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Runs the model on arrays by input name; the outputs (or those named) by name, in fresh arrays.

        Raises UserError for missing or unknown names, and for arrays of another dtype, rank or size than declared."""
        if inputs.keys() != self._names:
            inputs = self._completed(inputs)
        found = self.call([inputs[port.name] for port in self.inputs])
        named = dict(zip(self.plan.outputs, found, strict=True))
        if outputs is None:
            return named
        for name in outputs:
            if name not in named:
                raise UserError(f"the model has no output {name!r}", hint=_did_you_mean(name, self.plan.outputs))
        return {name: named[name] for name in outputs}

    def call(self, values: Sequence[Any], extents: Mapping[str, int] | None = None) -> list[Any]:
        """Like `run`, by position. `extents` are those known around a body."""
        return self._execute(values, None, extents)

    def profile(self, inputs: Mapping[str, Any], *, seconds: float = 1.0, machine: Machine | None = None) -> Profile:
        """Runs the model for about `seconds` and tells how long each step took, and how near it came to the machine's
        limits, which `machine` has (by default the profile that `rewrite calibrate` stored, or the shipped one).

        Raises UserError as `run` does."""
        from .profile import profile

        return profile(self, inputs, seconds=seconds, machine=machine)

    def record(self, inputs: Mapping[str, Any]) -> list[Launch]:
        """Runs the model once, as `run` does, and tells when each thread began and ended each step, in order."""
        if inputs.keys() != self._names:
            inputs = self._completed(inputs)
        launches: list[Launch] = []
        self._execute([inputs[port.name] for port in self.inputs], launches)
        return launches

    def _execute(
        self, values: Sequence[Any], record: list[Launch] | None, extents: Mapping[str, int] | None = None
    ) -> list[Any]:
        if self._versions:
            return self._version(values, extents)._execute(values, record, extents)
        try:
            frame = self._frames.pop()
        except IndexError:
            from .runtime.executor import Frame

            frame = Frame(self.storage.bases)
        try:
            run = _Run(self, frame)
            run.record = record
            if extents is not None:
                run.extents.update({s: extents[s] for s in self.plan.symbols})
            for spec, value in zip(self._specs, values, strict=True):
                spec.take(run, value)
            for number, stage in enumerate(self._stages):
                self._run_stage(run, number, stage)
            return [self._output(run, value) for value in self.plan.outputs]
        finally:
            self._frames.append(frame)

    def _version(self, values: Sequence[Any], extents: Mapping[str, int] | None) -> Program:
        """The version for these inputs, found by their extents or remembered."""
        sizes = [extents[s] for s in self.plan.symbols] if extents is not None else []
        for spec, value in zip(self._specs, values, strict=True):
            sizes += spec.sizes(value)
        key = tuple(sizes)
        found = self._chosen.get(key)
        if found is None:
            known = {s: extents[s] for s in self.plan.symbols} if extents is not None else {}
            for spec, value in zip(self._specs, values, strict=True):
                spec.check(value, known)
            [found] = [
                program
                for version, program in zip(self.plan.versions, self._versions, strict=True)
                if all(
                    (symbolic.evaluate(g.left, known) == symbolic.evaluate(g.right, known)) == g.equal
                    for g in version.guards
                )
            ]
            with self._choosing:
                self._chosen[key] = found
                while len(self._chosen) > LAYOUTS:
                    self._chosen.popitem(last=False)
        return found

    def _run_stage(self, run: _Run, number: int, stage: _Stage) -> None:
        bound = self._bind(number, run.extents)
        layout, frame = bound.layout, run.frame
        run.layouts.append(layout)
        if layout.placement.size:
            frame.reserve(SCRATCH + 1 + number, layout.placement.size)
        if layout.scratch:
            frame.reserve(SCRATCH, layout.scratch * self.threads)
        for made in bound.made:
            array = run.arrays[made.value] = aligned(made.shape, made.dtype)
            if made.value != made.root:
                run.arrays[made.root] = array.reshape(made.root_shape)
            frame.set(made.base, array.__array_interface__["data"][0])
        for action, binding, host in zip(stage.actions, bound.bindings, stage.hosts, strict=True):
            if not isinstance(action, tuple):
                if not binding or all(frame.flag(base, at) == wanted for base, at, wanted in binding):
                    self._run_host(run, action, host)
            elif run.record is None:
                action[0].run(binding, frame, self.threads)
            else:
                times = action[0].run(binding, frame, self.threads, True)
                spans = np.frombuffer(times).reshape(len(action[1]), -1, 2)
                run.record += [self._launch(run, s, t, number) for s, t in zip(action[1], spans, strict=True)]

    def _launch(self, run: _Run, step: Step, spans: NDArray[np.float64], number: int) -> Launch:
        """A step of a recorded run, with the places of its buffers."""
        buffers = []
        for value in (*step.inputs, *step.outputs):
            address = self._offset(value, run.layouts[number], number, run.extents) + run.frame.base(self._base(value))
            size = symbolic.evaluate(nbytes(self.plan.type(value)), run.extents)
            buffers.append((address, size, value in step.outputs))
        return Launch(step, spans, tuple(buffers), run.extents, self.plan)

    def _run_host(self, run: _Run, action: Callable[[_Run], None], item: Fallback | Control | None) -> None:
        if run.record is None:
            action(run)
            return
        import time

        assert item is not None
        start = time.monotonic()
        action(run)
        spans = np.array([[start, time.monotonic()]])
        run.record.append(Launch(item, spans, (), run.extents, self.plan))

    def _output(self, run: _Run, value: str) -> Any:
        if value in self.plan.inputs or value not in run.arrays:
            found = run.get(value)
            return np.array(found) if isinstance(found, np.ndarray) else found
        return run.arrays[value]

    def _completed(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs with the model's own values for those that need not be given; UserError for wrong names."""
        found = {**{name: constant.array for name, constant in self.plan.defaults.items()}, **inputs}
        if found.keys() != self._names:
            self._wrong_names(found)
        return found

    def _wrong_names(self, inputs: Mapping[str, Any]) -> None:
        for name in inputs:
            if name not in self._names:
                raise UserError(f"the model has no input {name!r}", hint=_did_you_mean(name, self.plan.inputs))
        missing = [name for name in self.plan.inputs if name not in inputs]
        raise UserError(
            f"no value given for input{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}",
            hint="The model's inputs: " + ", ".join(f"{p.name}: {p.type}" for p in self.inputs),
        )

    def save(self, path: Path | str) -> Path:
        """Writes the program as a bundle, for all targets that it was compiled for; its path.

        Raises UserError if something else is there, or it can't be written."""
        from .bundle_write import save

        return save(self.variants, path, threads=self.threads)

    def fallbacks(self) -> dict[str, int]:
        """The operators that run without a native kernel, and how many nodes of each there are."""
        return self.plan.fallbacks()

    def memory(self) -> tuple[int, int] | None:
        """The arena's bytes and the least possible, for the extents last used; None before the first run of a model
        with symbolic dims."""
        size = bound = 0
        for number, stage in enumerate(self._stages):
            if not stage.bound and not stage.symbols:
                self._bind(number, {})
            if not stage.bound:
                return None
            placement = next(reversed(stage.bound.values())).layout.placement
            size += placement.size
            bound += placement.bound
        return size, bound


class _InputSpec:
    """The check of one input, and its way into a run."""

    def __init__(self, port: Port, base: int | None) -> None:
        self.name = port.name
        self.base = base
        self.tensor = port.type if isinstance(port.type, TensorType) else None
        self.dtype = port.dtype.numpy if port.dtype is not None else None
        shape = self.tensor.shape if self.tensor is not None else None
        self.rank = None if shape is None else len(shape)
        self.fixed = [] if shape is None else [(i, d) for i, d in enumerate(shape) if isinstance(d, int)]
        self.free = [] if shape is None else [(i, d, symbolic.symbol_name(d)) for i, d in enumerate(shape)
                                              if not isinstance(d, int)]  # fmt: skip

    def sizes(self, value: Any) -> list[int]:
        """The extents of an input that may vary, none if its rank is wrong."""
        if not self.free:
            return []
        shape = np.shape(value)
        return [shape[axis] for axis, _, _ in self.free] if len(shape) == self.rank else []

    def take(self, run: _Run, value: Any) -> None:
        """Checks a value, learns the extents it tells, and puts its address into the frame.

        Raises UserError for a wrong dtype, rank or size."""
        array = self.check(value, run.extents)
        run.arrays[self.name] = array
        if self.base is not None:
            if is_aligned(array):
                run.frame.set(self.base, array.__array_interface__["data"][0])
            elif array.nbytes:
                array = np.ascontiguousarray(array)
                run.frame.copy_in(self.base, array.__array_interface__["data"][0], array.nbytes)

    def check(self, value: Any, extents: dict[str, int]) -> Any:
        """The value as an array if the input is a tensor; adds the extents it tells.

        Raises UserError for a wrong dtype, rank or size."""
        if self.tensor is None or (self.dtype is None and self.rank is None):
            return value
        array = np.asarray(value)
        if (
            self.dtype is not None
            and array.dtype != self.dtype
            and not (self.dtype.kind == "O" and array.dtype.kind in "US")
        ):
            raise UserError(
                f"input {self.name!r} has dtype {array.dtype}, the model wants {self.dtype}", hint=self._want()
            )
        shape = array.shape
        if self.rank is not None and len(shape) != self.rank:
            raise UserError(
                f"input {self.name!r} has rank {len(shape)}, the model wants {self.rank}", hint=self._want()
            )
        for axis, extent in self.fixed:
            if shape[axis] != extent:
                raise UserError(
                    f"dim {axis} of input {self.name!r} is {shape[axis]}, the model wants {extent}", hint=self._want()
                )
        for axis, dim, name in self.free:
            if name is not None:
                if extents.setdefault(name, shape[axis]) != shape[axis]:
                    raise UserError(
                        f"dim {axis} of input {self.name!r} is {shape[axis]}, but {name} is {extents[name]} by an "
                        "earlier input",
                        hint=self._want(),
                    )
            elif symbolic.symbols(dim) <= extents.keys() and symbolic.evaluate(dim, extents) != shape[axis]:
                raise UserError(
                    f"dim {axis} of input {self.name!r} is {shape[axis]}, the model wants {dim} = "
                    f"{symbolic.evaluate(dim, extents)}",
                    hint=self._want(),
                )
        return array

    def _want(self) -> str:
        return f"The model declares {self.name}: {self.tensor}."


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else "It has: " + ", ".join(map(repr, known))
