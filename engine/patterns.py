"""What a rule's pattern becomes: queries for the matcher, and what each of their matches means."""

from __future__ import annotations

from dataclasses import dataclass

from ..grammar import ast
from .matcher import Query


class Unsupported(Exception):
    """A pattern that cannot be compiled; the message says why."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a match must show besides its structure.

    `attributes` of the e-node with attribute variable `attrs`; or, with `literal`, the contents of class `variable`."""

    variable: str
    call: ast.Call | None = None
    op: str = ""
    literal: ast.Expr | None = None
    outputs: int | None = 1
    index: int | None = None
    kind: str | None = None


@dataclass(slots=True)
class Variant:
    """One query of a rule with what its match means.

    `tensors` maps rule variables to class variables (a list for `xs[*]`), `defaults` optional inputs to their
    default."""

    query: Query
    roots: tuple[str, ...]
    tensors: dict[str, str | list[str]]
    defaults: dict[str, ast.Expr]
    heads: dict[str, tuple[str, str]]
    demands: tuple[Demand, ...]
    spreads: tuple[tuple[str, tuple[Part, ...]], ...]


@dataclass(slots=True)
class CompiledRule:
    """One direction of a rule. `index` and `indexed` are set for group rules: `i` and the variables that it indexes."""

    rule: ast.Rule
    lhs: ast.Expr | ast.Roots
    rhs: ast.Expr | ast.Roots
    name: str
    ruleset: str
    index: str | None = None
    indexed: frozenset[str] = frozenset()
    heads: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One argument of a variadic operator in a pattern.

    A starred variable has a `name`; any other the class `variable` and the variable of its `position`, and for all
    outputs of a node also the class `whole` of their tuple."""

    name: str = ""
    variable: str = ""
    position: str = ""
    whole: str = ""
