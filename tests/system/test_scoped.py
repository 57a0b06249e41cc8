"""Files that exist while they are used only."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_thread_whose_child_is_killed_at_the_end_starts_no_other() -> None:
    """A pool that compiles modules goes on with the next when a compiler ends, and the process may be about to end."""
    script = """if True:
        import subprocess, threading, time
        from rewrite.system import scoped

        started = []

        def work():
            for _ in range(100):
                started.append(child := scoped.start(["sleep", "60"]))
                child.wait()
                scoped.end(child)

        threading.Thread(target=work, daemon=True).start()
        while not started:
            time.sleep(0.01)
        scoped.remove_all()
        time.sleep(0.3)
        print(len(started), [child.poll() for child in started])
        """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "1 [-9]\n"
