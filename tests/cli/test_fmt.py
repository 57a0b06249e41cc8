"""`rewrite fmt` on files, directories and standard input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .command import MAIN, environment, rewrite

MESSY = "rule r   # doc\n  Relu( Relu(x) )=>Relu(x)   # why\n"
NEAT = f"{'rule r'.ljust(55)}# doc\n{'  Relu(Relu(x))  =>  Relu(x)'.ljust(55)}# why\n"


def test_a_file_is_rewritten_once(tmp_path: Path) -> None:
    file = tmp_path / "a.rules"
    file.write_text(MESSY)
    file.chmod(0o640)
    done = rewrite("fmt", "a.rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reformatted a.rules" in done.stderr
    assert file.read_text() == NEAT
    assert file.stat().st_mode & 0o777 == 0o640
    done = rewrite("fmt", "a.rules", cwd=tmp_path)
    assert "1 file left as it is" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a.rules"]


def test_check_writes_nothing_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.rules").write_text(MESSY)
    (tmp_path / "b.rules").write_text(NEAT)
    done = rewrite("fmt", "--check", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "would reformat sub/a.rules" in done.stderr
    assert "b.rules" not in done.stderr
    assert (tmp_path / "sub" / "a.rules").read_text() == MESSY
    assert rewrite("fmt", "--check", "b.rules", cwd=tmp_path).returncode == 0


def test_diff_shows_what_would_change(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text(MESSY)
    done = rewrite("fmt", "--diff", "a.rules", cwd=tmp_path)
    assert done.returncode == 0
    assert "-  Relu( Relu(x) )=>Relu(x)   # why" in done.stdout
    assert "+  Relu(Relu(x))  =>  Relu(x)" in done.stdout
    assert (tmp_path / "a.rules").read_text() == MESSY


def test_ends_of_lines_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.rules"
    file.write_bytes(MESSY.replace("\n", "\r\n").encode())
    assert rewrite("fmt", "a.rules", cwd=tmp_path).returncode == 0
    assert file.read_bytes() == NEAT.replace("\n", "\r\n").encode()


def test_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", MAIN, "fmt"]

    def run(text: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*command, "-", *options], input=text.encode(), cwd=tmp_path, env=environment(), capture_output=True,
            timeout=120,
        )  # fmt: skip

    assert run(MESSY).stdout.decode() == NEAT
    assert run(MESSY, "--check").returncode == 1
    assert run(NEAT, "--check").returncode == 0
    assert run("rule r (").returncode == 2


def test_a_broken_file_is_left_alone_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text("rule r Relu(x => x\n")
    (tmp_path / "b.rules").write_text(MESSY)
    done = rewrite("fmt", "a.rules", "b.rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "error[syntax]" in done.stderr
    assert (tmp_path / "a.rules").read_text() == "rule r Relu(x => x\n"
    assert (tmp_path / "b.rules").read_text() == NEAT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.rules"], "missing.rules: no such file"),
        (["."], "no .rules file in this directory"),
        (["-", "a.rules"], "cannot be combined with other paths"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = rewrite("fmt", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.rules"
    file.write_text(MESSY)
    file.chmod(0o444)
    done = rewrite("fmt", "a.rules", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be written to" in done.stderr


def test_the_language_server_says_what_it_needs(tmp_path: Path) -> None:
    before = "import sys; sys.modules['pygls'] = None"
    done = rewrite("lsp", cwd=tmp_path, before=before)
    assert done.returncode == 2
    assert "pip install 'onnx-rewrite[lsp]'" in done.stderr
