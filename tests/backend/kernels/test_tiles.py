"""Choice of register tiles for products of words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rewrite.backend.ir.target import make_target
from rewrite.backend.kernels.gemm.tiles import Precision, Tiles, choose_words, padded

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
