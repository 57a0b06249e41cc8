"""Loops of a plan that was read from a file: whether all that the runtime's C code goes by is consistent.

The runtime sets pointers by what a plan says of a loop (how many iterations, along which axes pieces lie, which values
of the body are which around it) and checks nothing while it runs. What `loop_plan` makes is consistent; here it is made
sure that what a manifest says is too: every value has the type that its part demands, so that each piece and each
buffer lies in the tensor that it is of, for all extents.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..engine import symbolic
from ..engine.graph import DType, TensorType
from ..engine.symbolic import Dim
from .carried import alike, with_axis, without_axis
from .kernel_graph import Along, Control, Guarded, Join, Loop, ModelPlan, Shape, Step, View, is_host, writes
from .storage import nbytes

MOST = 1 << 48
"""More than any extent, and any number of iterations that is told, can be: no address space holds as many bytes."""


def check_loops(plan: ModelPlan) -> None:
    """Raises ValueError, which says what is wrong, for a plan with a loop that the runtime cannot be trusted with."""
    known = {s for v in plan.inputs for d in plan.type(v).shape or () for s in symbolic.symbols(d)}
    _check_plan(plan, known | set(plan.symbols))


def _check_plan(plan: ModelPlan, bound: set[str]) -> None:
    for value, kind in plan.types.items():
        for dim in (kind.shape or ()) if isinstance(kind, TensorType) else ():
            if isinstance(dim, int) and not 0 <= dim < MOST:
                raise ValueError(f"an extent of {value!r} is {dim}")
    for version in plan.versions:
        check_loops(version.plan)
    there = {*plan.inputs, *plan.constants}
    for item in plan.items:
        if isinstance(item, Loop):
            _Check(plan, item, there, bound).all()
        elif isinstance(item, Control):
            for body in item.bodies:
                check_loops(body)
        elif isinstance(item, View):
            _check_part(plan, item.output, item.input, item.offset)
        elif isinstance(item, Join):
            for part, offset in zip(item.parts, item.offsets, strict=True):
                _check_part(plan, part, item.output, offset)
        there.update(writes(item))
        if is_host(item):  # tells extents
            bound |= {s for v in writes(item) for d in plan.type(v).shape or () for s in symbolic.symbols(d)}


def _check_part(plan: ModelPlan, part: str, whole: str, offset: Dim) -> None:
    """Raises ValueError where a value for sure does not lie in the one that it is a part of."""
    inner, outer = plan.type(part), plan.type(whole)
    if None in (inner.shape, inner.dtype, outer.shape, outer.dtype):
        return
    if symbolic.at_least(-1, offset) or symbolic.at_least(offset + nbytes(inner) - 1, nbytes(outer)):
        raise ValueError(f"{part!r} does not lie in {whole!r}")


class _Check:
    """The check of one loop, in a plan where so many values are `there` and so many extents `bound`."""

    def __init__(self, plan: ModelPlan, item: Loop, there: Collection[str], bound: set[str]) -> None:
        self.plan, self.item, self.body, self.there, self.bound = plan, item, item.body, there, bound

    def fail(self, problem: str) -> None:
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
        for value in (*item.states, *item.scanned, *item.captures):
            if value not in self.there:
                self.fail(f"{value!r} is not made before it")
        self._check_iterations()
        for value, kind in zip(body.inputs[:cells], (DType.I64, DType.BOOL), strict=False):
            self._check_single(body, value, kind)
        if item.ends:
            self._check_single(body, body.outputs[0], DType.BOOL)
        self._check_guards(item.when)
        made = iter(body.outputs[item.ends :])
        for value, result in zip(item.states, item.outputs, strict=False):
            self._check_alike(next(given), value)
            self._check_alike(after := next(made), value)
            if result:
                self._check_alike(after, result)
        for value, along in zip(item.scanned, item.scans, strict=True):
            self._check_piece(next(given), value, along, grows=False)
        for value in item.captures:
            self._check_alike(next(given), value)
        for value, along in zip(item.made, item.makes, strict=True):
            self._check_piece(next(made), value, along, grows=item.is_open)
        self._check_body()

    def _check_iterations(self) -> None:
        item = self.item
        if item.iterations is not None:
            if item.count:
                self.fail("the number of its iterations is said twice")
            if isinstance(item.iterations, int) and not 0 <= item.iterations < MOST:
                self.fail(f"it has {item.iterations} iterations")
            self._check_known((item.iterations,))
        elif item.op == "Scan":
            self.fail("the number of its iterations is not said")
        for value, kind in ((item.count, DType.I64), (item.going, DType.BOOL)):
            if value:
                if value not in self.there:
                    self.fail(f"{value!r} is not made before it")
                self._check_single(self.plan, value, kind)

    def _check_guards(self, guards: Guarded) -> None:
        for value, _ in guards:
            if value not in self.there:
                self.fail(f"{value!r} is not made before it")
            self._check_single(self.plan, value, DType.BOOL)

    def _check_known(self, dims: Sequence[Dim]) -> None:
        for dim in dims:
            if isinstance(dim, int) and not 0 <= dim < MOST:
                self.fail(f"an extent is {dim}")
            if unknown := symbolic.symbols(dim) - self.bound:
                self.fail(f"the extent {min(unknown)} is not known before it")

    def _check_single(self, plan: ModelPlan, value: str, dtype: DType) -> None:
        kind = plan.type(value)
        if kind.dtype is not dtype or kind.shape is None or any(d != 1 for d in kind.shape):
            self.fail(f"{value!r} is {kind}, not one {dtype.value}")

    def _check_alike(self, inside: str, outside: str) -> None:
        """Whether a value of the body has the type of one around it."""
        kind, around = self.body.type(inside), self.plan.type(outside)
        if kind.dtype in (None, DType.STRING) or not alike(kind, around):
            self.fail(f"{inside!r} in its body is {kind}, {outside!r} around it {around}")
        self._check_known(kind.shape or ())

    def _check_piece(self, inside: str, outside: str, along: Along, *, grows: bool) -> None:
        """Whether a value of the body is a piece of one around it, of as many as there are iterations."""
        kind, around = self.body.type(inside), self.plan.type(outside)
        if kind.shape is None or kind.dtype in (None, DType.STRING) or around.shape is None:
            self.fail(f"{inside!r} in its body is {kind}")
        assert kind.shape is not None
        assert around.shape is not None
        self._check_known(kind.shape)
        if not 0 <= along.axis < len(around.shape):
            self.fail(f"{outside!r} has no axis {along.axis}")
        if grows:
            if along.axis or along.reverse:
                self.fail(f"{outside!r} is made along axis {along.axis}, and only data say how long it gets")
        elif self.item.iterations is None or not symbolic.same(around.shape[along.axis], self.item.iterations):
            self.fail(f"{outside!r} has not one piece along axis {along.axis} for each iteration")
        part = without_axis(around, along.axis)
        whole = with_axis(kind, along.axis, around.shape[along.axis])
        if part is None or whole is None or not alike(part, kind) or not alike(whole, around):
            self.fail(f"{inside!r} in its body is {kind}, no piece of {outside!r}, which is {around}")

    def _check_body(self) -> None:
        """Whether a body is what the runtime runs without Python, and makes its outputs."""
        body = self.body
        kinds = Step | View | Join | Shape | Loop
        if body.versions or body.fails or not all(isinstance(i, kinds) and not is_host(i) for i in body.items):
            self.fail("its body is not of kernels throughout")
        self._check_known(tuple(symbolic.symbol(name) for name in body.symbols))
        made = {v for item in body.items if isinstance(item, Step | Loop | Join) for v in writes(item)}
        if missing := [v for v in body.outputs if v not in made]:
            self.fail(f"its body does not make {missing[0]!r}")
        for value in (v for item in body.items for v in writes(item)):
            kind = body.types.get(value)
            if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
                self.fail(f"nothing is known of {value!r} in its body")
            else:
                self._check_known([d for d in kind.shape if isinstance(d, int)])
        _check_plan(body, set(self.bound))
