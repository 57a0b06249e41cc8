"""Depthwise filters, NHWC, on copies of lines: their geometry, and where lines are copied."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rewrite.backend.ir.target import make_target
from rewrite.backend.kernels.conv import depthwise_pool_nhwc
from rewrite.backend.kernels.conv.depthwise_lines_nhwc import can_copy_lines, tile_sizes
from rewrite.engine.ir.symbolic import symbol

from .oracle import check
from .test_conv import conv
from .test_conv_nhwc import PADS, any_size, depthwise, kernel_of, last, quantized, step_of


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy lines wherever that is possible."""
    monkeypatch.setattr(depthwise_pool_nhwc, "copies_lines", lambda problem, *_: can_copy_lines(problem))


@pytest.mark.usefixtures("copied")
def test_depthwise_by_copies_of_lines() -> None:
    """All but several filters of a channel, and volumes. Chunks of channels, strips and bands have remainders."""
    cases = [
        *depthwise(),
        conv((1, 40, 33, 300), (40, 1, 9, 9), "Relu", pads=(4, 4, 4, 4), group=40, residual=(1, 40, 33, 300)),
        conv((3, 100, 17, 30), (100, 1, 5, 7), pads=(2, 6, 0, 1), strides=(2, 3), group=100),
        conv((1, 24, 40, 12), (24, 1, 2, 2), "Sigmoid", strides=(3, 3), group=24, bias=False),
        conv((1, 24, 5, 5), (24, 1, 5, 5), pads=(4, 4, 4, 4), dilations=(2, 2), group=24),
        conv((1, 24, 1, 5), (24, 1, 9, 3), pads=(4, 1, 4, 1), group=24),
        conv((1, 9, 3, 4), (9, 1, 3, 3), pads=(7, 5, 2, 9), group=9),
        conv((1, 16, 21, 33), (16, 1, 3, 12), pads=(1, 6, 1, 5), group=16),
    ]
    made = [last(case) for case in cases]
    others = {i for i, case in enumerate(made) if kernel_of(case) != "depthwise_lines_nhwc"}
    assert others == {2, 12}
    check(made)
    check([quantized(case) for case in cases[:2]])


@pytest.mark.usefixtures("copied")
def test_copies_of_lines_of_images_of_any_size() -> None:
    """The last tiles overlap their neighbors, also those of the next strip or band."""
    cases, sizes = (
        [],
        ((1, 13, 17), (2, 30, 41), (1, 1, 64), (1, 64, 1), (3, 2, 2), (0, 9, 9), (1, 3, 700), (1, 300, 3), (1, 6, 10)),
    )
    for n, h, w in sizes:
        residual = conv((n, 40, h, w), (40, 1, 3, 3), "Relu", residual=(n, 40, h, w), pads=PADS, group=40)
        cases.append(any_size(residual, "N", "H", "W", 40))
        attrs = {"pads": (2, 2, 2, 2), "strides": (2, 2), "group": 20}
        cases.append(any_size(conv((n, 20, h, w), (20, 1, 5, 5), **attrs), "N", "(H+1)//2", "(W+1)//2", 20))
        attrs = {"pads": (4, 4, 4, 4), "dilations": (2, 2), "group": 20}
        cases.append(any_size(conv((n, 20, h, w), (20, 1, 5, 5), **attrs), "N", "H", "W", 20))
    assert {kernel_of(case) for case in cases} == {"depthwise_lines_nhwc"}
    assert not any(step_of(case).in_place for case in cases)
    check(cases)


def test_tiles_for_any_size() -> None:
    """One as wide as divides the likely extent evenly, half of it, and one of a single output."""
    extent = symbol("W")
    assert tile_sizes(extent, 20, 14) == ([14, 7, 1], [])
    assert tile_sizes(extent, 20, 28) == ([14, 7, 1], [])
    assert tile_sizes(extent, 8, 7) == ([7, 4, 1], [])
    assert tile_sizes(extent, 2, 64) == ([2, 1], [])
    assert tile_sizes(extent, 1, 64) == ([1], [])
    assert tile_sizes(14, 20, 14) == ([14], [1, 1])


def test_lines_are_copied_where_pixels_share_sets() -> None:
    """8 ways of 64 sets of lines, and an L2 cache of 512 KiB. The last ones: small filters of large images."""
    target = replace(make_target("avx2"), l1=32 << 10, l2=512 << 10)

    def kernel(channels: int, size: int, taps: int, stride: int = 1) -> str:
        sides = {"pads": (taps // 2,) * 4, "strides": (stride, stride)}
        case = conv((1, channels, size, size), (channels, 1, taps, taps), group=channels, **sides)
        return kernel_of(last(case), target=target).removeprefix("depthwise_").removesuffix("_nhwc")

    assert [kernel(channels, 14, 5) for channels in (240, 256, 320, 512, 576, 640)] == [
        *("pool", "lines", "pool", "lines", "pool", "lines")
    ]
    assert [kernel(channels, 14, 3) for channels in (240, 512, 960, 1024)] == ["pool", "lines", "pool", "lines"]
    assert [kernel(channels, 7, 7) for channels in (640, 768, 1024)] == ["pool", "pool", "lines"]
    assert [kernel(384, size, 7) for size in (10, 14)] == ["pool", "lines"]
    assert [kernel(96, size, 7) for size in (14, 56)] == ["pool", "lines"]
    assert [kernel(32, 112, 3), kernel(256, 56, 3, 2), kernel(512, 28, 3, 2)] == ["pool", "pool", "lines"]


def test_large_filters_take_one_row_at_a_time() -> None:
    """By default; small ones two, which share weights."""
    tiles = {}
    for isa in ("avx2", "avx512"):
        target = replace(make_target(isa), l1=32 << 10, l2=512 << 10)
        for taps, size, channels in ((3, 14, 512), (7, 32, 768)):
            case = conv((1, channels, size, size), (channels, 1, taps, taps), group=channels, pads=(taps // 2,) * 4)
            step = step_of(last(case), target=target)
            assert step.kernel.template == "depthwise_lines_nhwc"
            tiles[isa, taps] = step.kernel.params["rows"][0], step.kernel.params["columns"][0]
    assert tiles == {("avx2", 3): (2, 5), ("avx2", 7): (1, 8), ("avx512", 3): (2, 7), ("avx512", 7): (1, 16)}
