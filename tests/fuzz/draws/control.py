"""Control flow and sequences."""

from __future__ import annotations

import numpy as np

from ..eager import Invalid
from ..maker import (
    ANY,
    BOOL,
    FLOATS,
    I64,
    Maker,
)
from .registry import draws, step


def _inside(m: Maker, parameters: dict[str, object]) -> Maker:
    """Return an inner maker whose values are those of this one and the parameters, with a few nodes."""
    inner = Maker(m.rng, m.opset, m)
    inner.values |= parameters
    inner.shy -= set(parameters)
    return inner


def _grow(inner: Maker, count: int) -> None:
    for _ in range(count):
        try:
            step(inner)
        except Invalid:
            continue


@draws(1.2)
def branch(m: Maker) -> object:
    x = m.some(FLOATS, 0, 3)
    flag = m.fresh(np.asarray(m.chance(0.5)), 0.2)
    graphs = []
    for _ in range(2):
        inner = _inside(m, {})
        _grow(inner, m.between(0, 2))
        made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
        fits = [o for o in made if inner.dtype(o) == m.dtype(x) and inner.dims(o) == m.dims(x)]
        result = inner.pick(fits) if fits else inner.emit(inner.pick(("Neg", "Abs", "Identity", "Relu")), [x])[0]
        graphs.append(inner.body([result], {}))
    reads = [n for g in graphs for n in m.outer_reads(g)]
    return m.emit("If", [flag], reads=reads, then_branch=graphs[0], else_branch=graphs[1])


@draws(1.2)
def loop(m: Maker) -> object:
    x = m.some(FLOATS, 0, 3)
    count, go, carried = m.name(), m.name(), m.name()
    state = {count: np.asarray(0, I64), go: np.asarray(True), carried: m.values[x]}
    inner = _inside(m, dict(state))
    _grow(inner, m.between(0, 2))
    made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
    fits = [o for o in made if inner.dtype(o) == m.dtype(x) and inner.dims(o) == m.dims(x)]
    if fits and m.chance(0.7):
        result = inner.pick(fits)
    else:
        [half] = inner.emit("Mul", [carried, inner.constant(0.5, m.dtype(x))])
        [result] = inner.emit("Add", [half, inner.new(m.dtype(x), m.dims(x)[-1:])])
    if inner.dims(result) != m.dims(x):
        raise Invalid("the state changes its shape")
    [keep] = inner.emit("Identity", [go])
    scanned = [inner.emit("Identity", [inner.pick(made)])[0]] if made and m.chance(0.4) else []
    graph = inner.body([keep, result, *scanned], state)
    trips = m.fresh(np.asarray(m.between(0 if m.chance(0.1) else 1, 4), I64), 0.6)
    reads = m.outer_reads(graph)
    begin = m.constant(True, BOOL)  # the reference implementation does nothing without a condition
    return m.emit("Loop", [trips, begin, x], 1 + len(scanned), reads=reads, body=graph)


@draws(0.8)
def scan(m: Maker) -> object:
    x = m.some(FLOATS, 1, 3)
    if not m.dims(x)[0]:
        raise Invalid("nothing to scan")
    start = m.like(m.dtype(x), m.dims(x)[1:])
    carried, item = m.name(), m.name()
    inner = _inside(m, {carried: m.values[start], item: m.values[x][0]})
    [total] = inner.emit(m.pick(("Add", "Max", "Sub")), [carried, item])
    _grow(inner, m.between(0, 1))
    made = [o for s in inner.steps for o in s.example if isinstance(s.example[o], np.ndarray)]
    [out] = inner.emit("Identity", [inner.pick(made)])
    graph = inner.body([total, out], {carried: m.values[start], item: m.values[x][0]})
    back = [m.between(0, 1)]
    return m.emit(
        "Scan", [start, x], 2, reads=m.outer_reads(graph), body=graph, num_scan_inputs=1, scan_input_directions=back
    )


@draws(1.5)
def sequence(m: Maker) -> object:
    x = m.some(ANY, 1, 3)
    kind = m.between(0, 3)
    if kind == 0:
        axis = m.axis(x)
        keep = m.between(0, 1)
        size = m.dims(x)[axis]
        split = [m.constant(m.between(1, max(size, 1)))] if keep and m.chance(0.5) else []
        [list_] = m.emit("SplitToSequence", [x, *split], axis=axis, keepdims=keep)
    else:
        parts = [x, *(m.like(m.dtype(x), m.dims(x)) for _ in range(m.between(0, 2)))]
        [list_] = m.emit("SequenceConstruct", parts)
    count = len(m.values[list_])
    if m.chance(0.3) and count:
        item = m.like(m.dtype(x), m.dims(x))
        [list_] = m.emit("SequenceInsert", [list_, item, *([m.constant(m.between(0, count))] if m.chance(0.6) else [])])
        count += 1
    if m.chance(0.3) and count > 1:
        [list_] = m.emit("SequenceErase", [list_, *([m.constant(m.between(0, count - 1))] if m.chance(0.7) else [])])
        count -= 1
    if not count:
        raise Invalid("an empty sequence")
    if m.chance(0.3):
        if len({v.shape for v in m.values[list_]}) > 1:
            raise Invalid("members of several shapes, which ONNX Runtime joins if they are empty")
        return m.emit("ConcatFromSequence", [list_], axis=m.between(-1, 0), new_axis=m.between(0, 1))
    if m.chance(0.2):
        return m.emit("SequenceLength", [list_])
    return m.emit("SequenceAt", [list_, m.constant(m.between(-count, count - 1))])
