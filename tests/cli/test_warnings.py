"""Warnings about rules on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite.cli.rule_files import show_warnings
from rewrite.engine.rewriting.rule_library import STANDARD, load_rules
from rewrite.errors import CheckFailed


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    file = tmp_path / "odd.rules"
    file.write_text("rule odd\n  Relu(x)  =>  x\n  given x: f32[N]\n", encoding="utf-8")
    return file


def test_warnings_go_to_standard_error_and_stop_nobody(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_warnings(load_rules([odd], std=False), [odd.parent], strict=False)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "warning[unused]: the dim `N` is never used" in shown.err
    assert "1 warning" in shown.err


def test_strict_lets_none_pass(odd: Path) -> None:
    with pytest.raises(CheckFailed, match="--strict"):
        show_warnings(load_rules([odd], std=False), [odd], strict=True)


def test_only_warnings_of_named_files_are_shown(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_warnings(load_rules([odd], std=False), [STANDARD], strict=True)
    assert capsys.readouterr().err == ""
