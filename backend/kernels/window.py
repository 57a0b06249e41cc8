"""Windows: how filters and pooling move over the spatial dims of a tensor.

One, two and three spatial dims are one case: depth, height and width, with leading ones of extent 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engine.graph import DType, Node, TensorType
from ...engine.symbolic import Dim, maximum
from ..iteration import Extents
from ..lower import Context


@dataclass(frozen=True)
class Window:
    """How a filter or pooling window moves over a tensor [N, C, D, H, W]: each a triple for depth, height, width."""

    inputs: tuple[Dim, ...]
    outputs: tuple[Dim, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[Dim, ...]  # before the first element
    pad_end: tuple[Dim, ...]  # after the last, as written: what the outputs really touch may be less or more

    @property
    def is_pointwise(self) -> bool:
        """Whether each output lies over just the input of the same place."""
        return all(k == 1 for k in self.kernel) and all(s == 1 for s in self.stride) and self.inputs == self.outputs

    @property
    def taps(self) -> int:
        """The number of elements under the window."""
        return int(np.prod(self.kernel))


def filters(node: Node, ctx: Context, dtype: DType = DType.F32) -> NDArray[Any] | None:
    """The weights of a convolution whose kernel needs them constant: in f32, of known ranks and not empty; None for a
    convolution of any other kind, or of another element type than `dtype`."""
    x, out, weights = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), ctx.constant(node.inputs[1])
    if weights is None or x.dtype is not dtype or weights.type.dtype is not DType.F32:
        return None
    if x.shape is None or out.shape is None or len(x.shape) < 3 or not weights.array.size:
        return None
    return weights.array


def window_of(node: Node, x: TensorType, out: TensorType, kernel: Sequence[int]) -> Window | None:
    """The window of a Conv or pooling node, with its padding made explicit; None for more than three spatial dims."""
    assert x.shape is not None
    assert out.shape is not None
    inputs, outputs = x.shape[2:], out.shape[2:]
    rank = len(inputs)
    if not 1 <= rank <= 3 or len(outputs) != rank or len(kernel) != rank:
        return None
    stride = ints(node, "strides", (1,) * rank)
    dilation = ints(node, "dilations", (1,) * rank)
    pads = ints(node, "pads", (0,) * (2 * rank))
    begin: list[Dim] = list(pads[:rank])
    end: list[Dim] = list(pads[rank:])
    mode = node.attrs.get("auto_pad", "NOTSET")
    if mode == "VALID":
        begin, end = [0] * rank, [0] * rank
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        for a in range(rank):
            reach = dilation[a] * (kernel[a] - 1) + 1
            missing = maximum(0, (outputs[a] - 1) * stride[a] + reach - inputs[a])
            half = missing // 2
            begin[a], end[a] = (half, missing - half) if mode == "SAME_UPPER" else (missing - half, half)
    lead = 3 - rank
    return Window(
        (1,) * lead + tuple(inputs),
        (1,) * lead + tuple(outputs),
        (1,) * lead + tuple(kernel),
        (1,) * lead + stride,
        (1,) * lead + dilation,
        (0,) * lead + tuple(begin),
        (0,) * lead + tuple(end),
    )


def ints(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """An attribute that is a list of ints, where empty or missing means the default."""
    found: Any = node.attrs.get(name)
    return tuple(int(v) for v in found) if found else default


def geometry(shape: Window, channels: int, extents: Extents) -> dict[str, Any]:
    """A window as the templates take it: C expressions."""
    return {
        "in": extents.all(shape.inputs),
        "out": extents.all(shape.outputs),
        "kernel": [str(v) for v in shape.kernel],
        "stride": [str(v) for v in shape.stride],
        "dilation": [str(v) for v in shape.dilation],
        "pad": extents.all(shape.pad),
        "pad_end": extents.all(shape.pad_end),
        "channels": channels,
    }


def geometry_in_numbers(shape: Window, channels: int, extents: Extents) -> dict[str, Any]:
    """A window whose taps, stride and dilation templates compute with: these are numbers there."""
    return {
        **geometry(shape, channels, extents),
        "taps": list(shape.kernel),
        "stride": list(shape.stride),
        "dilation": list(shape.dilation),
    }


def number(node: Node, name: str, default: int) -> int:
    """An integer attribute."""
    found = node.attrs.get(name, default)
    assert isinstance(found, int), f"{name} is an integer"
    return found
