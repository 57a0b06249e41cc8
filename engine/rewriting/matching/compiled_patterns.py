"""Compiled patterns: queries for egglog, and the meaning of a row that such a query returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ....grammar.library.library_cache import Entry
from ....grammar.syntax import ast
from ...egraph.matcher import Query
from ..notation import as_call


class Unsupported(Exception):
    """A pattern that cannot be compiled; the message says why."""


@dataclass(frozen=True, slots=True)
class PatternConstraint:
    """Requirement on a match besides its structure.

    Either the attributes of the e-node with attribute variable `variable` match those of `call`; or, with `literal`,
    the contents of class `variable` do. An output has the number `index`, or binds its number to `any_index`."""

    variable: str
    call: ast.Call | None = None
    op: str = ""
    literal: ast.Expr | None = None
    outputs: int | None = 1
    index: int | None = None
    any_index: str = ""


@dataclass
class Variant:
    """One query of a rule, with the meaning of its rows.

    `tensors` maps rule variables to class variables, `defaults` optional inputs to their defaults. `whole` is the class
    of the node whose outputs are the members of a group; `ac_trees` are the classes where trees end that are matched
    as sums or products of many terms. `memo_key` are the classes that decide a refusal, if they alone do."""

    query: Query
    roots: tuple[str, ...]
    tensors: dict[str, str]
    defaults: dict[str, ast.Expr]
    heads: dict[str, tuple[str, str]]
    demands: tuple[PatternConstraint, ...]
    variadics: tuple[tuple[str, tuple[VariadicPart, ...]], ...]
    whole: str | None = None
    ac_trees: tuple[tuple[str, ast.Call], ...] = ()
    memo_key: tuple[tuple[int, bool], ...] | None = None

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables of the query in the order of its rows: classes, then integers."""
        return (*self.query.classes, *self.query.integers)

    @cached_property
    def root_places(self) -> tuple[int, ...]:
        """Places of the roots in a row."""
        return tuple(map(self.variables.index, self.roots))

    @property
    def runs(self) -> tuple[str, ...]:
        """Indices of the parts that stand for each of many inputs."""
        return tuple(part.index for _, parts in self.variadics for part in parts if part.each is not None)


@dataclass
class CompiledRule:
    """One direction of a rule. The syntax tree of a cached one is decoded when it is first needed.

    Group rules have an `index` and `indexed`, the variables that differ among members. `indices` are all indices, those
    of inputs matched one by one too. `heads` are the operators that the pattern names: a variant can match once all of
    its own occur. Without those in `required` it matches nothing."""

    source: ast.Rule | Entry
    backward: bool
    name: str
    ruleset: str
    index: str | None
    indexed: frozenset[str]
    indices: tuple[str, ...]
    heads: tuple[str, ...]
    required: tuple[str, ...] = ()

    @cached_property
    def rule(self) -> ast.Rule:
        """The rule."""
        return self.source.item if isinstance(self.source, Entry) else self.source

    @cached_property
    def lhs(self) -> ast.Expr | ast.Roots:
        """The side that is matched."""
        return self.rule.rhs if self.backward else self.rule.lhs

    @cached_property
    def rhs(self) -> ast.Expr | ast.Roots:
        """The side that replaces it."""
        return self.rule.lhs if self.backward else self.rule.rhs


@dataclass(frozen=True, slots=True)
class VariadicPart:
    """One argument of a variadic operator in a pattern.

    `xs[*]` has a `name`; any other argument has a class `variable`, its `position` (known, or a variable), and, for
    all outputs of a node, the class `whole` of their tuple. `P ...` has the pattern `each`, its `index`, and the names
    `own` that every input binds for itself."""

    name: str = ""
    variable: str = ""
    position: str | int = ""
    whole: str = ""
    each: ast.Expr | None = None
    index: str = ""
    own: tuple[str, ...] = ()


# --- properties of a pattern ---


def compiled(rule: ast.Rule) -> list[CompiledRule]:
    """Return a rule as one or, for `<=>`, two compiled rules of the same name."""
    sides = [rule.lhs, rule.rhs] if rule.bidirectional else [rule.lhs]
    return [
        CompiledRule(rule, bool(i), rule.name, rule.ruleset, *indexing(lhs), _heads(lhs)) for i, lhs in enumerate(sides)
    ]


def indexing(lhs: ast.Expr | ast.Roots) -> tuple[str | None, frozenset[str], tuple[str, ...]]:
    """Return the fields `index`, `indexed` and `indices` of a `CompiledRule` with this left side."""
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


def _heads(lhs: ast.Expr | ast.Roots) -> tuple[str, ...]:
    names = {call.head for e in lhs.walk() if (call := as_call(e)) is not None}
    return tuple(sorted(names | {"Neg", "Proj", "Sub"}))


def required_operators(pattern: ast.Expr | ast.Roots) -> list[str]:
    """Return operators without which a pattern matches nothing, in order; of alternatives those that all need."""
    return sorted(dict.fromkeys(_required(pattern)))


def _required(pattern: ast.Expr | ast.Roots) -> Iterator[str]:
    match pattern:
        case ast.Roots(bindings=bindings):
            for binding in bindings:
                yield from _required(binding.value)
        case ast.Call() | ast.Binary() if (call := as_call(pattern)) is not None and call.is_operator:
            if call.kind is None:
                yield call.head
                for arg in call.args:
                    yield from _required(arg)
        case ast.Subscript(base=inner) | ast.Omitted(pattern=inner):
            yield from _required(inner)
        case ast.Alternatives(options=options):
            yield from set.intersection(*(set(_required(option)) for option in options))


# --- memoization of refused matches ---


_OF_TYPES = frozenset({"shape", "rank", "dim", "dtype", "size", "is_const"})
"""Functions that read the type of their first argument, or whether it is a constant term."""

_OF_CONTENTS = (
    *(
        "dims",
        "ints",
        "scalar",
        "values",
        "uniform",
        "repeats",
        "splat",
        "min_value",
        "max_value",
        "positive",
        "finite",
    ),
)
_OF_LISTS = (
    *("len", "range", "reverse", "sorted", "unique", "index", "take", "drop", "slice", "set_at", "repeat", "flatten"),
    *("zip", "enumerate", "all", "any", "inverse_perm", "compose_perm", "identity_perm", "swap_perm", "axis", "axes"),
)
_OF_NUMBERS = ("known", "broadcast", "prod", "sum", "floordiv", "ceildiv", "min", "max", "close", "abs", "sqrt")
_OF_OTHERS = (
    "is_iota",
    "op_name",
    "subscripts",
    "einsum_terms",
    "einsum_equation",
    "is_float",
    "is_integer",
    "lossless",
    "limits",
)
_LOCAL = _OF_TYPES.union(_OF_CONTENTS, _OF_LISTS, _OF_NUMBERS, _OF_OTHERS)
"""Functions that read only types and contents of their arguments; others may look at how these are computed."""


def memo_key(rule: CompiledRule, variant: Variant) -> tuple[tuple[int, bool], ...] | None:
    """Return the classes of a match that decide whether it is refused, by position; None if more is read.

    A model repeats itself: layer after layer has the same operators at the same shapes, and most matches are refused.
    A rule whose conditions read only types and contents of its classes refuses all matches that agree in these.
    Each comes with whether its contents count besides its type. Operators and attributes always count."""
    if rule.indices or variant.variadics or variant.ac_trees:
        return None
    lets = {b.target.name: b.value for b in rule.rule.let}
    roots = {b.target.name for b in rule.lhs.bindings} if isinstance(rule.lhs, ast.Roots) else ()
    calls = [e for e in rule.lhs.walk() if isinstance(e, ast.Call)]
    matched = set(map(_plain, calls))
    contents = {demand.variable for demand in variant.demands if demand.literal is not None}

    def is_typed(expr: ast.Syntax) -> bool:
        """Return whether an expression is a class of the match, whose type counts with it."""
        if isinstance(expr, ast.Name):
            return is_typed(lets[expr.id]) if expr.id in lets else expr.id in variant.tensors or expr.id in roots
        return isinstance(expr, ast.Call) and _plain(expr) in matched

    def is_local(expr: ast.Syntax) -> bool:
        match expr:
            case ast.Name(id=name):
                if name in lets and name not in roots:
                    return is_local(lets[name])
                if name in variant.tensors:
                    contents.add(variant.tensors[name])
                return name not in roots
            case ast.Call(head=head, args=args):
                typed = head in _OF_TYPES and args and is_typed(args[0])
                return not expr.is_operator and head in _LOCAL and all(map(is_local, args[1:] if typed else args))
            case ast.Compare(form=form) if form is not None:
                return False
        return all(map(is_local, expr.children()))

    attributes = [a.value for call in calls for a in call.attributes]
    if not all(map(is_local, [*rule.rule.where, *(g.type for g in rule.rule.given), *attributes])):
        return None
    return tuple((i, variable in contents) for i, variable in enumerate(variant.query.classes))


def _plain(call: ast.Call) -> tuple[object, ...]:
    """Return the parts of a call without its kind, which only patterns name."""
    return call.head, call.args, call.attributes, call.rest
