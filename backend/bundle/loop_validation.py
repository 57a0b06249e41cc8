"""Validation of the loops of a plan that was read from a file.

The runtime derives pointers from the plan's description of a loop (number of iterations, axes of slices, values of the
body) and does not check them at run time. `loop_plan` writes consistent plans; here the same is ensured for a manifest.
Every value must have the type that its role demands, so that each slice and buffer is inside its tensor for all
extents.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NoReturn

from ...engine.ir import symbolic
from ...engine.ir.graph import DType, TensorType, symbols_of, with_axis, without_axis
from ...engine.ir.symbolic import Dim
from ..ir.dataflow import determined, is_single, same_type, writes
from ..ir.kernel_graph import Control, Join, Loop, Measure, ModelPlan, Slicing, Step, View, is_host
from ..memory.buffer_assignment import nbytes

LIMIT = 1 << 48
"""Bound on extents and iteration counts: no address space holds as many bytes."""


def check_loops(plan: ModelPlan) -> None:
    """Raise ValueError, which names the problem, for a plan with an inconsistent loop."""
    _check_plan(plan, set(plan.symbols).union(*(symbols_of(plan.type(v)) for v in plan.inputs)))


def _check_plan(plan: ModelPlan, bound: set[str]) -> None:
    for value, kind in plan.types.items():
        for dim in (kind.shape or ()) if isinstance(kind, TensorType) else ():
            if isinstance(dim, int) and not 0 <= dim < LIMIT:
                raise ValueError(f"an extent of {value!r} is {dim}")
    for version in plan.versions:
        check_loops(version.plan)
    there = {*plan.inputs, *plan.constants}
    for item in plan.items:
        match item:
            case Loop():
                _Check(plan, item, there, bound).all()
            case Control():
                for body in item.bodies:
                    check_loops(body)
            case View():
                _check_part(plan, item.output, item.input, item.offset)
            case Measure():
                if item.count not in there or not is_single(plan.type(item.count), DType.I64):
                    raise ValueError(f"{item.count!r} is not the number that {item.extent!r} is measured by")
            case Join():
                for part, offset in zip(item.parts, item.offsets, strict=True):
                    _check_part(plan, part, item.output, offset)
        there.update(writes(item))
        if is_host(item):  # determines extents
            bound = bound.union(determined(item, plan.types), *(symbols_of(plan.type(v)) for v in writes(item)))


def _check_part(plan: ModelPlan, part: str, whole: str, offset: Dim) -> None:
    """Raise ValueError if a value certainly exceeds the value that it is a part of."""
    inner, outer = plan.type(part), plan.type(whole)
    if None in (inner.shape, inner.dtype, outer.shape, outer.dtype):
        return
    if symbolic.at_least(-1, offset) or symbolic.at_least(offset + nbytes(inner) - 1, nbytes(outer)):
        raise ValueError(f"{part!r} does not lie in {whole!r}")


class _Check:
    """Check of one loop, in a plan where the values `there` exist and the extents `bound` are known."""

    def __init__(self, plan: ModelPlan, item: Loop, there: Collection[str], bound: set[str]) -> None:
        self.plan, self.item, self.body, self.there, self.bound = plan, item, item.body, there, bound

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"loop {self.item.name!r}: {problem}")

    def all(self) -> None:
        item, body = self.item, self.body
        if item.op not in ("Loop", "Scan"):
            self.fail(f"there is no operator {item.op!r}")
        cells = 2 if item.op == "Loop" else 0
        n, given = len(item.states), iter(body.inputs[cells:])
        if len(body.inputs) != cells + n + len(item.scanned) + len(item.captures):
            self.fail(f"its body has {len(body.inputs)} inputs")
        if len(item.outputs) < n or len(body.outputs) != item.ends + len(item.outputs):
            self.fail(f"its body has {len(body.outputs)} outputs")
        if len(set(body.inputs)) != len(body.inputs) or len(set(body.outputs)) != len(body.outputs):
            self.fail("two inputs or two outputs of its body are the same")
        if len(item.scans) != len(item.scanned) or len(item.makes) != len(item.made):
            self.fail(f"it has {len(item.scans)} and {len(item.makes)} axes")
        if len(item.when) > 32:
            self.fail("it has too many conditions")
        self._check_there(*item.states, *item.scanned, *item.captures)
        self._check_iterations()
        for value, kind in zip(body.inputs[:cells], (DType.I64, DType.BOOL), strict=False):
            self._check_single(body, value, kind)
        if item.ends:
            self._check_single(body, body.outputs[0], DType.BOOL)
        for value, _ in item.when:
            self._check_there(value)
            self._check_single(self.plan, value, DType.BOOL)
        made = iter(body.outputs[item.ends :])
        for value, result in zip(item.states, item.outputs, strict=False):
            self._check_alike(next(given), value)
            self._check_alike(after := next(made), value)
            if result:
                self._check_alike(after, result)
        for value, slicing in zip(item.scanned, item.scans, strict=True):
            self._check_piece(next(given), value, slicing, grows=False)
        for value in item.captures:
            self._check_alike(next(given), value)
        for value, slicing in zip(item.made, item.makes, strict=True):
            self._check_piece(next(made), value, slicing, grows=item.is_open)
        self._check_body()

    def _check_iterations(self) -> None:
        item = self.item
        if item.iterations is not None:
            if item.count:
                self.fail("the number of its iterations is given twice")
            if isinstance(item.iterations, int) and not 0 <= item.iterations < LIMIT:
                self.fail(f"it has {item.iterations} iterations")
            self._check_known((item.iterations,))
        elif item.op == "Scan":
            self.fail("the number of its iterations is missing")
        for value, kind in ((item.count, DType.I64), (item.going, DType.BOOL)):
            if value:
                self._check_there(value)
                self._check_single(self.plan, value, kind)

    def _check_there(self, *values: str) -> None:
        for value in values:
            if value not in self.there:
                self.fail(f"{value!r} is not computed before it")

    def _check_known(self, dims: Sequence[Dim]) -> None:
        for dim in dims:
            if isinstance(dim, int) and not 0 <= dim < LIMIT:
                self.fail(f"an extent is {dim}")
            if unknown := symbolic.symbols(dim) - self.bound:
                self.fail(f"the extent {min(unknown)} is not known before it")

    def _check_single(self, plan: ModelPlan, value: str, dtype: DType) -> None:
        if not is_single(plan.type(value), dtype):
            self.fail(f"{value!r} is {plan.type(value)}, not one {dtype.value}")

    def _check_alike(self, inside: str, outside: str) -> None:
        """Check that a value of the body has the type of one around it."""
        kind, around = self.body.type(inside), self.plan.type(outside)
        if kind.dtype in (None, DType.STRING) or not same_type(kind, around):
            self.fail(f"{inside!r} in its body is {kind}, {outside!r} around it {around}")
        self._check_known(kind.shape or ())

    def _check_piece(self, inside: str, outside: str, slicing: Slicing, *, grows: bool) -> None:
        """Check that a value of the body is a slice of one around it, with one slice for each iteration."""
        kind, around = self.body.type(inside), self.plan.type(outside)
        if kind.shape is None or kind.dtype in (None, DType.STRING) or around.shape is None:
            self.fail(f"{inside!r} in its body is {kind}")
        self._check_known(kind.shape)
        if not 0 <= slicing.axis < len(around.shape):
            self.fail(f"{outside!r} has no axis {slicing.axis}")
        if grows:
            if slicing.axis or slicing.reverse:
                self.fail(f"{outside!r} is stacked along axis {slicing.axis}, but its length depends on data")
        elif self.item.iterations is None or not symbolic.same(around.shape[slicing.axis], self.item.iterations):
            self.fail(f"{outside!r} does not have one slice along axis {slicing.axis} for each iteration")
        part = without_axis(around, slicing.axis)
        whole = with_axis(kind, slicing.axis, around.shape[slicing.axis])
        if part is None or whole is None or not same_type(part, kind) or not same_type(whole, around):
            self.fail(f"{inside!r} in its body is {kind}, not a slice of {outside!r}, which is {around}")

    def _check_body(self) -> None:
        """Check that the runtime can run a body without Python, and that it writes its outputs."""
        body = self.body
        if body.fails or not body.is_native:
            self.fail("its body does not consist of kernels")
        self._check_known(tuple(symbolic.symbol(name) for name in body.symbols))
        made = {v for item in body.items if isinstance(item, Step | Loop | Join) for v in writes(item)}
        if missing := [v for v in body.outputs if v not in made]:
            self.fail(f"its body does not write {missing[0]!r}")
        for value in (v for item in body.items for v in writes(item)):
            kind = body.types.get(value)
            if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
                self.fail(f"the type of {value!r} in its body is unknown")
            self._check_known([d for d in kind.shape if isinstance(d, int)])
        _check_plan(body, set(self.bound))
