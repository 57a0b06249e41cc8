"""Adapters: how a node of one version of an operator's schema is written at the version before or after.

`UP[op, version]` takes a node from the version before to this one, `DOWN[op, version]` from this one to the one before.
The last node that an adapter returns makes the node's outputs. An upward one gets a node with all attributes of its old
version filled in. Where an adapter raises `Unfit`, the operator keeps its version, or an export needs a newer opset.

Length: one short adapter for each change of an operator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.graph import AttrValue, DType, Node
from ...ir.symbolic import known, product, same
from .adapter_pairs import DOWN, UP, Pair, added, converted, down, dropped, moved, only_if, renamed, unchanged, up
from .step import Step, Unfit, int64, needed, require

LOWEST = {"Resize": 7, "ScatterElements": 9}
"""Least opset at which an older operator replaces one that does not exist yet."""

_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
_NORMALIZED = ("Softmax", "LogSoftmax", "Hardmax")
_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
               "ReduceProd", "ReduceSumSquare")  # fmt: skip
_SCALES = ("height_scale", "width_scale")


def _one_output(node: Node) -> bool:
    return len(node.outputs) <= 1


def _adds_or_multiplies(node: Node) -> bool:
    return node.attrs.get("reduction", "none") not in ("max", "min")


def _whole(p: Any) -> int:
    require(isinstance(p, int | float) and p == int(p))
    return int(p)


def _type_number(name: Any) -> int:
    from onnx import TensorProto

    require(isinstance(name, str) and name.upper() in TensorProto.DataType.keys())  # noqa: SIM118
    return int(TensorProto.DataType.Value(name.upper()))


def _type_name(number: int) -> str:
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number))


_TABLE: tuple[tuple[int, tuple[str, ...], Pair], ...] = (
    (7, ("Gemm",), dropped("broadcast", 1)),  # C always broadcasts
    # An absent bound of Clip is none; from 6 to 10 its default is the largest number instead, which 11 drops again.
    (6, ("Clip", "Dropout"), (unchanged, None)),
    (7, ("GRU", "LSTM", "RNN"), (dropped("output_sequence")[0], lambda s: s.changed(output_sequence=int(bool(s.y))))),
    # Training: an imported model is for inference.
    (6, ("BatchNormalization",), dropped("consumed_inputs", (0, 0, 0, 1, 1))),  # a hint about memory was required
    (7, ("BatchNormalization",), only_if(_one_output, dropped("is_test", 1))),  # several become the sign of training
    (14, ("BatchNormalization",), only_if(_one_output, added("training_mode", 0))),
    (7, ("Dropout",), dropped("is_test", 1)),
    (9, ("BatchNormalization",), only_if(lambda node: node.attrs.get("spatial", 1), dropped("spatial"))),
    (10, ("Dropout",), only_if(_one_output, (unchanged, unchanged))),  # the mask becomes boolean
    (12, ("Dropout",), only_if(_one_output, dropped("ratio"))),  # unused in inference
    # Attributes that become inputs, and get another name, type or default.
    (5, ("Reshape",), moved("shape", np.int64)),
    (9, ("Upsample",), moved("scales", np.float32)),
    (10, ("TopK",), moved("k", np.int64, single=True)),
    (13, ("Split",), moved("split", np.int64, optional=True)),
    (2, ("Pad",), renamed("paddings", "pads")),
    (2, ("LpPool",), only_if(lambda node: "kernel_shape" in node.attrs, converted("p", _whole, float))),
    (2, ("GlobalLpPool",), converted("p", _whole, float)),
    (2, ("Split",), only_if(lambda node: len(node.inputs) <= 1, converted("axis", lambda axis: axis or 0))),
    (3, ("GRU",), converted("direction", lambda name: "forward" if name in ("foward", None) else name)),
    (4, ("Concat",), converted("axis", lambda axis: 1 if axis is None else axis)),
    (7, ("Upsample",), (lambda s: s.changed(drop=_SCALES, scales=(1.0, 1.0, *map(s.attrs.get, _SCALES))), None)),
    (6, ("Cast",), converted("to", _type_number, _type_name)),
    (16, ("RoiAlign",), added("coordinate_transformation_mode", "output_half_pixel")),
    (18, ("ScatterElements", "ScatterND"), only_if(_adds_or_multiplies, (None, unchanged))),
    (20, ("GridSample",), converted("mode", lambda mode: {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))),
)
"""Changes at a version of operators: the adapter to it and the one from it."""
for _version, _ops, _pair in _TABLE:
    for _register, _adapter in zip((up, down), _pair, strict=True):
        if _adapter is not None:
            _register(_version, *_ops)(_adapter)
# Scatter has another name.
UP["Scatter", 11] = lambda s: s.changed(op="ScatterElements", reduction="none")
DOWN["ScatterElements", 11] = lambda s: s.changed(op="Scatter")


@down(12, "Dropout")
def dropout_12_down(s: Step) -> Node:
    """The ratio, which means nothing outside training, gets its default."""
    require(_one_output(s.node) and not s.input(2))
    return s.changed(inputs=s.node.inputs[:1], drop=("seed",))


@down(20, "GridSample")
def grid_sample_20_down(s: Step) -> Node:
    """Modes had other names, and images two axes."""
    require(s.rank() == 4)
    mode = str(s.attrs.get("mode", "linear"))
    return s.changed(mode={"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode))


@up(13, "ReduceSum", "Squeeze", "Unsqueeze")
@up(18, *_REDUCTIONS)
def axes_up(s: Step) -> Node:
    """The axes become an input."""
    axes = s.listed("axes")
    if axes is None or (not axes and s.node.op.startswith("Reduce")):
        return s.changed(drop=("axes",))
    return s.as_inputs({"axes": int64(axes)})


@down(13, "ReduceSum", "Squeeze", "Unsqueeze")
@down(18, *_REDUCTIONS)
def axes_down(s: Step) -> Node:
    """The axes become an attribute."""
    axes = s.ints(1) if s.input(1) else ()
    require(axes or not s.attrs.get("noop_with_empty_axes"))
    written: dict[str, Any] = {"axes": axes} if axes or s.node.op == "Unsqueeze" else {}
    return s.changed(inputs=s.node.inputs[:1], drop=("noop_with_empty_axes",), **written)


@up(11, "Clip")
def clip_11_up(s: Step) -> Node:
    """The bounds become inputs."""
    bounds = {name: s.attrs.get(name) for name in ("min", "max")}
    names = ["" if b is None else s.add(np.array(b, s.dtype()), f"{s.y}_{name}") for name, b in bounds.items()]
    return s.changed(inputs=(s.input(0), *names), drop=("min", "max"))


@down(11, "Clip")
def clip_11_down(s: Step) -> Node:
    """The bounds become attributes; an absent one would be the largest number, which differs for infinities."""
    arrays = {"min": s.array(1), "max": s.array(2)}
    bounds: dict[str, Any] = {name: float(array.reshape(-1)[0]) for name, array in arrays.items()}
    require(all(array.dtype.kind == "f" for array in arrays.values()))
    require(all(bound == float(np.float32(bound)) for bound in bounds.values()))
    return s.changed(inputs=s.node.inputs[:1], **bounds)


@up(11, "Pad")
def pad_11_up(s: Step) -> Node:
    """The pads and the value become inputs."""
    value = s.attrs.get("value", 0.0)
    arrays = {"pads": int64(needed(s.listed("pads")))}
    if value:
        arrays["value"] = np.array(value, s.dtype())
    return s.as_inputs(arrays, ("value",))


@down(11, "Pad")
def pad_11_down(s: Step) -> Node:
    """Pads and value become attributes."""
    value = float(s.array(2).reshape(-1)[0]) if s.input(2) else 0.0
    require(value == float(np.float32(value)) and needed(s.type().dtype).is_float)
    return s.changed(inputs=s.node.inputs[:1], pads=s.ints(1), value=value)


@up(10, "Slice")
def slice_10_up(s: Step) -> Node:
    """The bounds become inputs."""
    starts, ends = needed(s.listed("starts")), needed(s.listed("ends"))
    axes = s.listed("axes") or range(len(starts))
    return s.as_inputs({"starts": int64(starts), "ends": int64(ends), "axes": int64(axes)})


@down(10, "Slice")
def slice_10_down(s: Step) -> Node:
    """The bounds become attributes; steps did not exist."""
    starts, ends = s.ints(1), s.ints(2)
    axes = s.ints(3) if s.input(3) else tuple(range(len(starts)))
    require(not s.input(4) or set(s.ints(4)) <= {1})
    axes = tuple(a % s.rank() if a < 0 else a for a in axes)
    return s.changed(inputs=s.node.inputs[:1], starts=starts, ends=ends, axes=axes)


@up(20, "DFT")
def dft_20_up(s: Step) -> Node:
    """The axis becomes an input."""
    axis = s.add(int64(s.attrs.get("axis", 1)), f"{s.y}_axis")
    return s.changed(inputs=(s.input(0), s.input(1), axis), drop=("axis",))


@down(20, "DFT")
def dft_20_down(s: Step) -> Node:
    """The axis becomes an attribute."""
    axis = s.ints(2)[0] if s.input(2) else -2
    return s.changed(inputs=(s.input(0), s.input(1)), axis=axis % s.rank())


@down(11, "ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Gather", "ReduceSum", "Split", "Squeeze", "Unsqueeze")
@down(11, *_NORMALIZED, *_REDUCTIONS)
def axis_11_down(s: Step) -> Node:
    """Before 11 axes count from the front only."""
    axis, axes = s.attrs.get("axis"), s.listed("axes")
    more = len(axes or ()) if s.node.op == "Unsqueeze" else 0

    def from_front(a: int) -> int:
        return a + s.rank() + more if a < 0 else a

    found: dict[str, Any] = {} if axes is None else {"axes": tuple(map(from_front, axes))}
    return s.changed(**found | ({"axis": from_front(axis)} if isinstance(axis, int) else {}))


@down(11, "TopK")
def top_k_11_down(s: Step) -> Node:
    """The largest came first."""
    rank, axis = s.type().rank, s.attrs.get("axis", -1)
    require(s.attrs.get("largest", 1))
    if not isinstance(axis, int) or (axis < -1 and rank is None):
        raise Unfit
    return s.changed(drop=("largest", "sorted"), axis=axis + rank if axis < 0 and rank is not None else axis)


def may_train(s: Step) -> bool:
    """Whether a Dropout of version 12 or later is possibly in training mode, in which it is random."""
    flag = s.constant(2)
    return bool(s.input(2)) and (flag is None or flag.size != 1 or bool(flag.reshape(-1)[0]))


# Broadcasting.


def _widened(s: Step, node: Node, axes: range) -> list[Node]:
    """Return an Unsqueeze of the node's second input, and the node that reads it."""
    x, name = s.node.inputs
    wide = s.helper("Unsqueeze", (name, s.add(int64(axes), f"{name}_axes")), f"{name}_wide")
    return [wide, replace(node, inputs=(x, wide.outputs[0]))]


@up(7, *_ELEMENTWISE)
def elementwise_7_up(s: Step) -> Node | list[Node]:
    """Before 7, B broadcasts only if `broadcast` is set, its dims aligned with A's from `axis` on."""
    plain = s.changed(drop=("broadcast", "axis"))
    axis = s.attrs.get("axis")
    if not s.attrs.get("broadcast") or not isinstance(axis, int):
        return plain
    a, b = s.rank(0), s.rank(1)
    trailing = a - b - (axis + a if axis < 0 else axis)
    require(trailing >= 0)
    if trailing == 0:
        return plain
    x, name = s.node.inputs
    constant = s.constant(1)
    if constant is None:
        return _widened(s, plain, range(b, b + trailing))
    return replace(plain, inputs=(x, s.add(constant.reshape(constant.shape + (1,) * trailing), name)))


@down(7, *_ELEMENTWISE)
def elementwise_7_down(s: Step) -> Node:
    """B's dims, without leading and trailing 1s, must be consecutive dims of A; A must have the result's shape."""
    a, b = s.shape(0), s.shape(1)
    if a == b:
        return s.changed(broadcast=0)
    constant = s.constant(1)
    lead = next((i for i, d in enumerate(b) if d != 1), len(b))
    trail = next((i for i, d in enumerate(reversed(b)) if d != 1), 0)
    core = b[lead : len(b) - trail]
    axis = len(a) - trail - len(core)
    require(axis >= 0 and core == a[axis : axis + len(core)])
    if constant is None:
        require(not lead and not trail)
        return s.changed(broadcast=1)
    place: dict[str, Any] = {"axis": axis} if core else {}
    name = s.add(constant.reshape(tuple(d for d in core if isinstance(d, int)) or (1,)), s.input(1))
    return s.changed(inputs=(s.input(0), name), broadcast=1, **place)


@down(8, "Max", "Min", "Mean", "Sum")
def same_shapes_8_down(s: Step) -> Node:
    """Before 8 nothing broadcasts here."""
    require(len({s.shape(i) for i in range(len(s.node.inputs))}) == 1)
    return s.node


@up(7, "PRelu")
def prelu_7_up(s: Step) -> Node | list[Node]:
    """Before 7 the slope is one number or one for each channel."""
    slope = s.shape(1)
    if product(slope) == 1:
        return s.node
    require(len(slope) == 1 and s.rank() >= 2)
    return s.node if s.rank() == 2 else _widened(s, s.node, range(1, s.rank() - 1))


@down(7, "PRelu")
def prelu_7_down(s: Step) -> Node:
    """The slope is one number or one for each channel."""
    x, slope = s.shape(0), s.shape(1)
    if product(slope) == 1 and len(slope) <= 1:
        return s.node
    padded = (1,) * (len(x) - len(slope)) + slope
    require(len(x) >= 2 and all(d == 1 for i, d in enumerate(padded) if i != 1))
    return s.changed(inputs=(s.input(0), s.add(s.array(1).reshape(-1), s.input(1))))


@down(11, "Gemm")
def gemm_11_down(s: Step) -> Node:
    """C becomes required."""
    if s.input(2):
        return s.node
    return s.changed(inputs=(*s.node.inputs[:2], s.add(np.zeros(1, s.dtype()), f"{s.y}_zero")))


# Resize and Upsample.

_ASYMMETRIC: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_UNUSED: dict[str, Any] = {"cubic_coeff_a": -0.75, "exclude_outside": 0, "extrapolation_value": 0.0}


@up(11, "Resize")
def resize_11_up(s: Step) -> Node:
    """Resize of 10 samples at `output / scale`; "nearest" takes the pixel before, when enlarging."""
    mode = s.attrs.get("mode", "nearest")
    require(mode in ("nearest", "linear"))
    if mode == "nearest":  # runtimes differ in how it shrinks
        require(np.all(s.array(1).astype(np.float64) >= 1))
    return s.changed(inputs=(s.input(0), "", s.input(1)), **_ASYMMETRIC, **_UNUSED)


@down(11, "Resize")
def resize_11_down(s: Step) -> Node:
    """Only `asymmetric` sampling existed, and "nearest" took the pixel before when enlarging."""
    attrs, scales = s.attrs, s.array(2)
    require(attrs.get("coordinate_transformation_mode") == "asymmetric" and not s.input(3))
    require(attrs.get("mode") in ("nearest", "linear"))
    if attrs["mode"] == "nearest":
        require(attrs.get("nearest_mode") == "floor" and np.all(scales >= 1))
    return s.changed(inputs=(s.input(0), s.input(2)), drop=(*_ASYMMETRIC, *_UNUSED))


@up(13, "Resize")
def resize_13_up(s: Step) -> Node:
    """Missing inputs become absent instead of empty."""
    inputs = list(s.node.inputs)
    for i in range(1, min(3, len(inputs))):
        found = s.values.constants.get(inputs[i])
        if s.type(i).shape == (0,) or (found is not None and found.array.size == 0):
            inputs[i] = ""
    return s.changed(inputs=inputs)


@down(13, "Resize")
def resize_13_down(s: Step) -> Node:
    """Absent inputs become empty lists."""
    empty = np.zeros(0, np.float32)
    roi = s.input(1) or s.add(empty, f"{s.y}_roi")
    scales = s.input(2) or s.add(empty, f"{s.y}_scales")
    return s.changed(inputs=(s.input(0), roi, scales, s.input(3)))


@down(18, "Resize")
def resize_18_down(s: Step) -> Node:
    """No antialiasing, all axes."""
    attrs, axes, rank = s.attrs, s.listed("axes"), s.type().rank
    require(not attrs.get("antialias") and attrs.get("keep_aspect_ratio_policy", "stretch") == "stretch")
    if attrs.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        raise Unfit(needs=19)
    later, inputs = ("antialias", "keep_aspect_ratio_policy", "axes"), s.node.inputs
    if axes is not None and axes != tuple(range(rank or 0)):
        require(not s.input(3) and not s.input(1))
        scales = np.ones(s.rank(), np.float32)
        scales[list(axes)] = s.array(2).reshape(-1)
        inputs = (s.input(0), "", s.add(scales, f"{s.y}_scales"))
    return s.changed(inputs=inputs, drop=later)


@up(10, "Upsample")
def upsample_10_up(s: Step) -> Node:
    """Resize replaces it; its scales are 1 or more by definition. Unknown ones could not be written back."""
    require(s.attrs.get("mode") in ("nearest", "linear") and s.constant(1) is not None)
    return s.changed(op="Resize", inputs=(s.input(0), "", s.input(1)), **_ASYMMETRIC)


@down(10, "Resize")
def resize_10_down(s: Step) -> Node:
    """Upsample replaces it; its scales are at least 1."""
    require(np.all(s.array(1) >= 1))
    return s.changed(op="Upsample")


@down(7, "Upsample")
def upsample_7_down(s: Step) -> Node:
    """A list of scales becomes two."""
    match s.attrs["scales"]:
        case (1.0, 1.0, float() as height, float() as width):
            return s.changed(drop=("scales",), height_scale=height, width_scale=width)
    raise Unfit


# Other changes of meaning.


@up(13, *_NORMALIZED)
def softmax_13_up(s: Step) -> Node | list[Node]:
    """Before 13 all axes from `axis` on are normalized together.

    That is the same if `axis` is the last, or all dims after it are 1; otherwise the input is flattened to a matrix
    first."""
    shape, axis = s.shape(), s.attrs.get("axis", 1)
    if not shape or not isinstance(axis, int):
        raise Unfit
    axis += len(shape) if axis < 0 else 0
    wide = [i for i in range(axis, len(shape)) if not same(shape[i], 1)]
    if len(wide) <= 1:
        return s.changed(axis=wide[0] if wide else min(axis, len(shape) - 1))
    size = s.helper("Shape", s.node.inputs, f"{s.y}_shape", start=0)
    flat = s.helper("Flatten", s.node.inputs, f"{s.y}_flat", axis=axis)
    done = s.helper(s.node.op, flat.outputs, f"{s.y}_matrix", axis=-1)
    back = replace(s.node, op="Reshape", inputs=(done.outputs[0], size.outputs[0]), attrs={"allowzero": 0})
    return [size, flat, done, back]


@down(13, *_NORMALIZED)
def softmax_13_down(s: Step) -> Node:
    """All axes from `axis` on were normalized together: the same if the dims after it are 1."""
    shape, axis = s.shape(), s.attrs.get("axis", -1)
    require(isinstance(axis, int))
    axis %= len(shape)
    require(all(same(d, 1) for d in shape[axis + 1 :]))
    return s.changed(axis=axis)


@up(21, "GroupNormalization")
def group_normalization_21_up(s: Step) -> list[Node]:
    """Before 21 scale and bias are by group: those of channels, if all elements of a group are one channel.

    ONNX Runtime normalizes f64 by parts, so it does without a kernel that it does not have."""
    groups = s.add(int64([0, needed(s.attrs.get("num_groups")), -1]), f"{s.y}_groups")
    size = s.helper("Shape", s.node.inputs[:1], f"{s.y}_shape", start=0)
    rows = s.helper("Reshape", (s.input(0), groups), f"{s.y}_rows", allowzero=0)
    if s.type().dtype is DType.F64:
        made = _normalized_by_parts(s, rows.outputs[0])
    else:
        inputs = (rows.outputs[0], *s.node.inputs[1:])
        made = [s.helper("InstanceNormalization", inputs, f"{s.y}_normal", epsilon=s.attrs["epsilon"])]
    back = replace(s.node, op="Reshape", inputs=(made[-1].outputs[0], size.outputs[0]), attrs={"allowzero": 0})
    return [size, rows, *made, back]


def _normalized_by_parts(s: Step, rows: str) -> list[Node]:
    """Return the nodes that normalize rows `[batch, groups, elements]`, with a scale and a bias for each group."""
    nodes: list[Node] = []

    def made(op: str, *inputs: str, **attrs: AttrValue) -> str:
        nodes.append(s.helper(op, inputs, f"{s.y}_{op.lower()}", **attrs))
        return nodes[-1].outputs[0]

    last, at = s.add(int64([2]), f"{s.y}_elements"), s.add(int64([1]), f"{s.y}_axis")
    offset = made("Sub", rows, made("ReduceMean", rows, last, keepdims=1))
    variance = made("ReduceMean", made("Mul", offset, offset), last, keepdims=1)
    epsilon = s.add(np.array(s.attrs["epsilon"], s.dtype()), f"{s.y}_epsilon")
    normal = made("Div", offset, made("Sqrt", made("Add", variance, epsilon)))
    scaled = made("Mul", normal, made("Unsqueeze", s.input(1), at))
    made("Add", scaled, made("Unsqueeze", s.input(2), at))
    return nodes


@down(18, "Pad")
def pad_18_down(s: Step) -> Node:
    """Pads are for all axes."""
    if not s.input(3):
        return s.node
    rank, some, axes = s.rank(), s.ints(1), s.ints(3)
    pads = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        pads[axis % rank], pads[axis % rank + rank] = some[i], some[i + len(axes)]
    return s.changed(inputs=(s.input(0), s.add(int64(pads), f"{s.y}_pads"), s.input(2)))


@up(18, "Split")
def split_18_up(s: Step) -> Node:
    """Without sizes, the number of pieces becomes required."""
    return s.node if s.input(1) else s.changed(num_outputs=len(s.node.outputs))


@down(18, "Split")
def split_18_down(s: Step) -> Node:
    """Pieces are equal, or their sizes given."""
    if s.input(1):
        return s.node
    axis, n = s.attrs.get("axis", 0), len(s.node.outputs)
    whole = s.shape()[axis]
    if same(whole % n, 0):
        return s.changed(drop=("num_outputs",))
    require(known(whole))
    chunk = -(-whole // n)
    sizes = [chunk] * (n - 1) + [whole - chunk * (n - 1)]
    return s.changed(inputs=(s.input(0), s.add(int64(sizes), f"{s.y}_split")), drop=("num_outputs",))


@up(6, "Tile")
def tile_6_up(s: Step) -> Node:
    """One axis and its count become a count for each axis."""
    repeats = np.ones(s.rank(), np.int64)
    repeats[s.ints(2)[0]] = s.ints(1)[0]
    return s.as_inputs({"repeats": repeats})


@down(6, "Tile")
def tile_6_down(s: Step) -> Node:
    """One axis at a time was repeated."""
    repeats = s.ints(1)
    axes = [i for i, r in enumerate(repeats) if r != 1] or [0]
    require(repeats and len(axes) == 1)
    tiles = s.add(int64([repeats[axes[0]]]), f"{s.y}_tiles")
    return s.changed(inputs=(s.input(0), tiles, s.add(int64(axes), f"{s.y}_axis")))
