"""Each file in `tests/rules_fail` has exactly the errors in its `.expected` file.

After a change of wording: `UPDATE_EXPECTED=1 pytest tests/grammar/test_rules_fail.py`, then read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rewrite import grammar
from rewrite.grammar.builtins import WARNINGS
from rewrite.grammar.checks.codes import CODES
from rewrite.grammar.diagnostics import RuleErrors, report
from rewrite.grammar.library.load import load
from rewrite.grammar.operator_info import OperatorInfo

FOLDER = Path(__file__).parent.parent / "rules_fail"
FILES = sorted(FOLDER.glob("*.rules"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_errors_are_as_expected(file: Path, operators: OperatorInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    try:
        found = report(load([file.name], operators).warnings, {file.name: file.read_text(encoding="utf-8")}) + "\n"
    except RuleErrors as errors:
        found = f"{errors}\n"
    expected = file.with_suffix(".expected")
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


def codes_in_the_source() -> set[str]:
    """Return the codes of all diagnostics in the source of the grammar; the language server only passes them on."""
    folder = Path(grammar.__file__).parent
    files = [f for f in folder.rglob("*.py") if f.parent.name != "lsp"]
    text = "".join(f.read_text(encoding="utf-8") for f in files)
    made = r'(?:Diagnostic|_complain|problem|Conflict|_warning)\(\s*"([a-z-]+)"'
    return set(re.findall(made, text))


def test_every_code_has_an_example_and_an_explanation() -> None:
    shown = set()
    for file in FILES:
        text = file.with_suffix(".expected").read_text(encoding="utf-8")
        shown |= set(re.findall(r"^(?:error|warning)\[([a-z-]+)\]", text, re.MULTILINE))
    codes = codes_in_the_source()
    assert len(codes) > 60
    assert codes - shown == set(), "no file here shows them"
    assert set(CODES) == codes | shown
    assert set(WARNINGS) <= codes
