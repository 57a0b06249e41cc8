"""Rule files ready to run: loading with the operator table at hand, and the rules and operator properties in them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..grammar import ast
from ..grammar.check_schedules import domain_name
from ..grammar.library import Library, load
from ..grammar.scope import param_types
from . import opsets as versions
from .declared import declarations
from .operators import STANDARD_DOMAINS, Declared, Signature, is_tensor_attribute, signature, split_name, standard_names
from .opsets import newest_opset
from .patterns import CompiledRule, indexing
from .schedule import STANDARD as STANDARD_SCHEDULE
from .schedule import Plan, make_plan

STANDARD = Path(__file__).resolve().parent.parent / "rules"
NUMERICS = ("exact", "reassoc", "fast")
SCHEDULES = "schedule.rules"
"""The file of the standard library with the schedules, which is always there."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What saturation runs: rules in file order, the kind of each operator, and which are commutative."""

    rules: tuple[CompiledRule, ...]
    kinds: dict[str, str]
    commutative: frozenset[str]
    declared: dict[str, ast.Op]
    plan: Plan = field(default_factory=lambda: standard_plan())


class OperatorTable:
    """What the checks of rule files ask about ONNX operators; see `grammar.operator_info`."""

    def signature(self, op: str) -> _Signature | None:
        """The inputs and attributes of an operator, or None if no schema describes it."""
        found = signature(op)
        if found is None:
            return None
        inputs = [(p.name, p.optional, p.variadic) for p in found.inputs]
        return _Signature(
            inputs, found.attributes, found.min_inputs, 1 << 30 if found.max_inputs is None else found.max_inputs
        )

    def schema(self, op: str) -> Signature | None:
        """The types of an operator's inputs, outputs and attributes, or None if no schema describes it."""
        return signature(op)

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """What is not there of an operator at opsets `low` to `high`; see `opsets.missing`."""
        domain = split_name(op)[0]
        if signature(op) is None or domain not in STANDARD_DOMAINS:
            return ""
        return versions.missing(op, attribute, low, newest_opset(domain) if high is None else high)

    def newest(self, domain: str) -> int | None:
        """The newest opset of a standard domain."""
        return newest_opset(domain) if domain in STANDARD_DOMAINS else None

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Whether an attribute of an operator holds a tensor."""
        return is_tensor_attribute(op, attribute)

    def version(self) -> str:
        """The version of the `onnx` package, told without importing it."""
        found = find_spec("onnx")
        return str(Path(found.origin).stat().st_mtime_ns) if found is not None and found.origin is not None else ""

    def names(self) -> list[str]:
        """The names of the standard operators."""
        return standard_names()


@dataclass(frozen=True, slots=True)
class _Signature:
    inputs: list[tuple[str, bool, bool]]
    attributes: Mapping[str, Any]
    min_inputs: int
    max_inputs: int


def standard_files() -> list[Path]:
    """The files of the standard library, in order."""
    return sorted(STANDARD.glob("*.rules"))


def load_rules(paths: Iterable[str | Path] = (), *, std: bool = True) -> Library:
    """Parses and checks rule files (directories stand for the `*.rules` below them), after the standard library if
    `std`, and in any case after the standard schedules.

    Raises `grammar.diagnostics.RuleErrors` with everything that is wrong in them."""
    files: list[str | Path] = list(standard_files()) if std else [STANDARD / SCHEDULES]
    return load([*files, *paths], OperatorTable())


@cache
def standard_plan() -> Plan:
    """The standard schedule."""
    library = load_rules(std=False)
    return make_plan(STANDARD_SCHEDULE, library.schedules, library.rulesets)


def rule_set(
    library: Library,
    numerics: str = "reassoc",
    disabled: Iterable[str] = (),
    *,
    schedule: str = STANDARD_SCHEDULE,
    opsets: Mapping[str, int] | None = None,
) -> RuleSet:
    """The rules of a library admitted by a numerics class, without those named in `disabled`.

    `opsets` are those of the model: rules and operators of files that are for other versions are left out. Raises
    `UserError` if there is no such schedule."""
    library = fitting(library, opsets or {})
    plan = make_plan(schedule, library.schedules, library.rulesets)
    admitted = NUMERICS[: NUMERICS.index(numerics) + 1]
    off = set(disabled)
    known = [r for r in recognitions(library) if opsets is None or domain_of(r) in ("", *opsets)]
    rules = [rule for rule in (*known, *library.rules) if rule.numerics in admitted and rule.name not in off]
    return RuleSet(
        tuple(c for rule in rules for c in compiled(rule)),
        {op.name: op.kind for op in library.ops if op.kind},
        frozenset(op.name for op in library.ops if op.commutative),
        {op.name: op for op in library.ops if _is_defined(op, admitted, off)},
        plan,
    )


def _is_defined(op: ast.Op, admitted: Sequence[str], disabled: Container[str]) -> bool:
    """Whether an operator that is not in the standard is to be equal to its definition."""
    if op.definition is None or ("." not in op.name and signature(op.name) is not None):
        return False
    return "." not in op.name or (op.numerics in admitted and f"define_{op.name}" not in disabled)


def domain_of(rule: ast.Rule) -> str:
    """The domain of the operator that a rule recognises; empty for one of the standard or of our own."""
    return rule.rhs.head.rpartition(".")[0] if isinstance(rule.rhs, ast.Call) else ""


def operators_of(library: Library, opsets: Mapping[str, int]) -> dict[str, Declared]:
    """The operators of domains of their own that a library declares for a model that uses these opsets."""
    return declarations(fitting(library, opsets).ops)


def fitting(library: Library, opsets: Mapping[str, int]) -> Library:
    """The library without the files that are for other versions of a domain than the model uses."""
    others = {
        use.span.file
        for use in library.domains
        if (version := opsets.get(domain_name(use.domain))) is not None
        and not use.low <= version <= (version if use.high is None else use.high)
    }
    if not others:
        return library
    return replace(
        library,
        rules=tuple(r for r in library.rules if r.span.file not in others),
        ops=tuple(o for o in library.ops if o.span.file not in others),
        fuses=tuple(f for f in library.fuses if f.span.file not in others),
    )


def recognitions(library: Library) -> list[ast.Rule]:
    """The rule that recognises each operator by its definition.

    A numeric attribute in a definition stands for any scalar constant there."""
    return [recognition(op) for op in library.ops if op.definition is not None and _is_pattern(op)]


def _is_pattern(op: ast.Op) -> bool:
    """Whether an operator can be recognised by its definition: one output, made of operators without a choice."""
    assert op.definition is not None
    params = {p.name for p in op.params or ()}

    def fine(node: ast.Syntax) -> bool:
        if isinstance(node, ast.Call) and not node.is_operator:  # a number, such as sqrt(2)
            return not any(isinstance(n, ast.Name) and n.id in params for n in node.walk())
        return not isinstance(node, ast.Conditional | ast.Compare | ast.Comprehension | ast.Range)

    return isinstance(op.definition, ast.Call | ast.Binary | ast.Unary) and all(map(fine, op.definition.walk()))


def recognition(op: ast.Op) -> ast.Rule:
    """The rule `definition => Op(inputs, attributes)` of an operator with a definition."""
    assert op.definition is not None
    span = op.span
    args: list[ast.Expr] = []
    attributes: list[ast.Attribute] = []
    given = [*param_types(op), *op.given]
    used = {e.id for e in op.definition.walk() if isinstance(e, ast.Name)}
    for param in op.params or ():
        name = ast.Name(span=span, id=param.name)
        if param.attribute is None:
            args.append(ast.Subscript(span=span, base=name, index=ast.All(span=span)) if param.variadic else name)
        elif param.name in used:
            value = ast.Call(span=span, head="scalar", args=(name,))
            attributes.append(ast.Attribute(span=span, name=param.name, value=value))
            scalar = ast.TypeExpr(span=span, const=True, element="scalar", shape=None)
            given.append(ast.Given(span=span, targets=(ast.Target(span=span, name=param.name),), type=scalar))
        else:
            attributes.append(ast.Attribute(span=span, name=param.name, value=param.attribute))
    rhs = ast.Call(span=span, head=op.name, args=tuple(args), attributes=tuple(attributes))
    return ast.Rule(
        span=span, doc=op.doc, name=f"recognise_{op.name}", lhs=op.definition, rhs=rhs, given=tuple(given),
        where=op.where, numerics=op.numerics, tests=op.tests,
    )  # fmt: skip


def compiled(rule: ast.Rule) -> Sequence[CompiledRule]:
    """A rule as one or, for `<=>`, two compiled rules; the name in reports is the rule's."""
    ways = [(rule.lhs, rule.rhs)]
    if rule.bidirectional:
        ways.append((rule.rhs, rule.lhs))
    out = []
    for lhs, rhs in ways:
        out.append(CompiledRule(rule, lhs, rhs, rule.name, rule.ruleset, *indexing(lhs)))
    return out
