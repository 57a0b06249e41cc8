"""Choice of register tiles for products of words."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from rewrite.backend.ir.target import Target, make_target
from rewrite.backend.kernels.gemm.tiles import (
    Precision,
    Tiles,
    _divides_rows,
    choose,
    choose_words,
    few_rows,
    odd_rows,
    padded,
)
from rewrite.engine.ir.symbolic import symbol

from .test_vector_math import compiled

PLAIN = replace(make_target("avx512"), features=("avx512_bf16", "avx512_vnni"))
AMX = replace(PLAIN, features=(*PLAIN.features, "amx_bf16", "amx_int8"))


def chosen(rows: int | None, columns: int, k: int, run: int = 0, precision: Precision = Precision.BF16) -> Tiles:
    return choose_words(AMX, precision, rows, columns, k, run=run)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_amx_where_the_target_has_it(precision: Precision) -> None:
    assert choose_words(PLAIN, precision, 128, 768, 384).amx == 0
    found = choose_words(AMX, precision, 128, 768, 384)
    assert (found.mr, found.nv, found.amx, found.tail) == (32, 2, 16, 0)
    assert choose_words(AMX, Precision.F32, 128, 768, 384).amx == 0


def test_few_products_stay_on_vectors() -> None:
    """A tile takes some hundred cycles, however few of its rows and columns are used."""
    assert chosen(1, 16, 4).amx == 0
    assert chosen(128, 768, 384).amx
    assert chosen(None, 768, 384).amx


@pytest.mark.parametrize(
    ("k", "run", "step", "whole"),
    [
        (384, 0, 16, 384),
        (20, 0, 10, 20),
        (37, 0, 13, 39),
        (72, 72, 12, 72),
        (12, 12, 12, 12),
        (72, 24, 12, 72),
        (180, 20, 10, 180),
        (72, 8, 8, 72),
    ],
)
def test_steps_are_equal_and_divide_runs(k: int, run: int, step: int, whole: int) -> None:
    found = chosen(256, 256, k, run)
    assert (found.amx, padded(found, k)) == (step, whole)


@pytest.mark.parametrize("rows", [196, None])
def test_tiles_of_sse2_are_wide(rows: int | None) -> None:
    """SSE2 has no broadcasting load: a row of A takes two instructions more for each step of k."""
    found = choose(make_target("portable"), rows, 96, 576)
    assert (found.mr, found.nv) == (2, 6)
    found = choose(make_target("avx2"), rows, 96, 576)
    assert found.mr > found.nv


def test_the_model_divides_rows_where_the_kernel_does(tmp_path: Path) -> None:
    source = """#include "kernel.h"
        int by_rows(long m, long n, long k, long blocks, int nth) { return k_by_rows(m, n, k, blocks, nth); }"""
    by_rows = compiled(source, "generic", tmp_path).by_rows
    found = set()
    for m, n, k, tile, threads in itertools.product(
        (1, 49, 128, 129, 196, 3136), (1, 16, 64, 576, 4096), (16, 512, 9216), (1, 8, 14), (1, 2, 3, 16)
    ):
        blocks = -(-m // tile)
        assert bool(by_rows(m, n, k, blocks, threads)) == _divides_rows(m, n, k, blocks, threads)
        found.add(_divides_rows(m, n, k, blocks, threads))
    assert found == {True, False}
    assert not _divides_rows(3136, 64, 64, 392, 1)
    assert _divides_rows(3136, 64, 64, 392, 2)
    assert not _divides_rows(64, 3072, 768, 8, 2)  # more weights than inputs


def test_panels_of_few_rows_hide_the_latency_of_sums() -> None:
    """A tile of few rows and two or three vectors has too few sums; it spans panels, as far as there are any."""
    target, rows = make_target("avx2"), symbol("M")
    for shape, columns, few in (
        ("6x2", 512, [(3, 2), (2, 2), (1, 4)]),
        ("6x2", 50, [(3, 2), (2, 2), (1, 2)]),
        ("4x3", 512, [(3, 1), (2, 2), (1, 2)]),
        ("6x2", 20, []),
    ):
        tile = choose(target, None, columns, 128, tile=shape)
        assert few_rows(target, tile, rows, columns) == ({"few": few} if few else {})
        assert not few_rows(target, tile, 3, columns), "rows of a known number have tiles of their own"
    wide = choose(make_target("avx512"), None, 512, 128, tile="7x4")
    assert not few_rows(make_target("avx512"), wide, rows, 512)


def test_three_and_five_rows_of_any_number_read_the_second_factor_once() -> None:
    """Where it comes from beyond the first-level cache, with AVX-512."""
    target, rows = make_target("avx512"), symbol("M")
    for shape, rest in (("8x3", [5, 4, 3, 2, 1]), ("4x6", [3, 2, 1]), ("14x2", [8, 5, 4, 3, 2, 1])):
        tile = choose(target, None, 768, 768, tile=shape)
        assert odd_rows(target, tile, rows, 768) == {"rest": rest}
        assert not odd_rows(target, tile, 3, 768), "rows of a known number have tiles of their own"
        assert not odd_rows(target, tile, rows, 16), "so few rows of the second factor stay there"
    avx2 = make_target("avx2")
    assert not odd_rows(avx2, choose(avx2, None, 768, 768), rows, 768)


def test_results_of_few_terms_are_written_in_two_lines_of_the_cache() -> None:
    """If they outgrow half of the second-level cache; otherwise the most products for each load decide."""
    target = Target("avx2", 32, l1=48 << 10, l2=2 << 20)
    assert [choose(target, rows, 96, k).nv for rows, k in ((12544, 16), (1024, 16), (12544, 512))] == [4, 2, 2]


def test_pairs_leave_a_register_for_the_product() -> None:
    """They are added in a second instruction: 12 sums, 3 rows of B and an element would take all registers."""
    target, vnni = make_target("avx2"), replace(make_target("avx2"), features=("avx_vnni",))
    assert (choose(target, 128, 768, 384).mr, choose(target, 128, 768, 384).nv) == (4, 3)
    for k in (384, 1536):
        for found in (choose(target, 128, 768, k, pairs=True), choose_words(target, Precision.INT8, 128, 768, k)):
            assert found.nv == 2
            assert found.mr >= 4
    assert choose_words(vnni, Precision.INT8, 128, 768, 384) == choose(vnni, 128, 768, 384)
