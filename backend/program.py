"""Programs: compiled models that run.

A run binds the extents of the inputs, takes a frame (the memory of one run in progress), and goes through the stages of
the plan: each block of native steps and loops is one call into the runtime, what has no kernel runs from Python. What
is one block as a whole is remembered as a `Call` of the runtime, which takes arrays of the same sizes without a detour
through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine import symbolic
from ..engine.graph import DType, TensorType
from .control import run_control
from .fallback import Runner
from .interface import Interface, Port, deliver
from .kernel_graph import Control, Fallback, Kernel, Loop, ModelPlan, Step, Target, writes
from .link import LAYOUTS, Bound, Link, LinkedBlock, remember
from .loop_link import LinkedLoop
from .running import Launch, Run
from .storage import SCRATCH, nbytes

if TYPE_CHECKING:
    from ..engine.machine import Machine
    from .profile import Profile

__all__ = ["BoundRun", "Launch", "Port", "Program"]

Outputs = Mapping[str, Any] | Sequence[Any]


class Program:
    """A compiled model. `run` may be called from several threads at once.

    Attributes:
        plan: what is run.
        threads: how many threads a run uses.
        inputs, outputs: the interface, in the model's order.
        variants: the plans for all targets that the model was compiled for.
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

        The modules that these come from must stay loaded. `variants` are what `save` writes, this plan among them."""
        self.plan = plan
        self.variants = tuple(variants)
        self.threads = max(1, threads)
        self._interface = Interface(plan.inputs, plan.outputs, plan.types, plan.defaults)
        self.inputs, self.outputs = self._interface.inputs, self._interface.outputs
        self._link = Link(plan, addresses)
        self._frames: list[Any] = []
        self._calls: tuple[Any, ...] = ()  # the latest first
        self._hosts = {
            id(action): self._host(action, addresses)
            for stage in self._link.stages
            for action in stage.actions
            if not isinstance(action, LinkedBlock)
        }
        self._versions = [Program(v.plan, addresses, threads=threads) for v in plan.versions]
        self._chosen: dict[tuple[int, ...], Program] = {}

    def _host(self, item: Fallback | Control, addresses: Mapping[Kernel, int]) -> Callable[[Run], None]:
        """What Python does for an item without a kernel."""
        if isinstance(item, Fallback):
            runner = Runner(item.node)
            outputs = writes(item)
            operands = [v for v in item.node.inputs if v]

            def fall_back(run: Run) -> None:
                for value, found in zip(outputs, runner.run([run.get(v) for v in operands]), strict=True):
                    run.put(value, found)

            return fall_back
        bodies = [Program(body, addresses, threads=self.threads) for body in item.bodies]
        lifetime = self._link.storage.lifetime
        # The outputs of a body are fresh arrays; what loops give may be what they were given.
        own = item.op in ("If", "Branch")

        def control(run: Run) -> None:
            operands = [run.get(v) if v else None for v in item.inputs]
            captured = [[run.get(v) for v in values] for values in item.captures]
            calls = [partial(body.call, extents=run.extents) for body in bodies]
            found = run_control(item, operands, captured, calls)
            for value, result in zip(item.outputs, found, strict=False):
                if value and item.op == "Branch" and value in lifetime:
                    run.fill(value, result)
                elif value:
                    run.put(value, result, own=own)

        return control

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None, *, out: Outputs | None = None
    ) -> dict[str, Any]:
        """Runs the model on arrays by input name; the outputs (or those named in `outputs`) by name.

        Inputs are NumPy arrays, or tensors that export their memory by DLPack or the buffer protocol (those of PyTorch
        and JAX do). C-contiguous ones that begin at a multiple of 16 bytes are read where they are, others copied.

        Outputs are fresh arrays, or those given as `out`: a dict by name, or a sequence in the model's order, None
        standing for a fresh one. They have to be writable, C-contiguous and of the output's type and shape; the result
        has NumPy arrays of their memory. An array that is an input too is fine.

        Raises UserError for missing or unknown names, for arrays of another dtype, rank or size than declared, and for
        `out` that doesn't fit."""
        if outputs is None and out is None and type(inputs) is dict:
            for call in self._calls:
                found = call.run(inputs)
                if found is not None:
                    return found  # type: ignore[no-any-return]
        targets = self._interface.targets(out) if out is not None else None
        found = self.call(self._interface.values(inputs), out=targets)
        named = dict(zip(self.plan.outputs, found, strict=True))
        return self._interface.select(named, outputs)

    def call(
        self,
        values: Sequence[Any],
        extents: Mapping[str, int] | None = None,
        *,
        out: Sequence[NDArray[Any] | None] | None = None,
    ) -> list[Any]:
        """Like `run`, by position. `extents` are those known around a body."""
        if extents is None or not self.plan.symbols:
            for call in self._calls:
                targets = None if out is None or call.makes_all else tuple(out)
                found = call.call(list(values), targets)
                if found is not None:
                    return found if targets is not None else self._deliver(found, out)
        return self._deliver(self._execute(values, None, extents), out)

    def _deliver(self, results: list[Any], out: Sequence[NDArray[Any] | None] | None) -> list[Any]:
        """Results in the arrays that are given for them, if any."""
        if out is None:
            return results
        return [
            result if array is None else deliver(name, result, array)
            for name, result, array in zip(self.plan.outputs, results, out, strict=True)
        ]

    def bind(self, inputs: Mapping[str, Any], out: Outputs | None = None) -> BoundRun:
        """Runs the model once, and gives a function that runs it again on the same memory: what its arrays hold then.

        For callers who run a small model very often. Arguments and errors are those of `run`."""
        given, extents = self._interface.values(inputs), dict[str, int]()
        values = [spec.check(value, extents) for spec, value in zip(self._interface.specs, given, strict=True)]
        targets = self._interface.targets(out) if out is not None else None
        found = self.call(values, out=targets)
        return BoundRun(self, values, found)

    def profile(self, inputs: Mapping[str, Any], *, seconds: float = 1.0, machine: Machine | None = None) -> Profile:
        """Runs the model for about `seconds` and tells how long each step took, and how near it came to the machine's
        limits, which `machine` has (by default the profile that `rewrite calibrate` stored, or the shipped one).

        Raises UserError as `run` does."""
        from .profile import profile

        return profile(self, inputs, seconds=seconds, machine=machine)

    def record(self, inputs: Mapping[str, Any]) -> list[Launch]:
        """Runs the model once, as `run` does, and tells when each thread began and ended each step, in order."""
        launches: list[Launch] = []
        self._execute(self._interface.values(inputs), launches)
        return launches

    def _execute(
        self, values: Sequence[Any], record: list[Launch] | None, extents: Mapping[str, int] | None = None
    ) -> list[Any]:
        if self._versions:
            version = self._version(values, extents)
            found = version._execute(values, record, extents)
            self._calls = version._calls
            return found
        try:
            frame = self._frames.pop()
        except IndexError:
            from .runtime.executor import Frame

            frame = Frame(self._link.bases)
        try:
            run = Run(self._link, frame)
            run.record = record
            if extents is not None:
                run.extents.update({s: extents[s] for s in self.plan.symbols})
            for spec, value in zip(self._interface.specs, values, strict=True):
                run.take(spec.name, spec.check(value, run.extents))
            bounds = [self._run_stage(run, number) for number in range(len(self._link.stages))]
            if record is None:
                self._remember(run, bounds[0])
            return [self._output(run, value) for value in self.plan.outputs]
        finally:
            self._frames.append(frame)

    def _version(self, values: Sequence[Any], extents: Mapping[str, int] | None) -> Program:
        """The version for these inputs, found by their extents or remembered."""
        sizes = [extents[s] for s in self.plan.symbols] if extents is not None else []
        for spec, value in zip(self._interface.specs, values, strict=True):
            sizes += spec.sizes(value)
        key = tuple(sizes)
        found = self._chosen.get(key)
        if found is None:
            known = {s: extents[s] for s in self.plan.symbols} if extents is not None else {}
            for spec, value in zip(self._interface.specs, values, strict=True):
                spec.check(value, known)
            [found] = [
                program
                for version, program in zip(self.plan.versions, self._versions, strict=True)
                if all(
                    (symbolic.evaluate(g.left, known) == symbolic.evaluate(g.right, known)) == g.equal
                    for g in version.guards
                )
            ]
            remember(self._chosen, key, found)
        return found

    def _run_stage(self, run: Run, number: int) -> Bound:
        bound = self._link.bind(number, run.extents)
        layout, frame = bound.layout, run.frame
        run.layouts.append(layout)
        for base, size in self._memory(bound, number):
            frame.reserve(base, size)
        for made in bound.made:
            array = run.arrays[made.value] = made.fresh()
            if made.value != made.root:
                run.arrays[made.root] = array.reshape(made.root_shape)
            frame.set(made.base, array.__array_interface__["data"][0])
        for action, binding in zip(self._link.stages[number].actions, bound.bindings, strict=True):
            if not isinstance(action, LinkedBlock):
                if not binding or all(frame.flag(base, at) == wanted for base, at, wanted in binding):
                    self._run_host(run, action)
                continue
            if run.record is None:
                binding.run(frame, self.threads)
            else:
                for part, times in zip(action.parts, binding.time(frame, self.threads), strict=True):
                    items: Sequence[Step | Loop] = [part.item] if isinstance(part, LinkedLoop) else part[1]
                    spans = np.frombuffer(times).reshape(len(items), -1, 2)
                    run.record += [self._launch(run, s, t, number) for s, t in zip(items, spans, strict=True)]
            for part in action.parts:
                if isinstance(part, LinkedLoop) and part.item.is_open:
                    run.grown(part.item, frame.base(part.iterations))
        return bound

    def _memory(self, bound: Bound, number: int) -> list[tuple[int, int]]:
        """The memory that a stage needs, as (base, bytes)."""
        sizes = [(SCRATCH + 1 + number, bound.layout.placement.size), (SCRATCH, bound.layout.scratch * self.threads)]
        return [(base, size) for base, size in sizes if size]

    def _launch(self, run: Run, step: Step | Loop, spans: NDArray[np.float64], number: int) -> Launch:
        """A step of a recorded run, with the places of its buffers. Those of a loop are not told."""
        if isinstance(step, Loop):
            return Launch(step, spans, (), run.extents, self.plan)
        buffers = []
        for value in (*step.inputs, *step.outputs):
            address = self._link.offset(value, run.layouts[number], number, run.extents) + run.frame.base(
                self._link.base(value)
            )
            size = symbolic.evaluate(nbytes(self.plan.type(value)), run.extents)
            buffers.append((address, size, value in step.outputs))
        return Launch(step, spans, tuple(buffers), run.extents, self.plan)

    def _run_host(self, run: Run, item: Fallback | Control) -> None:
        start = time.monotonic()
        self._hosts[id(item)](run)
        if run.record is not None:
            spans = np.array([[start, time.monotonic()]])
            run.record.append(Launch(item, spans, (), run.extents, self.plan))

    def _output(self, run: Run, value: str) -> Any:
        if value in self.plan.inputs or value not in run.arrays:
            found = run.get(value)
            return np.array(found) if isinstance(found, np.ndarray) else found
        return run.arrays[value]

    def _remember(self, run: Run, bound: Bound) -> None:
        """Notes a run as a call of the runtime for inputs of the same sizes, if it is one block, and kernels write all
        outputs where they are wanted, or a loop stacks them that ends it; what follows on rare conditions is left to a
        run from Python. `bound` is that of the first stage."""
        from .runtime.executor import Call

        stages, plan = self._link.stages, self.plan
        stacked = self._stacked()
        made = {m.value: m for m in bound.made}
        if any(stage.actions for stage in stages[1:]) or plan.symbols:
            return
        if made.keys() | stacked.keys() != set(plan.outputs) or len(made) + len(stacked) != len(plan.outputs):
            return
        first = stages[0].actions[0] if stages[0].actions else None
        if not isinstance(first, LinkedBlock) or (first.is_open and not stacked):
            return
        if not all(isinstance(item, Control) and item.when for item in stages[0].actions[1:]):
            return
        base = self._link.storage.base
        inputs = []
        for port in self.inputs:
            if port.dtype is None or not _is_plain(port.dtype):
                return
            kind = port.dtype.numpy
            inputs.append((port.name, kind.kind, kind.itemsize, run.arrays[port.name].shape, base.get(port.name, 0)))
        if not all(port.dtype is not None and _is_plain(port.dtype) for port in self.outputs):
            return
        outputs = []
        for value in plan.outputs:
            if (m := made.get(value)) is not None:
                outputs.append((value, m.dtype.kind, m.dtype.itemsize, m.shape, m.base, m.dtype, m.store, 0))
                continue
            array = run.arrays[value]
            own = (array.dtype.kind, array.itemsize, array.shape[1:], self._link.base(value), array.dtype, None)
            outputs.append((value, *own, stacked[value]))
        block, *conditions = bound.bindings
        settings = (self._frames, self._link.bases, self.threads)
        call = Call(block, *settings, inputs, outputs, self._memory(bound, 0), bound, conditions)
        self._calls = (call, *self._calls)[:LAYOUTS]

    def _stacked(self) -> dict[str, int]:
        """The outputs that a loop stacks which is the last part of the first block, with the base that holds how many
        iterations there were; none if their lengths may be known before, and have to be compared."""
        actions = self._link.stages[0].actions
        last = actions[0].parts[-1] if len(actions) == 1 and isinstance(actions[0], LinkedBlock) else None
        if not isinstance(last, LinkedLoop) or not last.item.is_open or last.item.when:
            return {}
        shapes = [port.type.shape or () for port in self.inputs if isinstance(port.type, TensorType)]
        known = {name for shape in shapes for dim in shape for name in symbolic.symbols(dim)}
        made = [value for value in last.item.made if value]
        for value in made:
            shape = self.plan.type(value).shape
            name = symbolic.symbol_name(shape[0]) if shape else None
            if name is None or name in known:
                return {}
        return {value: last.iterations for value in made if value in self.plan.outputs}

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
        size = least = 0
        for number, stage in enumerate(self._link.stages):
            bound = stage.latest
            if bound is None:
                if stage.symbols:
                    return None
                bound = self._link.bind(number, {})
            size += bound.layout.placement.size
            least += bound.layout.placement.bound
        return size, least


def _is_plain(dtype: DType) -> bool:
    """Whether the runtime checks arrays of this type itself: NumPy's buffers tell it."""
    return dtype is not DType.BF16 and dtype.numpy.kind in "fiub"


class BoundRun:
    """A program with arrays for its inputs and outputs: calling it runs the program on what the inputs hold.

    Attributes:
        outputs: the arrays by name, written anew by each call.
    """

    def __init__(self, program: Program, values: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._program = program
        self._values = list(values)
        self._targets = tuple(outputs)
        self.outputs = dict(zip(program.plan.outputs, outputs, strict=True))

    def __call__(self) -> dict[str, Any]:
        """Runs; the outputs, in the same arrays each time. Not to be called by two threads at once."""
        self._program.call(self._values, out=self._targets)
        return self.outputs
