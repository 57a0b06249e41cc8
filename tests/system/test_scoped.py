"""Files that exist while they are used only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rewrite.system import scoped

IN_MEMORY = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system keeps no files in memory")


@pytest.mark.parametrize("memory", [pytest.param(True, marks=IN_MEMORY), False])
def test_a_file_is_readable_by_path_and_removed_afterwards(
    memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoped.tempfile, "tempdir", str(tmp_path))
    if not memory:
        monkeypatch.setattr(os, "memfd_create", _refuse, raising=False)
    with scoped.file(b"1\t2\n" * 100_000, "test") as path:
        assert path.read_bytes() == b"1\t2\n" * 100_000
        assert memory != any(tmp_path.iterdir())
    assert not path.exists()
    assert not any(tmp_path.iterdir())


def _refuse(name: str) -> int:
    raise PermissionError(1, "forbidden", name)
