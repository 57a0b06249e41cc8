"""Programs: compiled models that run.

A run binds the extents of the inputs, takes a frame (the memory of one run in progress), and runs the stages of the
plan. Each block of native steps and loops is one call into the runtime; items without a kernel run from Python. A plan
that kernels do alone becomes a `Call` of the runtime, which handles arrays of the same sizes without Python.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, symbols_of
from ...errors import UserError, naming_packages
from ...system.short_text import listed, plural
from ..ir.arrays import address
from ..ir.dataflow import writes
from ..ir.kernel import Kernel
from ..ir.kernel_graph import Control, Fallback, Loop, Measure, ModelPlan, Step
from ..ir.target import Target
from ..memory.arena import PlacedBuffer
from ..memory.buffer_assignment import SCRATCH, Storage, assign_buffers, nbytes, shareable
from .fallback import Runner, run_control
from .interface import Interface, Port, deliver
from .later_stages import LaterStages, later_stages
from .link import LAYOUTS, Bound, Check, Launch, Link, LinkedLoop, Position, Run, add_bounded
from .native import executor as native
from .row_maps import split_maps, with_maps

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ...engine.cost.machine import Machine
    from ...pages.page import Page
    from .profile import Profile

__all__ = ["BoundRun", "Launch", "Port", "Program"]

Outputs = Mapping[str, Any] | Sequence[Any]
Variants = Sequence[tuple[Target, ModelPlan]]


class Program:
    """A compiled model. `run` may be called from several threads at once.

    Attributes:
        plan: the plan that runs.
        threads: the number of threads of a run.
        inputs: names, types and shapes of the inputs, in the model's order.
        outputs: the same of the outputs.
        variants: the plans for all targets that the model was compiled for.
    """

    def __init__(
        self,
        plan: ModelPlan,
        storage: Storage,
        addresses: Mapping[Kernel, int],
        *,
        threads: int = 1,
        variants: Variants = (),
        save: Callable[..., Path] | None = None,
        check: Check | None = None,
    ) -> None:
        """Link a plan with its kernels: `addresses` has the address of each kernel's function.

        The modules that these come from must stay loaded. `save(variants, path, threads=...)` writes a bundle; it
        belongs to a room above this one. `check` sees each stage that is laid out for new sizes."""
        self.plan, self.variants, self.threads = plan, tuple(variants), max(1, threads)
        self._save = save
        self._interface = Interface(plan)
        self.inputs, self.outputs = self._interface.inputs, self._interface.outputs
        self._link = Link(plan, storage, addresses, check=check)
        self._frames: list[Any] = []
        self._calls: tuple[Any, ...] = ()  # the latest first
        self._awaited: Future[None] | None = None

        def inner(plans: Sequence[ModelPlan], storages: Sequence[Storage]) -> list[Program]:
            pairs = zip(plans, storages, strict=True)
            return [Program(p, s, addresses, threads=threads, check=check) for p, s in pairs]

        self._hosts: dict[int, Callable[[Run], None]] = {}
        for number, item in enumerate(plan.items):
            if isinstance(item, Fallback):
                self._hosts[id(item)] = partial(
                    _fall_back, item, Runner(item.node, plan.types, self.threads, plan.constants)
                )
            elif isinstance(item, Control):
                self._hosts[id(item)] = partial(_control, item, inner(item.bodies, storage.bodies[number]))
        self._versions = inner([version.plan for version in plan.versions], storage.versions)
        self._chosen: dict[tuple[int, ...], Program] = {}
        self._maps = split_maps(plan)
        if self._maps is not None:
            without = self._maps[0]
            storage = assign_buffers(without)
            self._without_maps = Program(without, storage, addresses, threads=threads, check=check)

    def __repr__(self) -> str:
        names = [listed(port.name for port in ports) for ports in (self.inputs, self.outputs)]
        kernels, threads = plural(len(self.plan.kernels), "kernel"), plural(self.threads, "thread")
        targets = ", ".join(target.isa for target, _ in self.variants)
        return f"<Program {' → '.join(names)}: {kernels}{f' for {targets}' if targets else ''}, {threads}>"

    def _repr_html_(self) -> str:
        from ...pages import short_tables  # only notebooks need it

        rows = [(kind, p.name, p.type) for kind in ("inputs", "outputs") for p in getattr(self, kind)]
        return short_tables.table(repr(self).strip("<>"), ("", "name", "type"), rows, "`.show(inputs)` measures it")

    def page(self, inputs: Mapping[str, Any], *, seconds: float = 1.0) -> Page:
        """Run the model for about `seconds`; return a page of its kernels over time, the roofline and the arena."""
        from ...pages.page import make_page

        return make_page("report", self.plan.name, self.pictures(self.profile(inputs, seconds=seconds)))

    def pictures(self, profile: Profile) -> dict[str, Any]:
        """Return what a report shows of a profiled run: kernels, timeline, memory (docs/json.md)."""
        from . import run_data  # it imports the cost model, which running does not need

        ran = self.latest
        size, bound = ran.memory() or (0, 0)
        return {
            "profile": run_data.profile_data(profile),
            "timeline": run_data.timeline(profile),
            "memory": run_data.memory_data(ran.plan, ran.buffers(), size, bound),
        }

    def show(self, inputs: Mapping[str, Any], *, seconds: float = 1.0) -> None:
        """Measure the program and show the page in the notebook, or in the browser."""
        self.page(inputs, seconds=seconds).show()

    def wait_for(self, checked: Future[None]) -> None:
        """Have the first run wait for a check of the weights, whose error it raises."""
        self._awaited = checked
        if self._maps is not None:
            self._without_maps.wait_for(checked)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None, *, out: Outputs | None = None
    ) -> dict[str, Any]:
        """Run the model on arrays by input name; return the outputs (or those named in `outputs`) by name.

        Inputs are NumPy arrays, or tensors that export their memory by DLPack or the buffer protocol (those of PyTorch
        and JAX do). C-contiguous ones that begin at a multiple of 16 bytes are read in place, others are copied.

        Outputs are fresh arrays, or those in `out`: a dict by name, or a sequence in the model's order, where None
        stands for a fresh one. They must be writable, C-contiguous and of the output's type and shape; the result has
        NumPy arrays of their memory. An array may be an input too; it is updated in place where no step reads it later.

        Raises UserError for missing or unknown names, for arrays of another dtype, rank or size than declared, and for
        unsuitable arrays in `out`."""
        if outputs is None and out is None and self._maps is not None:
            return with_maps(self.plan.outputs, self._without_maps.run(inputs), self._maps[1])
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
        """Run by position instead of name. `extents` are those known around a body."""
        for call in self._calls if extents is None or not self.plan.symbols else ():
            targets = None if out is None or call.makes_all else tuple(out)
            found = call.call(list(values), targets)
            if found is not None:
                return found if targets is not None else self._deliver(found, out)
        return self._deliver(self._execute(values, None, extents or {}), out)

    def _deliver(self, results: list[Any], out: Sequence[NDArray[Any] | None] | None) -> list[Any]:
        """Copy results to the arrays given for them, if any."""
        if out is None:
            return results
        return [
            result if array is None else deliver(name, result, array)
            for name, result, array in zip(self.plan.outputs, results, out, strict=True)
        ]

    def bind(self, inputs: Mapping[str, Any], out: Outputs | None = None) -> BoundRun:
        """Run the model once; return a function that runs it again on the current contents of the same arrays.

        For callers that run a small model very often. Arguments and errors are those of `run`."""
        given, extents = self._interface.values(inputs), dict[str, int]()
        values = [spec.check(value, extents) for spec, value in zip(self._interface.specs, given, strict=True)]
        targets = self._interface.targets(out) if out is not None else None
        found = self.call(values, out=targets)
        return BoundRun(self, values, found)

    def on_tensors(
        self, weights: Sequence[tuple[Any, ...]], inputs: Sequence[tuple[Any, ...]], wrap: Callable[[Any], Any]
    ) -> Callable[[Sequence[Any]], list[Any] | None]:
        """Return a function that runs the program on a list of PyTorch's tensors: `TensorCall` of the executor.

        It returns None for sizes that no run had, for other weights, and for programs with items between kernels."""
        found: Callable[[Sequence[Any]], list[Any] | None] = native.TensorCall(self, weights, inputs, wrap).run
        return found

    def profile(self, inputs: Mapping[str, Any], *, seconds: float = 1.0, machine: Machine | None = None) -> Profile:
        """Run the model for about `seconds`; return the time of each step, compared with the limits of the machine.

        `machine` is by default the profile that `rewrite calibrate` stored, or the shipped one. Raises UserError as
        `run` does."""
        with naming_packages("a profile"):
            from .profile import profile  # it imports the cost model, which running does not need

        return profile(partial(self.record, inputs), self.threads, seconds=seconds, machine=machine)

    def record(self, inputs: Mapping[str, Any]) -> list[Launch]:
        """Run the model once; return when each thread began and ended each step, in order."""
        launches: list[Launch] = []
        self._execute(self._interface.values(inputs), launches, {})
        return launches

    def _execute(self, values: Sequence[Any], record: list[Launch] | None, around: Mapping[str, int]) -> list[Any]:
        if self._awaited is not None:
            self._awaited.result()
        known = {s: around[s] for s in self.plan.symbols}
        if self._versions:
            version = self._version(values, known)
            found = version._execute(values, record, around)
            self._calls = version._calls
            return found
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = native.Frame(self._link.bases)
        try:
            run = Run(self._link, frame, known, record)
            for spec, value in zip(self._interface.specs, values, strict=True):
                run.take(spec.name, spec.check(value, run.extents))
            given = dict(run.extents)
            bounds = [self._run_stage(run, number) for number in range(len(self._link.stages))]
            if record is None:
                self._cache_call(run, bounds[0], given)
            return [self._output(run, value) for value in self.plan.outputs]
        finally:
            self._frames.append(frame)

    def _version(self, values: Sequence[Any], known: dict[str, int]) -> Program:
        """Return the version for the extents of these inputs and those known around, from the cache if possible."""
        specs = self._interface.specs
        sizes = (spec.sizes(value) for spec, value in zip(specs, values, strict=True))
        key = (*known.values(), *itertools.chain(*sizes))
        found = self._chosen.get(key)
        if found is None:
            for spec, value in zip(specs, values, strict=True):
                spec.check(value, known)
            pairs = zip(self.plan.versions, self._versions, strict=True)
            [found] = [program for version, program in pairs if all(guard.holds(known) for guard in version.guards)]
            add_bounded(self._chosen, key, found)
        return found

    def _run_stage(self, run: Run, number: int) -> Bound:
        bound = self._link.bind(number, run.extents)
        frame = run.frame
        run.layouts.append(bound.layout)
        for base, size in self._memory(bound, number):
            frame.reserve(base, size)
        for output in bound.outputs:
            array = run.arrays[output.value] = output.fresh()
            if output.value != output.root:
                run.arrays[output.root] = array.view(output.root_dtype).reshape(output.root_shape)
            frame.set(output.base, address(array))
        for action, binding in zip(self._link.stages[number].actions, bound.bindings, strict=True):
            if isinstance(action, Measure):
                run.measure(action, *binding)
                continue
            if not isinstance(action, list):
                if all(frame.flag(base, at) == wanted for base, at, wanted in binding):
                    self._run_host(run, action)
                continue
            if run.record is None:
                binding.run(frame, self.threads)
            else:
                for part, times in zip(action, binding.time(frame, self.threads), strict=True):
                    items: Sequence[Step | Loop] = [part.item] if isinstance(part, LinkedLoop) else part[1]
                    spans = np.frombuffer(times).reshape(len(items), -1, 2)
                    run.record += [self._recorded_launch(run, s, t, number) for s, t in zip(items, spans, strict=True)]
            for part in action:
                if isinstance(part, LinkedLoop) and part.item.is_open:
                    run.grown(part.item, frame.base(part.iterations))
        for conditions, error in bound.refusals:
            if all(frame.flag(base, at) == wanted for base, at, wanted in conditions):
                raise UserError(error.message, hint=error.hint)
        return bound

    def _memory(self, bound: Bound, number: int) -> list[tuple[int, int]]:
        """Return the memory that a stage needs, as (base, bytes)."""
        return [(SCRATCH + 1 + number, bound.layout.placement.size), (SCRATCH, bound.layout.scratch * self.threads)]

    def _recorded_launch(self, run: Run, step: Step | Loop, spans: NDArray[np.float64], number: int) -> Launch:
        """Return a step of a recorded run with the addresses of its buffers, except for a loop."""
        at, buffers = Position(self._link, number, run.layouts[number], run.extents), []
        for value in (*step.inputs, *step.outputs) if isinstance(step, Step) else ():
            base, offset = at.pointer(value)
            size = symbolic.evaluate(nbytes(self.plan.type(value)), run.extents)
            buffers.append((offset + run.frame.base(base), size, value in step.outputs))
        return Launch(step, spans, tuple(buffers), run.extents, self.plan)

    def _run_host(self, run: Run, item: Fallback | Control) -> None:
        start = time.monotonic()
        self._hosts[id(item)](run)
        if run.record is not None:
            spans = np.array([[start, time.monotonic()]])
            run.record.append(Launch(item, spans, (), run.extents, self.plan))

    def _output(self, run: Run, value: str) -> Any:
        found = run.get(value)
        fresh = value in run.arrays and value not in self.plan.inputs
        return found if fresh or not isinstance(found, np.ndarray) else np.array(found)

    def _cache_call(self, run: Run, bound: Bound, given: Mapping[str, int]) -> None:
        """Cache a run as a `Call` of the runtime for inputs of the same sizes, if kernels do all of it.

        That is one block, and then stages whose sizes data determine. Kernels must write all outputs to their arrays,
        or a loop at the end must stack them. Rare items on conditions after the block are left to a run from Python.
        `bound` is that of the first stage, `given` are the extents of the inputs."""
        (actions, *later), base = [stage.actions for stage in self._link.stages], self._link.storage.base
        stages = self._later_stages
        if any(later) and stages is None:
            return
        made, stacked = {output.value: output for output in bound.outputs}, self._stacked()
        late = stages.outputs if stages else frozenset()
        if bound.refusals or self.plan.symbols or sorted((*made, *stacked, *late)) != sorted(self.plan.outputs):
            return
        if not actions or not isinstance(first := actions[0], list):
            return
        if not stacked and any(isinstance(part, LinkedLoop) and part.item.is_open for part in first):
            return
        if not stages and not all(isinstance(item, Control) and item.when for item in actions[1:]):
            return
        if not all(port.dtype is not None and _is_plain(port.dtype) for port in (*self.inputs, *self.outputs)):
            return
        arrays = [(port.name, run.arrays[port.name]) for port in self.inputs]
        inputs = [(name, a.dtype.kind, a.itemsize, a.shape, base.get(name, 0)) for name, a in arrays]
        outputs = []
        for value in self.plan.outputs:
            m, array = made.get(value), run.arrays[value]
            shape, store = (m.shape, m.store) if m else (array.shape[1:], None)
            own = (array.dtype.kind, array.itemsize, shape, self._link.base(value), array.dtype, store)
            outputs.append((value, *own, stacked.get(value, 0)))
        block, *conditions = bound.bindings
        settings = (self._frames, self._link.bases, self.threads)
        ins, outs = self.plan.inputs, self.plan.outputs
        sharing = [(ins.index(value), outs.index(output)) for value, output in shareable(self._link.storage)]
        rest, keep = ((), (bound, self._link)) if stages else (conditions, bound)
        sizes = stages.arguments(given, bound.layout) if stages else {}
        call = native.Call(block, *settings, inputs, outputs, self._memory(bound, 0), keep, rest, sharing, **sizes)
        self._calls = (call, *self._calls)[:LAYOUTS]

    @cached_property
    def _later_stages(self) -> LaterStages | None:
        """The stages after the first, if the runtime can run them."""
        return later_stages(self._link)

    def _stacked(self) -> dict[str, int]:
        """Return the outputs stacked by a loop that ends the first block, with the base of its iteration count.

        None if their lengths may be known before, because they would have to be compared."""
        actions = self._link.stages[0].actions
        last = actions[0][-1] if len(actions) == 1 and isinstance(actions[0], list) else None
        if not isinstance(last, LinkedLoop) or not last.item.is_open or last.item.when:
            return {}
        known = {name for port in self.inputs for name in symbols_of(port.type)}
        made = [value for value in last.item.made if value]
        for value in made:
            shape = self.plan.type(value).shape
            name = symbolic.symbol_name(shape[0]) if shape else None
            if name is None or name in known:
                return {}
        return {value: last.iterations for value in made if value in self.plan.outputs}

    def save(self, path: Path | str) -> Path:
        """Write the program as a bundle, for all targets that it was compiled for; return its path.

        Raises UserError if another file or directory is there, or the bundle cannot be written."""
        if self._save is None:
            raise UserError("only a whole program can be saved", hint="Save the program that it belongs to.")
        if self._awaited is not None:
            self._awaited.result()
        return self._save(self.variants, path, threads=self.threads)

    def fallbacks(self) -> dict[str, int]:
        """Return the operators that run without a native kernel, each with its number of nodes."""
        return self.plan.fallbacks()

    @property
    def latest(self) -> Program:
        """The program for the sizes that ran last: itself, or of several versions the one for these."""
        return next(reversed(self._chosen.values())) if self._chosen else self

    def buffers(self) -> list[PlacedBuffer]:
        """Return the buffers of the arenas for the latest extents, by stage and offset, arenas on top of each other.

        Empty before the first run of a model with symbolic dims."""
        found: list[PlacedBuffer] = []
        base = 0
        for bound in self._bounds() or ():
            placement = bound.layout.placement
            found += [
                PlacedBuffer(b.name.replace("\0", "loop "), base + placement.offsets[b.name], b.size, b.first, b.last)
                for b in sorted(bound.layout.buffers, key=lambda b: (placement.offsets[b.name], b.first))
            ]
            base += placement.size
        return found

    def _bounds(self) -> list[Bound] | None:
        """Return the layouts of all stages for the latest extents; None if these are not known."""
        stages = self._link.stages
        bounds = [stage.latest or (None if stage.symbols else self._link.bind(n, {})) for n, stage in enumerate(stages)]
        known = [bound for bound in bounds if bound is not None]
        return known if len(known) == len(stages) else None

    def memory(self) -> tuple[int, int] | None:
        """Return the size of the arenas and its lower bound, in bytes, for the latest extents.

        None before the first run of a model with symbolic dims."""
        bounds = self._bounds()
        if bounds is None:
            return None
        placements = [bound.layout.placement for bound in bounds]
        return sum(p.size for p in placements), sum(p.bound for p in placements)


def _fall_back(item: Fallback, runner: Runner, run: Run) -> None:
    """Run a node without a kernel."""
    operands = [run.get(v) for v in item.node.inputs if v]
    for value, found in zip(writes(item), runner.run(operands), strict=True):
        run.put(value, found)


def _control(item: Control, bodies: Sequence[Program], run: Run) -> None:
    """Run an operator over its compiled bodies."""
    operands = [run.get(v) if v else None for v in item.inputs]
    captured = [[run.get(v) for v in values] for values in item.captures]
    found = run_control(item, operands, captured, [partial(body.call, extents=run.extents) for body in bodies])
    for value, result in zip(item.outputs, found, strict=False):
        if value and item.op == "Branch" and value in run.link.storage.lifetime:
            run.fill(value, result)
        elif value:  # the outputs of a branch are fresh arrays; those of a loop may be its inputs
            run.put(value, result, own=item.op in ("If", "Branch"))


def _is_plain(dtype: DType) -> bool:
    """Return whether the runtime itself checks arrays of this type: the buffer protocol has a format for it."""
    return dtype is not DType.BF16 and dtype.numpy.kind in "fiub"


class BoundRun:
    """A program bound to arrays: calling it runs the program on the current contents of its inputs.

    Attributes:
        outputs: the arrays by name, overwritten by each call.
    """

    def __init__(self, program: Program, values: Sequence[Any], outputs: Sequence[Any]) -> None:
        self._program = program
        self._values = list(values)
        self._targets = tuple(outputs)
        self.outputs = dict(zip(program.plan.outputs, outputs, strict=True))

    def __repr__(self) -> str:
        return f"<BoundRun → {listed(self.outputs)}>"

    def __call__(self) -> dict[str, Any]:
        """Run; return the outputs, in the same arrays each time. Not for two threads at once."""
        self._program.call(self._values, out=self._targets)
        return self.outputs
