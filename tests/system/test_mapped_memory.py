"""Pages of mapped files are given back after they were read, and nothing else is."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from rewrite.system.mapped_memory import MappedArrays, mapping_of

SIZE = 96 << 20


def resident() -> int:
    """Return the bytes of files in this process."""
    return int(re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (SIZE >> 8))
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_pages_are_given_back_once_much_was_read(file: Path) -> None:
    array = np.memmap(file, np.uint8, "r").view(np.ndarray)
    arrays = MappedArrays([array[: SIZE // 2], array[SIZE // 2 :].reshape(2, -1)])
    total = int(array.sum(dtype=np.int64))
    before = resident()
    arrays.note(SIZE // 2)
    assert resident() > before - SIZE // 2
    arrays.note(SIZE // 2)
    assert resident() < before - SIZE // 2
    assert int(array.sum(dtype=np.int64)) == total


def test_writable_mappings_keep_what_was_written(file: Path) -> None:
    """What was written to a private mapping is in no file."""
    array = np.memmap(file, np.uint8, "c")
    array[::4096] = 7
    MappedArrays([array]).give_back()
    assert (array[::4096] == 7).all()


def test_the_mapping_of_views(file: Path) -> None:
    with open(file, "rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    view = np.frombuffer(memoryview(mapping)[3 : 3 + 4096], np.float32).reshape(2, -1).T
    assert mapping_of(view) is mapping
    assert mapping_of(memoryview(mapping)[5:]) is mapping
    assert mapping_of(view.copy()) is None
    assert mapping_of(np.memmap(file, np.uint8, "r")[4:]) is not None
