"""Adapters downwards: `DOWN[op, version]` takes a node from this version to the one before.

They raise `NotExpressible` where the older version has no words for the node, naming this version as what is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..graph import AttrValue, Node
from ..symbolic import Dim, known, product, same
from .common import Context, NotExpressible, get, int64, ints, with_attrs, with_inputs

Adapter = Callable[[Node, Context], "list[Node]"]
DOWN: dict[tuple[str, int], Adapter] = {}
LOWEST = {"Resize": 7, "ScatterElements": 9}
"""Operators that an older one stands in for before their first version, and from which opset on."""


def down(version: int, *ops: str) -> Callable[[Adapter], Adapter]:
    """Registers an adapter from `version` of the operators to the version before."""

    def register(adapter: Adapter) -> Adapter:
        for op in ops:
            DOWN[op, version] = adapter
        return adapter

    return register


def _contents(node: Node, i: int, ctx: Context, needs: int) -> np.ndarray:
    constant = ctx.constant(get(node, i))
    if constant is None:
        raise NotExpressible(node, needs)
    return constant.array


def _list(node: Node, i: int, ctx: Context, needs: int) -> tuple[int, ...]:
    return tuple(int(v) for v in _contents(node, i, ctx, needs).reshape(-1))


@down(7, "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def broadcast_by_axis(node: Node, ctx: Context) -> list[Node]:
    """B's dims, without leading and trailing 1s, must stand in A's somewhere; A must have the result's shape."""
    a, b = (ctx.type(i).shape for i in node.inputs)
    if a is None or b is None:
        raise NotExpressible(node, 7)
    if len(a) == len(b) and all(map(same, a, b)):
        return [with_attrs(node, broadcast=0)]
    constant = ctx.constant(node.inputs[1])
    lead = next((i for i, d in enumerate(b) if d != 1), len(b))
    trail = next((i for i, d in enumerate(reversed(b)) if d != 1), 0)
    core = b[lead : len(b) - trail]
    axis = len(a) - trail - len(core)
    if axis < 0 or not all(map(same, core, a[axis : axis + len(core)])) or (constant is None and (lead or trail)):
        raise NotExpressible(node, 7)
    if constant is None:
        return [with_attrs(node, broadcast=1)]
    shape = tuple(d for d in core if isinstance(d, int)) or (1,)
    name = ctx.add_constant(constant.array.reshape(shape), node.inputs[1])
    if not core:
        return [with_inputs(with_attrs(node, broadcast=1), node.inputs[0], name)]
    return [with_inputs(with_attrs(node, broadcast=1, axis=axis), node.inputs[0], name)]


@down(8, "Max", "Min", "Mean", "Sum")
def same_shapes(node: Node, ctx: Context) -> list[Node]:
    """Before 8 nothing broadcasts here."""
    shapes = [ctx.type(i).shape for i in node.inputs]
    first = shapes[0]
    if first is None or any(s is None or len(s) != len(first) or not all(map(same, s, first)) for s in shapes):
        raise NotExpressible(node, 8)
    return [node]


@down(7, "Gemm")
def gemm_7(node: Node, ctx: Context) -> list[Node]:
    """C broadcasts only if told to."""
    return [with_attrs(node, broadcast=1)]


@down(11, "Gemm")
def gemm_11(node: Node, ctx: Context) -> list[Node]:
    """C has to be there."""
    if get(node, 2):
        return [node]
    dtype = ctx.type(node.inputs[0]).dtype
    if dtype is None:
        raise NotExpressible(node, 11)
    zero = ctx.add_constant(np.zeros(1, dtype.numpy), f"{node.outputs[0]}_zero")
    return [with_inputs(node, node.inputs[0], node.inputs[1], zero)]


@down(7, "PRelu")
def prelu_7(node: Node, ctx: Context) -> list[Node]:
    """The slope is one number or one for each channel."""
    x, slope = ctx.type(node.inputs[0]).shape, ctx.type(node.inputs[1]).shape
    if slope is None or x is None:
        raise NotExpressible(node, 7)
    if product(slope) == 1 and len(slope) <= 1:
        return [node]
    constant = ctx.constant(node.inputs[1])
    padded = (1,) * (len(x) - len(slope)) + slope
    if constant is None or len(x) < 2 or any(d != 1 for i, d in enumerate(padded) if i != 1):
        raise NotExpressible(node, 7)
    return [with_inputs(node, node.inputs[0], ctx.add_constant(constant.array.reshape(-1), node.inputs[1]))]


@down(6, "Cast")
def cast_6(node: Node, ctx: Context) -> list[Node]:
    """The type is written out."""
    import onnx

    return [with_attrs(node, to=onnx.TensorProto.DataType.Name(node.attrs["to"]))]


@down(11, "Clip")
def clip_11(node: Node, ctx: Context) -> list[Node]:
    """The bounds become attributes; what is absent is the largest number, which differs only for infinities."""
    bounds: dict[str, AttrValue] = {}
    for i, name in ((1, "min"), (2, "max")):
        if not get(node, i):
            raise NotExpressible(node, 11)
        array = _contents(node, i, ctx, 11)
        value = float(array.reshape(-1)[0])
        if array.dtype.kind != "f" or value != float(np.float32(value)):
            raise NotExpressible(node, 11)
        bounds[name] = value
    return [with_inputs(replace(node, attrs={**node.attrs, **bounds}), node.inputs[0])]


@down(14, "BatchNormalization")
def batch_normalization_14(node: Node, ctx: Context) -> list[Node]:
    """Not in training."""
    if node.attrs.get("training_mode") or len(node.outputs) > 1:
        raise NotExpressible(node, 14)
    return [with_attrs(node, ("training_mode",))]


@down(7, "BatchNormalization")
@down(7, "Dropout")
def is_test(node: Node, ctx: Context) -> list[Node]:
    """Not in training."""
    return [with_attrs(node, is_test=1)]


@down(6, "BatchNormalization")
def consumed(node: Node, ctx: Context) -> list[Node]:
    """A hint about memory was required."""
    return [with_attrs(node, consumed_inputs=(0, 0, 0, 1, 1))]


@down(10, "Dropout")
def dropout_10(node: Node, ctx: Context) -> list[Node]:
    """The mask was not boolean."""
    if len(node.outputs) > 1:
        raise NotExpressible(node, 10)
    return [node]


@down(12, "Dropout")
def dropout_12(node: Node, ctx: Context) -> list[Node]:
    """The ratio, which says nothing where it is not training, is left at its default."""
    if get(node, 2) or len(node.outputs) > 1:
        raise NotExpressible(node, 12)
    return [with_inputs(with_attrs(node, ("seed",)), node.inputs[0])]


@down(7, "GRU", "LSTM", "RNN")
def recurrent_7(node: Node, ctx: Context) -> list[Node]:
    """All states are an output only if asked for."""
    return [with_attrs(node, output_sequence=int(bool(node.outputs[0])))]


@down(2, "GlobalLpPool", "LpPool")
def lp_pool_2(node: Node, ctx: Context) -> list[Node]:
    """The exponent was a float."""
    p = node.attrs.get("p", 2)
    assert isinstance(p, int)
    return [with_attrs(node, p=float(p))]


@down(2, "Pad")
def pad_2(node: Node, ctx: Context) -> list[Node]:
    """An attribute had another name."""
    return [with_attrs(node, ("pads",), paddings=node.attrs["pads"])]


@down(11, "Pad")
def pad_11(node: Node, ctx: Context) -> list[Node]:
    """Pads and value become attributes."""
    value = float(_contents(node, 2, ctx, 11).reshape(-1)[0]) if get(node, 2) else 0.0
    dtype = ctx.type(node.inputs[0]).dtype
    if value != float(np.float32(value)) or dtype is None or not dtype.is_float:
        raise NotExpressible(node, 11)
    return [with_inputs(with_attrs(node, pads=_list(node, 1, ctx, 11), value=value), node.inputs[0])]


@down(18, "Pad")
def pad_18(node: Node, ctx: Context) -> list[Node]:
    """Pads are for all axes."""
    if not get(node, 3):
        return [node]
    rank = ctx.type(node.inputs[0]).rank
    if rank is None:
        raise NotExpressible(node, 18)
    some, axes = _list(node, 1, ctx, 18), _list(node, 3, ctx, 18)
    pads = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        pads[axis % rank], pads[axis % rank + rank] = some[i], some[i + len(axes)]
    name = ctx.add_constant(int64(pads), f"{node.outputs[0]}_pads")
    return [with_inputs(node, node.inputs[0], name, get(node, 2))]


def _axes_as_attribute(needs: int) -> Adapter:
    def adapter(node: Node, ctx: Context) -> list[Node]:
        axes = _list(node, 1, ctx, needs) if get(node, 1) else ()
        if node.attrs.get("noop_with_empty_axes") and not axes:
            raise NotExpressible(node, needs)
        plain = with_inputs(with_attrs(node, ("noop_with_empty_axes",)), node.inputs[0])
        return [with_attrs(plain, axes=axes) if axes or node.op == "Unsqueeze" else plain]

    return adapter


for _op in ("ReduceSum", "Squeeze", "Unsqueeze"):
    DOWN[_op, 13] = _axes_as_attribute(13)
for _op in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"):
    DOWN[f"Reduce{_op}", 18] = _axes_as_attribute(18)


def _axis_at_11(node: Node, ctx: Context) -> list[Node]:
    """Before 11 axes count from the front only."""
    axis, axes = node.attrs.get("axis"), ints(node, "axes")
    rank = ctx.type(node.inputs[0]).rank
    if node.op == "Unsqueeze" and rank is not None and axes is not None:
        rank += len(axes)
    if isinstance(axis, int) and axis < 0:
        if rank is None:
            raise NotExpressible(node, 11)
        node = with_attrs(node, axis=axis + rank)
    if axes is not None and any(a < 0 for a in axes):
        if rank is None:
            raise NotExpressible(node, 11)
        node = with_attrs(node, axes=tuple(a + rank if a < 0 else a for a in axes))
    return [node]


for _op in (
    *("ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Gather", "Hardmax", "LogSoftmax", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
    *("ReduceSumSquare", "Softmax", "Split", "Squeeze", "Unsqueeze"),
):
    DOWN[_op, 11] = _axis_at_11


@down(5, "Reshape")
def reshape_5(node: Node, ctx: Context) -> list[Node]:
    """The target shape becomes an attribute."""
    return [with_inputs(with_attrs(node, shape=_list(node, 1, ctx, 5)), node.inputs[0])]


@down(18, "Resize")
def resize_18(node: Node, ctx: Context) -> list[Node]:
    """No antialiasing, all axes."""
    if node.attrs.get("antialias") or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotExpressible(node, 18)
    axes, rank = ints(node, "axes"), ctx.type(node.inputs[0]).rank
    node = with_attrs(node, ("antialias", "keep_aspect_ratio_policy", "axes"))
    if node.attrs.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        raise NotExpressible(node, 19)
    if axes is None or axes == tuple(range(rank or 0)):
        return [node]
    if rank is None or get(node, 3) or get(node, 1):
        raise NotExpressible(node, 18)
    scales = np.ones(rank, np.float32)
    scales[list(axes)] = _contents(node, 2, ctx, 18).reshape(-1)
    return [with_inputs(node, node.inputs[0], "", ctx.add_constant(scales, f"{node.outputs[0]}_scales"))]


@down(13, "Resize")
def resize_13(node: Node, ctx: Context) -> list[Node]:
    """What is absent is given as an empty list."""
    empty = np.zeros(0, np.float32)
    roi = get(node, 1) or ctx.add_constant(empty, f"{node.outputs[0]}_roi")
    scales = get(node, 2) or ctx.add_constant(empty, f"{node.outputs[0]}_scales")
    return [with_inputs(node, node.inputs[0], roi, scales, get(node, 3))]


@down(11, "Resize")
def resize_11(node: Node, ctx: Context) -> list[Node]:
    """Only `asymmetric` sampling was there, and "nearest" took the pixel before when enlarging."""
    scales = _contents(node, 2, ctx, 11)
    mode = node.attrs.get("mode")
    if (
        node.attrs.get("coordinate_transformation_mode") != "asymmetric"
        or get(node, 3)
        or mode not in ("nearest", "linear")
        or (mode == "nearest" and (node.attrs.get("nearest_mode") != "floor" or not bool(np.all(scales >= 1))))
    ):
        raise NotExpressible(node, 11)
    gone = (
        "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value"
    )  # fmt: skip
    return [with_inputs(with_attrs(node, gone), node.inputs[0], node.inputs[2])]


@down(10, "Resize")
def resize_10(node: Node, ctx: Context) -> list[Node]:
    """Upsample stands in; its scales are at least 1."""
    if not bool(np.all(_contents(node, 1, ctx, 10) >= 1)):
        raise NotExpressible(node, 10)
    return [replace(node, op="Upsample")]


@down(9, "Upsample")
def upsample_9(node: Node, ctx: Context) -> list[Node]:
    """The scales become an attribute."""
    scales = tuple(float(v) for v in _contents(node, 1, ctx, 9).reshape(-1))
    return [with_inputs(with_attrs(node, scales=scales), node.inputs[0])]


@down(7, "Upsample")
def upsample_7(node: Node, ctx: Context) -> list[Node]:
    """A list of scales becomes two."""
    scales = node.attrs["scales"]
    if not isinstance(scales, tuple) or len(scales) != 4 or scales[:2] != (1.0, 1.0):
        raise NotExpressible(node, 7)
    return [with_attrs(node, ("scales",), height_scale=scales[2], width_scale=scales[3])]


@down(16, "RoiAlign")
def roi_align_16(node: Node, ctx: Context) -> list[Node]:
    """No shift by half a pixel."""
    if node.attrs.get("coordinate_transformation_mode") != "output_half_pixel":
        raise NotExpressible(node, 16)
    return [with_attrs(node, ("coordinate_transformation_mode",))]


@down(20, "GridSample")
def grid_sample_20(node: Node, ctx: Context) -> list[Node]:
    """Modes had other names."""
    mode = str(node.attrs.get("mode", "linear"))
    if ctx.type(node.inputs[0]).rank != 4:
        raise NotExpressible(node, 20)
    return [with_attrs(node, mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode))]


@down(20, "DFT")
def dft_20(node: Node, ctx: Context) -> list[Node]:
    """The axis becomes an attribute."""
    rank = ctx.type(node.inputs[0]).rank
    if rank is None:
        raise NotExpressible(node, 20)
    axis = _list(node, 2, ctx, 20)[0] if get(node, 2) else -2
    return [with_inputs(with_attrs(node, axis=axis % rank), node.inputs[0], get(node, 1))]


@down(18, "ScatterElements", "ScatterND")
def scatter_18(node: Node, ctx: Context) -> list[Node]:
    """Two kinds of reduction fewer."""
    if node.attrs.get("reduction", "none") in ("max", "min"):
        raise NotExpressible(node, 18)
    return [node]


@down(11, "ScatterElements")
def scatter_11(node: Node, ctx: Context) -> list[Node]:
    """Scatter stands in."""
    return [replace(node, op="Scatter")]


@down(10, "Slice")
def slice_10(node: Node, ctx: Context) -> list[Node]:
    """The bounds become attributes; steps were not there."""
    starts, ends = _list(node, 1, ctx, 10), _list(node, 2, ctx, 10)
    axes = _list(node, 3, ctx, 10) if get(node, 3) else tuple(range(len(starts)))
    if get(node, 4) and set(_list(node, 4, ctx, 10)) - {1}:
        raise NotExpressible(node, 10)
    rank = ctx.type(node.inputs[0]).rank
    if any(a < 0 for a in axes):
        if rank is None:
            raise NotExpressible(node, 10)
        axes = tuple(a % rank for a in axes)
    return [with_inputs(with_attrs(node, starts=starts, ends=ends, axes=axes), node.inputs[0])]


@down(13, "Softmax", "LogSoftmax", "Hardmax")
def softmax_13(node: Node, ctx: Context) -> list[Node]:
    """All axes from `axis` on were taken together: the same if those after it are 1."""
    shape, axis = ctx.type(node.inputs[0]).shape, node.attrs.get("axis", -1)
    if shape is None or not isinstance(axis, int):
        raise NotExpressible(node, 13)
    axis %= len(shape)
    if any(d != 1 for d in shape[axis + 1 :]):
        raise NotExpressible(node, 13)
    return [with_attrs(node, axis=axis)]


@down(13, "Split")
def split_13(node: Node, ctx: Context) -> list[Node]:
    """The sizes become an attribute."""
    if not get(node, 1):
        return [node]
    return [with_inputs(with_attrs(node, split=_list(node, 1, ctx, 13)), node.inputs[0])]


@down(18, "Split")
def split_18(node: Node, ctx: Context) -> list[Node]:
    """Pieces are equal, or their sizes given."""
    if get(node, 1):
        return [node]
    shape, axis, n = ctx.type(node.inputs[0]).shape, node.attrs.get("axis", 0), len(node.outputs)
    whole: Dim | None = shape[axis] if shape is not None and isinstance(axis, int) else None
    plain = with_attrs(node, ("num_outputs",))
    if whole is None or not known(whole):
        if whole is not None and isinstance(whole % n, int) and whole % n == 0:
            return [plain]
        raise NotExpressible(node, 18)
    assert isinstance(whole, int)
    if whole % n == 0:
        return [plain]
    chunk = -(-whole // n)
    sizes = [chunk] * (n - 1) + [whole - chunk * (n - 1)]
    return [with_inputs(plain, node.inputs[0], ctx.add_constant(int64(sizes), f"{node.outputs[0]}_split"))]


@down(6, "Tile")
def tile_6(node: Node, ctx: Context) -> list[Node]:
    """One axis at a time was repeated."""
    repeats = _list(node, 1, ctx, 6)
    axes = [i for i, r in enumerate(repeats) if r != 1]
    if len(axes) > 1 or not repeats:
        raise NotExpressible(node, 6)
    axis = axes[0] if axes else 0
    tiles = ctx.add_constant(int64([repeats[axis]]), f"{node.outputs[0]}_tiles")
    return [with_inputs(node, node.inputs[0], tiles, ctx.add_constant(int64([axis]), f"{node.outputs[0]}_axis"))]


@down(10, "TopK")
def top_k_10(node: Node, ctx: Context) -> list[Node]:
    """The count becomes an attribute."""
    return [with_inputs(with_attrs(node, k=_list(node, 1, ctx, 10)[0]), node.inputs[0])]


@down(11, "TopK")
def top_k_11(node: Node, ctx: Context) -> list[Node]:
    """The largest come first."""
    rank, axis = ctx.type(node.inputs[0]).rank, node.attrs.get("axis", -1)
    if not node.attrs.get("largest", 1) or not isinstance(axis, int) or (axis < 0 and rank is None and axis != -1):
        raise NotExpressible(node, 11)
    return [with_attrs(node, ("largest", "sorted"), axis=axis + rank if axis < 0 and rank is not None else axis)]
