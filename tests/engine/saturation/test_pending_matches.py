"""Pending matches are looked at once for each change, however often they were refused."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from rewrite.engine.saturation.pending_matches import Match, PendingMatches


class Changes:
    """The part of an e-graph that pending matches read; counts how many matches are looked at."""

    def __init__(self) -> None:
        self.revision, self.touched, self.looked_at = 0, list[int](), 0
        self.stamps: dict[int, int] = {}

    def touch(self, handle: int) -> None:
        self.revision += 1
        self.stamps[handle] = self.revision
        self.touched.append(handle)

    def changed_since(self, revision: int, handles: Iterable[int]) -> bool:
        self.looked_at += 1
        return any(self.stamps.get(h, 0) > revision for h in handles)


def match(name: str, *classes: int) -> Match:
    query = SimpleNamespace(name=name, classes=tuple(f"c{i}" for i in range(len(classes))), integers=())
    variant: Any = SimpleNamespace(query=query, ac_trees=())
    return Match(cast(Any, SimpleNamespace(name=f"rule of {name}")), variant, cast(Any, None), classes)


def test_a_match_refused_many_times_is_looked_at_once_for_each_change() -> None:
    egraph = Changes()
    pending = PendingMatches(cast(Any, egraph), lambda match: ())
    pending.begin()
    for number in range(10):
        pending.refuse(match(f"m{number}", 1, 2, 100 + number))
    for _ in range(20):
        pending.begin()
        egraph.touch(1)
        egraph.touch(2)
        egraph.touch(1)
        due = []
        for found in pending.take_due():
            due.append(found.variant.query.name)
            pending.refuse(found)
        assert due == [f"m{number}" for number in range(10)]
    assert egraph.looked_at == 20 * 10


def test_a_match_is_due_only_after_a_change_of_its_classes() -> None:
    egraph = Changes()
    pending = PendingMatches(cast(Any, egraph), lambda match: ())
    pending.begin()
    for found in (match("a", 1), match("b", 2)):
        pending.refuse(found)
    pending.begin()
    egraph.touch(2)
    assert [found.variant.query.name for found in pending.take_due()] == ["b"]
    pending.begin()
    assert list(pending.take_due()) == []


def test_postponed_matches_wait_while_their_rule_is_suspended() -> None:
    egraph = Changes()
    pending = PendingMatches(cast(Any, egraph), lambda match: ())
    pending.begin()
    for name in ("a", "b", "c"):
        pending.postpone(match(name, 1))
    suspended = {"rule of b"}
    pending.begin()
    due = pending.take_due(suspended.__contains__)
    assert next(due).variant.query.name == "a"
    suspended.add("rule of c")  # while matches are applied
    assert list(due) == []
    pending.begin()
    suspended.clear()
    assert [found.variant.query.name for found in pending.take_due(suspended.__contains__)] == ["b", "c"]
    pending.begin()
    assert list(pending.take_due()) == []
    assert egraph.looked_at == 0


def test_only_sums_and_products_read_terms() -> None:
    egraph = Changes()
    read: list[str] = []

    def terms(found: Match) -> list[int]:
        read.append(found.variant.query.name)
        return [9]

    pending = PendingMatches(cast(Any, egraph), terms)
    pending.begin()
    plain, total = match("plain", 1), match("sum", 2)
    cast(Any, total.variant).ac_trees = (("c0", None),)
    for found in (plain, total):
        pending.refuse(found)
    pending.begin()
    egraph.touch(1)
    egraph.touch(9)
    assert [found.variant.query.name for found in pending.take_due()] == ["plain", "sum"]
    assert read == ["sum"]
