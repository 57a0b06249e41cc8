"""Instances of a rule: what its variables stand for, as values that can be changed, compared and printed.

An instance binds every variable of the pattern: tensors to inputs of a type, to constant contents or to terms, the
others to attributes, operators or lists. The pattern is prepared so that what it leaves open is a variable, too: a
literal at an input (`x * 0.5` matches any constant of which all elements are 0.5), attributes that it ignores (`..`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...grammar import ast
from ...grammar.printer import print_expr
from .. import symbolic
from ..egraph import EGraph
from ..evaluate import Evaluator, is_literal
from ..graph import Constant, DType
from ..instances import Operands
from ..operators import signature
from ..values import OpRef, RestRef, TensorRef, Unprovable, Value
from .models import Model, models
from .operand import Tensor, Term

Array = NDArray[Any]
LITERAL, REST = "_k", "_r"
"""What the names of variables begin with that stand for literals and for attributes left open."""


@dataclass(frozen=True)
class Instance:
    """One way to fill in a rule's pattern.

    `way` is the number of the pattern's alternative, or of a model behind them; `operands` are in order, terms after
    what they are made of.
    `origin` says how it came about; `steps` is how many changes lie between it and a test of the rule."""

    way: int
    operands: Mapping[str, Any]
    origin: str = ""
    steps: int = 0

    def replace(self, origin: str = "", **operands: Any) -> Instance:
        """The instance with some operands replaced."""
        return Instance(self.way, {**self.operands, **operands}, origin, self.steps + 1)

    def key(self) -> str:
        """A text that two instances share if they are the same."""
        return self._key

    @cached_property
    def _key(self) -> str:
        return f"{self.way}:" + ";".join(f"{k}={_key(v)}" for k, v in self.operands.items())


def _key(value: Any) -> str:
    if isinstance(value, Tensor):
        return value.key
    if isinstance(value, Term):
        return print_expr(value.expr)
    if isinstance(value, list):
        return "[" + ",".join(map(_key, value)) + "]"
    if isinstance(value, RestRef | OpRef):
        return f"{getattr(value, 'op', '')}{sorted(value.attrs.items(), key=lambda p: p[0])!r}"
    return repr(value)


@dataclass(frozen=True)
class Pattern:
    """A left side with its alternatives told apart and what it leaves open named.

    The first `alternatives` of the `ways` are the pattern's own, the others the terms of tests, `terms` by their line.
    `models` are counted on from there: those that tests name, and those made of them.
    `literals` gives the literal that each variable made for one stands for, `rests` the operators that leave
    attributes open by the variable for them, `heads` the kind and the number of inputs of class heads."""

    rule: ast.Rule
    ways: tuple[ast.Expr | ast.Roots, ...]
    alternatives: int
    terms: Mapping[int, int]
    literals: Mapping[str, ast.Expr]
    rests: Mapping[str, list[str]]
    heads: Mapping[str, tuple[str, int]]
    optional: frozenset[str]
    models: tuple[Model, ...] = ()
    _cache: dict[tuple[int, frozenset[str]], Any] = field(default_factory=dict)

    def model(self, instance: Instance) -> Model | None:
        """The model that an instance fills in, None if it is the pattern."""
        number = instance.way - len(self.ways)
        return self.models[number] if number >= 0 else None

    def left(self, instance: Instance) -> ast.Expr | ast.Roots:
        """The left side for an instance: literals stand as they are written unless it binds them."""
        missing = frozenset(name for name in self.literals if name not in instance.operands)
        key = (instance.way, missing)
        if key not in self._cache:
            self._cache[key] = _rename(self.ways[instance.way], {n: self.literals[n] for n in missing})
        return self._cache[key]  # type: ignore[no-any-return]


def prepare(rule: ast.Rule) -> Pattern:
    """The pattern of a rule's left side."""
    namer = _Namer()
    ways = tuple(namer.name(way) for way in alternatives(rule.lhs))
    number = len(ways)
    terms: dict[int, int] = {}
    for test in rule.tests:
        for term in (*([test.term] if test.term is not None else []), *test.equals[:1]):
            terms[test.span.line] = len(ways)
            ways = (*ways, term)
    heads: dict[str, tuple[str, int]] = {}
    optional: set[str] = set()
    rests: dict[str, list[str]] = {}
    for node in (n for way in ways[:number] for n in way.walk()):
        if isinstance(node, ast.Optional):
            optional.add(node.name)
        if isinstance(node, ast.Call) and node.kind is not None:
            heads[node.head] = (node.kind, len(node.args))
        if isinstance(node, ast.Call) and node.rest is not None and node.rest.name is not None and node.kind is None:
            rests.setdefault(node.rest.name, []).append(node.head)
    return Pattern(rule, ways, number, terms, namer.literals, rests, heads, frozenset(optional), models(rule))


def alternatives(expr: ast.Expr | ast.Roots, limit: int = 16) -> list[ast.Expr | ast.Roots]:
    """The pattern with every alternative chosen in turn."""

    def expand(node: ast.Syntax) -> list[ast.Syntax]:
        if isinstance(node, ast.Alternatives):
            return [way for option in node.options for way in expand(option)]
        choices: list[list[object]] = []
        names = []
        for name in ast.parts(node):
            value = getattr(node, name)
            if isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
                parts = [expand(v) if isinstance(v, ast.Syntax) else [v] for v in value]
                choices.append(list(itertools.islice(itertools.product(*parts), limit)))
                names.append(name)
            elif isinstance(value, ast.Syntax):
                choices.append(list(expand(value)))
                names.append(name)
        ways = itertools.islice(itertools.product(*choices), limit)
        return [dataclasses.replace(node, **dict[str, Any](zip(names, way, strict=True))) for way in ways]

    return expand(expr)[:limit]  # type: ignore[return-value]


class _Namer:
    """Gives names to the literals at inputs and to the attributes left open."""

    def __init__(self) -> None:
        self.literals: dict[str, ast.Expr] = {}
        self.count = 0

    def name(self, node: Any) -> Any:
        """The pattern with names for what it leaves open."""
        if isinstance(node, ast.Call) and node.is_operator:
            args = tuple(self._input(a, node) for a in node.args)
            rest = node.rest
            if rest is not None and rest.name is None and node.kind is None:
                self.count += 1
                rest = dataclasses.replace(rest, name=f"{REST}{self.count}")
            return dataclasses.replace(node, args=args, rest=rest)
        if isinstance(node, ast.Binary):
            left, right = self._input(node.left, node), self._input(node.right, node)
            return dataclasses.replace(node, left=left, right=right)
        if isinstance(node, ast.Roots):
            bindings = tuple(dataclasses.replace(b, value=self.name(b.value)) for b in node.bindings)
            return dataclasses.replace(node, bindings=bindings)
        if isinstance(node, ast.Subscript):
            return dataclasses.replace(node, base=self.name(node.base))
        if isinstance(node, ast.Unary) and not isinstance(node.operand, ast.Number):
            return dataclasses.replace(node, operand=self.name(node.operand))
        return node

    def _input(self, node: Any, parent: ast.Expr) -> Any:
        plain = isinstance(node, ast.Number)
        plain |= isinstance(node, ast.Unary) and isinstance(node.operand, ast.Number)
        plain |= isinstance(node, ast.Call) and not node.is_operator
        plain |= isinstance(node, ast.Name) and is_literal(node.id) and node.id != "none"
        if not plain:
            return self.name(node)
        self.count += 1
        name = f"{LITERAL}{self.count}"
        self.literals[name] = node
        return ast.Name(span=parent.span, id=name)


def _rename(node: Any, names: Mapping[str, ast.Expr]) -> Any:
    """A tree with some names replaced by expressions."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node)
    if not names or not isinstance(node, ast.Syntax):
        return node
    changed: dict[str, Any] = {}
    for name in ast.parts(node):
        value = getattr(node, name)
        if isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
            changed[name] = tuple(_rename(v, names) for v in value)
        elif isinstance(value, ast.Syntax):
            changed[name] = _rename(value, names)
    return dataclasses.replace(node, **changed) if changed else node


# --- from tests ---


def seeds(pattern: Pattern, declared: Mapping[str, ast.Op]) -> Iterator[Instance]:
    """The rule's own tests as instances, once for each alternative; those that refuse come last."""
    order = {"fires": 0, "equals": 1, "refuses": 2}
    for test in sorted(pattern.rule.tests, key=lambda t: order.get(t.verdict, 3)):
        if not test.operands:
            continue
        egraph = EGraph.create()
        evaluator = Evaluator(egraph)
        evaluator.declared = declared
        try:
            found = Operands(pattern.rule, test, evaluator)
        except (Unprovable, ValueError, ArithmeticError, LookupError, TypeError, AssertionError):
            continue
        operands = _from_environment(found.env, test, egraph)
        _complete(pattern, operands)
        own = pattern.terms.get(test.span.line)
        for way in range(pattern.alternatives) if own is None else (own,):
            yield Instance(way, operands, f"the test in line {test.span.line}")
    for number, model in enumerate(pattern.models, len(pattern.ways)):
        changed = int(model.name not in {t.model for t in pattern.rule.tests})
        yield Instance(number, model.operands, f"the model {model.name}", changed)


def _complete(pattern: Pattern, operands: dict[str, Any]) -> None:
    """Gives values to the variables that a test leaves out: what stands at the same place elsewhere, or the default."""
    for node in (n for way in pattern.ways[: pattern.alternatives] for n in way.walk()):
        if not isinstance(node, ast.Call) or not node.is_operator:
            continue
        found = signature(node.head) if node.kind is None else None
        for attribute in node.attributes:
            name = attribute.value.id if isinstance(attribute.value, ast.Name) else None
            if name is None or name in operands or is_literal(name) or attribute.default is not None:
                continue
            formal = found.attributes.get(attribute.name) if found is not None else None
            near = _namesake(name, operands, lambda v: not isinstance(v, Tensor | Term | RestRef | OpRef))
            value = near if near is not None else None if formal is None else formal.default
            if value is None and formal is not None:
                value = {"INT": 0, "FLOAT": 1.0}.get(formal.kind, _ones(node, operands, attribute.name))
            if value is not None:
                operands[name] = list(value) if isinstance(value, tuple) else value
        for arg in node.args:
            if isinstance(arg, ast.Name) and arg.id not in operands and not is_literal(arg.id) and arg.id != "none":
                near = _namesake(arg.id, operands, lambda v: isinstance(v, Tensor))
                if near is not None and arg.id not in pattern.literals:
                    operands[arg.id] = near


def _ones(call: ast.Call, operands: Mapping[str, Any], name: str) -> list[int] | None:
    """Strides or dilations of 1, as many as another attribute of the operator has spatial dims."""
    if name not in ("strides", "dilations"):
        return None
    for attribute in call.attributes:
        known = operands.get(attribute.value.id) if isinstance(attribute.value, ast.Name) else None
        if isinstance(attribute.value, ast.ListExpr):
            known = attribute.value.items
        if isinstance(known, list | tuple) and attribute.name in ("kernel_shape", "strides", "dilations", "pads"):
            return [1] * (len(known) // (2 if attribute.name == "pads" else 1))
    return None


def _namesake(name: str, operands: Mapping[str, Any], fits: Callable[[Any], bool]) -> Any:
    """The operand whose name is the longest beginning of another's."""
    names = sorted((n for n, v in operands.items() if name.startswith(n) and fits(v)), key=len)
    return operands[names[-1]] if names else None


def _from_environment(env: Mapping[str, Value], test: ast.RuleTest, egraph: EGraph) -> dict[str, Any]:
    terms: dict[str, list[ast.Expr | None]] = {}
    for operand in test.operands:
        terms.setdefault(operand.target.name, []).append(operand.value)

    def convert(name: str, value: Value, index: int) -> Any:
        if isinstance(value, TensorRef):
            node = egraph.nodes[value.handle]
            if node.op == "Input":
                type_ = egraph.type(value.handle)
                assert type_.dtype is not None
                assert type_.shape is not None
                return Tensor(type_.dtype, type_.shape)
            constant = egraph.constant(value.handle)
            written = terms.get(name, [])
            expr = written[min(index, len(written) - 1)] if written else None
            if constant is not None and (contents := constant.contents()) is not None:
                return Tensor.of(np.asarray(contents))
            return None if expr is None else Term(expr)
        if isinstance(value, list):
            return [convert(name, v, i) for i, v in enumerate(value)]
        return value

    return {name: convert(name, value, 0) for name, value in env.items()}


# --- into an e-graph ---


@dataclass(frozen=True, slots=True)
class Built:
    """An instance in an e-graph: its roots, and its inputs by the name that they have there."""

    instance: Instance
    roots: tuple[int, ...]
    inputs: Mapping[str, Tensor]


def build(pattern: Pattern, instance: Instance, evaluator: Evaluator, prefix: str = "") -> Built:
    """Adds the left side of an instance to an e-graph, its inputs named with a prefix. Raises what the evaluator
    raises for operands that the pattern's operators do not take."""
    egraph = evaluator.egraph
    if (model := pattern.model(instance)) is not None:
        found, names = model.build(instance.operands, egraph, prefix)
        return Built(instance, found, {prefix + name: instance.operands[name] for name in names})
    inputs: dict[str, Tensor] = {}
    env: dict[str, Value] = {}

    def convert(name: str, value: Any) -> Value:
        if isinstance(value, Tensor):
            if (summary := value.summary) is not None:
                return TensorRef(egraph.add_constant(summary))
            inputs[prefix + name] = value
            return TensorRef(egraph.add_input(prefix + name, value.type))
        if isinstance(value, Term):
            return evaluator.evaluate(value.expr, env)
        if isinstance(value, list):
            return [convert(f"{name}{i}", v) for i, v in enumerate(value)]
        return value

    for name, value in instance.operands.items():
        env[name] = convert(name, value)
    for name in pattern.rests:
        env.setdefault(name, RestRef({}))
    nothing = ast.RuleTest(span=pattern.rule.span, verdict="fires", operands=())
    operands = Operands(pattern.rule, nothing, evaluator)
    operands.env = env
    roots = operands.build(pattern.left(instance))
    return Built(instance, tuple(roots), inputs)


# --- to text ---


def operands_text(pattern: Pattern, instance: Instance) -> str:
    """An instance as the operands of a test."""
    model = pattern.model(instance)
    parts: list[str] = [] if model is None else [f"model {model.name}"]
    for name, value in instance.operands.items():
        if isinstance(value, RestRef):
            parts += [f"{key} = {_plain(v)}" for key, v in value.attrs.items() if not isinstance(v, Constant)]
        elif isinstance(value, list) and any(isinstance(v, Tensor | Term) for v in value):
            parts += [_operand(f"{name}[{i}]", v) for i, v in enumerate(value)]
        elif isinstance(value, symbolic.Expr) or (value is None and name in pattern.optional):
            continue
        elif name.startswith(LITERAL):
            parts.append(_operand(f"the {print_expr(pattern.literals[name])} of the pattern", value))
        else:
            parts.append(_operand(name, value))
    return ", ".join(parts)


def _operand(name: str, value: Any) -> str:
    if isinstance(value, Tensor):
        dims = ", ".join(map(str, value.shape))
        if value.array is None:
            return f"{name}: {value.dtype}[{dims}]"
        text = _plain(value.array.tolist()) if value.array.dtype.name != "bfloat16" else _plain(
            value.array.astype(np.float32).tolist())  # fmt: skip
        plain = value.dtype is DType.F32 and 0 not in value.shape
        return f"{name} = {text}" if plain else f"{name}: {value.dtype}[{dims}] = {text}"
    if isinstance(value, Term):
        return f"{name} = {print_expr(value.expr)}"
    return f"{name} = {_plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, OpRef):
        known = signature(value.op)
        formal = known.attributes if known is not None else {}
        attrs = {k: v for k, v in value.attrs.items() if k not in formal or formal[k].default != v}
        inner = ", ".join(f"{k}: {_plain(v)}" for k, v in attrs.items())
        return f"{value.op}({inner})" if inner else value.op
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str) and not isinstance(value, DType):
        return f'"{value}"'
    if isinstance(value, float | np.floating):
        return f"{value:.9g}"
    return str(value)
