"""Pending matches: refused or postponed ones, retried when more is known of their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    `revision` is the e-graph's when the match was refused, None if it was not tried yet."""

    rule: CompiledRule
    variant: Variant
    context: Evaluator
    row: Row
    revision: int | None = None

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
        return dict(zip((*self.variant.query.classes, *self.variant.query.integers), self.row, strict=True))

    def canonicalize(self, egraph: EGraph) -> Key:
        """Replace the classes by their canonical handles, and return the new key."""
        classes = len(self.variant.query.classes)
        self.row = (*map(egraph.find, self.row[:classes]), *self.row[classes:])
        return self.key


@dataclass(slots=True)
class PendingMatches:
    """Pending matches of one ruleset; `terms` are the classes that a match reads besides its own.

    A match is looked at again only after one of its classes was touched: `_watched` finds the matches of a class."""

    egraph: EGraph
    terms: Callable[[Match], Iterable[int]]
    matches: dict[Key, Match] = field(default_factory=dict)
    _watched: dict[int, list[Key]] = field(default_factory=dict)
    _seen: int = 0
    _due: set[Key] = field(default_factory=set)

    def take(self) -> dict[Key, Match]:
        """Remove and return all pending matches."""
        taken, self.matches = self.matches, {}
        return taken

    def refuse(self, match: Match) -> None:
        """Add a match that was refused, to be retried when more is known of its classes."""
        match.revision = self.egraph.revision
        self.matches[match.key] = match
        for handle in dict.fromkeys(match.classes):
            self._watched.setdefault(handle, []).append(match.key)

    def is_due(self, key: Key, match: Match) -> bool:
        """Return whether more is known than when a match was refused."""
        touched = self.egraph.touched
        for i in range(self._seen, len(touched)):
            self._due.update(self._watched.get(touched[i], ()))
        self._seen = len(touched)
        if match.revision is None:
            return True
        if key in self._due:
            self._due.discard(key)
        elif not match.variant.ac_trees:
            return False
        return self.egraph.changed_since(match.revision, (*match.classes, *self.terms(match)))
