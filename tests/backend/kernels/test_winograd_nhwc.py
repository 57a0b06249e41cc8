"""Winograd convolutions of NHWC images and volumes against their transposed NCHW counterparts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rewrite.backend.ir.target import make_target
from rewrite.backend.kernels.conv.winograd import TileShape

from .oracle import check
from .test_conv import conv
from .test_conv_nhwc import PADS, any_size, kernel_of, last, step_of
from .test_winograd import clears, forced


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize("t", [(2, 2), (4, 2), (4, 4), (6, 6)])
def test_winograd(t: TileShape, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents that tiles, blocks and vectors divide and do not divide, with operands, batches and uneven padding.

    With `chunk` the kernel transforms the filters, of that many input channels at a time."""
    forced(monkeypatch, t, 8, chunk=chunk)
    cases = [
        conv((1, 16, 8, 8), (32, 16, 3, 3), pads=PADS),
        conv((1, 21, 13, 9), (40, 21, 3, 3), "Relu", pads=PADS),
        conv((2, 19, 7, 30), (33, 19, 3, 3), "Relu", residual=(2, 33, 7, 30), pads=PADS),
        conv((1, 48, 5, 5), (100, 48, 3, 3), bias=False),
        conv((1, 16, 11, 17), (32, 16, 3, 3), pads=(0, 2, 3, 1)),
        conv((1, 30, 1, 40), (70, 30, 3, 3), pads=PADS),
        conv((3, 16, 40, 1), (80, 16, 3, 3), "HardSwish", pads=PADS),
        conv((1, 16, 37, 70), (32, 16, 3, 3), "Relu", residual=(1, 32, 37, 70), auto_pad="SAME_UPPER"),
        conv((2, 16, 6, 6), (32, 16, 3, 3), symbolic={"x": ("N", 16, 6, 6)}, pads=PADS),
        conv((1, 96, 13, 9), (120, 32, 3, 3), "Relu", residual=(1, 120, 13, 9), group=3, pads=PADS),
        conv((2, 42, 8, 10), (40, 21, 3, 3), group=2, pads=PADS),
    ]
    made = [last(replace(case, rtol=1e-4, atol=5e-5)) for case in cases]
    assert {kernel_of(case) for case in made} == {"winograd_nhwc"}
    check(made)


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize(("t", "most"), [((2, 2), 28), ((4, 2), 14), ((4, 4), 8), ((4, 4), 28), ((6, 6), 14)])
def test_winograd_of_any_size(t: TileShape, most: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images and volumes that are larger and smaller than likely ones, empty ones among them."""
    forced(monkeypatch, t, most, chunk=chunk)
    cases = []
    for n, h, w in ((1, 8, 8), (2, 13, 9), (1, 1, 300), (1, 90, 2), (3, 1, 1), (1, 20, 100), (0, 4, 4)):
        x = (n, 21, h, w)
        cases.append(any_size(conv(x, (40, 21, 3, 3), "Relu", residual=(n, 40, h, w), pads=PADS), "N", "H", "W", 40))
        cases.append(any_size(conv((n, 42, h, w), (40, 21, 3, 3), group=2, pads=PADS), "N", "H", "W", 40))
    for d, h, w in ((1, 5, 6), (4, 11, 3)):
        volume = conv((2, 16, d, h, w), (17, 16, 3, 3, 3), "Relu", pads=(1,) * 6)
        cases.append(any_size(volume, "N", "D", "H", "W", 17))
    made = [replace(case, rtol=1e-4, atol=5e-5) for case in cases]
    assert {kernel_of(case) for case in made} == {"winograd_nhwc"}
    assert all(clears(step_of(case)) for case in made)
    check(made)


@pytest.mark.parametrize("chunk", [0, 16])
@pytest.mark.parametrize(("t", "most"), [((2, 2), 28), ((4, 2), 14), ((4, 4), 8), ((6, 6), 8)])
def test_winograd_of_dilated_filters(t: TileShape, most: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of lines of different sizes, some of them empty, in images of known and of any size."""
    forced(monkeypatch, t, most, chunk=chunk)
    w = (40, 21, 3, 3)
    cases = [
        conv((1, 21, 13, 9), w, "Relu", residual=(1, 40, 11, 9), dilations=(2, 1), pads=PADS),
        conv((2, 21, 30, 7), w, "Relu", dilations=(3, 2), pads=(3, 2, 3, 2)),
        conv((1, 21, 12, 40), w, dilations=(1, 5), pads=(0, 4, 2, 0)),
        conv((1, 42, 9, 10), w, group=2, dilations=(2, 2), bias=False),
        conv((1, 21, 5, 6), w, dilations=(4, 4), pads=(4, 4, 4, 4)),
        conv((1, 16, 3, 9, 9), (16, 16, 1, 3, 3), dilations=(1, 2, 3), pads=(0, 2, 3, 0, 2, 3)),
    ]
    for n, height, width in ((1, 8, 8), (2, 13, 9), (1, 2, 50), (1, 1, 1), (0, 4, 4)):
        case = conv((n, 21, height, width), w, residual=(n, 40, height, width), dilations=(3, 2), pads=(3, 2, 3, 2))
        cases.append(any_size(case, "N", "H", "W", 40))
    made = [replace(case if case.symbolic else last(case), rtol=1e-4, atol=5e-5) for case in cases]
    assert {kernel_of(case) for case in made} == {"winograd_nhwc"}
    check(made)


@pytest.mark.parametrize("chunk", [0, 40])
@pytest.mark.parametrize("t", [(2, 2), (4, 2), (4, 4), (6, 6)])
def test_winograd_of_volumes(t: TileShape, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of several slices, some of them in the padding; channels that vectors divide and do not divide."""
    forced(monkeypatch, t, 8, chunk=chunk)
    cases = [
        conv((1, 16, 4, 8, 8), (32, 16, 3, 3, 3), pads=(1,) * 6),
        conv((2, 21, 3, 13, 9), (20, 21, 3, 3, 3), "Relu", residual=(2, 20, 3, 13, 9), pads=(1,) * 6),
        conv((1, 19, 5, 7, 6), (33, 19, 2, 3, 3), pads=(0, 0, 1, 2, 1, 1)),
        conv((1, 32, 3, 9, 9), (16, 32, 1, 3, 3), "HardSwish", bias=False, pads=(0, 1, 1, 0, 1, 1)),
        conv((1, 16, 1, 6, 6), (16, 16, 5, 3, 3), pads=(3, 0, 0, 3, 1, 1)),
    ]
    made = [last(replace(case, rtol=1e-4, atol=5e-5)) for case in cases]
    assert {kernel_of(case) for case in made} == {"winograd_nhwc"}
    check(made)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_tiles_of_6_x_6_where_they_fit_the_image(isa: str) -> None:
    """48² is 64 of them or 144 of 4 x 4, with 4096 and 5184 products for each pair of channels; 14² is 9 or 16."""
    for size, t in ((48, [6, 6]), (14, [4, 4])):
        case = last(conv((1, 96, size, size), (96, 96, 3, 3), pads=PADS))
        assert step_of(case, target=make_target(isa)).kernel.params["t"] == t


def test_winograd_only_where_rounding_may_change() -> None:
    case = last(conv((1, 64, 56, 56), (64, 64, 3, 3), pads=PADS))
    assert kernel_of(case) == "winograd_nhwc"
    assert kernel_of(case, reassociate=False) == "conv_nhwc"
