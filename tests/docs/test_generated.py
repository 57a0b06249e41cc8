"""Generated and included parts of the pages are current; `make docs` renews them."""

from __future__ import annotations

import runpy
from typing import Any

import onnxruntime
import pytest
from rewrite import ort
from rewrite.grammar.builtins import functions

from .blocks import ROOT


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


def test_pages_are_current(generator: dict[str, Any]) -> None:
    stale = [page for page, text in generator["pages"]().items() if page.read_text(encoding="utf-8") != text]
    assert stale == []


def test_the_readme_includes_what_is_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for source in ("rules/conv.rules::conv_bn", "examples/my.rules::abs_of_parts", "examples/python_api.py::api"):
        assert f"<!-- include: {source} -->" in text


def test_every_function_is_in_the_table() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [f for f in functions().values() if f"| `{f.signature}` | {f.doc} |" not in text] == []


def test_every_name_of_onnxruntime_is_explained() -> None:
    names = runpy.run_path(str(ROOT / "docs" / "onnxruntime_names.py"))
    if onnxruntime.__version__ != ort.__version__:
        pytest.skip(f"the page is about ONNX Runtime {ort.__version__}")
    assert names["PAGE"].read_text(encoding="utf-8") == names["page"]()


def test_the_table_of_operators_is_current() -> None:
    operators = runpy.run_path(str(ROOT / "docs" / "operators.py"))
    assert operators["PAGE"].read_text(encoding="utf-8") == operators["page"]()
