"""The loop over Lark's tables: what Lark makes of a text, or nothing."""

from __future__ import annotations

import pytest
from rewrite.engine.library import standard_files
from rewrite.grammar import parse
from rewrite.grammar.cache import encode

COMMENTED = """\"\"\"What these are
for.\"\"\"
# of one
rule one Relu(x) => x  # kept
  where not (rank(x) == 2 or x in [1, -2.5e3]) class exact


# of two
op Two(x, by: 2.0) = (x / by) ** 2
"""


def by_lark(text: str) -> parse.Parsed:
    parser, builder = parse._machinery()
    builder.begin("a")
    return parse.Parsed(*parse._too_deep(parser.parse(text), text, builder.diagnostics))


@pytest.mark.parametrize("name", ["", "comments", "conv", "schedule", "slice", "operators"])
def test_it_makes_what_lark_makes(name: str) -> None:
    texts = {file.stem: file.read_text() for file in standard_files()}
    text = texts.get(name, COMMENTED if name else "")
    ours, theirs = parse.parse_fresh(text, "a"), by_lark(text)
    assert ours == theirs
    assert encode(ours.file, "a") == encode(theirs.file, "a")  # with all spans


@pytest.mark.parametrize(
    "text", [COMMENTED + "^", COMMENTED[:-3], "rule", "rule a x => ?", '"""', "rule a x => x class"]
)
def test_it_gives_up_what_is_wrong(text: str) -> None:
    parse._machinery()
    assert parse._local.automaton.parse(text) is None
    assert parse.parse_leniently(text, "a").diagnostics


def test_it_goes_on_after_what_is_wrong() -> None:
    right = "rule one Relu(x) => x class exact"
    assert parse.parse_leniently("rule", "a").diagnostics
    assert parse.parse_fresh(right, "a") == by_lark(right)
