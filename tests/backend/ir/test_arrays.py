"""Arrays that kernels read in place, and the index of equal ones."""

from __future__ import annotations

import ctypes

import numpy as np
from rewrite.backend.ir.arrays import Contents, WeightMemory, address, aligned, usable
from rewrite.backend.ir.kernel import SLACK
from rewrite.backend.ir.lower import Context
from rewrite.backend.ir.target import detect
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

HUGE_PAGE = 2 << 20


def test_aligned_arrays_and_views_of_them_are_not_copied() -> None:
    array = aligned((4096, 64), np.dtype(np.float32))
    assert usable(array) is array
    view = array.reshape(64, -1)[2:]
    assert usable(view) is view
    assert usable(array[:, 1:]).base is not array  # it starts between two alignments


def test_weights_lie_one_behind_the_other_on_huge_pages() -> None:
    memory = WeightMemory()
    first = memory.copy(np.full(10_000, 2.0, np.float32))
    memory._block[:] = 1
    arrays = [memory.copy(np.full(n, float(n), np.float32)) for n in (8192, 30_000)]
    assert address(first) % HUGE_PAGE <= 64
    assert [address(a) for a in arrays] == [
        address(first) + first.nbytes + SLACK,
        address(arrays[0]) + 8192 * 4 + SLACK,
    ]
    for array in arrays:
        assert (array == array.size).all()
        assert ctypes.string_at(address(array) + array.nbytes, SLACK) == bytes(SLACK)
        assert usable(array) is array
    for size in (8191, (8 << 20) // 4 + 1):  # small ones would take a huge page, large ones have their own
        alone = np.zeros(size, np.float32)
        assert memory.copy(alone) is alone
    for _ in range(4):  # the last one begins another block
        array = memory.copy(np.zeros(8 << 20, np.uint8))
    assert address(array) % HUGE_PAGE <= 64
    assert (arrays[1] == 30_000).all()


def test_a_program_has_its_weights_in_one_block() -> None:
    """Equal ones once; what they were packed in is given back."""
    graph = harness.make_graph([Node("Relu", ("x",), ("y",))], {"x": np.zeros((2, 3), np.float32)})
    context = Context(graph, detect())
    packed = [np.full(20_000, n, np.float32) for n in (1, 2, 1)]
    names = [context.add_constant(array) for array in packed]
    assert names[2] == names[0] != names[1]
    first, second = (context.added_constants[name].array for name in names[:2])
    assert address(second) == address(first) + first.nbytes + SLACK


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
