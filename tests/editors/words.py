"""The reserved words of the rule language, read from its grammar."""

from __future__ import annotations

import re
from pathlib import Path

import rewrite


def reserved_words() -> set[str]:
    """The words that `rules.lark` quotes."""
    lark = (Path(rewrite.__file__).parent / "grammar" / "syntax" / "rules.lark").read_text()
    return set(re.findall(r'"([a-z]+)"', re.sub(r"//.*", "", lark)))
