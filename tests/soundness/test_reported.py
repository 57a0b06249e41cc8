"""`rewrite check` refuses the wrong rules that bug reports suggested, proves none of them, and accepts the right ones.

Every run tests a share of them; `python -m tests.nightly.reported_rules` tests all.
"""

from __future__ import annotations

from functools import cache

import pytest
from rewrite.grammar.library.load import Library
from rewrite.soundness import check_rule
from rewrite.soundness.prover import Proof, prove

from .reported import HERE, SOURCE, TRACKERS, Reported, chosen, load, sources

WRONG_IN, RIGHT_IN = 6, 6
"""Every how many rules one is tested."""


@cache
def _set() -> tuple[Library, list[Reported]]:
    return load()


def _named(folder: str, one_in: int) -> list[str]:
    names = [name for path in sorted((HERE / folder).glob("*.rules")) for name in sources(path)]
    return [name for name in names if chosen(name, one_in)]


def _find(name: str) -> Reported:
    return next(one for one in _set()[1] if one.rule.name == name)


def test_the_set_is_as_large_as_it_claims_and_names_its_sources() -> None:
    for folder, least in (("wrong", 150), ("right", 60)):
        found = [(path, *one) for path in (HERE / folder).glob("*.rules") for one in sources(path).items()]
        assert len(found) >= least
        for path, name, line in found:
            match = SOURCE.match(line)
            assert match, f"{path.name}: {name} does not name its source: {line!r}"
            assert match[1] in TRACKERS, f"{path.name}: {name}: {match[1]}"


@pytest.mark.parametrize("name", _named("wrong", WRONG_IN))
def test_a_wrong_rule_is_refused_and_not_proved(name: str) -> None:
    rule, library = _find(name).rule, _set()[0]
    report = check_rule(rule, library)
    assert report.verdict in ("unsound", "weak"), report
    assert not isinstance(prove(rule, library), Proof)


@pytest.mark.parametrize("name", _named("right", RIGHT_IN))
def test_a_right_rule_is_accepted(name: str) -> None:
    report = check_rule(_find(name).rule, _set()[0])
    assert report.verdict == "sound", report
