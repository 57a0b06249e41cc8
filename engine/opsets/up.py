"""Adapters upwards: `UP[op, version]` takes a node from the version before to this one.

An adapter gets a node with all attributes of its old version filled in, and gives nodes of which the last makes the
node's outputs; or None if there is no way (known constants or ranks are missing), and the operator stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..graph import Node
from ..symbolic import product, same
from .common import Context, get, int64, ints, new_node, with_attrs, with_inputs

Adapter = Callable[[Node, Context], "list[Node] | None"]
UP: dict[tuple[str, int], Adapter] = {}


def up(version: int, *ops: str) -> Callable[[Adapter], Adapter]:
    """Registers an adapter to `version` of the operators."""

    def register(adapter: Adapter) -> Adapter:
        for op in ops:
            UP[op, version] = adapter
        return adapter

    return register


@up(7, "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def broadcast_by_axis(node: Node, ctx: Context) -> list[Node] | None:
    """Before 7, B broadcasts only if `broadcast` is set, its dims standing at `axis` of A's."""
    plain = with_attrs(node, ("broadcast", "axis", "consumed_inputs"))
    axis = node.attrs.get("axis")
    if not node.attrs.get("broadcast") or not isinstance(axis, int):
        return [plain]
    a, b = ctx.type(node.inputs[0]).rank, ctx.type(node.inputs[1]).rank
    if a is None or b is None:
        return None
    trailing = a - b - (axis + a if axis < 0 else axis)
    if trailing < 0:
        return None
    if trailing == 0:
        return [plain]
    constant = ctx.constant(node.inputs[1])
    if constant is not None:
        shaped = constant.array.reshape(constant.array.shape + (1,) * trailing)
        return [with_inputs(plain, node.inputs[0], ctx.add_constant(shaped, node.inputs[1]))]
    axes = ctx.add_constant(int64(range(b, b + trailing)), f"{node.inputs[1]}_axes")
    wide = new_node(node, "Unsqueeze", (node.inputs[1], axes), ctx, f"{node.inputs[1]}_wide")
    return [wide, with_inputs(plain, node.inputs[0], wide.outputs[0])]


@up(7, "Gemm")
def gemm_7(node: Node, ctx: Context) -> list[Node] | None:
    """From 7 on C always broadcasts."""
    return [with_attrs(node, ("broadcast",))]


@up(7, "PRelu")
def prelu_7(node: Node, ctx: Context) -> list[Node] | None:
    """Before 7 the slope is one number or one for each channel."""
    x, slope = ctx.type(node.inputs[0]), ctx.type(node.inputs[1])
    if slope.shape is None:
        return None
    if product(slope.shape) == 1:
        return [node]
    if x.rank is None or len(slope.shape) != 1 or x.rank < 2:
        return None
    if x.rank == 2:
        return [node]
    axes = ctx.add_constant(int64(range(1, x.rank - 1)), f"{node.inputs[1]}_axes")
    wide = new_node(node, "Unsqueeze", (node.inputs[1], axes), ctx, f"{node.inputs[1]}_wide")
    return [wide, with_inputs(node, node.inputs[0], wide.outputs[0])]


@up(6, "Cast")
def cast_6(node: Node, ctx: Context) -> list[Node] | None:
    """Before 6 the type is written out."""
    import onnx

    name = node.attrs.get("to")
    if not isinstance(name, str) or name.upper() not in onnx.TensorProto.DataType.keys():  # noqa: SIM118
        return None
    return [with_attrs(node, to=int(onnx.TensorProto.DataType.Value(name.upper())))]


@up(6, "Clip")
def clip_6(node: Node, ctx: Context) -> list[Node] | None:
    """An absent bound is none; from 6 to 10 its default is the largest number instead, which 11 drops again."""
    return [with_attrs(node, ("consumed_inputs",))]


@up(11, "Clip")
def clip_11(node: Node, ctx: Context) -> list[Node] | None:
    """The bounds become inputs."""
    dtype = ctx.type(node.inputs[0]).dtype
    bounds = [node.attrs.get("min"), node.attrs.get("max")]
    if dtype is None and any(b is not None for b in bounds):
        return None
    names = [
        "" if b is None or dtype is None else ctx.add_constant(np.array(b, dtype.numpy), f"{node.outputs[0]}_{which}")
        for b, which in zip(bounds, ("min", "max"), strict=True)
    ]
    return [with_inputs(with_attrs(node, ("min", "max")), node.inputs[0], *names)]


@up(4, "Concat")
def concat_4(node: Node, ctx: Context) -> list[Node] | None:
    """The axis was 1 where it was not given."""
    return [with_attrs(node, axis=node.attrs.get("axis", 1))]


@up(6, "Dropout")
@up(6, "BatchNormalization")
def drop_consumed(node: Node, ctx: Context) -> list[Node] | None:
    """A hint about memory goes."""
    return [with_attrs(node, ("consumed_inputs",))]


@up(7, "BatchNormalization")
def batch_normalization_7(node: Node, ctx: Context) -> list[Node] | None:
    """Training was told by `is_test`, and is by several outputs from 7 on; a model with one output is for use."""
    return [with_attrs(node, ("is_test",))] if len(node.outputs) == 1 else None


@up(9, "BatchNormalization")
def batch_normalization_9(node: Node, ctx: Context) -> list[Node] | None:
    """Statistics for each position instead of each channel are no more."""
    return [with_attrs(node, ("spatial",))] if node.attrs.get("spatial", 1) else None


@up(14, "BatchNormalization")
def batch_normalization_14(node: Node, ctx: Context) -> list[Node] | None:
    """Training is told by an attribute instead of several outputs."""
    return [with_attrs(node, training_mode=0)] if len(node.outputs) == 1 else None


@up(7, "Dropout")
def dropout_7(node: Node, ctx: Context) -> list[Node] | None:
    """Before 7 `is_test` told training, by default; a model read here is for use, where Dropout does nothing."""
    return [with_attrs(node, ("is_test",))]


@up(10, "Dropout")
def dropout_10(node: Node, ctx: Context) -> list[Node] | None:
    """The mask becomes boolean."""
    if len(node.outputs) > 1 and ctx.is_used(node.outputs[1]):
        return None
    return [replace(node, outputs=node.outputs[:1])]


@up(12, "Dropout")
def dropout_12(node: Node, ctx: Context) -> list[Node] | None:
    """The ratio becomes an input, and training a flag that is off unless given: the ratio says nothing then.

    The mask is all true from 12 on where it is not training; before, that was not said."""
    if len(node.outputs) > 1:
        return None
    return [with_attrs(node, ("ratio",))]


def for_use(node: Node, ctx: Context) -> bool:
    """Whether a Dropout of version 12 or later is certainly not in training mode, in which it is random."""
    flag = get(node, 2)
    if not flag:
        return True
    constant = ctx.constant(flag)
    return constant is not None and constant.array.size == 1 and not constant.array.reshape(-1)[0]


@up(3, "GRU")
def gru_3(node: Node, ctx: Context) -> list[Node] | None:
    """The default direction was misspelt."""
    direction = node.attrs.get("direction")
    return [with_attrs(node, direction="forward" if direction == "foward" else direction or "forward")]


@up(7, "GRU", "LSTM", "RNN")
def recurrent_7(node: Node, ctx: Context) -> list[Node] | None:
    """Outputs are there if they are named."""
    return [with_attrs(node, ("output_sequence",))]


@up(2, "GlobalLpPool", "LpPool")
def lp_pool_2(node: Node, ctx: Context) -> list[Node] | None:
    """The exponent becomes an integer."""
    p = node.attrs.get("p", 2.0)
    if not isinstance(p, int | float) or p != int(p) or (node.op == "LpPool" and "kernel_shape" not in node.attrs):
        return None
    return [with_attrs(node, p=int(p))]


@up(2, "Pad")
def pad_2(node: Node, ctx: Context) -> list[Node] | None:
    """An attribute changes its name."""
    pads = ints(node, "paddings")
    return None if pads is None else [with_attrs(node, ("paddings",), pads=pads)]


@up(11, "Pad")
def pad_11(node: Node, ctx: Context) -> list[Node] | None:
    """The pads and the value become inputs."""
    pads, value, dtype = ints(node, "pads"), node.attrs.get("value", 0.0), ctx.type(node.inputs[0]).dtype
    if pads is None or (dtype is None and value):
        return None
    names = [ctx.add_constant(int64(pads), f"{node.outputs[0]}_pads")]
    if value and dtype is not None:
        names.append(ctx.add_constant(np.array(value, dtype.numpy), f"{node.outputs[0]}_value"))
    return [with_inputs(with_attrs(node, ("pads", "value")), node.inputs[0], *names)]


@up(13, "ReduceSum", "Squeeze", "Unsqueeze")
@up(18, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin")
@up(18, "ReduceProd", "ReduceSumSquare")
def axes_as_input(node: Node, ctx: Context) -> list[Node] | None:
    """The axes become an input."""
    axes = ints(node, "axes")
    plain = with_attrs(node, ("axes",))
    if axes is None or (not axes and node.op.startswith("Reduce")):
        return [plain]
    return [with_inputs(plain, node.inputs[0], ctx.add_constant(int64(axes), f"{node.outputs[0]}_axes"))]


@up(5, "Reshape")
def reshape_5(node: Node, ctx: Context) -> list[Node] | None:
    """The target shape becomes an input."""
    shape = ints(node, "shape")
    if shape is None:
        return None
    plain = with_attrs(node, ("shape", "consumed_inputs"))
    return [with_inputs(plain, node.inputs[0], ctx.add_constant(int64(shape), f"{node.outputs[0]}_shape"))]


@up(11, "Resize")
def resize_11(node: Node, ctx: Context) -> list[Node] | None:
    """Resize of 10 samples at `output / scale`; "nearest" takes the pixel before, when enlarging."""
    mode = node.attrs.get("mode", "nearest")
    constant = ctx.constant(get(node, 1))
    if mode not in ("nearest", "linear") or (
        mode == "nearest" and (constant is None or not bool(np.all(constant.array.astype(np.float64) >= 1)))
    ):
        return None  # shrinking by "nearest" is done differently by different runtimes
    return [
        replace(
            with_attrs(
                node,
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
                cubic_coeff_a=-0.75,
                exclude_outside=0,
                extrapolation_value=0.0,
            ),
            inputs=(node.inputs[0], "", node.inputs[1]),
        )
    ]


@up(13, "Resize")
def resize_13(node: Node, ctx: Context) -> list[Node] | None:
    """What is not given becomes absent instead of empty."""
    inputs = list(node.inputs)
    for i in (1, 2):
        if i < len(inputs) and inputs[i]:
            constant = ctx.constant(inputs[i])
            shape = ctx.type(inputs[i]).shape
            if (constant is not None and constant.array.size == 0) or shape == (0,):
                inputs[i] = ""
    return [with_inputs(node, *inputs)]


@up(7, "Upsample")
def upsample_7(node: Node, ctx: Context) -> list[Node] | None:
    """Two scales become a list."""
    scales = (1.0, 1.0, node.attrs.get("height_scale", 1.0), node.attrs.get("width_scale", 1.0))
    return [with_attrs(node, ("height_scale", "width_scale"), scales=scales)]  # type: ignore[arg-type]


@up(9, "Upsample")
def upsample_9(node: Node, ctx: Context) -> list[Node] | None:
    """The scales become an input."""
    scales = node.attrs.get("scales")
    if not isinstance(scales, tuple):
        return None
    name = ctx.add_constant(np.array(scales, np.float32), f"{node.outputs[0]}_scales")
    return [with_inputs(with_attrs(node, ("scales",)), node.inputs[0], name)]


@up(10, "Upsample")
def upsample_10(node: Node, ctx: Context) -> list[Node] | None:
    """Resize takes over; scales are 1 or more here by definition. Ones that are not known could not be written back."""
    if node.attrs.get("mode") not in ("nearest", "linear") or ctx.constant(node.inputs[1]) is None:
        return None
    return [
        replace(
            with_attrs(node, coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
            op="Resize",
            inputs=(node.inputs[0], "", node.inputs[1]),
        )
    ]


@up(16, "RoiAlign")
def roi_align_16(node: Node, ctx: Context) -> list[Node] | None:
    """The default shifts by half a pixel from 16 on; it did not before."""
    return [with_attrs(node, coordinate_transformation_mode="output_half_pixel")]


@up(20, "GridSample")
def grid_sample_20(node: Node, ctx: Context) -> list[Node] | None:
    """Modes change their names."""
    mode = node.attrs.get("mode", "bilinear")
    return [with_attrs(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(str(mode), mode))]


@up(20, "DFT")
def dft_20(node: Node, ctx: Context) -> list[Node] | None:
    """The axis becomes an input."""
    axis = ctx.add_constant(int64(node.attrs.get("axis", 1)), f"{node.outputs[0]}_axis")
    return [with_inputs(with_attrs(node, ("axis",)), node.inputs[0], get(node, 1), axis)]


@up(11, "Scatter")
def scatter_11(node: Node, ctx: Context) -> list[Node] | None:
    """ScatterElements takes over."""
    return [replace(with_attrs(node, reduction="none"), op="ScatterElements")]


@up(10, "Slice")
def slice_10(node: Node, ctx: Context) -> list[Node] | None:
    """The bounds become inputs."""
    starts, ends, axes = (ints(node, name) for name in ("starts", "ends", "axes"))
    if starts is None or ends is None:
        return None
    given = (("starts", starts), ("ends", ends), ("axes", axes or tuple(range(len(starts)))))
    names = [ctx.add_constant(int64(values), f"{node.outputs[0]}_{name}") for name, values in given]
    return [with_inputs(with_attrs(node, ("starts", "ends", "axes")), node.inputs[0], *names)]


@up(13, "Softmax", "LogSoftmax", "Hardmax")
def softmax_13(node: Node, ctx: Context) -> list[Node] | None:
    """Before 13 all axes from `axis` on are taken together.

    That is the same if `axis` is the last, or all after it are 1; else the input is flattened to a matrix before."""
    shape, axis = ctx.type(node.inputs[0]).shape, node.attrs.get("axis", 1)
    if shape is None or not isinstance(axis, int):
        return None
    axis += len(shape) if axis < 0 else 0
    wide = [i for i in range(axis, len(shape)) if not same(shape[i], 1)]
    if len(wide) <= 1:
        return [with_attrs(node, axis=wide[0] if wide else min(axis, len(shape) - 1))] if shape else None
    size = new_node(node, "Shape", node.inputs, ctx, f"{node.outputs[0]}_shape", start=0)
    flat = new_node(node, "Flatten", node.inputs, ctx, f"{node.outputs[0]}_flat", axis=axis)
    done = new_node(node, node.op, flat.outputs, ctx, f"{node.outputs[0]}_matrix", axis=-1)
    back = replace(node, op="Reshape", inputs=(done.outputs[0], size.outputs[0]), attrs={"allowzero": 0})
    return [size, flat, done, back]


@up(2, "Split")
def split_2(node: Node, ctx: Context) -> list[Node] | None:
    """Sizes as an input came back only with 13."""
    if get(node, 1):
        return None
    return [with_attrs(node, axis=node.attrs.get("axis", 0))]


@up(13, "Split")
def split_13(node: Node, ctx: Context) -> list[Node] | None:
    """The sizes become an input."""
    sizes = ints(node, "split")
    plain = with_attrs(node, ("split",))
    if not sizes:
        return [plain]
    return [with_inputs(plain, node.inputs[0], ctx.add_constant(int64(sizes), f"{node.outputs[0]}_split"))]


@up(18, "Split")
def split_18(node: Node, ctx: Context) -> list[Node] | None:
    """Without sizes, the number of pieces has to be said."""
    return [node] if get(node, 1) else [with_attrs(node, num_outputs=len(node.outputs))]


@up(6, "Tile")
def tile_6(node: Node, ctx: Context) -> list[Node] | None:
    """One axis and its count become a count for each axis."""
    rank = ctx.type(node.inputs[0]).rank
    tiles, axis = ctx.constant(node.inputs[1]), ctx.constant(node.inputs[2])
    if rank is None or tiles is None or axis is None:
        return None
    repeats = np.ones(rank, np.int64)
    repeats[int(axis.array.reshape(-1)[0])] = int(tiles.array.reshape(-1)[0])
    return [with_inputs(node, node.inputs[0], ctx.add_constant(repeats, f"{node.outputs[0]}_repeats"))]


@up(10, "TopK")
def top_k_10(node: Node, ctx: Context) -> list[Node] | None:
    """The count becomes an input."""
    k = node.attrs.get("k")
    if not isinstance(k, int):
        return None
    name = ctx.add_constant(int64([k]), f"{node.outputs[0]}_k")
    return [with_inputs(with_attrs(node, ("k",)), node.inputs[0], name)]
