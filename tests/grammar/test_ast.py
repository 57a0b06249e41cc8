"""Children and walks of syntax trees."""

from __future__ import annotations

from collections.abc import Iterator

from rewrite.engine.rewriting.rule_library import standard_files
from rewrite.grammar.syntax.ast import Syntax, parts
from rewrite.grammar.syntax.parse import parse_file


def below(node: Syntax) -> Iterator[Syntax]:
    """Yield a node and all nodes in its fields, parents first."""
    yield node
    for name in parts(type(node)):
        value = getattr(node, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Syntax):
                yield from below(item)


def test_a_walk_meets_all_nodes_in_the_order_of_the_source() -> None:
    for file in standard_files():
        tree = parse_file(file)
        met, expected = list(tree.walk()), list(below(tree))
        assert len(met) == len(expected) > 1
        assert all(one is other for one, other in zip(met, expected, strict=True))
