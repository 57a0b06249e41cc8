"""Rules tested in your own suite: `pytest test_my_rules.py my.rules`."""

from pathlib import Path

from make_model import TINY
from rewrite.testing import assert_rewrites, assert_sound, assert_unchanged

RULES = Path(__file__).with_name("my.rules")
INTEGERS = TINY.replace("float", "int32")


def test_the_tests_beside_the_rules() -> None:
    """The tests in the rule file pass, and each rule has one that fires."""
    assert_sound(RULES)


def test_it_shortens_the_model() -> None:
    """Five nodes become two."""
    assert_rewrites(TINY, rules=[RULES], by="abs_of_parts", to=["Abs", "MatMul"], numerics="exact")


def test_it_leaves_integers_alone() -> None:
    """The condition holds it back."""
    assert_unchanged(INTEGERS, rules=[RULES])
