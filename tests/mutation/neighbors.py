"""Neighbors of a small graph: every dim, element, attribute, operand and operator altered on its own.

Rules are wrong at the limits of their conditions: a dim of 1 that broadcasts, an axis counted from the end, a constant
that is not the intended one. The neighbors of a graph on which a rule fires are such cases. They are enumerated rather
than drawn, and each alters one thing within the small domains below. `shapes` enumerates the shapes of all leaves.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from rewrite.engine.ir import symbolic
from rewrite.engine.ir.graph import Constant, DType, TensorType
from rewrite.engine.operators.schemas import signature

from .graphs import NONE, Array, ConstItem, InputItem, NodeItem, SmallGraph

DIMS = (0, 1, 2, 3)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("nan"), float("inf"), -float("inf"), 3e38, 1e-42)
"""Values of the elements of constants."""
FLOATS = (DType.F64, DType.F32, DType.F16)
OTHERS = (DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL)
UNARY = (
    "Relu",
    "Abs",
    "Neg",
    "Exp",
    "Sqrt",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Cos",
    "Reciprocal",
    "Sigmoid",
    "Erf",
    "Not",
    "IsNaN",
    "Identity",
    "Softplus",
    "Log",
)
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Less", "LessOrEqual", "Equal", "And", "Or", "PRelu")
_STRINGS = (
    ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    ("constant", "edge", "reflect", "wrap"),
    ("none", "tanh"),
    ("DCR", "CRD"),
    ("nearest", "linear", "cubic"),
    ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"),
    ("none", "add", "mul", "max", "min"),
)


def neighbors(graph: SmallGraph, *, heads: bool) -> Iterator[SmallGraph]:
    """Yield graphs that differ in one thing. With `heads`, operators are replaced by others with as many operands."""
    yield from element_types(graph)
    yield from _roles(graph)
    yield from _dims(graph)
    yield from _ranks(graph)
    for i, item in enumerate(graph.items):
        if isinstance(item, ConstItem):
            for array in contents(item.array):
                yield graph.with_item(i, ConstItem(array))
        elif isinstance(item, NodeItem):
            for attrs in _attributes(graph, item):
                yield graph.with_item(i, replace(item, attrs=attrs))
            yield from _operands(graph, i, item)
            if heads:
                yield from _operators(graph, i, item)
    yield from _wrapped(graph)
    yield from _symbolic(graph)
    yield from _groups(graph)


def _leaves(graph: SmallGraph) -> list[int]:
    return [i for i, item in enumerate(graph.items) if not isinstance(item, NodeItem)]


def shape_of(item: InputItem | ConstItem) -> tuple[symbolic.Dim, ...]:
    """Return the shape of a leaf."""
    return item.type.shape or () if isinstance(item, InputItem) else item.array.shape


def _dtype(item: InputItem | ConstItem) -> DType | None:
    return item.type.dtype if isinstance(item, InputItem) else Constant(item.array).type.dtype


def resized(item: InputItem | ConstItem, shape: tuple[symbolic.Dim, ...]) -> InputItem | ConstItem | None:
    """Return a leaf in another shape; the elements of a constant are repeated in order."""
    if isinstance(item, InputItem):
        return InputItem(TensorType(item.type.dtype, shape))
    if not all(isinstance(d, int) for d in shape):
        return None
    sizes = tuple(d for d in shape if isinstance(d, int))
    if not item.array.size:
        return ConstItem(np.ones(sizes, item.array.dtype))
    return ConstItem(np.resize(item.array, sizes))


def _retyped(item: InputItem | ConstItem, dtype: DType) -> InputItem | ConstItem:
    if isinstance(item, InputItem):
        return InputItem(TensorType(dtype, item.type.shape))
    with np.errstate(all="ignore"):
        return ConstItem(item.array.astype(dtype.numpy))


def element_types(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Change the element type of all leaves of one type, then of each leaf alone."""
    leaves = [(i, item) for i, item in enumerate(graph.items) if not isinstance(item, NodeItem)]
    present = list(dict.fromkeys(_dtype(item) for _, item in leaves))
    for old in present:
        if old is None or old is DType.STRING:
            continue
        for new in (*FLOATS, *OTHERS):
            if new is old:
                continue
            found = graph
            for i, item in leaves:
                if _dtype(item) is old:
                    found = found.with_item(i, _retyped(item, new))
            yield found
    for i, item in leaves:
        if len(leaves) > 1 and _dtype(item) not in (None, DType.STRING):
            for new in (DType.F64, DType.F32, DType.I64, DType.I32, DType.U8):
                if new is not _dtype(item):
                    yield graph.with_item(i, _retyped(item, new))


def _roles(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Turn inputs into constants and constants into inputs."""
    for i, item in enumerate(graph.items):
        if isinstance(item, ConstItem):
            yield graph.with_item(i, InputItem(Constant(item.array).type))
        elif isinstance(item, InputItem) and item.type.is_static and item.type.dtype is not None:
            assert item.type.shape is not None
            shape = tuple(d for d in item.type.shape if isinstance(d, int))
            numbers = np.resize(np.array([1.5, -0.5, 2.0, 0.25, -3.0]), shape)
            yield graph.with_item(i, ConstItem(numbers.astype(item.type.dtype.numpy)))


def _dims(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Alter every extent wherever it occurs, then each dim of each leaf."""
    leaves = [(i, item) for i, item in enumerate(graph.items) if not isinstance(item, NodeItem)]
    extents = sorted({d for _, item in leaves for d in shape_of(item) if isinstance(d, int)})
    for old in extents:
        for new in (*DIMS, old + 1, 2 * old):
            if new == old:
                continue
            found = graph
            for i, item in leaves:
                if old in shape_of(item):
                    changed = resized(item, tuple(new if d == old else d for d in shape_of(item)))
                    assert changed is not None
                    found = found.with_item(i, changed)
            yield found
    for i, item in leaves:
        shape = shape_of(item)
        for axis, old_dim in enumerate(shape):
            extents_here: list[symbolic.Dim] = [*DIMS, old_dim + 1]
            for size in extents_here:
                changed = resized(item, (*shape[:axis], size, *shape[axis + 1 :]))
                if changed is not None and size != old_dim:
                    yield graph.with_item(i, changed)


def _ranks(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Insert or remove dims of one leaf, or of all inputs."""
    leaves = [(i, item) for i, item in enumerate(graph.items) if not isinstance(item, NodeItem)]
    for i, item in leaves:
        shape = shape_of(item)
        others = [(*shape[:k], d, *shape[k:]) for k in range(len(shape) + 1) for d in (1, 2)]
        others += [(*shape[:k], *shape[k + 1 :]) for k in range(len(shape))]
        others += [(1, 1, *shape), (), (1,)]
        for other in dict.fromkeys(others):
            changed = resized(item, other)
            if changed is not None:
                yield graph.with_item(i, changed)
    for front in ((1,), (2,), (2, 3)):
        found = graph
        for i, item in leaves:
            if isinstance(item, InputItem):
                found = found.with_item(i, InputItem(TensorType(item.type.dtype, (*front, *shape_of(item)))))
        yield found


def shapes(graph: SmallGraph, most: int) -> Iterator[SmallGraph]:
    """Yield all combinations of shapes up to rank 3 with extents 1 and 2 (0 to 3 for a single leaf), thinned out evenly
    to about `most`."""
    leaves = [i for i in _leaves(graph) if _dtype(graph.items[i]) is not DType.I64]  # type: ignore[arg-type]
    extents = DIMS if len(leaves) == 1 else (1, 2)
    rank = 3 if len(leaves) <= 2 else 2
    every = [s for r in range(rank + 1) for s in itertools.product(extents, repeat=r)]
    count = len(every) ** len(leaves)
    for number in range(0, count, max(count // most, 1)):
        choice = [every[number // len(every) ** k % len(every)] for k in range(len(leaves))]
        found = graph
        for i, shape in zip(leaves, choice, strict=True):
            changed = resized(graph.items[i], shape)  # type: ignore[arg-type]
            assert changed is not None
            found = found.with_item(i, changed)
        yield found


def contents(array: Array) -> Iterator[Array]:
    """Yield other contents of a constant: one element altered, all of them, or the order."""
    if array.dtype.kind not in "fiub" or array.size > 256:
        return
    flat = array.reshape(-1)
    numbers: tuple[float, ...] = NUMBERS
    if array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        numbers = tuple(n for n in (0, 1, -1, 2, 3, -2, 5, 9, info.max, info.min) if info.min <= n <= info.max)
    elif array.dtype.kind == "b":
        numbers = (0, 1)
    with np.errstate(all="ignore"):
        for place in sorted({0, flat.size // 2, flat.size - 1}) if flat.size else ():
            nudged = [flat[place] + 1, flat[place] - 1] if array.dtype.kind in "iu" else []
            if array.dtype.kind == "f":
                nudged = [flat[place] * 1.001, -flat[place], flat[place] * 4]
            for number in (*nudged, *numbers):
                changed = flat.copy()
                changed[place] = np.asarray(number).astype(array.dtype)
                yield changed.reshape(array.shape)
        for number in numbers:
            yield np.full(array.shape, np.asarray(number).astype(array.dtype), array.dtype)
    if flat.size > 1:
        yield flat[::-1].reshape(array.shape).copy()
        yield np.roll(flat, 1).reshape(array.shape)
        changed = flat.copy()
        changed[0], changed[1] = flat[1], flat[0]
        yield changed.reshape(array.shape)
        if array.dtype.kind == "f":
            yield (np.arange(flat.size) - flat.size // 2).astype(array.dtype).reshape(array.shape)
        if array.dtype.kind == "i" and flat.size <= 10:
            for one, other in itertools.permutations(range(flat.size), 2):
                changed = flat.copy()
                with np.errstate(all="ignore"):
                    changed[one], changed[other] = flat[one] + 1, flat[other] - 1
                yield changed.reshape(array.shape)
    if array.dtype.kind in "iu" and array.ndim == 1:  # a list, such as axes or a shape: longer and shorter
        for extra in (0, 1, 2, -1):
            if extra >= 0 or array.dtype.kind == "i":
                yield np.append(array, extra).astype(array.dtype)
                yield np.insert(array, 0, extra).astype(array.dtype)
        if array.size:
            yield array[1:]
            yield array[:-1]


def _attributes(graph: SmallGraph, node: NodeItem) -> Iterator[dict[str, Any]]:
    """Yield attributes altered one at a time; those without a default also added and removed."""
    attrs: dict[str, Any] = dict(node.attrs)
    found = signature(node.op)
    for name, value in attrs.items():
        for other in _values(name, value):
            if other != value:
                yield {**attrs, name: other}
        if found is not None and name in found.attributes and found.attributes[name].default is None:
            yield {k: v for k, v in attrs.items() if k != name}
    if found is None:
        return
    for name, formal in found.attributes.items():
        if name not in attrs:
            for value in _guesses(graph, node, name, formal.kind):
                yield {**attrs, name: value}


def _values(name: str, value: object) -> Iterator[Any]:
    if name == "to":
        yield from (t.onnx for t in (*FLOATS, *OTHERS))
    elif isinstance(value, bool | int):
        yield from (value + 1, value - 1, 0, 1, 2, -1)
    elif isinstance(value, float):
        # ONNX stores attributes in single precision
        yield from (2 * value, -value, 0.0, 1.0, 0.5, float(np.float32(value + 1e-3)))
    elif isinstance(value, str):
        for family in _STRINGS:
            if value in family:
                yield from family
    elif isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        ints = tuple(int(v) for v in value)
        for i in range(len(ints)):
            for amount in (1, -1, 2):
                yield (*ints[:i], ints[i] + amount, *ints[i + 1 :])
        yield from (ints[::-1], tuple(0 for _ in ints), tuple(1 for _ in ints), tuple(2 for _ in ints))
        for i in range(len(ints) - 1):
            yield (*ints[:i], ints[i + 1], ints[i], *ints[i + 2 :])
        yield from ((*ints, 0), ints[:-1])


def _guesses(graph: SmallGraph, node: NodeItem, name: str, kind: str) -> Iterator[Any]:
    if kind == "INT":
        yield from (0, 1, 2, -1)
    elif kind == "FLOAT":
        yield from (0.5, 2.0)
    elif kind == "INTS":
        ranks = {
            len(shape_of(item)) for item in graph.items if not isinstance(item, NodeItem)
        }  # fmt: skip
        for n in sorted({max(r - 2, 1) for r in ranks}):
            if name == "pads":
                yield from ((0,) * 2 * n, (1,) * 2 * n, tuple(range(2 * n)))
            else:
                yield from ((1,) * n, (2,) * n, tuple(range(1, n + 1)))
    if name == "perm":
        for r in (2, 3):
            yield tuple(reversed(range(r)))


def _operands(graph: SmallGraph, index: int, node: NodeItem) -> Iterator[SmallGraph]:
    """Exchange operands, share, separate, remove and add them."""
    children = node.children
    present = [k for k, c in enumerate(children) if c != NONE]
    for a, b in itertools.pairwise(present):
        turned = list(children)
        turned[a], turned[b] = turned[b], turned[a]
        yield graph.with_item(index, replace(node, children=tuple(turned)))
    users = [c for item in graph.items if isinstance(item, NodeItem) for c in item.children]
    for k in present:
        item = graph.items[children[k]]
        for other in _leaves(graph):
            if other < index and other != children[k]:
                yield graph.with_item(
                    index, replace(node, children=(*children[:k], other, *children[k + 1 :]))
                )  # fmt: skip
        yield graph.with_item(index, replace(node, children=(*children[:k], NONE, *children[k + 1 :])))
        if users.count(children[k]) > 1 and not isinstance(item, NodeItem):
            yield _parted(graph, index, node, k, item)
    found = signature(node.op)
    if found is None:
        return
    for k in [k for k, c in enumerate(children) if c == NONE]:
        for leaf in [i for i in _leaves(graph) if i < index]:
            yield graph.with_item(index, replace(node, children=(*children[:k], leaf, *children[k + 1 :])))
        for array in (np.float32(1.0), np.ones(1, np.float32), np.full(3, 2, np.float32), np.full(3, 1, np.int64)):
            yield _supplied(graph, index, node, k, np.asarray(array))
    if found.max_inputs is None and children:
        yield graph.with_item(index, replace(node, children=(*children, children[0])))
        yield graph.with_item(index, replace(node, children=children[:-1]))


def _parted(graph: SmallGraph, index: int, node: NodeItem, k: int, leaf: InputItem | ConstItem) -> SmallGraph:
    """Give one use of a shared leaf a leaf of its own: an input of the same type, or a constant of other contents."""
    own: InputItem | ConstItem = leaf
    if isinstance(leaf, ConstItem):
        with np.errstate(all="ignore"):
            changed = ~leaf.array if leaf.array.dtype.kind == "b" else leaf.array + np.ones((), leaf.array.dtype)
        own = ConstItem(np.asarray(changed))
    return _before(
        graph, index, own, lambda n: replace(node, children=(*node.children[:k], n, *node.children[k + 1 :]))
    )


def _supplied(graph: SmallGraph, index: int, node: NodeItem, k: int, array: Array) -> SmallGraph:
    return _before(
        graph,
        index,
        ConstItem(array),
        lambda n: replace(node, children=(*node.children[:k], n, *node.children[k + 1 :])),
    )


def _before(graph: SmallGraph, index: int, leaf: InputItem | ConstItem, changed: Any) -> SmallGraph:
    """Return the graph with a new first leaf, and item `index` rebuilt from the leaf's number (-2 is renumbered)."""

    def moved(item: Any) -> Any:
        if isinstance(item, NodeItem):
            return replace(item, children=tuple({NONE: NONE, -2: 0}.get(c, c + 1) for c in item.children))
        return item

    items = [changed(-2) if i == index else item for i, item in enumerate(graph.items)]
    return SmallGraph((leaf, *map(moved, items)), tuple(r + 1 for r in graph.roots))


def _operators(graph: SmallGraph, index: int, node: NodeItem) -> Iterator[SmallGraph]:
    """Replace operators by others with as many operands and default attributes."""
    from rewrite.engine.operators.schemas import normalize_attrs

    count = sum(c != NONE for c in node.children)
    for family in (UNARY, BINARY):
        if count == (1 if family is UNARY else 2) and node.op not in ("Proj",):
            for op in family:
                if op != node.op:
                    kids = tuple(c for c in node.children if c != NONE)
                    yield graph.with_item(index, NodeItem(op, normalize_attrs(op, {}), kids))


def _wrapped(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Put inputs behind an operator with a known range."""
    for i, item in enumerate(graph.items):
        if isinstance(item, InputItem) and item.type.dtype is not None and item.type.dtype.is_float:
            for op in ("Relu", "Sigmoid", "Exp", "Abs"):
                yield _behind(graph, i, item, op)


def _behind(graph: SmallGraph, index: int, leaf: InputItem, op: str) -> SmallGraph:
    def moved(n: int) -> int:
        return n if n == NONE or n < index else n + 1

    items: list[Any] = []
    for i, item in enumerate(graph.items):
        if i == index:
            items += [leaf, NodeItem(op, {}, (index,))]
        elif isinstance(item, NodeItem):
            kids = tuple(index + 1 if c == index else moved(c) for c in item.children)
            items.append(replace(item, children=kids))
        else:
            items.append(item)
    return SmallGraph(tuple(items), tuple(index + 1 if r == index else moved(r) for r in graph.roots))


def _symbolic(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Make extents of the inputs symbolic: all equal ones by one name, then single dims."""
    inputs = [(i, item) for i, item in enumerate(graph.items) if isinstance(item, InputItem)]
    extents = sorted({d for _, item in inputs for d in shape_of(item) if isinstance(d, int)})
    for extent in extents:
        found = graph
        for i, item in inputs:
            shape = tuple(symbolic.symbol("N") if d == extent else d for d in shape_of(item))
            found = found.with_item(i, InputItem(TensorType(item.type.dtype, shape)))
        yield found
    for i, item in inputs:
        for axis, dim in enumerate(shape_of(item)):
            if isinstance(dim, int):
                shape = (*shape_of(item)[:axis], symbolic.symbol("M"), *shape_of(item)[axis + 1 :])
                yield graph.with_item(i, InputItem(TensorType(item.type.dtype, shape)))


def whole_numbers(graph: SmallGraph, rng: random.Random) -> Iterator[SmallGraph]:
    """Yield, without end, graphs with random integers in attributes and small constants."""
    places = [
        i
        for i, item in enumerate(graph.items)
        if isinstance(item, NodeItem)
        or (isinstance(item, ConstItem) and item.array.dtype.kind == "i" and 0 < item.array.size <= 8)
    ]
    while places:
        found = graph
        keep = rng.choice((0.3, 0.6, 0.8))

        def other(value: int, keep: float = keep) -> int:
            return value if rng.random() < keep else rng.choice((-2, -1, 0, 0, 1, 1, 2, 2, 3, 4, value + 1, value - 1))

        for i in places:
            item = graph.items[i]
            if isinstance(item, ConstItem):
                flat = [other(int(v)) for v in item.array.reshape(-1)]
                limits = np.iinfo(item.array.dtype)
                flat = [min(max(v, limits.min), limits.max) for v in flat]
                found = found.with_item(i, ConstItem(np.array(flat, item.array.dtype).reshape(item.array.shape)))
            elif isinstance(item, NodeItem):
                attrs = dict(item.attrs)
                for name, value in attrs.items():
                    if isinstance(value, tuple) and all(type(v) is int for v in value):
                        attrs[name] = tuple(other(v) for v in value if type(v) is int)
                    elif type(value) is int and name not in ("to", "saturate") and item.op != "Proj":
                        attrs[name] = other(value)
                found = found.with_item(i, replace(item, attrs=attrs))
        yield found


def _groups(graph: SmallGraph) -> Iterator[SmallGraph]:
    """Permute several results."""
    if 1 < len(graph.roots) <= 3:
        for order in itertools.permutations(graph.roots):
            if order != graph.roots:
                yield replace(graph, roots=order)
