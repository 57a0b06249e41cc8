"""Operators on constants, evaluated.

The common operators are done with NumPy, to ONNX's letter (integer division truncates, casts that ONNX leaves undefined
are refused, negative indices count from the end); the rest goes to the reference implementation that comes with
`onnx`. What cannot be evaluated gives None, and the operator then stays in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .graph import AttrValue, Constant, DType, Graph, OtherType
from .operators import WORKING_OPSET, find_schema, is_pure, signature, split_name

Array = NDArray[Any]
Attrs = Mapping[str, AttrValue]

LIMIT = 1 << 30
"""No result larger than this many bytes is computed."""
REFERENCE_LIMIT = 1 << 18
"""The reference implementations are slow; they get at most this many elements."""


class _Refused(Exception):
    """The operator is not evaluated on these operands."""


def evaluate(
    op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int = 1, *, limit: int = LIMIT
) -> list[Array] | None:
    """The outputs of an operator at the working opset on constants, or None if it cannot or must not be evaluated.

    `arrays` are the inputs, None where absent; they are never written to, but an output may be a view of one.
    `limit` bounds the bytes of the result."""
    if not supports(op):
        return None
    with np.errstate(all="ignore"):
        try:
            fast = _FAST.get(op)
            if fast is not None:
                found = fast(_Call(attrs, tuple(arrays), n_outputs, limit))
            else:
                found = _reference(op, attrs, arrays, n_outputs)
        except _Refused:
            return None
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError, AttributeError, MemoryError):
            return None  # operands that the operator is not defined on: whoever runs the model says so
    results = [np.asarray(a) for a in found]
    if len(results) < n_outputs or sum(a.nbytes for a in results) > limit:
        return None
    return results[:n_outputs]


@cache
def supports(op: str) -> bool:
    """Whether an operator can be evaluated at all: it is pure, and known here or to the reference implementation."""
    if op in _FAST:
        return True
    if not is_pure(op) or op in ("If", "Loop", "Scan", "SequenceMap"):
        return False
    return split_name(op)[0] in ("", "ai.onnx.ml") and find_schema(op) is not None


def by_numpy(op: str) -> bool:
    """Whether an operator is evaluated here, and not by the reference implementation."""
    return op in _FAST


class _Call:
    """The operands of one evaluation."""

    def __init__(self, attrs: Attrs, arrays: tuple[Array | None, ...], outputs: int, limit: int) -> None:
        self.attrs = attrs
        self.arrays = arrays
        self.outputs = outputs
        self.limit = limit

    def __getitem__(self, index: int) -> Array:
        found = self.get(index)
        if found is None:
            raise _Refused
        return found

    def get(self, index: int) -> Array | None:
        """An input, None if absent."""
        return self.arrays[index] if index < len(self.arrays) else None

    def present(self) -> list[Array]:
        """All inputs, none of which may be absent."""
        return [self[i] for i in range(len(self.arrays))]

    def ints(self, index: int) -> list[int] | None:
        """An integer input as a list, None if absent."""
        found = self.get(index)
        return None if found is None else [int(v) for v in found.reshape(-1)]

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise _Refused
        return value

    def tuple(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers, None if not set."""
        value = self.attrs.get(name)
        return None if value is None else tuple(int(v) for v in value)  # type: ignore[arg-type, union-attr]

    def allow(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Refuses a result that would be too large."""
        if math.prod(shape) * dtype.itemsize > self.limit:
            raise _Refused


_Fast = Callable[[_Call], list[Array]]


def _numeric(*arrays: Array) -> None:
    """Refuses operands whose element types differ or are no ordinary numbers."""
    for array in arrays:
        if array.dtype != arrays[0].dtype or array.dtype.kind not in "biufV" or _tiny(array.dtype):
            raise _Refused


def _tiny(dtype: np.dtype[Any]) -> bool:
    """Whether it is an element type of 8 bits or fewer that NumPy does not compute with by itself."""
    return (dtype.kind == "V" and dtype.name != "bfloat16") or dtype.name.startswith(
        ("int4", "uint4", "int2", "uint2", "float8", "float4")
    )


def _binary(function: Callable[[Array, Array], Array]) -> _Fast:
    def run(call: _Call) -> list[Array]:
        a, b = call[0], call[1]
        _numeric(a, b)
        call.allow(np.broadcast_shapes(a.shape, b.shape), a.dtype)
        return [np.asarray(function(a, b), dtype=a.dtype)]

    return run


def _compare(function: Callable[[Array, Array], Array]) -> _Fast:
    def run(call: _Call) -> list[Array]:
        a, b = call[0], call[1]
        _numeric(a, b)
        return [np.asarray(function(a, b), dtype=np.bool_)]

    return run


def _unary(function: Callable[[Array], Array]) -> _Fast:
    def run(call: _Call) -> list[Array]:
        _numeric(call[0])
        return [np.asarray(function(call[0]), dtype=call[0].dtype)]

    return run


def _real(function: Callable[[Array], Array]) -> _Fast:
    """A function of reals, computed in double precision and rounded once."""

    def run(call: _Call) -> list[Array]:
        x = call[0]
        if not DType.from_numpy(x.dtype).is_float or _tiny(x.dtype):
            raise _Refused
        return [np.asarray(function(x.astype(np.float64))).astype(x.dtype)]

    return run


def _variadic(function: Callable[[Array, Array], Array]) -> _Fast:
    def run(call: _Call) -> list[Array]:
        arrays = call.present()
        _numeric(*arrays)
        found = arrays[0]
        for array in arrays[1:]:
            call.allow(np.broadcast_shapes(found.shape, array.shape), found.dtype)
            found = np.asarray(function(found, array), dtype=found.dtype)
        return [found]

    return run


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if (b == 0).any():
        raise _Refused
    quotient = a // b
    if a.dtype.kind == "u":
        return np.asarray(quotient)
    return np.asarray(quotient + ((quotient * b != a) & ((a < 0) != (b < 0))))  # towards zero, not down


def _mod(call: _Call) -> list[Array]:
    a, b = call[0], call[1]
    _numeric(a, b)
    if a.dtype.kind in "iu" and (b == 0).any():
        raise _Refused
    if call.integer("fmod", 0):
        return [np.asarray(np.fmod(a, b), dtype=a.dtype)]
    if a.dtype.kind not in "iu":
        raise _Refused
    return [np.asarray(np.mod(a, b))]


def _pow(call: _Call) -> list[Array]:
    base, exponent = call[0], call[1]
    _numeric(base)
    _numeric(exponent)
    if base.dtype.kind in "iu":
        if exponent.dtype.kind not in "iu" or (exponent < 0).any():
            raise _Refused
        return [np.asarray(np.power(base, exponent.astype(base.dtype)))]
    return [np.asarray(np.power(base.astype(np.float64), exponent.astype(np.float64))).astype(base.dtype)]


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))))


def _where(call: _Call) -> list[Array]:
    condition, a, b = call[0], call[1], call[2]
    if a.dtype != b.dtype:
        raise _Refused
    call.allow(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)
    return [np.where(condition, a, b)]


def _clip(call: _Call) -> list[Array]:
    found = call[0]
    _numeric(found)
    low, high = call.get(1), call.get(2)
    if low is not None:
        found = np.maximum(found, low.astype(found.dtype))
    if high is not None:
        found = np.minimum(found, high.astype(found.dtype))
    return [np.asarray(found, dtype=call[0].dtype)]


def cast(array: Array, to: np.dtype[Any]) -> Array:
    """An array in another element type as ONNX's Cast; `_Refused` where ONNX leaves the result undefined."""
    if array.dtype == to:
        return array
    source = array.dtype
    if any((d.kind not in "biuf" and d.name != "bfloat16") or _tiny(d) for d in (source, to)):
        raise _Refused
    real = source.kind == "f" or source.name == "bfloat16"
    if real and to.kind in "iu":
        whole = np.trunc(array.astype(np.float64))
        limits = np.iinfo(to)
        # 2⁶³ − 1 is no double, 2⁶³ is: compare against the power of two above
        if not (np.isfinite(whole).all() and (whole >= limits.min).all() and (whole < float(limits.max) + 1).all()):
            raise _Refused
        return np.asarray(whole.astype(to))
    if to.kind == "b":
        return np.asarray(array != 0)
    return np.asarray(array.astype(to))


def _cast(call: _Call) -> list[Array]:
    return [cast(call[0], DType.from_onnx(call.integer("to", 0)).numpy)]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise _Refused
    return axis % rank


def _gather(call: _Call) -> list[Array]:
    data, indices = call[0], call[1]
    axis = _axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise _Refused
    call.allow((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    return [np.take(data, np.where(indices < 0, indices + size, indices), axis=axis)]


def _gather_elements(call: _Call) -> list[Array]:
    data, indices = call[0], call[1]
    axis = _axis(call.integer("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        raise _Refused
    wrapped = np.where(indices < 0, indices + size, indices)
    index: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    index[axis] = wrapped
    return [data[tuple(index)]]


def _slice(call: _Call) -> list[Array]:
    data = call[0]
    starts, ends = call.ints(1), call.ints(2)
    if starts is None or ends is None:
        raise _Refused
    axes = call.ints(3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = call.ints(4)
    steps = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(axis, data.ndim)
        size = data.shape[axis]
        start, end = (v + size if v < 0 else v for v in (start, end))
        if step > 0:
            index[axis] = slice(min(max(start, 0), size), min(max(end, 0), size), step)
        elif step < 0:
            first, last = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
            index[axis] = slice(first, None if last < 0 else last, step)
        else:
            raise _Refused
    return [data[tuple(index)]]


def _axes(call: _Call, index: int, rank: int) -> list[int] | None:
    axes = call.ints(index)
    if axes is None:
        return None
    found = [_axis(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise _Refused
    return found


def _unsqueeze(call: _Call) -> list[Array]:
    axes = _axes(call, 1, call[0].ndim + len(call.ints(1) or ()))
    if axes is None:
        raise _Refused
    return [np.expand_dims(call[0], tuple(axes))]


def _squeeze(call: _Call) -> list[Array]:
    axes = _axes(call, 1, call[0].ndim)
    return [np.squeeze(call[0], None if axes is None else tuple(axes))]


def _reshape(call: _Call) -> list[Array]:
    data, shape = call[0], call.ints(1)
    if shape is None:
        raise _Refused
    if not call.integer("allowzero", 0):
        shape = [data.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return [data.reshape(shape)]


def _flatten(call: _Call) -> list[Array]:
    data, axis = call[0], call.integer("axis", 1)
    axis = axis + data.ndim if axis < 0 else axis
    return [data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))]


def _concat(call: _Call) -> list[Array]:
    arrays = call.present()
    if any(a.dtype != arrays[0].dtype for a in arrays):
        raise _Refused
    return [np.concatenate(arrays, _axis(call.integer("axis", 0), arrays[0].ndim))]


def _split(call: _Call) -> list[Array]:
    data = call[0]
    axis = _axis(call.integer("axis", 0), data.ndim)
    sizes = call.ints(1)
    if sizes is None:
        count = call.integer("num_outputs", call.outputs)
        chunk = -(-data.shape[axis] // count)
        sizes = [min(chunk, max(0, data.shape[axis] - i * chunk)) for i in range(count)]
    if sum(sizes) != data.shape[axis] or min(sizes, default=0) < 0 or len(sizes) != call.outputs:
        raise _Refused
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _expand(call: _Call) -> list[Array]:
    shape = np.broadcast_shapes(call[0].shape, tuple(call.ints(1) or ()))
    call.allow(shape, call[0].dtype)
    return [np.broadcast_to(call[0], shape).copy()]


def _tile(call: _Call) -> list[Array]:
    data, repeats = call[0], call.ints(1)
    if repeats is None or len(repeats) != data.ndim:
        raise _Refused
    call.allow([d * r for d, r in zip(data.shape, repeats, strict=True)], data.dtype)
    return [np.tile(data, repeats)]


def _constant_of_shape(call: _Call) -> list[Array]:
    value = call.attrs.get("value")
    fill = value.array if isinstance(value, Constant) else np.zeros(1, np.float32)
    shape = call.ints(0)
    if shape is None or fill.size != 1 or any(d < 0 for d in shape):
        raise _Refused
    call.allow(shape, fill.dtype)
    return [np.full(shape, fill.reshape(-1)[0], fill.dtype)]


def _range(call: _Call) -> list[Array]:
    start, limit, delta = (call[i].reshape(()) for i in range(3))
    _numeric(start, limit, delta)
    if delta == 0:
        raise _Refused
    count = max(math.ceil((limit.astype(np.float64) - start) / delta), 0) if start.dtype.kind == "f" else 0
    if start.dtype.kind in "iu":
        count = max(-((int(start) - int(limit)) // int(delta)), 0)
    call.allow((count,), start.dtype)
    return [np.asarray(start + np.arange(count).astype(start.dtype) * delta, dtype=start.dtype)]


def _pad(call: _Call) -> list[Array]:
    data, pads = call[0], call.ints(1)
    mode = str(call.attrs.get("mode", "constant"))
    if pads is None or mode not in ("constant", "edge", "reflect", "wrap"):
        raise _Refused
    axes = _axes(call, 3, data.ndim)
    axes = list(range(data.ndim)) if axes is None else axes
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    if mode != "constant" and any(w < 0 for pair in widths for w in pair):
        raise _Refused
    crop = tuple(slice(max(-low, 0), data.shape[i] - max(-high, 0)) for i, (low, high) in enumerate(widths))
    grow = [(max(low, 0), max(high, 0)) for low, high in widths]
    call.allow([d + sum(w) for d, w in zip(data.shape, grow, strict=True)], data.dtype)
    if mode == "constant":
        fill = call.get(2)
        value = np.zeros((), data.dtype) if fill is None or not fill.size else fill.reshape(-1)[0]
        found = np.full([d + sum(w) for d, w in zip(data[crop].shape, grow, strict=True)], value, data.dtype)
        inner = tuple(slice(w[0], w[0] + d) for d, w in zip(data[crop].shape, grow, strict=True))
        found[inner] = data[crop]
        return [found]
    return [np.pad(data, grow, mode=mode)]  # type: ignore[call-overload]


def _transpose(call: _Call) -> list[Array]:
    return [np.transpose(call[0], call.tuple("perm"))]


def _shape(call: _Call) -> list[Array]:
    shape = call[0].shape
    end = call.attrs.get("end")
    return [np.array(shape[call.integer("start", 0) : end if isinstance(end, int) else None], np.int64)]


def _size(call: _Call) -> list[Array]:
    return [np.array(call[0].size, np.int64)]


def _reduction(function: Callable[..., Array], *, maps: bool = False) -> _Fast:
    def run(call: _Call) -> list[Array]:
        data = call[0]
        _numeric(data)
        axes = _axes(call, 1, data.ndim) or []
        if not axes and call.integer("noop_with_empty_axes", 0):
            if maps:
                raise _Refused  # what an operator with a map before its sum does then is for the reference to say
            return [data]
        if not data.size or data.dtype.kind not in "iuf":
            raise _Refused
        axis = tuple(axes) if axes else tuple(range(data.ndim))
        wide = data.astype(np.float64) if data.dtype.kind == "f" else data
        found = function(wide, axis=axis, keepdims=bool(call.integer("keepdims", 1)))
        return [np.asarray(found).astype(data.dtype)]

    return run


def _mean(data: Array, **how: Any) -> Array:
    if data.dtype.kind != "f":
        raise _Refused
    return np.asarray(np.mean(data, **how))


def _matmul(call: _Call) -> list[Array]:
    a, b = call[0], call[1]
    _numeric(a, b)
    return [np.asarray(np.matmul(a, b), dtype=a.dtype)]


def _gemm(call: _Call) -> list[Array]:
    a, b, c = call[0], call[1], call.get(2)
    _numeric(a, b)
    if a.dtype.kind != "f":
        raise _Refused
    alpha, beta = (np.asarray(call.attrs.get(name, 1.0), a.dtype) for name in ("alpha", "beta"))
    found = alpha * ((a.T if call.integer("transA", 0) else a) @ (b.T if call.integer("transB", 0) else b))
    return [np.asarray(found if c is None else found + beta * c, dtype=a.dtype)]


def _einsum(call: _Call) -> list[Array]:
    arrays = call.present()
    _numeric(*arrays)
    found = np.einsum(str(call.attrs["equation"]).replace(" ", ""), *arrays, optimize=True)
    return [np.asarray(found, dtype=arrays[0].dtype)]


def _trilu(call: _Call) -> list[Array]:
    k = call.ints(1)
    function = np.triu if call.integer("upper", 1) else np.tril
    return [np.asarray(function(call[0], k[0] if k else 0))]


def _mean_of(call: _Call) -> list[Array]:
    total = _FAST["Sum"](call)[0]
    return [np.asarray(total / np.asarray(len(call.arrays), total.dtype), dtype=total.dtype)]


_FAST: dict[str, _Fast] = {
    "Identity": lambda call: [call[0]],
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_div),
    "Mod": _mod,
    "Pow": _pow,
    "Equal": _compare(np.equal),
    "Greater": _compare(np.greater),
    "GreaterOrEqual": _compare(np.greater_equal),
    "Less": _compare(np.less),
    "LessOrEqual": _compare(np.less_equal),
    "And": _compare(np.logical_and),
    "Or": _compare(np.logical_or),
    "Xor": _compare(np.logical_xor),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Sign": _unary(np.sign),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Relu": _unary(lambda x: np.maximum(x, np.zeros((), x.dtype))),
    "Sqrt": _real(np.sqrt),
    "Exp": _real(np.exp),
    "Log": _real(np.log),
    "Reciprocal": _real(np.reciprocal),
    "Sin": _real(np.sin),
    "Cos": _real(np.cos),
    "Tanh": _real(np.tanh),
    "Erf": _real(_erf),
    "Sigmoid": _real(_sigmoid),
    "Min": _variadic(np.minimum),
    "Max": _variadic(np.maximum),
    "Sum": _variadic(np.add),
    "Mean": _mean_of,
    "Where": _where,
    "Clip": _clip,
    "Cast": _cast,
    "CastLike": lambda call: [cast(call[0], call[1].dtype)],
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Pad": _pad,
    "Transpose": _transpose,
    "Shape": _shape,
    "Size": _size,
    "Trilu": _trilu,
    "ReduceSum": _reduction(np.sum),
    "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceMean": _reduction(_mean),
    "ReduceSumSquare": _reduction(lambda x, **how: np.sum(x * x, **how), maps=True),
    "ReduceL1": _reduction(lambda x, **how: np.sum(np.abs(x), **how), maps=True),
    "ReduceL2": _reduction(lambda x, **how: np.sqrt(np.sum(x * x, **how)), maps=True),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}


# --- the reference implementation ------------------------------------------------------------------------------------


def attribute(name: str, value: AttrValue) -> Any:
    """An attribute as an ONNX `AttributeProto`; `_Refused` for graphs and types."""
    import onnx

    if isinstance(value, Graph | OtherType) or (isinstance(value, tuple) and any(isinstance(v, Graph) for v in value)):
        raise _Refused
    if isinstance(value, Constant):
        return onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value.array))
    if isinstance(value, tuple):
        kind = onnx.AttributeProto.INTS if not value else None
        return onnx.helper.make_attribute(name, list(value), attr_type=kind)
    return onnx.helper.make_attribute(name, value)


def _reference(op: str, attrs: Attrs, arrays: Sequence[Array | None], n_outputs: int) -> list[Array]:
    """One operator by `onnx.reference`."""
    if sum(a.size for a in arrays if a is not None) > REFERENCE_LIMIT:
        raise _Refused
    try:
        found = run_reference(op, attrs, arrays, n_outputs)
    except Exception as error:  # whatever the reference implementation trips over, the operator is not evaluated
        raise _Refused from error
    if any(not isinstance(a, np.ndarray | np.generic) for a in found):
        raise _Refused
    return [np.asarray(a) for a in found]


def run_reference(op: str, attrs: Attrs, arrays: Sequence[Any], n_outputs: int) -> list[Any]:
    """One operator by `onnx.reference`, on values of any kind (a sequence is a list), None where absent.

    Raises whatever the reference implementation trips over."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    domain, name, version = split_name(op)
    names = ["" if a is None else f"i{i}" for i, a in enumerate(arrays)]
    outs = [f"o{i}" for i in range(n_outputs)]
    node = onnx.helper.make_node(name, names, outs, domain=domain)
    known = signature(op)
    formals = known.attributes if known is not None else {}
    for key, value in attrs.items():
        # a default is left out: the implementation may not know an attribute that came with a newer opset
        if not key.startswith("$") and (key not in formals or formals[key].default != value):
            node.attribute.append(attribute(key, value))
    inputs = []
    for n, a in zip(names, arrays, strict=True):
        if isinstance(a, list):
            inputs.append(onnx.ValueInfoProto(name=n))
        elif a is not None:  # typed: an operator that is defined as a function of others is expanded for these types
            kind = onnx.helper.np_dtype_to_tensor_dtype(a.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(n, kind, a.shape))
    graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=n) for n in outs])
    schema = find_schema(op)
    assert schema is not None
    current = WORKING_OPSET if not domain else schema.since_version
    imports = [onnx.helper.make_opsetid(domain, version or current)]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    return list(ReferenceEvaluator(model).run(None, given))
