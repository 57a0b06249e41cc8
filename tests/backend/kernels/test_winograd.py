"""Winograd convolutions against the oracle and float64: edges of images and blocks, tails of channels, refusals."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.backend.codegen.render import kernel_name, render_kernel, render_module
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.lower import Context
from rewrite.backend.ir.target import Target, detect, make_target
from rewrite.backend.kernels.conv import winograd
from rewrite.backend.kernels.conv.problem import ConvProblem
from rewrite.backend.kernels.gemm import tiles
from rewrite.backend.memory.buffer_assignment import SCRATCH
from rewrite.backend.toolchain.compiler import find_compiler
from rewrite.benchmarks import harness

from .oracle import Case, check
from .test_conv import conv
from .test_prefetch import TEMPLATES

PADS = (1, 1, 1, 1)


def near(case: Case) -> Case:
    """Return the case with the tolerance of 4 x 4 tiles: 1e-5 of the largest output."""
    return replace(case, rtol=1e-4, atol=5e-5)


def forced(monkeypatch: pytest.MonkeyPatch, t: winograd.TileShape, most: int, chunk: int = 0) -> None:
    """Force tiles of `t` outputs and blocks of about `most` tiles on every eligible convolution, NCHW or NHWC.

    With `chunk` the kernels transform the filters, of that many input channels at a time."""
    real = winograd.plan

    def plan(problem: ConvProblem, ctx: Context, *, nhwc: bool = False, **_: object) -> winograd.Algorithm | None:
        if real(problem, ctx, nhwc=nhwc) is None:
            return None
        k = problem.channels * problem.window.kernel[0]
        tile = "" if problem.window.is_known else winograd.tile_of_any(ctx.target, problem.m, k)
        found = winograd.algorithm(problem.likely(ctx), ctx, t, most, nhwc=nhwc, stored=not chunk, tile=tile)
        return replace(found, cycles=0.0, chunk=min(chunk, problem.channels))

    monkeypatch.setattr(winograd, "plan", plan)


def step_of(case: Case, **options: Any) -> Step:
    graph = harness.make_graph(
        list(case.nodes), case.inputs, constants=case.constants, symbolic_shapes=case.symbolic, types=case.types
    )
    items, _ = harness.lower(graph, **options)
    assert items is not None
    [step] = [item for item in items if isinstance(item, Step)]
    return step


def kernel_of(case: Case, **options: Any) -> str:
    return step_of(case, **options).kernel.template


@pytest.mark.parametrize("chunk", [0, 24])
@pytest.mark.parametrize("t", [(2, 2), (4, 2), (4, 4), (6, 6)])
def test_edges(t: winograd.TileShape, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents that tiles, blocks and vectors divide and do not divide, with operands, batches and uneven padding."""
    forced(monkeypatch, t, 8, chunk=chunk)
    cases = [
        conv((1, 16, 8, 8), (32, 16, 3, 3), pads=PADS),
        conv((1, 32, 13, 9), (40, 32, 3, 3), "Relu", pads=PADS),
        conv((2, 16, 7, 30), (33, 16, 3, 3), "Relu", residual=(2, 33, 7, 30), pads=PADS),
        conv((1, 48, 5, 5), (64, 48, 3, 3), bias=False),
        conv((1, 16, 11, 17), (32, 16, 3, 3), pads=(0, 2, 3, 1)),
        conv((1, 16, 1, 40), (32, 16, 3, 3), pads=PADS),
        conv((3, 16, 40, 1), (80, 16, 3, 3), "HardSwish", pads=PADS),
        conv((1, 16, 37, 70), (32, 16, 3, 3), "Relu", residual=(1, 32, 37, 70), auto_pad="SAME_UPPER"),
        conv((2, 16, 6, 6), (32, 16, 3, 3), symbolic={"x": ("N", 16, 6, 6)}, pads=PADS),
    ]
    assert {kernel_of(case) for case in cases[:-1]} == {"winograd"}
    check([near(case) for case in cases])


@pytest.mark.parametrize("chunk", [0, 40])
def test_panels_in_parts_and_blocks_of_many_tiles(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, (4, 4), 56, chunk=chunk)
    check([near(conv((1, 64, 14, 14), (200, 64, 3, 3), "Relu", residual=(1, 200, 14, 14), pads=PADS))])
    forced(monkeypatch, (2, 2), 84, chunk=chunk)
    check([near(conv((2, 128, 7, 7), (130, 128, 3, 3), pads=PADS))])


@pytest.mark.parametrize("chunk", [0, 24])
@pytest.mark.parametrize(("t", "most"), [((2, 2), 28), ((4, 2), 14), ((4, 4), 8), ((4, 4), 28), ((6, 6), 14)])
def test_images_of_any_size(t: winograd.TileShape, most: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images larger and smaller than likely ones, empty ones among them."""
    forced(monkeypatch, t, most, chunk=chunk)
    sizes = ((1, 8, 8), (2, 13, 9), (1, 1, 300), (1, 90, 2), (3, 1, 1), (1, 20, 100), (0, 4, 4))
    free = {"x": ("N", 32, "H", "W"), "r": ("N", 40, "H", "W")}
    cases = [
        conv((n, 32, h, w), (40, 32, 3, 3), "Relu", residual=(n, 40, h, w), pads=PADS, symbolic=free)
        for n, h, w in sizes
    ]
    assert {kernel_of(case) for case in cases} == {"winograd"}
    check([near(case) for case in cases])


def clears(step: Step) -> bool:
    """Whether a kernel clears what is behind the last tile of a block, before registers compute it."""
    return "_padded(nty * ntx); i++" in render_kernel(step.kernel, detect()).source


def test_tiles_that_only_fill_registers_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of any size have blocks of fewer tiles than registers compute; denormals behind them would be slow.

    Scratch memory begins with the inputs of tiles, [16, tiles, ldv]. A single tile is computed with spare ones."""
    forced(monkeypatch, (2, 2), 28)
    case = conv((1, 32, 2, 2), (40, 32, 3, 3), pads=PADS)
    free = replace(case, symbolic={"x": ("N", 32, "H", "W")})
    assert kernel_of(free) == "winograd"
    assert (clears(step_of(free)), clears(step_of(case))) == (True, False)
    check([near(free)])
    graph = harness.make_graph(list(free.nodes), free.inputs, constants=free.constants, symbolic_shapes=free.symbolic)
    program = compile_graph(graph, threads=1)
    program.record(free.inputs)
    [frame], [step] = program._frames, program.plan.items
    assert isinstance(step, Step)
    plane, row, rows, channels = (int(step.kernel.params[name]) for name in ("v_plane", "ldv", "least", "c"))
    ctypes.memset(frame.base(SCRATCH), 1, 16 * plane * 4)
    program.record(free.inputs)
    inputs = np.frombuffer(frame.memory(SCRATCH, 0, 16 * plane * 4), np.float32).reshape(16, plane)
    spare = inputs[:, row : rows * row].reshape(16, rows - 1, row)
    assert rows > 1
    assert not spare[:, :, :channels].any()
    untouched = np.frombuffer(b"\1" * 4, np.float32)
    assert (spare[:, :, channels:] == untouched).all()
    assert (inputs[:, rows * row :] == untouched).all()


def test_images_of_any_size_are_divided_so_that_registers_are_full(tmp_path: Path) -> None:
    """Such as 40 tiles across, registers of 14 x 2: blocks of 1 x 20 compute 22, those of 2 x 14 compute 28."""
    free = conv((1, 96, 120, 160), (32, 96, 3, 3), pads=PADS, symbolic={"x": ("N", 96, "H", "W")})
    kernel, most = step_of(free).kernel, 28
    mr, least = int(kernel.params["tiles"]["mr"]), int(kernel.params["least"])
    function = f"""
    int64_t block(int64_t down, int64_t across, int64_t most) {{
      int64_t columns = 1, rows = {kernel_name(kernel, detect())}_block(down, across, most, most, most, &columns);
      return rows << 32 | columns;
    }}"""
    (tmp_path / "block.c").write_text(render_module([render_kernel(kernel, detect())]) + function)
    compiler = find_compiler()
    command = [*compiler.command, *compiler.flags(detect()), f"-I{TEMPLATES}", "block.c", "-o", "block.so", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    block = ctypes.CDLL(str(tmp_path / "block.so")).block
    block.argtypes, block.restype = [ctypes.c_int64] * 3, ctypes.c_int64

    def computed(extent: int, size: int) -> list[int]:
        return [min(size, extent - at) for at in range(0, extent, size)]

    def cost(down: int, across: int, rows: int, columns: int) -> int:
        sizes = [r * c for r in computed(down, rows) for c in computed(across, columns)]
        padded = (n // mr * mr + min(mr, -(-(n % mr) // least) * least) for n in sizes)
        return sum(padded) + len(sizes) * (mr // 2)

    gained = 0
    for down, across in itertools.product((1, 2, 7, 13, 30), (1, 5, 7, 28, 29, 40, 100)):
        rows, columns = divmod(block(down, across, most), 1 << 32)
        assert 0 < rows * columns <= most
        widest = -(-across // -(-across // most))
        simple = min(cost(down, across, r, widest) for r in range(1, most // widest + 1))
        assert cost(down, across, rows, columns) <= simple
        gained += simple - cost(down, across, rows, columns)
    assert gained > 0
    most = winograd._BLOCKS[3]
    for side in winograd._SIDES:  # the model of the choice of register tiles divides as the kernel does
        rows, columns = divmod(block(side, side, most), 1 << 32)
        blocks = winograd.divided(side, mr, least)
        assert cost(side, side, rows, columns) == sum((n + mr // 2) * count for n, count in blocks.items())
    for down, across in ((0, 3), (3, 0), (0, 0)):  # nothing is divided by 0
        rows, columns = divmod(block(down, across, most), 1 << 32)
        assert rows >= 1
        assert columns >= 1


def test_images_of_any_size_have_register_tiles_for_any_number_of_rows() -> None:
    """16 tiles, those of a likely size, take rows of 8, but 25 take 28 then, and their last panel has two vectors."""
    target = make_target("avx512")
    likely = tiles.choose(target, 16, 128, 128)
    assert (likely.mr, likely.nv) == (8, 3)
    assert winograd.tile_of_any(target, 128, 128) == "7x4"
    assert winograd.tile_of_any(make_target("avx2"), 128, 128) == "3x4"


def test_register_tiles_of_any_size_fit_the_blocks_that_images_are_divided_into() -> None:
    """Tiles of 7 x 4 suit any single number of rows better, but blocks of 8 rows are to be had; 48 columns fill three
    vectors. Those of 12 x 12 tiles compute no row too many."""
    assert winograd.tile_of_any(make_target("avx512"), 48, 48) == "8x3"
    assert winograd.tile_of_any(make_target("avx2"), 48, 48) == "4x3"
    assert winograd.divided(12, 8, 4) == {48: 3}


def test_fewer_rows_share_filters_that_stay_in_the_first_level_cache() -> None:
    """Four vectors of 128 channels take half of 32 KiB. Of 256 channels they would come from the second level."""
    target = replace(make_target("avx2"), l1=32 << 10)
    assert winograd.tile_of_any(target, 128, 128) == "3x4"
    assert winograd.tile_of_any(target, 128, 256) == "6x2"


def test_blocks_are_small_where_the_cache_holds_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large blocks save reading filters, and displace them and each other."""
    monkeypatch.delitem(winograd.NAMES, "winograd6")
    free = conv((1, 32, 256, 256), (32, 32, 3, 3), pads=PADS, symbolic={"x": ("N", 32, "H", "W")})
    params = step_of(free, target=make_target("avx2")).kernel.params
    assert max(int(params[name]) for name in ("most", "most_columns")) <= 32
    free = conv((1, 80, 56, 56), (80, 80, 3, 3), pads=PADS, symbolic={"x": ("N", 80, "H", "W")})
    params = step_of(free, target=replace(make_target("avx512"), l2=2 << 20)).kernel.params
    assert params["tiles"]["mr"] == 5
    assert int(params["most"]) > 32, "a vector of 64 bytes takes longer to read"


def test_filters_from_l2_cost_by_their_bytes() -> None:
    """A vector of AVX2 is half as long as one of AVX-512, so 4 x 3 tiles are not limited by it."""
    found = [tiles.tile_cycles(make_target("avx2"), 4, 3, 512, far_bytes) for far_bytes in (32, 0, 64)]
    assert found[0] == found[1] < found[2]


def test_the_model_takes_it_for_large_ones_only() -> None:
    assert kernel_of(conv((1, 64, 56, 56), (64, 64, 3, 3), pads=PADS)) == "winograd"
    for case in (
        conv((1, 64, 56, 56), (64, 64, 3, 3), pads=PADS, strides=(2, 2)),
        conv((1, 64, 56, 56), (64, 64, 3, 3), dilations=(2, 2)),
        conv((1, 64, 56, 56), (64, 32, 3, 3), pads=PADS, group=2),
        conv((1, 64, 56, 56), (64, 64, 5, 5), pads=(2, 2, 2, 2)),
        conv((1, 64, 56, 56), (64, 64, 1, 1)),
        conv((1, 3, 56, 56), (64, 3, 3, 3), pads=PADS),
    ):
        assert kernel_of(case) != "winograd"


def test_images_of_7_lines_take_tiles_of_4_x_2_with_avx2() -> None:
    """With AVX2 8 tiles are two rows of registers. 7² pixels are 4 tiles of 4 x 4 or 16 of 2 x 2, which take more."""
    target = make_target("avx2")
    case = conv((1, 256, 7, 7), (256, 256, 3, 3), pads=PADS)
    params = step_of(case, target=target).kernel.params
    assert (params["t"], params["tiles"]["mr"], params["tiles"]["nv"]) == ([4, 2], 4, 3)
    assert (params["most_rows"], params["most_columns"]) == (2, 4)
    case = conv((1, 256, 14, 14), (256, 256, 3, 3), pads=PADS)
    assert step_of(case, target=target).kernel.params["t"] == [4, 4]


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_tiles_of_6_x_6_are_for_large_images(isa: str) -> None:
    """They save a fifth of the products, unless they have too many pixels outside of the image, such as 18² for 14²."""
    target = make_target(isa)
    for l2, halves in ((1 << 20, False), (2 << 20, False), (1 << 20, True), (512 << 10, False)):
        for size in (14, 96, 160):
            case = conv((1, 64, size, size), (64, 64, 3, 3), pads=PADS)
            found = step_of(case, target=replace(target, l2=l2, halves=halves and isa == "avx512"))
            assert (found.kernel.params["t"] == [6, 6]) == (size > 14), (l2, halves, size)


def test_of_equal_blocks_larger_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 28 tiles here: those of 7 take 1.05 times as long (docs/measurements/layers.md)."""
    monkeypatch.delitem(winograd.NAMES, "winograd6")
    target = replace(make_target("avx512"), l2=2 << 20)
    params = step_of(conv((1, 64, 56, 56), (64, 64, 3, 3), pads=PADS), target=target).kernel.params
    assert (params["most_rows"], params["most_columns"]) == (2, 14)


def test_not_where_rounding_may_not_change() -> None:
    case = conv((1, 64, 56, 56), (64, 64, 3, 3), pads=PADS)
    assert kernel_of(case, reassociate=False) != "winograd"


def test_filters_from_memory_are_transformed_in_the_kernel() -> None:
    """Large filters with enough tiles each, unless the last cache holds them; they are then stored untransformed."""

    for channels, size, l3, floats in ((256, 14, 8, 9), (64, 56, 8, 36), (256, 14, 32, 36)):
        target = Target("avx512", 64, l1=48 << 10, l2=1 << 20, l3=l3 << 20)
        case = conv((1, channels, size, size), (channels, channels, 3, 3), bias=False, pads=PADS)
        graph = harness.make_graph(list(case.nodes), case.inputs, constants=case.constants)
        items, context = harness.lower(graph, target=target)
        assert items is not None
        [step] = [item for item in items if isinstance(item, Step)]
        assert step.kernel.template == "winograd"
        assert context.type(step.inputs[1]).shape == (floats * channels**2,)


@pytest.mark.parametrize("chunk", [0, 40])
@pytest.mark.parametrize(("t", "bound"), [((2, 2), 1e-6), ((4, 2), 5e-6), ((4, 4), 2e-5), ((6, 6), 4e-5)])
@pytest.mark.parametrize("shape", [(64, 64, 28), (512, 128, 14)])
def test_error_against_float64(
    shape: Sequence[int], t: winograd.TileShape, bound: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest error relative to the largest output obeys the bound in the module's docstring."""
    forced(monkeypatch, t, 28, chunk=chunk)
    c, m, size = shape
    rng = np.random.default_rng(7)  # its own: the error depends on the data, and those must not on the order of tests
    x, w = rng.standard_normal((1, c, size, size)), rng.standard_normal((m, c, 3, 3)) / 8
    case = conv((1, c, size, size), (m, c, 3, 3), bias=False, pads=PADS)
    case = replace(case, inputs={"x": x.astype(np.float32)}, constants={"w": w.astype(np.float32)})
    graph = harness.make_graph(list(case.nodes), case.inputs, constants=case.constants)
    [got] = harness.run(graph, case.inputs, target=detect()).values()
    padded = np.pad(case.inputs["x"].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded[0], (3, 3), axis=(1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(c * 9, size * size)
    exact = case.constants["w"].astype(np.float64).reshape(m, -1) @ columns
    assert np.abs(got.reshape(m, -1) - exact).max() < bound * np.abs(exact).max()
