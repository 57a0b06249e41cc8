"""The generated parts of the pages are current: else run `make docs`."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from rewrite.grammar.builtins import functions

from .blocks import ROOT


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize(("name", "make"), [("language.md", "language"), ("errors.md", "errors")])
def test_page_is_current(generator: dict[str, Any], name: str, make: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generator[make]()


def test_every_function_is_in_the_table() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [f for f in functions().values() if f"| `{f.signature}` | {f.doc} |" not in text] == []
