"""Every file in `tests/rules_fail` is wrong in the ways its `.expected` file says, word for word.

After a change of wording: `BLESS=1 pytest tests/grammar/test_rules_fail.py`, then read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rewrite.grammar import build, check, check_calls, check_ops, check_schedules, expand, library, parse, syntax_errors
from rewrite.grammar.diagnostics import RuleErrors
from rewrite.grammar.library import load
from rewrite.grammar.operator_info import OperatorInfo

FOLDER = Path(__file__).parent.parent / "rules_fail"
FILES = sorted(FOLDER.glob("*.rules"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_errors_are_as_expected(file: Path, operators: OperatorInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    with pytest.raises(RuleErrors) as caught:
        load([file.name], operators)
    found = f"{caught.value}\n"
    expected = file.with_suffix(".expected")
    if os.environ.get("BLESS"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


def test_every_code_has_an_example() -> None:
    codes = set()
    for module in (build, check, check_calls, check_ops, check_schedules, expand, library, parse, syntax_errors):
        text = Path(module.__file__).read_text(encoding="utf-8")
        codes |= set(re.findall(r'(?:Diagnostic|_complain)\(\s*"([a-z-]+)"', text))
    shown = set()
    for file in FILES:
        shown |= set(re.findall(r"^error\[([a-z-]+)\]", file.with_suffix(".expected").read_text(), re.MULTILINE))
    assert len(codes) > 30
    assert codes - shown == set()
