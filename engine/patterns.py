"""What a rule's pattern becomes: queries for the matcher, and what each of their matches means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..grammar import ast

if TYPE_CHECKING:
    from .matcher import Query

WHOLE = "#outputs"
"""Under this name a match keeps the node whose outputs the members of its group are."""


class Unsupported(Exception):
    """A pattern that cannot be compiled; the message says why."""


def indexing(lhs: ast.Expr | ast.Roots) -> tuple[str | None, frozenset[str], tuple[str, ...]]:
    """The fields `index`, `indexed` and `indices` of a `CompiledRule` with this left side."""
    subscripts = [
        (e.base, e.index.id) for e in lhs.walk() if isinstance(e, ast.Subscript) and isinstance(e.index, ast.Name)
    ]
    targets = lhs.bindings if isinstance(lhs, ast.Roots) else ()
    index = next((b.target.index.id for b in targets if isinstance(b.target.index, ast.Name)), None)
    indices = tuple(dict.fromkeys(([index] if index else []) + [name for _, name in subscripts]))
    if index is None:
        return None, frozenset(), indices
    names = {base.id for base, name in subscripts if isinstance(base, ast.Name) and name == index}
    return index, frozenset({index, *names, *(b.target.name for b in targets)}), indices


@dataclass(frozen=True, slots=True)
class Demand:
    """What a match must show besides its structure.

    `attributes` of the e-node with attribute variable `attrs`; or, with `literal`, the contents of class `variable`.
    Of an output, its number `index`, or the variable `any_index` that is bound to it."""

    variable: str
    call: ast.Call | None = None
    op: str = ""
    literal: ast.Expr | None = None
    outputs: int | None = 1
    index: int | None = None
    any_index: str = ""
    kind: str | None = None


@dataclass(slots=True)
class Variant:
    """One query of a rule with what its match means.

    `tensors` maps rule variables to class variables (a list for `xs[*]`), `defaults` optional inputs to their
    default. `whole` is the class of the node whose outputs are the members of a group, `naries` the classes where
    trees end that are matched as sums or products of many terms. `evidence` is what decides that a match is refused,
    where that is known (`evidence.evidence`)."""

    query: Query
    roots: tuple[str, ...]
    tensors: dict[str, str | list[str]]
    defaults: dict[str, ast.Expr]
    heads: dict[str, tuple[str, str]]
    demands: tuple[Demand, ...]
    spreads: tuple[tuple[str, tuple[Part, ...]], ...]
    whole: str | None = None
    naries: tuple[tuple[str, ast.Call], ...] = ()
    evidence: tuple[tuple[int, bool], ...] | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """The indices of the parts that stand for each of many inputs."""
        return tuple(part.index for _, parts in self.spreads for part in parts if part.each is not None)


@dataclass(slots=True)
class CompiledRule:
    """One direction of a rule. `index` and `indexed` are set for group rules: `i` and what differs among the members.

    `indices` are all names that number something: of a group, of inputs matched one by one. `heads` are the operators
    that the pattern names, `required` some of them without which it matches nothing."""

    rule: ast.Rule
    lhs: ast.Expr | ast.Roots
    rhs: ast.Expr | ast.Roots
    name: str
    ruleset: str
    index: str | None = None
    indexed: frozenset[str] = frozenset()
    indices: tuple[str, ...] = ()
    heads: tuple[str, ...] | None = None
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One argument of a variadic operator in a pattern.

    A starred variable has a `name`; any other the class `variable` and the variable of its `position`, and for all
    outputs of a node also the class `whole` of their tuple. One that stands for as many inputs as there are has the
    pattern `each` of them, its `index`, and the names `own` that every input binds for itself."""

    name: str = ""
    variable: str = ""
    position: str = ""
    whole: str = ""
    each: ast.Expr | None = None
    index: str = ""
    own: tuple[str, ...] = ()
