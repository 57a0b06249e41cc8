"""What sizes of operands have to meet, for operators whose result does not depend on it.

Kernels take sizes from the operand that gives the result its shape. Another operand that is smaller would be read
behind its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.symbolic import Dim, ceildiv
from .inference_call import Call, check


def _same_dims(call: Call, i: int, wanted: Sequence[Dim], what: str) -> None:
    """Demand that an input, if it is present and its shape known, has these dims."""
    shape = call.shape(i) if call.present(i) else None
    if shape is None:
        return
    if len(shape) != len(wanted):
        raise call.refuse(f"{what} of rank {len(shape)}, which must be {len(wanted)}")
    for own, dim in zip(shape, wanted, strict=True):
        call.agree(own, dim, what)


def _broadcast_to(call: Call, i: int, whole: Sequence[Dim], what: str) -> None:
    """Demand that an input, if it is present and its shape known, can be broadcast to this shape."""
    shape = call.shape(i) if call.present(i) else None
    for own, dim in zip(reversed(shape or ()), reversed(whole), strict=False):
        call.fit(own, dim, what)


@check("BatchNormalization")
def batch_normalization(call: Call) -> None:
    """A factor, a summand, a mean and a variance for each channel."""
    _by_channel(call, range(1, 5))


@check("InstanceNormalization GroupNormalization")
def normalization_by_channel(call: Call) -> None:
    """A factor and a summand for each channel."""
    _by_channel(call, (1, 2))


def _by_channel(call: Call, inputs: Iterable[int]) -> None:
    x = call.shape()
    if x is not None and len(x) > 1:
        for i in inputs:
            _same_dims(call, i, x[1:2], f"input {i}")


@check("LayerNormalization RMSNormalization")
def layer_normalization(call: Call) -> None:
    """Factors and summands that can be broadcast to the normalized axes."""
    if (x := call.shape()) is not None:
        for i in (1, 2):
            _broadcast_to(call, i, x, f"input {i}")


@check("GatherElements")
def gather_elements(call: Call) -> None:
    """No index tensor larger than the data on the other axes."""
    _within_data(call)


@check("ScatterElements")
def scatter_elements(call: Call) -> None:
    """One update for each index; no index tensor larger than the data on the other axes."""
    _within_data(call)
    if (indices := call.shape(1)) is not None:
        _same_dims(call, 2, indices, "updates")


def _within_data(call: Call) -> None:
    data, indices = call.shape(0), call.shape(1)
    if data is None or indices is None:
        return
    if len(data) != len(indices):
        raise call.refuse(f"indices of rank {len(indices)} for data of rank {len(data)}")
    axis = call.axis(len(data))
    for i, (part, whole) in enumerate(zip(indices, data, strict=True)):
        if i != axis:
            call.limit(part, whole, f"indices on axis {i}")


@check("GatherND")
def gather_nd(call: Call) -> None:
    """The same batch dims."""
    batch = call.integer("batch_dims")
    for i, (own, dim) in enumerate(zip((call.shape(1) or ())[:batch], call.shape() or (), strict=False)):
        call.agree(own, dim, f"batch dim {i}")


@check("ScatterND")
def scatter_nd(call: Call) -> None:
    """One slice of updates for each tuple of indices."""
    data, indices = call.shape(0), call.shape(1)
    if data is not None and indices and isinstance(indices[-1], int) and indices[-1] <= len(data):
        _same_dims(call, 2, (*indices[:-1], *data[indices[-1] :]), "updates")


@check("TensorScatter")
def tensor_scatter(call: Call) -> None:
    """Updates as large as the cache but for the axis that is written; a position for each batch."""
    cache, updates = call.shape(0), call.shape(1)
    if cache is None:
        return
    axis = call.axis(len(cache), -2)
    for i, (part, whole) in enumerate(zip(updates or (), cache, strict=False)):
        if i == axis:
            call.limit(part, whole, f"updates on axis {i}")
        else:
            call.agree(part, whole, f"updates on axis {i}")
    _same_dims(call, 2, cache[:1], "positions")


@check("ReverseSequence")
def reverse_sequence(call: Call) -> None:
    """A length for each sequence."""
    x = call.shape()
    batch = call.integer("batch_axis", 1)
    if x is not None and 0 <= batch < len(x):
        _same_dims(call, 1, (x[batch],), "lengths")


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@check("RNN GRU LSTM")
def recurrent(call: Call) -> None:
    """Weights for the inputs and the states of all gates, and a length and initial states for each sequence."""
    x, w, r = call.shape(0), call.shape(1), call.shape(2)
    if x is None or len(x) != 3:
        return
    by_batch = bool(call.integer("layout"))
    batch = x[0] if by_batch else x[1]
    if w is not None and len(w) == 3:
        call.agree(x[2], w[2], "inputs for the weights")
    _same_dims(call, 4, (batch,), "lengths")
    if r is None or len(r) != 3:
        return
    directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
    _same_dims(call, 2, (directions, _GATES[call.op] * r[2], r[2]), "recurrent weights")
    if w is not None and len(w) == 3:
        _same_dims(call, 1, (r[0], r[1], w[2]), "weights")
    states = (batch, r[0], r[2]) if by_batch else (r[0], batch, r[2])
    _same_dims(call, 3, (r[0], 2 * r[1]), "biases")
    _same_dims(call, 5, states, "initial states")
    if call.op == "LSTM":
        _same_dims(call, 6, states, "initial cells")
        _same_dims(call, 7, (r[0], 3 * r[2]), "peepholes")


@check("Attention")
def attention(call: Call) -> None:
    """Keys and values of the queries' batches, as long as each other."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) or len(q) not in (3, 4):
        return
    length = len(q) - 2
    for other, what in ((k, "keys"), (v, "values")):
        call.agree(other[0], q[0], f"batches of {what}")
    call.agree(v[length], k[length], "values for the keys")
    if len(q) == 4:
        call.agree(k[3], q[3], "extent of the keys")
        call.agree(v[1], k[1], "heads of the values")


@check("QuantizeLinear DequantizeLinear")
def quantize(call: Call) -> None:
    """A scale for all elements, for each slice along the axis, or for each block; as many zero points."""
    x, scale = call.shape(0), call.shape(1)
    if x is None or scale is None:
        return
    if len(scale) == 1 and x:
        at = call.integer("axis", 1)
        if -len(x) <= at < len(x):
            call.fit(scale[0], x[at], "scales")
    elif len(scale) == len(x) and (size := call.integer("block_size")) > 0:
        axis = call.axis(len(x), 1)
        for i, (own, dim) in enumerate(zip(scale, x, strict=True)):
            call.agree(own, ceildiv(dim, size) if i == axis else dim, f"scales on axis {i}")
    if (points := call.shape(2) if call.present(2) else None) is not None and len(points) == len(scale):
        _same_dims(call, 2, scale, "zero points")


@check("OneHot")
def one_hot(call: Call) -> None:
    """Two values: off and on."""
    _same_dims(call, 2, (2,), "values")


@check("GridSample")
def grid_sample(call: Call) -> None:
    """A grid for each image."""
    x, grid = call.shape(0), call.shape(1)
    if x and grid:
        call.agree(grid[0], x[0], "grids")
        call.agree(grid[-1], len(x) - 2, "coordinates")


@check("RoiAlign")
def roi_align(call: Call) -> None:
    """Four coordinates and an image for each region."""
    rois = call.shape(1)
    if rois is not None and len(rois) == 2:
        call.agree(rois[1], 4, "coordinates")
        _same_dims(call, 2, rois[:1], "images of the regions")


@check("MaxRoiPool")
def max_roi_pool(call: Call) -> None:
    """Five numbers for each region."""
    rois = call.shape(1)
    if rois is not None and len(rois) == 2:
        call.agree(rois[1], 5, "numbers of a region")


@check("NonMaxSuppression")
def non_max_suppression(call: Call) -> None:
    """A score for each box."""
    boxes, scores = call.shape(0), call.shape(1)
    if boxes is not None and scores is not None and len(boxes) == len(scores) == 3:
        call.agree(boxes[0], scores[0], "batches of scores")
        call.agree(boxes[1], scores[2], "scores for the boxes")
        call.agree(boxes[2], 4, "coordinates")


@check("MaxUnpool")
def max_unpool(call: Call) -> None:
    """An index for each element."""
    if (x := call.shape()) is not None:
        _same_dims(call, 1, x, "indices")


@check("Det")
def det(call: Call) -> None:
    """Square matrices."""
    x = call.shape()
    if x is not None and len(x) > 1:
        call.agree(x[-2], x[-1], "rows and columns")


@check("QLinearConv")
def quantized_conv(call: Call) -> None:
    """A scale, a zero point and a number in the bias for each filter."""
    w = call.shape(3)
    if w:
        for i, what in ((4, "scales"), (5, "zero points")):
            _broadcast_to(call, i, w[:1], what)
        _same_dims(call, 8, w[:1], "numbers in the bias")


@check("MatMulInteger")
def integer_product(call: Call) -> None:
    """Zero points for all elements, or for each row of the first and each column of the second factor."""
    a, b = call.shape(0), call.shape(1)
    if a is not None and len(a) > 1 and call.present(2) and len(call.shape(2) or ()) == 1:
        _broadcast_to(call, 2, (a[-2],), "zero points of rows")
    if b is not None and len(b) > 1 and call.present(3) and len(call.shape(3) or ()) == 1:
        _broadcast_to(call, 3, (b[-1],), "zero points of columns")


@check("Scan")
def scan(call: Call) -> None:
    """Tensors of as many slices as each other."""
    count = call.integer("num_scan_inputs")
    axes = call.int_list("scan_input_axes") or (0,) * count
    lengths = []
    for i, axis in zip(range(call.n_inputs - count, call.n_inputs), axes, strict=False):
        shape = call.shape(i) if i >= 0 else None
        if shape is not None and -len(shape) <= axis < len(shape):
            lengths.append(shape[axis])
    for other in lengths[1:]:
        call.agree(other, lengths[0], "slices of the tensors")
