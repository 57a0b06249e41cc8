"""Validation of the steps of a plan that was read from a file, beside `loop_validation`.

`check_steps` checks what holds for all sizes, when a bundle is loaded. `check_run` sees every stage when its memory is
laid out for the sizes of a run, before kernels get them: aliases lie in their tensors, extents and scratch memory are
possible, and a step touches no byte outside its buffers, as far as `footprints` knows its kernel. So numbers that
contradict each other are refused, with one message.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.ir import symbolic
from ...engine.ir.graph import TensorType
from ...engine.ir.symbolic import Dim
from ..ir.dataflow import writes
from ..ir.kernel_graph import Join, Loop, ModelPlan, Shape, Step, View, bodies
from ..memory.buffer_assignment import Storage, nbytes
from .footprints import footprints
from .loop_validation import LIMIT

_WORD = 1 << 63
"""Bound on what the runtime takes as a number."""


def check_steps(plan: ModelPlan) -> None:
    """Raise ValueError, which names the problem, for steps and constants of a plan that are wrong for all sizes."""
    for value, constant in plan.constants.items():
        kind, array = plan.types.get(value), constant.array
        if isinstance(kind, TensorType) and kind.shape is not None and kind.shape != array.shape:
            raise ValueError(f"the constant {value!r} is {list(array.shape)}, not {kind}")
    for item in plan.items:
        match item:
            case Step():
                for source, target in item.in_place:
                    if not (0 <= source < len(item.inputs) and 0 <= target < len(item.outputs)):
                        raise ValueError(f"a kernel has no buffers {source} and {target} to share")
                for dim in (*item.dims, item.scratch, item.threads):
                    if isinstance(dim, int) and not -_WORD <= dim < _WORD:
                        raise ValueError(f"a kernel gets the size {dim}")
            case Shape():
                size = symbolic.product(plan.type(item.output).shape or ())
                if not symbolic.same(size, len(item.dims)):
                    raise ValueError(f"{item.output!r} has {size} elements, not {len(item.dims)}")
        for body in bodies(item):
            check_steps(body)
    for version in plan.versions:
        check_steps(version.plan)


def check_run(storage: Storage, number: int, extents: Mapping[str, int], fits: bool) -> None:
    """Raise ValueError, which names the problem, for a stage whose numbers are wrong for these extents.

    If `fits` is not set, they are no extents for some branch of the model, which is left out."""
    plan, stage = storage.plan, storage.stages[number]
    for at, item in enumerate(stage.items, stage.first):
        match item:
            case Step() if fits or not item.when:
                _check_step(storage, item, extents)
            case View() if fits:
                _part(plan, item.output, item.input, item.offset, extents)
            case Join() if fits:
                for part, offset in zip(item.parts, item.offsets, strict=True):
                    _part(plan, part, item.output, offset, extents)
            case Loop():
                check_run(storage.bodies[at][0], 0, extents, fits)


def _check_step(storage: Storage, step: Step, extents: Mapping[str, int]) -> None:
    plan = storage.plan
    if not step.work(extents) or all(_size(plan, v, extents) == 0 for v in writes(step)):
        return  # it does not run: its dims may have no value
    scratch = symbolic.evaluate(step.scratch, extents)
    if not 0 <= scratch < LIMIT:
        raise ValueError(f"a kernel has {scratch} bytes of scratch memory")
    dims = [symbolic.evaluate(d, extents) for d in step.dims]
    if any(abs(d) >= LIMIT for d in dims):
        raise ValueError(f"a kernel gets the size {max(dims, key=abs)}")
    buffers = (*step.inputs, *step.outputs)
    for buffer, first, end in footprints(step.kernel, dims) or ():
        value = buffers[buffer]
        at = storage.locate(value)  # columns of a wider tensor are between others of its rows
        start, room = symbolic.evaluate(at.offset, extents), _size(plan, at.root, extents)
        if start + first < 0 or start + end > room:
            raise ValueError(f"kernel {step.kernel.template} would use bytes {first} to {end} of {value!r}")


def _size(plan: ModelPlan, value: str, extents: Mapping[str, int]) -> int:
    """Return the bytes of a value. Raises ValueError for impossible extents."""
    kind = plan.type(value)
    if any(not 0 <= symbolic.evaluate(d, extents) < LIMIT for d in kind.shape or ()):
        raise ValueError(f"{value!r} is {kind}")
    return symbolic.evaluate(nbytes(kind), extents)


def _part(plan: ModelPlan, part: str, whole: str, offset: Dim, extents: Mapping[str, int]) -> None:
    """Check that a value lies in the value that it is a part of."""
    inner, outer = plan.type(part), plan.type(whole)
    if None in (inner.shape, inner.dtype, outer.shape, outer.dtype):
        return
    try:
        start = symbolic.evaluate(offset, extents)
        end = start + _size(plan, part, extents)
        size = _size(plan, whole, extents)
    except KeyError:  # a later stage knows its extents
        return
    if start < 0 or end > size:
        raise ValueError(f"{part!r} does not lie in {whole!r}")
