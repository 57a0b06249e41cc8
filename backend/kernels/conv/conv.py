"""Lowering of Conv and ConvTranspose, NCHW: implicit GEMM, unless Winograd or the depthwise kernel is faster.

For each image and group the output is a matrix channels x pixels = packed weights * inputs under the filter, which are
gathered (im2col) panel by panel. Images of few pixels are computed transposed, pixels x channels, so that vectors run
over channels. ConvTranspose is such a product, columns[output channel x tap][pixels of x] = W' * x, and a kernel that
sums what falls on each output: y at o is the sum over the taps k of column k at each i with
o = stride * i - pad + dilation * k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from ....engine.ir.graph import DType, TensorType
from ....engine.ir.symbolic import ceildiv, product
from ...codegen.template_params import launch, serial_below, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context, Group
from ...ir.schedule import Knob, Point, Space
from ..gemm import tiles as tiling
from ..gemm.epilogue import Epilogue
from ..gemm.matmul import pack_columns, pair_rows
from ..gemm.problem import SMALL_WORK
from ..gemm.tiles import Precision, Tiles
from ..registry import lowering
from ..scheduling import at_width, bits_knob, schedule
from . import conv_lines, winograd
from .depthwise_pool import plane_step
from .problem import ConvProblem, PlaneProblem, known, read_conv

SMALL = 256
"""Largest image, in pixels, whose kernel may run over channels."""
WEIGHTS = 4 / 7.0
"""Cycles to read a weight from memory."""
GATHER, TURN, PAIR = 2.0, 3.0, 1.5
"""Cycles to gather a vector of inputs, to transpose an output, and to round a vector of inputs to paired bf16."""
AHEAD = 4096
"""Bytes by which weights are fetched ahead of products where they come from memory. The hardware's prefetchers stop at
the end of each page."""
CHUNK = 64
"""Rows of inputs that are gathered before they are rounded to bf16."""


@lowering("Conv", "rewrite.ConvBf16", f64=True)
def lower_conv(group: Group, ctx: Context) -> list[Step] | None:
    """Conv of any geometry over one to three spatial dims, in f32, f64 or rounded to bf16.

    Weights that a step computes have a known shape."""
    problem = read_conv(group, ctx)
    if problem is None:
        return None
    window, groups = problem.window, problem.groups
    if groups > 1 and problem.channels == 1:
        inputs = (problem.x, group.node.inputs[1])
        return [plane_step(PlaneProblem(group, window, problem.epilogue, inputs, groups, multiple=problem.m), ctx)]
    if problem.computed:
        return packing_steps(problem, ctx, (problem.m * problem.k, problem.k, window.taps, 1))
    step = conv_step(problem, ctx)
    if isinstance(window.pixels, int) or problem.w.ndim > 3 or problem.precision is Precision.BF16:
        return [step]
    return _by_length(step, problem, ctx)


@lowering("ConvTranspose", f64=True)
def lower_conv_transpose(group: Group, ctx: Context) -> list[Step] | None:
    """ConvTranspose over one to three spatial dims. Weights that a step computes have a known shape."""
    problem = read_conv(group, ctx, transposed=True)
    if problem is None:
        return None
    window, groups = problem.window, problem.groups
    rows, channels = groups * problem.channels * window.taps, problem.m
    # W[channel][m][tap] as the weights [m x tap][channel] of a pointwise convolution
    w = problem.w.reshape(groups, channels, -1).transpose(0, 2, 1).reshape(rows, channels, 1)
    each = rows // groups
    columns = ctx.new_value(TensorType(ctx.real, (window.images, rows, product(window.inputs))), "columns")
    one, zero = (1, 1, 1), (0, 0, 0)
    pointwise = replace(window, outputs=window.inputs, kernel=one, stride=one, dilation=one, pad=zero, pad_end=zero)
    product_of = ConvProblem(
        group, pointwise, Epilogue((), (), "x", columns), problem.x, w, groups, computed=problem.computed
    )
    if problem.computed:
        first = packing_steps(product_of, ctx, (channels * each, 1, each, 0))
    else:
        first = [conv_step(product_of, ctx)]
    extents = Extents()
    scratch = ceildiv((window.outputs[2] + ctx.target.lanes) * ctx.target.element_bytes, 64) * 64
    params = {
        "images": extents(window.images),
        "channels": groups * problem.channels,
        "scratch": extents(scratch),
        "g": window.params(channels, extents),
        "epilogue": problem.epilogue.params(extents),
    }
    kernel = Kernel("conv_transpose", params)
    return [*first, problem.launch(kernel, (columns,), extents, scratch=scratch, in_place=False)]


def packing_steps(problem: ConvProblem, ctx: Context, strides: tuple[int, int, int, int]) -> list[Step]:
    """Return the steps that pack weights of run time, and multiply by them.

    `strides` are those of a group, a row, an input channel and a tap in the weights."""
    panels, pixels = _Panels(problem, ctx), problem.window.pixels
    count, packing = pixels if isinstance(pixels, int) else None, 0.0 if panels.direct else panels.gathering
    choice = tiling.choose(
        ctx.target, problem.m, count, panels.depth, threads=ctx.threads, batch=problem.batch, packing=packing
    )
    blocks = -(-problem.m // choice.mr)
    packed = ctx.new_value(TensorType(ctx.real, (problem.groups * blocks * choice.mr * problem.k,)), "packed")
    group_stride, row_stride, channel_stride, tap_stride = strides
    params = {
        "groups": problem.groups,
        "rows": problem.m,
        "mr": choice.mr,
        "channels": problem.channels,
        "taps": problem.window.taps,
        "group_stride": group_stride,
        "row_stride": row_stride,
        "channel_stride": channel_stride,
        "tap_stride": tap_stride,
    }
    kernel, work = Kernel("pack_filters", params), threads((problem.groups, blocks * choice.mr, problem.k))
    pack = launch(kernel, problem.group.node, (problem.computed,), (packed,), Extents(), work)
    return [pack, panels.step(choice, packed)]


def conv_step(problem: ConvProblem, ctx: Context) -> Step:
    """Return the step of the kernel that was tuned, else of the fastest one by the models of their times.

    `conv_lines` has no such model: it takes the place of gathered panels wherever it can."""
    bf16, int8 = problem.precision is Precision.BF16, problem.precision is Precision.INT8
    pixels = problem.window.pixels
    space = partial(conv_space, problem, ctx)
    point = schedule(problem.group, ctx, f"{problem.label}{' in words of int8' * int8}", problem.describe, space)
    algorithm, own = point.get("algorithm", ""), ctx
    ctx = at_width(point, own)
    panels, count = _Panels(problem, ctx, point), known(pixels)
    choose = partial(
        tiling.choose,
        rows=problem.m,
        k=panels.depth,
        threads=ctx.threads,
        batch=problem.batch,
        packing=0.0 if panels.direct else panels.gathering * (1 + bf16),
    )
    choice = choose(ctx.target, columns=count, tile=panels.tile)
    if _may_reassociate(problem, ctx) and algorithm not in ("direct", "small", "lines"):
        filtering = winograd.plan(problem, ctx, point=point)
        margin = math.inf if algorithm else 0.9 if bf16 else 0.8
        direct = choose(ctx.target, columns=ctx.likely(pixels)).cycles + WEIGHTS * problem.w.size / (1 + bf16)
        if filtering is not None and filtering.cycles < margin * direct:
            if problem.precision is Precision.F32:
                ctx, filtering = winograd.at_best_width(problem, own, filtering, point=point)
            return winograd.winograd_step(problem, filtering, ctx, point=point)
    if algorithm in ("", "lines") and not int8 and (lines := conv_lines.division(problem, ctx)):
        return conv_lines.lines_step(problem, lines, ctx)
    if algorithm != "direct" and count and (small := panels.small(count)):
        if algorithm or small[1].cycles < 0.96 * choice.cycles:  # the model is no more exact than that
            return _small_step(panels, count, own)
    if problem.precision is Precision.F32:

        def chosen(ctx: Context) -> partial[Tiles]:
            return partial(choose, ctx.target, columns=count, tile=panels.tile)

        ctx = at_width(point, own, lambda ctx: tiling.cycles_by_halves(chosen(ctx)))
        panels, choice = replace(panels, ctx=ctx), chosen(ctx)()
    return panels.step(choice)


def _small_step(panels: _Panels, pixels: int, ctx: Context) -> Step:
    """Return the step of the kernel for images of few pixels, at the width of vectors that the model prefers."""

    def small(ctx: Context, halves: bool = False) -> tuple[int, Tiles]:
        found = replace(panels, ctx=ctx).small(pixels, halves=halves)
        assert found is not None
        return found

    if panels.problem.precision is Precision.F32:
        panels = replace(panels, ctx=at_width(panels.point, ctx, lambda ctx: small(ctx, halves=True)[1].cycles))
    return panels.small_step(*small(panels.ctx))


def _may_reassociate(problem: ConvProblem, ctx: Context) -> bool:
    """Whether a product may round as Winograd's does: that is for users of f32."""
    return ctx.reassociate and problem.precision is not Precision.INT8 and ctx.real is DType.F32


def conv_space(problem: ConvProblem, ctx: Context) -> Space:
    """Return the schedules of a convolution, NCHW.

    `direct` runs over pixels, `small` over channels, `lines` over pixels of copied lines. `k_parts`: blocks of the
    gathered inputs, which are all that it concerns; `ahead`: bytes by which weights are fetched ahead; `block`: most
    pixels of a block; see `tiles` and `scheduling` for the others."""
    pixels, panels = known(problem.window.pixels), _Panels(problem, ctx)
    int8 = problem.precision is Precision.INT8
    algorithms = ["direct"]
    if pixels and panels.small(pixels):
        algorithms.append("small")
    if not int8 and conv_lines.division(problem, ctx):
        algorithms.append("lines")
    if _may_reassociate(problem, ctx) and winograd.plan(problem, ctx):
        algorithms += winograd.NAMES
    direct, small, both = (("algorithm", names) for names in (("direct",), ("small",), ("direct", "small")))
    whole = panels.direct or (problem.epilogue.is_narrow and not int8)
    knobs = [
        Knob("algorithm", tuple(algorithms)),
        tiling.tile_knob(ctx.target, only=both),
        Knob("k_parts", () if whole else (1, 2, 3, 4, 6, 9, 12), small if int8 else both),  # `direct` stores floats
        tiling.near_knob(both),
        Knob("ahead", (0, 1024, AHEAD), direct),
        Knob("block", (16, 32, 64, 128), small),
    ]
    knobs += winograd.knobs(ctx.target)
    if problem.precision is Precision.F32:
        knobs.append(bits_knob(ctx))
    usable = [knob for knob in knobs if knob.only is None or set(knob.only[1]) & set(algorithms)]
    return Space(("conv", "conv_lines", "conv_small", "winograd"), tuple(usable))


def _by_length(step: Step, problem: ConvProblem, ctx: Context) -> list[Step]:
    """Return a second step beside one for signals of any length: for fewer outputs than a vector has lanes."""
    lanes, panels, pixels = ctx.target.lanes, _Panels(problem, ctx), problem.window.pixels
    packing = 0.0 if panels.direct else GATHER
    columns = tiling.choose(ctx.target, problem.m, None, problem.k, packing=packing).cycles
    found = None
    for count in filter(None, (lanes // 4, lanes // 2, lanes)):  # a vector may have two lanes only
        small = panels.small(count)
        if small is None or small[1].cycles > 0.8 * columns * lanes / tiling.NOMINAL_COLUMNS:
            break
        found = small
    if found is None:
        return [step]
    block, choice = found
    few = panels.small_step(block, choice.cut())
    return [replace(few, only=((pixels, block),), in_place=()), replace(step, only=((block + 1, pixels),), in_place=())]


@dataclass(frozen=True)
class _Panels:
    """Panels of inputs that the GEMM reads: where they come from, how deep they are, and the kernels that read them."""

    problem: ConvProblem
    ctx: Context
    point: Point = field(default_factory=dict)

    @property
    def tile(self) -> str:
        """The register tile of `tiles.tile_knob`; empty if the formula chooses it."""
        return str(self.point.get("tile", ""))

    @property
    def bf16(self) -> bool:
        """Whether panels consist of words of two bf16."""
        return self.problem.precision is Precision.BF16

    @property
    def direct(self) -> bool:
        """Whether inputs are read where they lie."""
        return self.problem.window.is_pointwise and not self.bf16

    @property
    def depth(self) -> int:
        """Steps of k of the micro-kernel."""
        return -(-self.problem.k // 2) if self.bf16 else self.problem.k

    @property
    def gathering(self) -> float:
        """Cycles to gather a vector, and to round it."""
        return GATHER * (not self.problem.window.is_pointwise) + PAIR if self.bf16 else GATHER

    def k_block(self, columns: int) -> int:
        """KC in elements of k; 0: all of k at once."""
        found = tiling.k_block(self.ctx.target, self.depth, columns, None) * (2 if self.bf16 else 1)
        if "k_parts" in self.point:
            found = -(-self.depth // int(self.point["k_parts"])) * (2 if self.bf16 else 1)
        return 0 if self.direct or found >= self.problem.k else found

    def params(self, kc: int, ld: int, extents: Extents) -> dict[str, Any]:
        """Template parameters that both kernels share; panels have `ld` columns, their buffer `floats` elements."""
        problem, lanes = self.problem, self.ctx.target.lanes
        k, pointwise = kc or problem.k, problem.window.is_pointwise
        layout: dict[str, Any] = {"bf16": self.bf16, "floats": k * ld + lanes}
        if self.bf16:
            panel, chunk = -(-k // 2) * ld, min(CHUNK, k + k % 2)
            floats = panel + (0 if pointwise else chunk * ld + lanes)
            layout |= {"pointwise": pointwise, "chunk": chunk, "rows_at": panel, "floats": floats}
        shared = problem.params(problem.channels, extents)
        return {**shared, "k": problem.k, "kc": kc, "direct": self.direct, **self._gathering(), **layout}

    def _gathering(self) -> dict[str, int]:
        """Return how `im2col.j2` gathers: by vectors of how many pieces (0: by runs), and from which width on."""
        window, lanes = self.problem.window, self.ctx.target.lanes
        width = window.outputs[2]
        if window.stride[2] > 2 or window.kernel[2] > 16:
            return {"pieces": 0, "at_least": 0}
        if not isinstance(width, int):
            return {"pieces": 2, "at_least": lanes}
        pieces = (lanes - 2) // max(1, width) + 2
        return {"pieces": pieces if pieces <= 4 else 0, "at_least": 0}

    def _near(self, choice: Tiles) -> Tiles:
        return replace(choice, near=int(self.point.get("near", choice.near)), streams=False)

    def step(self, choice: Tiles, packed: str = "") -> Step:
        """Return the step of the kernel that computes channels x pixels; `packed` are weights packed by a step."""
        choice = self._near(choice)
        problem, nr = self.problem, choice.nv * self.ctx.target.lanes
        kc = 0 if problem.precision is Precision.INT8 else self.k_block(nr)
        extents = Extents()
        b_k = extents(problem.window.pixels) if self.direct else nr
        params = self.params(kc, nr, extents)
        scratch = 0 if self.direct else -(-params["floats"] * self.ctx.target.element_bytes // 64) * 64
        tiles = choice.params("1", str(choice.mr), str(choice.mr * self.depth), b_k, b_k)
        tiles |= {"dot": problem.precision.dot(weights_first=True), "out": problem.epilogue.c}
        target = self.ctx.target
        large = problem.groups * problem.m * self.depth * target.element_bytes > target.l2 // 4
        if ahead := self.point.get("ahead", AHEAD * large):
            tiles["ahead"] = ahead
        kernel = self.ctx.kernel("conv", {**params, "scratch": scratch, "tiles": tiles})
        inputs = (problem.x, packed or self.ctx.add_constant(pack_rows(problem, choice.mr), "packed"))
        work = serial_below(problem.macs(problem.k), SMALL_WORK)
        return problem.launch(kernel, inputs, extents, work, in_place=not kc, scratch=scratch)

    def small(self, pixels: int, *, halves: bool = False) -> tuple[int, Tiles] | None:
        """Return the block of pixels and the tiles, with their modeled time, of the kernel for small images.

        `halves`: the time of `tiles.cycles_by_halves`."""
        ctx, m, lanes = self.ctx, self.problem.m, self.ctx.target.lanes
        if m < 2 * lanes or pixels > SMALL:
            return None
        blocks = -(-pixels // int(self.point.get("block", 64)))
        block = -(-pixels // blocks)
        batch = blocks * self.problem.batch
        form = {"threads": ctx.threads, "batch": batch, "tile": self.tile}
        chosen = partial(tiling.choose, ctx.target, block, m, self.depth, **form)
        choice = chosen()
        choice = replace(choice, cycles=tiling.cycles_by_halves(chosen)) if halves else choice
        vectors = -(-block // lanes) * batch
        again = max(1, -(-ctx.threads // batch))
        gathering = tiling.times(ctx.target, halves) * self.gathering
        moving = 0.0 if self.direct else gathering * self.problem.k * vectors * again
        moving += TURN * block * m * batch
        if pixels % block:
            choice = choice.cut()
        # in bf16 per image and group, as the time of the other kernel
        cycles = blocks * (choice.cycles + moving / batch) if self.bf16 else choice.cycles + moving
        return block, replace(choice, cycles=cycles)

    def small_step(self, block: int, choice: Tiles) -> Step:
        """Return the step of the kernel that computes pixels x channels, for images of few pixels."""
        choice = self._near(choice)
        problem, lanes = self.problem, self.ctx.target.lanes
        m, groups, nr, ld = problem.m, problem.groups, choice.nv * lanes, -(-block // lanes) * lanes
        kc = self.k_block(ld + nr)  # both panels are read again for each tile
        depth = -(-m // nr) if kc else 1
        extents = Extents()
        a_k = extents(problem.window.pixels) if self.direct else str(ld)
        params = self.params(kc, ld, extents)
        floats = depth * ld * nr + (0 if self.direct else params["floats"])
        scratch = -(-floats * self.ctx.target.element_bytes // 64) * 64
        tiles = choice.params("1", a_k, str(choice.mr), nr, choice.tail * lanes)
        tiles |= {"dot": problem.precision.dot(), "out": problem.epilogue.c}
        params |= {"block": block, "ld": ld, "depth": depth, "scratch": scratch, "tiles": tiles}
        columns = problem.w.reshape(groups, m, problem.channels, -1).transpose(0, 3, 2, 1).reshape(groups, -1, m)
        packed = pack_columns(pair_rows(columns) if self.bf16 else columns, nr, lanes)
        kernel = self.ctx.kernel("conv_small", params)
        inputs = (problem.x, self.ctx.add_constant(packed, "packed"))
        work = serial_below(problem.macs(problem.k), SMALL_WORK // 2)
        return problem.launch(kernel, inputs, extents, work, scratch=scratch)


def pack_rows(problem: ConvProblem, mr: int) -> NDArray[Any]:
    """Return the weights packed as `[group][M / MR][tap, C][MR]`, flat; missing rows of the last block are zero.

    In bf16, neighbors along [tap, C] form words of two."""
    groups, m = problem.groups, problem.m
    by_tap = problem.w.reshape(groups, m, problem.channels, -1).transpose(0, 1, 3, 2).reshape(groups, m, -1)
    columns = by_tap.transpose(0, 2, 1)
    return pack_columns(pair_rows(columns) if problem.precision is Precision.BF16 else columns, mr, mr)
