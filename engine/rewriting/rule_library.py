"""Rule library: loading of rule files, and the rules and operators in them that a run admits."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...grammar.checks.check_schedules import domain_name
from ...grammar.library.library_cache import Entry, LazyLibrary, entries_of, find, load, prepare
from ...grammar.library.load import Library
from ...grammar.syntax import ast
from ...grammar.syntax.scope import param_types
from ..operators.schemas import STANDARD_DOMAINS, Declared, Signature, signature, split_name, standard_names
from ..options import NUMERICS as NUMERICS
from ..options import PRECISIONS as PRECISIONS
from .matching.compiled_patterns import CompiledRule, compiled, required_operators
from .schedule import NATIVE, PORTABLE, Plan, make_plan, names_of
from .schedule import STANDARD as STANDARD_SCHEDULE

STANDARD = Path(__file__).resolve().parents[2] / "rules"
PREPARED = STANDARD / "standard.prepared"
"""The standard library, parsed and checked, in packages that were built as a wheel."""
QUANTIZED = "quantized"
"""Ruleset that runs for native kernels on models with quantized tensors."""
SCHEDULES = "schedule.rules"
"""File of the standard library with the schedules, which is always loaded."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What rule files declare of operators besides rules: kinds by operator, and the discontinuous ones."""

    kinds: Mapping[str, str]
    discontinuous: frozenset[str]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Input of saturation: rules in file order, kinds of operators, commutative operators, definitions, schedules.

    `plan` is the schedule for the model, `native` the one for the graph extracted for native kernels, `portable` the
    one for the graph extracted for the file."""

    rules: tuple[CompiledRule, ...]
    kinds: dict[str, str]
    commutative: frozenset[str]
    declared: Mapping[str, ast.Op]
    plan: Plan
    native: Plan
    portable: Plan

    def needs_kernel_rules(self, ops: Container[str]) -> bool:
        """Return whether a rule in the first step of `native` may apply to a graph of these operators."""
        first = frozenset(names_of(self.native.steps[0])) if self.native.steps else frozenset()
        return any(rule.ruleset in first and all(op in ops for op in rule.required) for rule in self.rules)

    def runs_for_kernels(self, ruleset: str) -> bool:
        """Return whether a ruleset runs on graphs of kernels only, where sizes of inputs may be constants."""
        return ruleset in self.native.rulesets()

    def written(self) -> frozenset[str]:
        """Return the operators that rules of the schedule `portable` write as others where an opset lacks them."""
        names = self.portable.rulesets()
        return frozenset(head for rule in self.rules if rule.ruleset in names for head in rule.heads)


# --- loading ---


class OperatorTable:
    """Answers to what the checks of rule files ask about ONNX operators; see `grammar.checks.operator_info`.

    A library in the cache is loaded without them, so modules that import `onnx` are imported when first needed."""

    def schema(self, op: str) -> Signature | None:
        """Return the types of an operator's inputs, outputs and attributes, or None if no schema describes it."""
        return signature(op)

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """Return what of an operator does not exist at opsets `low` to `high`; see `opsets.missing`."""
        from ..onnx_io import opsets

        domain = split_name(op)[0]
        if self.schema(op) is None or domain not in STANDARD_DOMAINS:
            return ""
        return opsets.missing(op, attribute, low, opsets.newest_opset(domain) if high is None else high)

    def newest(self, domain: str) -> int | None:
        """Return the newest opset of a standard domain."""
        from ..onnx_io import opsets

        return opsets.newest_opset(domain) if domain in STANDARD_DOMAINS else None

    def version(self) -> str:
        """Return what identifies the installed `onnx` package, without importing it."""
        found = find_spec("onnx")
        return str(Path(found.origin).stat().st_mtime_ns) if found is not None and found.origin is not None else ""

    def release(self) -> str:
        """Return the version of the installed `onnx` package, without importing it."""
        from importlib.metadata import version

        return version("onnx")

    def names(self) -> list[str]:
        """Return the names of the standard operators."""
        return standard_names()


def standard_files() -> list[Path]:
    """Return the files of the standard library, in order."""
    return sorted(STANDARD.glob("*.rules"))


def load_rules(paths: Iterable[str | Path] = (), *, std: bool = True) -> Library:
    """Parse and check rule files (directories stand for the `*.rules` below them), after the standard library if `std`.

    The standard schedules are always loaded. Raises `grammar.diagnostics.RuleErrors` with all errors in the files."""
    files: list[str | Path] = list(standard_files()) if std else [STANDARD / SCHEDULES]
    files += paths
    prepared = PREPARED if files == standard_files() else None
    return load(files, OperatorTable(), RuleSummaries(), prepared=prepared)


def parsed_standard_rules() -> LazyLibrary | None:
    """Return the standard library if it need not be parsed."""
    return find(standard_files(), OperatorTable(), RuleSummaries(), prepared=PREPARED)


def prepare_standard_library(target: Path = PREPARED) -> None:
    """Write the parsed and checked standard library into the package; wheels are built with it."""
    prepare(standard_files(), OperatorTable(), RuleSummaries(), target)


class RuleSummaries:
    """Data that the library cache stores beside the items, so that rules can be admitted without their syntax trees."""

    def derived(self, library: Library) -> Sequence[ast.Rule]:
        """Return the rules that follow from others: those that recognize operators."""
        return recognitions(library)

    def facts(self, item: ast.Item) -> dict[str, Any]:
        """Return the summary of a rule or operator as plain JSON; empty for other items."""
        if isinstance(item, ast.Op):
            return {
                "kind": item.kind,
                "commutative": item.commutative,
                "discontinuous": item.discontinuous,
                "defined": item.definition is not None,
                "standard": "." not in item.name and signature(item.name) is not None,
                "numerics": item.numerics,
            }
        if not isinstance(item, ast.Rule):
            return {}
        recognizes = item.rhs.head if item.name.startswith("recognize_") and isinstance(item.rhs, ast.Call) else ""
        return {
            "numerics": item.numerics,
            "ruleset": item.ruleset,
            "domain": recognizes.rpartition(".")[0],
            "directions": [
                [c.index, sorted(c.indexed), c.indices, c.heads, required_operators(c.lhs)] for c in compiled(item)
            ],
        }


# --- admission ---


def rule_set(
    library: Library,
    numerics: str = "reassoc",
    disabled: Iterable[str] = (),
    *,
    schedule: str = STANDARD_SCHEDULE,
    opsets: Mapping[str, int] | None = None,
    precision: str | None = "f32",
) -> RuleSet:
    """Return the rules of a library that a numerics class admits, without those in `disabled`.

    `opsets` are those of the model: rules and operators of files for other versions are left out. Rules of the ruleset
    of `precision` are admitted whatever their class, those of other precisions left out (none with None). Raises
    `UserError` for an unknown schedule."""
    entries = _entries(library, opsets or {})
    plan = make_plan(schedule, library.schedules, library.rulesets)
    admitted = NUMERICS[: NUMERICS.index(numerics) + 1]
    off = set(disabled)
    rules: list[CompiledRule] = []
    for entry in sorted((e for e in entries if e.kind in ("Derived", "Rule")), key=lambda e: e.kind):
        domain, ruleset = entry.facts["domain"], entry.facts["ruleset"]
        fits = precision in (ruleset, None) if ruleset in PRECISIONS else entry.facts["numerics"] in admitted
        if fits and entry.name not in off and (not domain or opsets is None or domain in opsets):
            for i, (index, indexed, *names) in enumerate(entry.facts["directions"]):
                fields = index, frozenset(indexed), *map(tuple, names)
                rules.append(CompiledRule(entry, bool(i), entry.name, ruleset, *fields))
    ops = [e for e in entries if e.kind == "Op"]
    return RuleSet(
        tuple(rules),
        {e.name: e.facts["kind"] for e in ops if e.facts["kind"]},
        frozenset(e.name for e in ops if e.facts["commutative"]),
        _Definitions({e.name: e for e in ops if _is_defined(e, admitted, off)}),
        plan,
        make_plan(NATIVE, library.schedules, library.rulesets),
        make_plan(PORTABLE, library.schedules, library.rulesets),
    )


class _Definitions(UserDict[str, Any]):
    """Operators by name, read when first needed."""

    def __getitem__(self, name: str) -> ast.Op:
        return self.data[name].item  # type: ignore[no-any-return]


def _is_defined(entry: Entry, admitted: Sequence[str], disabled: Container[str]) -> bool:
    """Return whether an operator outside the standard is to be equated with its definition."""
    if not entry.facts["defined"] or entry.facts["standard"]:
        return False
    return "." not in entry.name or (entry.facts["numerics"] in admitted and f"define_{entry.name}" not in disabled)


def operators_of(library: Library, opsets: Mapping[str, int]) -> dict[str, Declared]:
    """Return the operators with a domain that a library declares for a model with these opsets."""
    from .custom_operators import declarations  # imports the evaluator, which the command line does not always need

    entries = [e for e in _entries(library, opsets) if e.kind == "Op"]
    if opsets:
        domains = {e.name.rpartition(".")[0] for e in entries} & {d for d in opsets if d}
        entries = [e for e in entries if domains and (e.name.rpartition(".")[0] in ("", *domains))]
    return declarations([e.item for e in entries])


def traits_of(libraries: Iterable[Library], opsets: Mapping[str, int]) -> Traits:
    """Return the traits of the operators that libraries declare for a model with these opsets."""
    ops = [e for library in libraries for e in _entries(library, opsets) if e.kind == "Op"]
    kinds = {e.name: e.facts["kind"] for e in ops if e.facts["kind"]}
    return Traits(kinds, frozenset(e.name for e in ops if e.facts["discontinuous"]))


def _entries(library: Library, opsets: Mapping[str, int]) -> list[Entry]:
    """Return the items of a library, and the rules that follow from them, of files for these opsets."""
    entries: list[Entry] = getattr(library, "entries", None) or entries_of(library, RuleSummaries())
    others = {
        use.span.file
        for use in library.domains
        if (version := opsets.get(domain_name(use.domain))) is not None
        and not use.low <= version <= (version if use.high is None else use.high)
    }
    return [e for e in entries if e.file not in others]


# --- recognition: the rules `definition => Op(...)` that follow from the definitions of operators ---


def recognitions(library: Library) -> list[ast.Rule]:
    """Return the rules that recognize operators by their definitions.

    A numeric attribute in a definition stands for any scalar constant there."""
    return [recognition(op) for op in library.ops if op.definition is not None and _is_pattern(op)]


def _is_pattern(op: ast.Op) -> bool:
    """Return whether a definition can be matched: one output, several operators, no choice."""
    assert op.definition is not None
    params = {p.name for p in op.params or ()}

    def matchable(node: ast.Syntax) -> bool:
        if isinstance(node, ast.Call) and not node.is_operator:  # a number, such as sqrt(2)
            return not any(isinstance(n, ast.Name) and n.id in params for n in node.walk())
        return not isinstance(node, ast.Conditional | ast.Compare | ast.Comprehension | ast.Range)

    definition = op.definition
    if isinstance(definition, ast.Call) and all(isinstance(arg, ast.Name) for arg in definition.args):
        return False  # another name of the same operator
    return isinstance(definition, ast.Call | ast.Binary | ast.Unary) and all(map(matchable, definition.walk()))


def recognition(op: ast.Op) -> ast.Rule:
    """Return the rule `definition => Op(inputs, attributes)` of an operator with a definition."""
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
        span=span, doc=op.doc, name=f"recognize_{op.name}", lhs=op.definition, rhs=rhs, given=tuple(given),
        where=op.where, numerics=op.numerics, tests=tuple(_with_defaults(op, test, used) for test in op.tests),
    )  # fmt: skip


def _with_defaults(op: ast.Op, test: ast.RuleTest, used: set[str]) -> ast.RuleTest:
    """Return a test with the default of each attribute in the definition that its operands do not give."""
    named = {operand.target.name for operand in test.operands}
    more = [
        ast.Operand(span=p.span, target=ast.Target(span=p.span, name=p.name), type=None, value=p.attribute)
        for p in op.params or ()
        if p.attribute is not None and p.name in used - named
    ]
    return replace(test, operands=(*test.operands, *more)) if more else test
