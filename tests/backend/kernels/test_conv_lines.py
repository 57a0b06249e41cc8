"""Convolutions of few output channels on copies of lines: geometry, groups, strips and bands, run-time sizes."""

from __future__ import annotations

import itertools

import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import make_target
from rewrite.backend.kernels.conv import conv_lines
from rewrite.benchmarks import harness

from .oracle import Case, check
from .test_conv import conv
from .test_winograd import kernel_of, step_of


def cases() -> list[Case]:
    return [
        conv((1, 5, 19, 37), (1, 5, 3, 5), "Relu", pads=(1, 2, 1, 2)),
        conv((2, 8, 11, 62), (12, 8, 7, 3), residual=(2, 12, 11, 62), pads=(3, 1, 3, 1)),
        conv((1, 4, 21, 48), (13, 4, 7, 3), "HardSwish", pads=(6, 1, 6, 1), dilations=(2, 1)),
        conv((1, 6, 17, 90), (24, 3, 5, 5), "Gelu", group=2, pads=(0, 3, 2, 1)),
        conv((1, 3, 23, 64), (32, 3, 5, 5), bias=False, strides=(2, 1), pads=(2, 2, 2, 2)),
        conv((1, 3, 9, 700), (3, 3, 3, 9), "Sigmoid", pads=(1, 4, 1, 4), dilations=(1, 3), auto_pad="NOTSET"),
        conv((2, 7, 1500), (9, 7, 9), pads=(4, 4)),
        conv((1, 2, 5, 33), (2, 2, 1, 3), pads=(0, 40, 0, 0)),
        conv((1, 3, 40, 75), (24, 3, 3, 3), "Relu", strides=(2, 2), pads=(1, 1, 1, 1)),
        conv((2, 4, 21, 130), (16, 2, 5, 5), group=2, strides=(1, 2), pads=(2, 4, 2, 4), dilations=(1, 2)),
        conv((1, 3, 33, 96), (8, 3, 3, 4), residual=(1, 8, 11, 48), strides=(3, 2), pads=(0, 0, 1, 2)),
        conv((1, 2, 1400), (9, 2, 10), strides=(2,), pads=(4, 5)),
        conv((1, 1, 9, 150), (3, 1, 3, 3), strides=(2, 2), pads=(1, 40, 1, 0)),
    ]


def test_geometry() -> None:
    """Strides and dilations, uneven padding, groups, images wider than a strip, and signals."""
    made = cases()
    assert {kernel_of(case) for case in made} == {"conv_lines"}
    check(made)


def test_several_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_lines, "_STRIP", 32)
    monkeypatch.setattr(conv_lines, "block_rows", lambda height, most, threads: min(height, most, 4))
    made = cases()
    assert {kernel_of(case) for case in made} == {"conv_lines"}
    check(made)


def test_short_signals_are_divided_among_threads() -> None:
    """A signal is one row, and fits one strip: without smaller ones a single thread would have work."""
    case = conv((1, 8, 300), (16, 8, 9), pads=(4, 4))
    graph = harness.make_graph(list(case.nodes), case.inputs, constants=case.constants)
    for threads in (1, 2, 7):
        items, _ = harness.lower(graph, threads=threads)
        (step,) = (item for item in items or () if isinstance(item, Step))
        assert -(-300 // step.kernel.params["strip"]) >= threads


def test_sizes_of_run_time() -> None:
    """Images that are smaller and larger than likely ones, empty ones among them."""
    made = []
    for n, h, w in ((1, 128, 62), (2, 3, 5), (1, 1, 300), (0, 4, 4), (1, 90, 17), (1, 5, 16)):
        free = {"x": ("N", 12, "H", "W"), "r": ("N", 10, "H", "W")}
        made.append(
            conv((n, 12, h, w), (10, 12, 5, 3), "Relu", residual=(n, 10, h, w), pads=(2, 1, 2, 1), symbolic=free)
        )
        made.append(conv((n, 12, h, w), (10, 12, 5, 3), strides=(2, 2), pads=(2, 1, 2, 1), symbolic={"x": free["x"]}))
    assert {kernel_of(case) for case in made} == {"conv_lines"}
    check(made)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
def test_rows_of_any_width_are_not_left_to_tiles_of_one_vector(isa: str) -> None:
    """A row of a few vectors would be computed one by one, as the tile for a likely width is wider than the row."""
    case = conv((1, 48, 96, 96), (3, 48, 3, 3), pads=(1, 1, 1, 1), symbolic={"x": ("N", 48, "H", "W")})
    kernel = step_of(case, target=make_target(isa)).kernel
    assert kernel.template == "conv_lines"
    widths = kernel.params["widths"]
    assert (widths[0], widths[-1]) == (kernel.params["tiles"]["nv"], 1)
    assert all(after == -(-wide // 2) for wide, after in itertools.pairwise(widths))


def test_bands_and_strips_of_any_size() -> None:
    """One to nine vectors of columns, strips side by side, and bands of which the last is lower."""
    made = []
    for h, w in ((70, 15), (33, 31), (19, 47), (40, 96), (23, 130), (7, 331), (3, 700)):
        free = {"x": ("N", 24, "H", "W")}
        made.append(conv((1, 24, h, w), (5, 24, 3, 3), pads=(1, 1, 1, 1), strides=(2, 1), symbolic=free))
    assert {kernel_of(case) for case in made} == {"conv_lines"}
    check(made)


def test_what_gathered_panels_compute() -> None:
    for case in (
        conv((1, 8, 40, 40), (40, 8, 5, 5), pads=(2, 2, 2, 2)),
        conv((1, 8, 40, 40), (8, 8, 5, 5), strides=(1, 3)),
        conv((1, 8, 40, 40), (8, 8, 1, 1)),
        conv((1, 8, 9, 9), (8, 8, 5, 5), pads=(2, 2, 2, 2)),
        conv((1, 4, 6, 40, 40), (4, 4, 3, 3, 3), pads=(1,) * 6),
    ):
        assert kernel_of(case) != "conv_lines"


def test_tiles_fit_the_registers() -> None:
    for isa, m, width in itertools.product(("avx512", "avx2", "portable"), (1, 2, 7, 12, 32), (16, 62, 300)):
        target = make_target(isa)
        rows, vectors = conv_lines._tile(target, m, width, 100)
        assert 1 <= rows <= m
        assert rows * vectors + min(rows, vectors) + (isa == "portable") < target.registers  # no fused multiply-add
