"""Copies and checksums of files."""

import os
import zlib
from pathlib import Path

import pytest
from rewrite.system import file_contents
from rewrite.system.file_contents import ReadAhead, checksum_of, checksum_of_file, size_and_crc

DATA = bytes(range(251)) * 4000  # a megabyte, in no power of two


@pytest.fixture(params=["by the kernel", "by hand", "half by the kernel"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are copied: systems and pairs of files differ in what their kernel does."""
    kernel = getattr(os, "copy_file_range", None)
    if request.param != "by the kernel":
        calls: list[int] = []

        def copy(source: int, target: int, count: int, start: int) -> int:
            calls.append(count)
            if request.param == "by hand" or kernel is None or len(calls) > 1:
                raise OSError(18, "Invalid cross-device link")
            return int(kernel(source, target, count // 2, start))

        monkeypatch.setattr(os, "copy_file_range", copy, raising=False)
    return str(request.param)


def test_copies_of_files_and_ranges(way: str, tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(DATA)
    file_contents.copy_file(source, target)
    assert target.read_bytes() == DATA
    with open(source, "rb") as file, open(target, "wb") as out:
        out.write(b"before")
        file_contents.copy_range(file, 1000, 500_001, out)
        file_contents.copy_range(file, 7, 0, out)
        out.write(b"between")
        file_contents.copy_range(file, 3, 4, out)
    assert target.read_bytes() == b"before" + DATA[1000:501_001] + b"between" + DATA[3:7]
    source.write_bytes(b"")
    file_contents.copy_file(source, target)
    assert target.read_bytes() == b""


def test_a_file_that_became_shorter_is_reported(way: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with (
        open(tmp_path / "a", "rb") as file,
        open(tmp_path / "b", "wb") as out,
        pytest.raises(OSError, match="become shorter"),
    ):
        file_contents.copy_range(file, 5, len(DATA), out)


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with (
        pytest.raises(OSError, match="No space left"),
        open(tmp_path / "a", "rb") as file,
        open("/dev/full", "wb") as out,
    ):
        file_contents.copy_range(file, 0, len(DATA), out)


def test_every_byte_counts_in_a_quick_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite.system.file_contents._CHUNK", 1000)
    path = tmp_path / "a"

    def of(data: bytes) -> tuple[int, int]:
        path.write_bytes(data)
        return size_and_crc(path)

    first = of(DATA[:2500])
    assert first == of(DATA[:2500])
    assert first == (2500, zlib.crc32(b"".join(zlib.crc32(DATA[at : min(at + 1000, 2500)]).to_bytes(4, "little")
                                               for at in (0, 1000, 2000))))  # fmt: skip
    others = {of(data) for data in (DATA[:2501], DATA[:2499], DATA[:2000], DATA[:1000], b"")}
    for at in (0, 999, 1000, 1999, 2000, 2499):
        changed = bytearray(DATA[:2500])
        changed[at] ^= 1
        others.add(of(bytes(changed)))
    assert len(others) == 11
    assert first not in others
    assert of(b"") == (0, 0)


def test_the_checksum_is_that_of_zlib_for_every_length_and_alignment() -> None:
    crc = pytest.importorskip("rewrite.system.crc", reason="not compiled in this checkout")
    for size in (*range(200), 1000, 1023, 2500):
        for start in (0, 1, 7):
            part = memoryview(DATA)[start : start + size]
            assert crc.crc32(part) == zlib.crc32(part)


def test_every_byte_counts_in_a_hash_of_many() -> None:
    first = checksum_of(memoryview(DATA[:2500]))
    others = {checksum_of(memoryview(data)) for data in (DATA[:2501], DATA[:2499], DATA[:2000], DATA[:1000], b"")}
    for at in (0, 999, 1000, 1999, 2000, 2499):
        changed = bytearray(DATA[:2500])
        changed[at] ^= 1
        others.add(checksum_of(memoryview(bytes(changed))))
    assert len(others) == 11
    assert first not in others
    assert checksum_of(memoryview(DATA[:2500])) == first


def test_large_data_are_hashed_by_blake3() -> None:
    expected = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"  # a test vector of its authors: "abc"
    assert checksum_of(memoryview(b"abc")) == expected


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 2500])
def test_a_file_is_hashed_as_its_contents(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_contents, "_COPIED", 1000)
    (tmp_path / "a").write_bytes(DATA[:size])
    assert checksum_of_file(tmp_path / "a") == checksum_of(memoryview(DATA[:size]))


def test_a_file_read_ahead_is_kept_until_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    ahead = ReadAhead(path)
    reading = ahead._reading
    assert reading is not None
    reading.result()
    path.write_bytes(b"second")
    assert ahead.contents() == b"first"
    assert ahead._reading is None
    assert ahead.contents() == b"second"
    missing = ReadAhead(tmp_path / "none")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            missing.contents()
