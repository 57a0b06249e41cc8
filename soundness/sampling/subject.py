"""The rule under test in one direction: its left side prepared for instances, and instances as nodes of an e-graph.

The left side has one form per alternative, and a variable for everything left open: a literal at an input, because
`x * 0.5` matches any constant whose elements are all 0.5, and the attributes that a pattern ignores (`..`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...engine.egraph.egraph import EGraph
from ...engine.egraph.matcher import SharedTables
from ...engine.ir.constants import ConstantInfo
from ...engine.ir.values import RestRef, TensorRef, Unprovable, Value
from ...engine.operators.inference import IllTyped
from ...engine.rewriting.evaluate import Evaluator
from ...engine.rewriting.matching.compiled_patterns import CompiledRule, Unsupported, compiled
from ...engine.rewriting.notation import is_literal
from ...engine.rewriting.rule_library import RuleSet, rule_set
from ...engine.rule_tests.operands import MAX_CHOICES, LeftSide, build_left
from ...errors import RewriteError
from ...grammar.library.load import Library
from ...grammar.syntax import ast
from ...grammar.syntax.alternatives import expand
from ...grammar.syntax.expand import substitute
from .body_instances import Model, models
from .instance import Instance, Tensor, Term

LITERAL, REST = "_k", "_r"
"""Prefixes of the variables that stand for literals and for attributes left open."""
NOT_BUILT = (
    Unprovable, IllTyped, Unsupported, RewriteError,
    ArithmeticError, LookupError, TypeError, ValueError, AssertionError, AttributeError, RecursionError,
)  # fmt: skip
"""Exceptions of building an instance from operands that an operator does not accept; sampling does not look ahead."""


@dataclass(frozen=True)
class Subject:
    """A rule in one direction, ready to run.

    `rule` is the rule as written, `directed` has this left side only. The first `alternatives` of the `forms` are those
    of the left side; the others are the terms of tests, and `terms` gives their index by the line of the test. Indices
    past the forms are those of `models`. `literals` maps each variable made for a literal to that literal, `rests` each
    variable for open attributes to the operators that it belongs to, and `heads` each class head to its kind and number
    of inputs."""

    rule: ast.Rule
    directed: ast.Rule
    compiled: CompiledRule
    library: RuleSet
    forms: tuple[ast.Expr | ast.Roots, ...]
    alternatives: int
    terms: Mapping[int, int]
    literals: Mapping[str, ast.Expr]
    rests: Mapping[str, list[str]]
    heads: Mapping[str, tuple[str, int]]
    optional: frozenset[str]
    models: tuple[Model, ...]

    @property
    def declared(self) -> Mapping[str, ast.Op]:
        """Operators that rule files define, by name."""
        return self.library.declared

    @cached_property
    def tables(self) -> SharedTables:
        """Tables in which the e-graphs of instances are matched, one after the other."""
        return SharedTables()

    @cached_property
    def meanings(self) -> dict[tuple[Any, ...], tuple[EGraph, list[int]]]:
        """Definitions of declared operators on operands that instances have, see `Shared`."""
        return {}

    @cached_property
    def numbers(self) -> list[float]:
        """The numbers that the rule's conditions and sides mention, and their negatives."""
        parts: list[ast.Syntax] = [self.rule.lhs, self.rule.rhs, *self.rule.where, *(b.value for b in self.rule.let)]
        numbers = [float(n.value) for part in parts for n in part.walk() if isinstance(n, ast.Number)]
        return list(dict.fromkeys(signed for number in numbers for signed in (number, -number)))

    @cached_property
    def asked(self) -> dict[str, set[float]]:
        """The numbers that conditions ask constants to be, by variable: `scalar(c) == 0`, `all(c == 0)`."""
        found: dict[str, set[float]] = {}
        for condition in self.rule.where:
            for part in condition.walk():
                match part:
                    case ast.Compare(
                        operator="==",
                        left=ast.Name(id=name) | ast.Call(head="scalar", args=[ast.Name(id=name)]),
                        right=right,
                    ) if (number := literal_value(right)) is not None:
                        found.setdefault(name, set()).add(number)
        return found

    def model(self, instance: Instance) -> Model | None:
        """Return the model that an instance fills in; None if it fills in a form."""
        number = instance.form - len(self.forms)
        return self.models[number] if number >= 0 else None

    def build(self, instance: Instance, evaluator: Evaluator, prefix: str = "") -> Built:
        """Add the left side of an instance to an e-graph; the names of its inputs start with a prefix.

        Raises what the evaluator raises for operands that the operators do not accept (see `NOT_BUILT`)."""
        if (model := self.model(instance)) is not None:
            found, names = model.build(instance.operands, evaluator.egraph, prefix)
            return Built(found, {prefix + name: instance.operands[name] for name in names})
        inputs: dict[str, Tensor] = {}
        env: dict[str, Value] = {}
        for name, value in instance.operands.items():
            env[name] = _added(evaluator, prefix + name, value, env, inputs)
        for name in self.rests:
            env.setdefault(name, RestRef({}))
        left = self._left(instance.form, tuple(name for name in self.literals if name not in instance.operands))
        return Built(tuple(build_left(left, env, evaluator)), inputs)

    def _left(self, form: int, as_written: tuple[str, ...]) -> LeftSide:
        """Return a form in which these literals stand as they are written."""
        key = form, as_written
        if key not in self._lefts:
            literals = {name: self.literals[name] for name in as_written}
            self._lefts[key] = LeftSide.of(substitute(self.forms[form], literals))
        return self._lefts[key]

    @cached_property
    def _lefts(self) -> dict[tuple[int, tuple[str, ...]], LeftSide]:
        return {}


@dataclass(frozen=True, slots=True)
class Built:
    """Instance in an e-graph: the roots of its left side, and its inputs by their names in the e-graph."""

    roots: tuple[int, ...]
    inputs: Mapping[str, Tensor]


def _added(evaluator: Evaluator, name: str, value: Any, env: dict[str, Value], inputs: dict[str, Tensor]) -> Value:
    """Add an operand to an e-graph, and to `inputs` if it is one. A term reads the operands before it, in `env`."""
    match value:
        case Tensor(summary=ConstantInfo() as constant):
            return TensorRef(evaluator.egraph.add_constant(constant))
        case Tensor():
            inputs[name] = value
            return TensorRef(evaluator.egraph.add_input(name, value.type))
        case Term(expr=expr):
            return evaluator.evaluate(expr, env)
        case list():
            return [_added(evaluator, f"{name}{i}", v, env, inputs) for i, v in enumerate(value)]
    return value


def subjects(rule: ast.Rule, library: Library) -> list[Subject]:
    """Return the directions in which a rule is applied: both for `<=>`."""
    rules = rule_set(library, "fast", precision=None)
    return [_subject(rule, one, rules) for one in compiled(rule)]


def _subject(rule: ast.Rule, one: CompiledRule, rules: RuleSet) -> Subject:
    namer = _Namer()
    forms = [namer.name(form) for form in alternatives(one.lhs)]
    number = len(forms)
    heads: dict[str, tuple[str, int]] = {}
    optional: set[str] = set()
    rests: dict[str, list[str]] = {}
    for node in (n for form in forms for n in form.walk()):
        match node:
            case ast.Optional():
                optional.add(node.name)
            case ast.Call(kind=str(kind)):
                heads[node.head] = (kind, len(node.args))
            case ast.Call(rest=ast.Rest(name=str(name))):
                rests.setdefault(name, []).append(node.head)
    terms: dict[int, int] = {}
    for test in rule.tests:
        for term in (*([test.term] if test.term is not None else []), *test.equals[:1]):
            terms[test.span.line] = len(forms)
            forms.append(term)
    directed = dataclasses.replace(rule, lhs=one.lhs, rhs=one.rhs, bidirectional=False)
    return Subject(
        rule, directed, one, rules, tuple(forms), number, terms, namer.literals, rests, heads, frozenset(optional),
        models(rule),
    )  # fmt: skip


def alternatives(pattern: ast.Expr | ast.Roots) -> list[ast.Expr | ast.Roots]:
    """Return the pattern once for each choice among its alternatives, with the operands that each needs."""

    def complete(node: Any) -> Any:
        return complete(node.pattern) if isinstance(node, ast.Omitted) else node.map_children(complete)

    return [complete(form) for form in expand(pattern, MAX_CHOICES)]


class _Namer:
    """Names the literals at inputs and the attributes left open."""

    def __init__(self) -> None:
        self.literals: dict[str, ast.Expr] = {}
        self.count = 0

    def name(self, node: Any) -> Any:
        """Return the pattern with a name for everything that it leaves open."""
        match node:
            case ast.Call(is_operator=True):
                args = tuple(map(self._input, node.args))
                rest = node.rest
                if rest is not None and rest.name is None and node.kind is None:
                    self.count += 1
                    rest = dataclasses.replace(rest, name=f"{REST}{self.count}")
                return dataclasses.replace(node, args=args, rest=rest)
            case ast.Binary():
                return node.map_children(self._input)
            case ast.Roots():
                bindings = tuple(dataclasses.replace(b, value=self.name(b.value)) for b in node.bindings)
                return dataclasses.replace(node, bindings=bindings)
            case ast.Subscript():
                return dataclasses.replace(node, base=self.name(node.base))
            case ast.Unary() if not isinstance(node.operand, ast.Number):
                return dataclasses.replace(node, operand=self.name(node.operand))
        return node

    def _input(self, node: Any) -> Any:
        match node:
            case ast.Number() | ast.Unary(operand=ast.Number()) | ast.Call(is_operator=False):
                pass
            case ast.Name(id=name) if is_literal(name) and name != "none":
                pass
            case _:
                return self.name(node)
        self.count += 1
        self.literals[f"{LITERAL}{self.count}"] = node
        return ast.Name(span=node.span, id=f"{LITERAL}{self.count}")


def literal_value(expr: ast.Expr | None) -> float | None:
    """Return the number that a literal of a pattern stands for; None if only the engine can compute it."""
    match expr:
        case ast.Unary(operator="-", operand=operand):
            inner = literal_value(operand)
            return None if inner is None else -inner
        case ast.Number(value=value):
            return float(value)
        case ast.Call(head="sqrt", args=(arg,)):
            inner = literal_value(arg)
            return None if inner is None or inner < 0 else math.sqrt(inner)
        case ast.Name(id=name):
            return {"inf": math.inf, "nan": math.nan, "pi": math.pi}.get(name)
    return None
