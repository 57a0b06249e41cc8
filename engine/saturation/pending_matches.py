"""Pending matches: refused or postponed ones, retried when more is known of their classes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ..egraph.egraph import EGraph
from ..egraph.matcher import Row
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compiled_patterns import CompiledRule, Variant

Key = tuple[str, Row]
"""Query and canonical row of a match."""


@dataclass(slots=True)
class Match:
    """A row that egglog found, and the context of its rule.

    `revision` is the e-graph's when the match was refused, None if it was not tried yet. `place` orders pending
    matches, and `iteration` is the one in which the match was refused last."""

    rule: CompiledRule
    variant: Variant
    context: Evaluator
    row: Row
    revision: int | None = None
    place: tuple[int, int] | None = None
    iteration: int = -1

    @property
    def key(self) -> Key:
        """The query and the row."""
        return self.variant.query.name, self.row

    @property
    def classes(self) -> Row:
        """The part of the row with the classes."""
        return self.row[: len(self.variant.query.classes)]

    @property
    def at(self) -> dict[str, int]:
        """Values of the variables of the query."""
        return dict(zip(self.variant.variables, self.row, strict=True))

    @property
    def roots(self) -> list[int]:
        """The classes that the rule replaces."""
        return [self.row[place] for place in self.variant.root_places]

    def canonicalize(self, egraph: EGraph) -> Key:
        """Replace the classes by their canonical handles, and return the new key."""
        query, row = self.variant.query, self.row
        classes = len(query.classes)
        self.row = row = (*map(egraph.find, row[:classes]), *row[classes:])
        return query.name, row


@dataclass(slots=True)
class PendingMatches:
    """Pending matches of one ruleset; `terms` are the classes that a match reads besides its own.

    A match is looked at again only after one of its classes was touched: `_watched` finds the matches of a class. So an
    iteration takes time for what changed, not for what waits. Only sums and products are looked at each time, because
    their terms change without them. Matches that were not tried are looked at once their rule is not suspended."""

    egraph: EGraph
    terms: Callable[[Match], Iterable[int]]
    matches: dict[Key, Match] = field(default_factory=dict)
    _watched: dict[int, dict[Key, None]] = field(default_factory=dict)
    _seen: int = 0
    _due: dict[Key, None] = field(default_factory=dict)
    _always: dict[Key, None] = field(default_factory=dict)
    _postponed: dict[str, dict[Key, None]] = field(default_factory=dict)
    _iteration: int = 0
    _count: int = 0

    def begin(self) -> None:
        """Begin an iteration: matches that are found again in it are tried, even if they were refused before."""
        self._iteration += 1

    def was_refused(self, key: Key) -> bool:
        """Return whether a match was already refused in this iteration."""
        match = self.matches.get(key)
        return match is not None and match.iteration == self._iteration

    def refuse(self, match: Match) -> None:
        """Add a match that was refused, to be retried when more is known of its classes."""
        match.revision = self.egraph.revision
        key = self._add(match)
        for handle in set(match.classes):
            self._watched.setdefault(handle, {})[key] = None  # once, however often it is refused

    def postpone(self, match: Match) -> None:
        """Add a match that was not tried, to be tried in the next iteration."""
        match.revision = None
        self._add(match)

    def _add(self, match: Match) -> Key:
        key = match.key
        match.iteration = self._iteration
        if match.place is None:
            self._count += 1
            match.place = (-self._iteration, self._count)
        self.matches[key] = match
        if match.revision is None:
            self._postponed.setdefault(match.rule.name, {})[key] = None
        elif match.variant.ac_trees:
            self._always[key] = None
        return key

    def take_due(self, suspended: Callable[[str], bool] = lambda rule: False) -> Iterator[Match]:
        """Remove and yield the matches of earlier iterations of which more is known than when they were refused, and
        those that were postponed, except of suspended rules.

        The last refused come first. What becomes known meanwhile counts for the matches still to come."""
        last = (-self._iteration, self._count)
        heap: list[tuple[tuple[int, int], Key]] = []
        self._due |= self._always
        for rule, keys in self._postponed.items():
            if not suspended(rule):
                self._due |= keys
        fresh: Iterable[Key] = [*self._due, *self._touched()]
        while True:
            for key in fresh:
                match = self.matches.get(key)
                if match is None:
                    self._forget(key)
                elif match.place is not None and match.place > last and match.iteration < self._iteration:
                    heapq.heappush(heap, (match.place, key))
            if not heap:
                return
            last, key = heapq.heappop(heap)
            match = self.matches.get(key)
            if match is not None:
                self._due.pop(key, None)
                if self._is_due(match, suspended):
                    if match.revision is None:
                        self._postponed[match.rule.name].pop(key, None)
                    self._forget(key)
                    yield match
            fresh = self._touched()

    def _is_due(self, match: Match, suspended: Callable[[str], bool]) -> bool:
        """Whether a match was not tried and may be now, or more is known of its classes or terms since it was."""
        if match.revision is None:
            return not suspended(match.rule.name)
        known = self.egraph.changed_since(match.revision, match.classes)
        return known or (bool(match.variant.ac_trees) and self.egraph.changed_since(match.revision, self.terms(match)))

    def _forget(self, key: Key) -> None:
        for table in (self.matches, self._due, self._always):
            table.pop(key, None)

    def _touched(self) -> Iterable[Key]:
        """Return the matches of classes that were touched since the last call, each once, and mark them as due."""
        touched, start = self.egraph.touched, self._seen
        if start == len(touched):
            return ()
        self._seen = len(touched)
        handles = dict.fromkeys(touched[start:])
        keys = {k: None for handle in handles for k in self._watched.get(handle, ()) if k not in self._due}
        self._due |= keys
        return keys
