"""The examples run, from a directory of their own, as they tell people to run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")))


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"REWRITE_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_python_api(folder: Path) -> None:
    run(folder, "make_model.py")
    printed = run(folder, "python_api.py")
    assert "['Abs', 'MatMul']" in printed
    assert "made by  abs_of_parts" in printed
    assert "agree on (5, 3)" in printed


def test_rules_under_pytest(folder: Path) -> None:
    assert "5 passed" in run(folder, "-m", "pytest", "-p", "no:cacheprovider", "test_my_rules.py", "my.rules")
