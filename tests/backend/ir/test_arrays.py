"""Arrays that kernels read in place, and the index of equal ones."""

from __future__ import annotations

import ctypes

import numpy as np
from rewrite.backend.ir.arrays import Contents, address, aligned, usable
from rewrite.backend.ir.kernel import SLACK


def test_aligned_arrays_and_views_of_them_are_not_copied() -> None:
    array = aligned((4096, 64), np.dtype(np.float32))
    assert usable(array) is array
    view = array.reshape(64, -1)[2:]
    assert usable(view) is view
    assert usable(array[:, 1:]).base is not array  # it starts between two alignments


def test_arrays_without_slack_are_copied() -> None:
    memory = np.zeros(3 * 4096, np.uint8)
    page = memory[-address(memory) % 4096 :][:4096]  # ends with its page, as far as is known
    copy = usable(page)
    assert copy is not page
    np.testing.assert_array_equal(copy, page)


def test_what_is_behind_an_array_is_zero() -> None:
    """Kernels compute on it in the last vector of a bias, and arithmetic on denormals takes over a hundred cycles."""
    for _ in range(100):  # memory that was written to is given out again
        array = aligned((24,), np.dtype(np.float32))
        assert ctypes.string_at(address(array) + array.nbytes, SLACK) == bytes(SLACK)
        ctypes.memset(address(array), 1, array.nbytes + SLACK)


def test_small_arrays_of_others_are_copied() -> None:
    memory = np.ones(3 * 4096, np.float32)
    bias = memory[-address(memory) % 4096 // 4 :][:24]
    assert usable(bias) is not bias
    assert ctypes.string_at(address(usable(bias)) + bias.nbytes, SLACK) == bytes(SLACK)


def test_equal_arrays_share_a_name_and_others_do_not() -> None:
    known, array = Contents(), np.arange(100_000, dtype=np.float32)
    assert known.name(array, "first") == "first"
    for i in (1, 5, 99_998):  # bytes that the sample may leave out
        other = array.copy()
        other[i] += 0.5
        assert known.name(other, f"other{i}") == f"other{i}"
        assert known.name(other.copy(), "again") == f"other{i}"
    assert known.name(array.copy(), "again") == "first"
    assert known.name(array.view(np.int32), "integers") == "integers"
    assert known.name(array.reshape(2, -1), "rows") == "rows"
    assert known.name(np.zeros((3, 0), np.float32), "empty") == "empty"
