"""Convolution and pooling problems: the parameters of a node that kernels need, parsed once.

One, two and three spatial dims are one case: depth, height and width, with leading ones of extent 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engine.cost.conv_cycles import Axis, share_read
from ....engine.ir.graph import DType, Node, TensorType
from ....engine.ir.symbolic import Dim, maximum, product
from ...codegen.template_params import int_attr, ints_attr, launch
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ..gemm.epilogue import Axes, Epilogue, of_group
from ..gemm.tiles import Precision

SMALL_PLANES = 60_000
"""Fewer elements under all windows are left to one thread."""
COPIED_SHARE = 3
"""Share of the second-level cache, as a divisor, for the inputs that NHWC kernels copy for a block of AMX's tiles. The
rest is for weights and results."""


@dataclass(frozen=True)
class Window:
    """Geometry of a filter or pooling window over [images, C, D, H, W]: triples for depth, height and width.

    `pad` is before the first element. `pad_end` is after the last one as the node has it; what the outputs really read
    may be less or more."""

    images: Dim
    inputs: tuple[Dim, ...]
    outputs: tuple[Dim, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[Dim, ...]
    pad_end: tuple[Dim, ...]

    @property
    def is_pointwise(self) -> bool:
        """Whether each output reads just the input at the same place."""
        return all(k == 1 for k in self.kernel) and all(s == 1 for s in self.stride) and self.inputs == self.outputs

    @property
    def taps(self) -> int:
        """Number of elements under the window."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> Dim:
        """Number of outputs per image and channel."""
        return product(self.outputs)

    @property
    def is_known(self) -> bool:
        """Whether all extents are known and none is 0."""
        return all(map(known, (*self.inputs, *self.outputs)))

    @property
    def sides(self) -> tuple[int, int] | None:
        """Width of the inputs and their padding on the left, None if not known."""
        width, pad = self.inputs[2], self.pad[2]
        return (width, pad) if isinstance(width, int) and isinstance(pad, int) and width > 0 else None

    @property
    def share_read(self) -> float:
        """Share of the products that NHWC kernels compute; they skip taps that read padding only."""
        if not all(isinstance(size, int) for size in (*self.inputs, *self.outputs, *self.pad)):
            return 1.0
        axes = zip(self.inputs, self.outputs, self.kernel, self.stride, self.dilation, self.pad, strict=True)
        return share_read([Axis(*sizes) for sizes in axes])

    def reach(self, axis: int, outputs: int) -> int:
        """Number of inputs from the first to the last one under neighboring outputs."""
        return (outputs - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def params(self, channels: Dim, extents: Extents) -> dict[str, Any]:
        """Return the geometry for templates: extents and padding as C expressions, the rest as numbers.

        `channels` is an expression where it is known at run time only."""
        return {
            "in": extents.all(self.inputs),
            "out": extents.all(self.outputs),
            "kernel": list(self.kernel),
            "stride": list(self.stride),
            "dilation": list(self.dilation),
            "pad": extents.all(self.pad),
            "pad_end": extents.all(self.pad_end),
            "channels": number_or(channels, extents),
        }


@dataclass(frozen=True)
class Problem:
    """Window that slides over the input of a group's anchor, and the fused epilogue."""

    group: Group
    window: Window
    epilogue: Epilogue

    def launch(
        self, kernel: Kernel, inputs: Sequence[str], extents: Extents, work: Dim = 0, in_place: bool = True, **more: Any
    ) -> Step:
        """Return the step of a kernel that reads `inputs`, then the operands of the epilogue.

        `in_place`: the result may overwrite such an operand. `more` are other fields of the step."""
        values, pairs = (*inputs, *self.epilogue.values), self.epilogue.in_place(len(inputs)) if in_place else ()
        return launch(kernel, self.group, values, (self.epilogue.output,), extents, work, in_place=pairs, **more)


@dataclass(frozen=True)
class ConvProblem(Problem):
    """Convolution of the value `x` with weights `w` [M, C / groups, *kernel].

    Where a step computes the weights, `computed` names them, and `w` has their shape only.

    x is [images, C, ..spatial], or [images, ..spatial, C] for NHWC kernels. With `flat` the epilogue treats the pixels
    of all images as rows of one matrix. In int8, `w` and x of NCHW kernels consist of words of four channels."""

    x: str
    w: NDArray[Any]
    groups: int
    precision: Precision = Precision.F32
    flat: bool = False
    computed: str = ""

    def likely(self, ctx: Context) -> ConvProblem:
        """Return this problem at likely sizes, where they are known at run time only, to choose an algorithm."""
        inputs, outputs = (tuple(map(ctx.likely, dims)) for dims in (self.window.inputs, self.window.outputs))
        images = ctx.likely(self.window.images)
        return replace(self, window=replace(self.window, images=images, inputs=inputs, outputs=outputs))

    @property
    def m(self) -> int:
        """Output channels of a group."""
        return int(self.w.shape[0]) // self.groups

    @property
    def channels(self) -> int:
        """Input channels of a group."""
        return int(self.w.shape[1])

    @property
    def k(self) -> int:
        """Products per output."""
        return self.channels * self.window.taps

    @property
    def batch(self) -> int:
        """Number of images times groups, where unknown images count as one."""
        return self.groups * (known(self.window.images) or 1)

    def macs(self, k: int) -> Dim:
        """Number of multiply-adds at `k` per output."""
        return product((self.window.images, self.w.shape[0], self.window.pixels, k))

    def params(self, channels: int, extents: Extents) -> dict[str, Any]:
        """Return the template parameters of all implicit GEMMs; a pixel of x or an image has `channels`."""
        return {
            "images": extents(self.window.images),
            "groups": self.groups,
            "m": self.m,
            "pixels": extents(self.window.pixels),
            "g": self.window.params(channels, extents),
            "epilogue": self.epilogue.params(extents),
        }

    def describe(self, extents: Extents, **more: Any) -> dict[str, Any]:
        """Return what is computed as plain data, for the key of a schedule."""
        given = {"precision": self.precision.name, "flat": self.flat, "out": self.epilogue.c, **more}
        return {**self.params(self.channels, extents), **given}

    @property
    def label(self) -> str:
        """The convolution for people: `conv 3x3/2 64->128 28x28`, sizes of its result."""
        window, shape = self.window, self.w.shape
        spatial = slice(1 if window.kernel[0] == 1 else 0, 3)
        kernel, out = ("x".join(map(str, dims[spatial])) for dims in (window.kernel, window.outputs))
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        return f"conv {kernel}/{window.stride[2]} {shape[1] * self.groups}->{shape[0]} {out}{groups}"


@dataclass(frozen=True)
class PlaneProblem(Problem):
    """Pooling or grouped convolution: a window that slides over each channel, or narrow group of channels, by itself.

    Attributes:
        inputs: x and, for a convolution, its weights.
        channels: those of x, which pooling need not know.
        kind: "depthwise", "max" or "mean".
        width: input channels of a group; more than 1 in NHWC only.
        multiple: output channels of a group.
        counted: whether the divisor of a mean varies.
        include_pad: whether padding counts.
        stored: C type of x.
    """

    inputs: tuple[str, ...]
    channels: Dim
    kind: str = "depthwise"
    width: int = 1
    multiple: int = 1
    counted: bool = False
    include_pad: bool = False
    stored: str = "real"

    @property
    def work(self) -> Dim:
        """Number of elements under all windows."""
        return product((self.window.images, self.channels * self.multiple, self.window.pixels, self.window.taps))

    @property
    def groups(self) -> Dim:
        """Number of groups."""
        return self.channels // self.width

    @property
    def kinds(self) -> dict[str, Any]:
        """Template parameters that select the operation."""
        return {"kind": self.kind, "counted": self.counted, "include_pad": self.include_pad}

    def describe(self, extents: Extents) -> dict[str, Any]:
        """Return what is computed as plain data, for the key of a schedule."""
        sizes = {"images": extents(self.window.images), "width": self.width, "multiple": self.multiple}
        form = {"g": self.window.params(self.channels, extents), "epilogue": self.epilogue.params(extents)}
        return {**sizes, **form, "stored": self.stored, "out": self.epilogue.c, **self.kinds}

    @property
    def label(self) -> str:
        """The operation for people: `depthwise 3x3/1 144 56x56`, sizes of its result."""
        window = self.window
        spatial = slice(1 if window.kernel[0] == 1 else 0, 3)
        kernel, out = ("x".join(map(str, dims[spatial])) for dims in (window.kernel, window.outputs))
        name = f"{self.kind} pool" if self.kind != "depthwise" else "depthwise" if self.width == 1 else "grouped"
        return f"{name} {kernel}/{window.stride[2]} {self.channels} {out}"


def number_or(dim: Dim, extents: Extents) -> int | str:
    """Return an extent as a number, or as a C expression where it is known at run time only."""
    return dim if isinstance(dim, int) else extents(dim)


def block_rows(height: int, most: int, threads: int) -> int:
    """Return how many rows of an image make a block, at most `most`. Few blocks are about as many for each thread."""
    blocks = max(1, math.ceil(height / most))
    if blocks < 8 * threads:
        blocks = math.ceil(blocks / threads) * threads
    return max(1, math.ceil(height / blocks))


def known(dim: Dim) -> int | None:
    """Return a positive extent; None for one of run time, and for 0."""
    return dim if isinstance(dim, int) and dim > 0 else None


def read_conv(group: Group, ctx: Context, *, nhwc: bool = False, transposed: bool = False) -> ConvProblem | None:
    """Read a float convolution; None if a type, or the epilogue, is not supported, or the weights are not constant.

    Of NCHW ones the weights may be a value of known shape that another step computes.

    Of a transposed one, `w` and `m` are those of the convolution that it transposes."""
    node = group.node
    bf16 = node.op.endswith("Bf16")
    x, out, constant = ctx.type(node.inputs[0]), ctx.type(node.outputs[0]), ctx.constant(node.inputs[1])
    computed = "" if constant else node.inputs[1]
    w = constant.array if constant else None if nhwc or bf16 else _shape_only(group, ctx.type(computed))
    if w is None or ctx.type(node.inputs[1]).dtype is not ctx.real or not w.size:
        return None
    groups = int_attr(node, "group", 1)
    stored = DType.BF16 if nhwc and bf16 else ctx.real
    if node.op == "rewrite.ImageConvBf16" and x.dtype is ctx.real and x.shape:  # the kernel rounds and transposes x
        x = TensorType(stored, (x.shape[0], *x.shape[2:], x.shape[1]))
    window = window_of(node, x, out, w.shape[2:], nhwc=nhwc, transposed=transposed)
    if window is None or x.dtype is not stored or out.shape is None or groups < 1 or w.shape[0] % groups:
        return None
    addend = None
    if len(node.inputs) > 2 and node.inputs[2]:
        m = w.shape[1] * groups if transposed else w.shape[0]
        addend = (node.inputs[2], TensorType(ctx.real, (m, *(() if nhwc else (1,) * (w.ndim - 2)))), 1.0)
    residual = node.inputs[3] if len(node.inputs) > 3 else ""
    fuse = partial(of_group, group, ctx, addend=addend, residual=residual, narrow=nhwc)
    columns = len(out.shape) - 1 if nhwc else 2
    one = nhwc and groups == 1 and window.is_pointwise and not transposed
    flat = fuse(Axes(out.shape, 0, columns)) if one else None
    epilogue = flat or fuse(Axes(out.shape, 1, columns))
    if epilogue is None:
        return None
    precision = Precision.BF16 if bf16 else Precision.F32
    return ConvProblem(group, window, epilogue, node.inputs[0], w, groups, precision, flat is not None, computed)


def _shape_only(group: Group, weights: TensorType) -> NDArray[Any] | None:
    """Return an array of the shape of weights that the group reads from memory; None if an extent is not known."""
    shape = [d for d in weights.shape or () if isinstance(d, int)]
    if group.node.inputs[1] not in group.inputs or not shape or len(shape) != len(weights.shape or ()):
        return None
    return np.broadcast_to(np.zeros((), np.float32), shape)


def window_of(
    node: Node, x: TensorType, out: TensorType, kernel: Sequence[int], *, nhwc: bool = False, transposed: bool = False
) -> Window | None:
    """Return the window of a Conv, pooling or (`transposed`) ConvTranspose node with its padding made explicit.

    None without shapes or for other than one to three spatial dims. The padding at the end of a transposed one is not
    needed, hence 0."""
    if x.shape is None or out.shape is None:
        return None
    inputs, outputs = (shape[1:-1] if nhwc else shape[2:] for shape in (x.shape, out.shape))
    rank = len(inputs)
    if not 1 <= rank <= 3 or len(outputs) != rank or len(kernel) != rank:
        return None
    stride = ints_attr(node, "strides", (1,) * rank)
    dilation = ints_attr(node, "dilations", (1,) * rank)
    extra = ints_attr(node, "output_padding", (0,) * rank)
    mode = node.attrs.get("auto_pad", "NOTSET")
    pads = (0,) * (2 * rank) if mode == "VALID" else ints_attr(node, "pads", (0,) * (2 * rank))
    begin: list[Dim] = list(pads[:rank])
    end: list[Dim] = list(pads[rank:])
    if mode in ("SAME_UPPER", "SAME_LOWER") or (transposed and mode != "VALID" and node.attrs.get("output_shape")):
        for a in range(rank):
            reach = dilation[a] * (kernel[a] - 1) + 1
            if transposed:
                missing = (inputs[a] - 1) * stride[a] + extra[a] + reach - outputs[a]
            else:
                missing = maximum(0, (outputs[a] - 1) * stride[a] + reach - inputs[a])
            half = missing // 2
            begin[a], end[a] = (half, missing - half) if mode == "SAME_UPPER" else (missing - half, half)
    if transposed:
        end = [0] * rank
    ones, zeros = (1,) * (3 - rank), (0,) * (3 - rank)
    sizes = (ones + tuple(kernel), ones + stride, ones + dilation)
    return Window(x.shape[0], ones + inputs, ones + outputs, *sizes, zeros + tuple(begin), zeros + tuple(end))
