"""Rule files ready to run: loading with the operator table at hand, and the rules and operator properties in them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..grammar import ast
from ..grammar.check_schedules import domain_name
from ..grammar.kept import Entry, begin, load
from ..grammar.library import Library
from ..grammar.scope import param_types
from .operator_table import Facts
from .operator_table import OperatorTable as OperatorTable
from .patterns import CompiledRule, indexing
from .schedule import NATIVE, Plan, make_plan, names_of
from .schedule import STANDARD as STANDARD_SCHEDULE

if TYPE_CHECKING:
    from .operators import Declared


STANDARD = Path(__file__).resolve().parent.parent / "rules"
NUMERICS = ("exact", "reassoc", "fast")
QUANTISED = "quantised"
"""The ruleset that is run for native kernels on models that hold quantised tensors."""
PRECISIONS = ("f32", "bf16", "int8")
"""The precisions of products that may be asked for; each but the first names the ruleset that it runs."""
SCHEDULES = "schedule.rules"
"""The file of the standard library with the schedules, which is always there."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What saturation runs: rules in file order, the kind of each operator, and which are commutative.

    `native` is the schedule for what `plan` and extraction have chosen for our own kernels."""

    rules: tuple[CompiledRule, ...]
    kinds: dict[str, str]
    commutative: frozenset[str]
    declared: Mapping[str, ast.Op]
    plan: Plan
    native: Plan

    def further(self, ops: Container[str]) -> bool:
        """Whether a rule that `native` begins with may apply to a graph of these operators."""
        first = frozenset(names_of(self.native.steps[0])) if self.native.steps else frozenset()
        return any(rule.ruleset in first and all(op in ops for op in rule.required) for rule in self.rules)


def standard_files() -> list[Path]:
    """The files of the standard library, in order."""
    return sorted(STANDARD.glob("*.rules"))


def load_rules(paths: Iterable[str | Path] = (), *, std: bool = True) -> Library:
    """Parses and checks rule files (directories stand for the `*.rules` below them), after the standard library if
    `std`, and in any case after the standard schedules.

    Raises `grammar.diagnostics.RuleErrors` with everything that is wrong in them."""
    files: list[str | Path] = list(standard_files()) if std else [STANDARD / SCHEDULES]
    return load([*files, *paths], OperatorTable(), Facts())


def begin_standard() -> tuple[Library, Callable[[], None]]:
    """The standard library, not checked yet if that takes long: the function that comes with it does so, and raises as
    `load_rules` does. For who has other work for the time that checks take, and takes nothing for done before them."""
    return begin(standard_files(), OperatorTable(), Facts())


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
    precision: str | None = "f32",
) -> RuleSet:
    """The rules of a library admitted by a numerics class, without those named in `disabled`.

    `opsets` are those of the model: rules and operators of files that are for other versions are left out. Rules of the
    ruleset that `precision` names are admitted whatever their class, those of other precisions left out (none
    with None). Raises `UserError` if there is no such schedule."""
    entries = _entries(library, opsets or {})
    plan = make_plan(schedule, library.schedules, library.rulesets)
    admitted = NUMERICS[: NUMERICS.index(numerics) + 1]
    off = set(disabled)
    rules: list[CompiledRule] = []
    for entry in sorted((e for e in entries if e.kind in ("Derived", "Rule")), key=lambda e: e.kind):
        domain = entry.facts[2]
        ruleset = entry.facts[1]
        fits = precision in (ruleset, None) if ruleset in PRECISIONS else entry.facts[0] in admitted
        if fits and entry.name not in off and (not domain or opsets is None or domain in opsets):
            rules += (KeptRule.make(entry, way) for way in range(len(entry.facts[3])))
    ops = [e for e in entries if e.kind == "Op"]
    return RuleSet(
        tuple(rules),
        {e.name: e.facts[0] for e in ops if e.facts[0]},
        frozenset(e.name for e in ops if e.facts[1]),
        _Definitions({e.name: e for e in ops if _is_defined(e, admitted, off)}),
        plan,
        make_plan(NATIVE, library.schedules, library.rulesets),
    )


class KeptRule(CompiledRule):
    """A compiled rule whose syntax tree is read when it is asked for."""

    __slots__ = ("_entry", "_way")

    _entry: Entry
    _way: int

    @classmethod
    def make(cls, entry: Entry, way: int) -> KeptRule:
        """One way of the rule of an entry."""
        rule = cls.__new__(cls)
        rule._entry, rule._way, rule.name, rule.ruleset = entry, way, entry.name, entry.facts[1]
        index, indexed, indices, heads, required = entry.facts[3][way]
        rule.index, rule.indexed, rule.indices = index, frozenset(indexed), tuple(indices)
        rule.heads, rule.required = tuple(heads), tuple(required)
        return rule

    @property
    def rule(self) -> ast.Rule:  # type: ignore[override]
        """The rule."""
        return self._entry.item  # type: ignore[no-any-return]

    @property
    def lhs(self) -> ast.Expr | ast.Roots:  # type: ignore[override]
        """The side that is matched."""
        return self.rule.rhs if self._way else self.rule.lhs

    @property
    def rhs(self) -> ast.Expr | ast.Roots:  # type: ignore[override]
        """The side that is made equal."""
        return self.rule.lhs if self._way else self.rule.rhs


class _Definitions(Mapping[str, ast.Op]):
    """Operators by name, read when they are asked for."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def __getitem__(self, name: str) -> ast.Op:
        return self._entries[name].item  # type: ignore[no-any-return]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _entries(library: Library, opsets: Mapping[str, int]) -> list[Entry]:
    """The items of a library, and the rules that follow from them, of files that are for these opsets."""
    entries: list[Entry] | None = getattr(library, "entries", None)
    if entries is None:
        facts = Facts()
        items: list[tuple[str, ast.Rule | ast.Op]] = [("Rule", rule) for rule in library.rules]
        items += [("Op", op) for op in library.ops]
        items += [("Derived", r) for r in facts.derived(library)]
        entries = [
            Entry(kind, item.name, item.span.file, item.span.line, facts.facts(item), b"", item) for kind, item in items
        ]
    others = _files_for_others(library, opsets)
    return [e for e in entries if e.file not in others] if others else entries


def _is_defined(entry: Entry, admitted: Sequence[str], disabled: Container[str]) -> bool:
    """Whether an operator that is not in the standard is to be equal to its definition."""
    _, _, defined, standard, numerics = entry.facts
    if not defined or standard:
        return False
    return "." not in entry.name or (numerics in admitted and f"define_{entry.name}" not in disabled)


def operators_of(library: Library, opsets: Mapping[str, int]) -> dict[str, Declared]:
    """The operators of domains of their own that a library declares for a model that uses these opsets."""
    from .declared import declarations

    entries = [e for e in _entries(library, opsets) if e.kind == "Op"]
    if opsets:
        domains = {e.name.rpartition(".")[0] for e in entries} & {d for d in opsets if d}
        entries = [e for e in entries if domains and (e.name.rpartition(".")[0] in ("", *domains))]
    return declarations([e.item for e in entries])


def _files_for_others(library: Library, opsets: Mapping[str, int]) -> set[str]:
    """The files that are for other versions of a domain than the model uses."""
    return {
        use.span.file
        for use in library.domains
        if (version := opsets.get(domain_name(use.domain))) is not None
        and not use.low <= version <= (version if use.high is None else use.high)
    }


def recognitions(library: Library) -> list[ast.Rule]:
    """The rule that recognises each operator by its definition.

    A numeric attribute in a definition stands for any scalar constant there."""
    return [recognition(op) for op in library.ops if op.definition is not None and _is_pattern(op)]


def _is_pattern(op: ast.Op) -> bool:
    """Whether an operator can be recognised by its definition: one output, several operators, no choice."""
    assert op.definition is not None
    params = {p.name for p in op.params or ()}

    def fine(node: ast.Syntax) -> bool:
        if isinstance(node, ast.Call) and not node.is_operator:  # a number, such as sqrt(2)
            return not any(isinstance(n, ast.Name) and n.id in params for n in node.walk())
        return not isinstance(node, ast.Conditional | ast.Compare | ast.Comprehension | ast.Range)

    definition = op.definition
    if isinstance(definition, ast.Call) and all(isinstance(arg, ast.Name) for arg in definition.args):
        return False  # another name of the same operator
    return isinstance(definition, ast.Call | ast.Binary | ast.Unary) and all(map(fine, definition.walk()))


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
        where=op.where, numerics=op.numerics, tests=tuple(_with_defaults(op, test, used) for test in op.tests),
    )  # fmt: skip


def _with_defaults(op: ast.Op, test: ast.RuleTest, used: set[str]) -> ast.RuleTest:
    """A test with the default of each attribute in the definition that its operands do not give."""
    named = {operand.target.name for operand in test.operands}
    more = [
        ast.Operand(span=p.span, target=ast.Target(span=p.span, name=p.name), type=None, value=p.attribute)
        for p in op.params or ()
        if p.attribute is not None and p.name in used - named
    ]
    return replace(test, operands=(*test.operands, *more)) if more else test


def compiled(rule: ast.Rule) -> Sequence[CompiledRule]:
    """A rule as one or, for `<=>`, two compiled rules; the name in reports is the rule's."""
    ways = [(rule.lhs, rule.rhs)]
    if rule.bidirectional:
        ways.append((rule.rhs, rule.lhs))
    out = []
    for lhs, rhs in ways:
        out.append(CompiledRule(rule, lhs, rhs, rule.name, rule.ruleset, *indexing(lhs)))
    return out
