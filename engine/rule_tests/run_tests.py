"""Runner of the tests beside rules, each with that rule alone.

`test fires …` and `test refuses …` build the left side from operands, saturate it, and check whether the rule was
applied. If so, every form of the result is computed with NumPy on random inputs and compared under the rule's numerics
class, so a rule that is wrong fails its own tests. `test equals A == B for …` does the same with two terms, and
`test fires model "file.onnx" times N` with a model.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RewriteError, UserError
from ...grammar.library.load import Library
from ...grammar.printing.printer import print_expr
from ...grammar.syntax import ast
from ...grammar.syntax.alternatives import expand
from ...grammar.syntax.parse import parse_text, read
from ...system import scoped
from ...system.process_pool import in_order
from ..egraph.egraph import EGraph
from ..egraph.encode import encode, input_symbols
from ..ir.graph import DType
from ..ir.values import TensorRef, Unprovable
from ..onnx_io import importer
from ..operators.folding import Array
from ..operators.inference import IllTyped
from ..operators.schemas import Declared, declared_operators
from ..rewriting.build_nodes import build_constant
from ..rewriting.evaluate import Evaluator
from ..rewriting.matching.compiled_patterns import CompiledRule, Unsupported, compiled
from ..rewriting.rule_library import RuleSet, load_rules, operators_of, recognition, rule_set
from ..rewriting.schedule import plan_for
from ..rewriting.terms import Unprintable, different, node_term, term
from ..saturation.saturate import Limits, RuleCount, Saturator
from ..saturation.why_not import why_not
from ..verification.compare_forms import compare_forms, lowest_precision
from ..verification.random_inputs import make_inputs
from ..verification.reference_values import Undefined, Values
from .operands import MAX_CHOICES, Operands

_COMPARED = 16
"""Maximum number of values whose forms are compared on a model."""
_BATCH = 8
"""Number of rules that one process tests at a time: few, since some take much longer than others."""


@dataclass(frozen=True, slots=True)
class TestResult:
    """Outcome of one test. `kind` is `fires`, `refuses` or `equals`; `message` says what went wrong.

    If the result is not the one after `gives`, `actual` is the text of the result and `expected` the span of the
    expectation."""

    __test__ = False

    file: str
    rule: str
    line: int
    kind: str
    ok: bool
    message: str = ""
    seconds: float = 0.0
    actual: str = ""
    expected: ast.Span | None = None


class _Failure(Exception):
    """What is wrong, and the text of a result that is not the expected one."""

    def __init__(self, message: str, actual: str = "") -> None:
        super().__init__(message)
        self.actual = actual


@dataclass(frozen=True, slots=True)
class RuleUnderTest:
    """A rule with its library, and the operators that are declared for some opsets."""

    rule: ast.Rule
    library: RuleSet
    operators: Callable[[Mapping[str, int]], Mapping[str, Declared]]

    def new_context(self) -> Evaluator:
        """Return a context with an empty e-graph."""
        library = self.library
        return Evaluator(EGraph.create(library.commutative), library.declared, library.kinds)

    def saturate(
        self, context: Evaluator, rules: list[CompiledRule], limits: Limits | None = None, *, constants: bool = True
    ) -> RuleCount:
        """Saturate with some directions of the rule alone, and return its count."""
        limits = limits or Limits(seconds=10, nodes=20_000, iterations=8)
        if self.library.runs_for_kernels(self.rule.ruleset):
            context.egraph.extents = input_symbols(context.egraph)
        saturator = Saturator(context, rules, limits, plan=plan_for(self.rule.ruleset), constants=constants)
        return saturator.run().counts[self.rule.name]


def suites(library: Library) -> list[RuleUnderTest]:
    """Return all rules of a library as suites; operators with a definition as the rules that recognize them."""
    rules = rule_set(library, "fast", precision=None)
    every = [*library.rules, *(recognition(op) for op in library.ops if op.definition is not None)]
    return [RuleUnderTest(rule, rules, functools.partial(operators_of, library)) for rule in every]


def run_tests(
    paths: Iterable[str | Path], select: str | None = None, *, std: bool = True, jobs: int = 1
) -> list[TestResult]:
    """Run the tests in rule files (directories stand for the `*.rules` in them), in `jobs` processes.

    With `select`, only those of this rule. Operators declared by the standard library are known if `std`. Raises
    `RuleErrors` for files with errors."""
    wanted = tuple(map(Path, paths))
    every = suites(load_rules(wanted, std=std))
    inside = [sorted(p.rglob("*.rules")) if p.is_dir() else [p] for p in wanted]
    files = {f.resolve() for found in inside for f in found}
    numbers = [
        number
        for number, rule in enumerate(suite.rule for suite in every)
        if Path(rule.span.file).resolve() in files and select in (None, rule.name) and rule.tests
    ]
    if jobs <= 1 or len(numbers) <= _BATCH:
        return _run_suites(every[number] for number in numbers)
    batches = [numbers[i : i + _BATCH] for i in range(0, len(numbers), _BATCH)]
    run = functools.partial(_run_batch, wanted, std)
    return [result for results in in_order(run, batches, jobs=jobs) for result in results]


def _run_suites(chosen: Iterable[RuleUnderTest]) -> list[TestResult]:
    return [run_test(suite, test) for suite in chosen for test in suite.rule.tests]


def _run_batch(files: tuple[Path, ...], std: bool, numbers: Sequence[int]) -> list[TestResult]:
    every = _loaded(files, std)
    return _run_suites(every[number] for number in numbers)


@functools.lru_cache(maxsize=1)
def _loaded(files: tuple[Path, ...], std: bool) -> list[RuleUnderTest]:
    """Load a library once in a process, which lives for one run only."""
    return suites(load_rules(files, std=std))


def run_test(suite: RuleUnderTest, test: ast.RuleTest) -> TestResult:
    """Run one test, once for each choice of alternatives in the pattern."""
    start = time.perf_counter()
    failure = None
    try:
        with declared_operators(suite.operators({})):
            if test.equals:
                _equals(suite, test)
            elif test.model is not None:
                _on_model(suite, test, model_path(suite.rule.span.file, test.model))
            else:
                _on_operands(suite, test)
    except _Failure as found:
        failure = found
    except (Unprovable, IllTyped) as why:
        failure = _Failure(f"the left side cannot be built from these operands: {why}")
    except Undefined as why:
        failure = _Failure(f"{why} cannot be computed on these operands")
    except Unsupported as why:
        failure = _Failure(f"the pattern cannot be matched: {why}")
    except RewriteError as error:
        failure = _Failure(str(error))
    message, actual = (str(failure), failure.actual) if failure is not None else ("", "")
    place = test.gives.span if test.gives is not None and actual else None
    return TestResult(
        suite.rule.span.file, suite.rule.name, test.span.line, test.verdict, failure is None, message,
        time.perf_counter() - start, actual, place,
    )  # fmt: skip


def _compare(
    suite: RuleUnderTest,
    egraph: EGraph,
    root: int,
    inputs: Mapping[str, Array],
    names: Mapping[int, str] | None = None,
) -> None:
    """Compare the forms of a value with the model's own; with `names` of operands, a failure shows the two forms."""
    values = Values(egraph, inputs, suite.library.declared)
    coarse = lowest_precision(suite.rule, (DType.from_numpy(array.dtype) for array in inputs.values()))
    first, *others = egraph.members(root)
    original = values.of_node(first)
    for handle in others:
        if found := compare_forms(suite.rule, original, values.of_node(handle), coarse):
            lines = [f"the two sides differ: {found[2]}"]
            if names is not None:
                with contextlib.suppress(Unprintable):
                    lines += [f"  {print_expr(node_term(egraph, h, names))}" for h in (first, handle)]
            raise _Failure("\n".join(lines))


# --- tests on operands ---


def _on_operands(suite: RuleUnderTest, test: ast.RuleTest) -> None:
    given = {operand.target.name for operand in test.operands}
    for lhs in expand(suite.rule.lhs, MAX_CHOICES):
        if test.term is not None or _omitted(lhs) == _omitted(suite.rule.lhs) - given:
            _run(suite, test, lhs)


def _omitted(lhs: ast.Expr | ast.Roots) -> set[str]:
    """Return the optional operands that a left side, or a choice of its alternatives, leaves out."""
    return {default.name for node in lhs.walk() if isinstance(node, ast.Omitted) for default in node.defaults}


def _run(suite: RuleUnderTest, test: ast.RuleTest, lhs: ast.Expr | ast.Roots) -> None:
    context, rule = suite.new_context(), suite.rule
    egraph = context.egraph
    operands = Operands(rule, test, context)
    roots = operands.build(lhs if test.term is None else test.term)
    before = {egraph.find(r): r for r in roots}
    forward = compiled(rule)[:1]
    count = suite.saturate(context, forward)
    if test.verdict == "refuses":
        if count.applied:
            raise _Failure(_applied(egraph, operands.names(), roots, rule.name))
        return
    if not count.applied:
        raise _Failure(_not_applied(context, forward, count.reason))
    for trial in range(2):
        values = operands.values(trial)
        for root in before.values():
            _compare(suite, egraph, root, values, operands.names())
    if test.gives is not None:
        _check_result(test.gives, context, operands, roots)


def _not_applied(context: Evaluator, forward: Sequence[CompiledRule], reason: str) -> str:
    """Describe that a rule was not applied, and which part failed where it came closest."""
    answer = why_not(context, forward, most=1, constants=True)
    if not answer.misses:
        return "it was not applied: " + (reason or "the pattern does not match")
    miss = answer.misses[0]
    shown = miss.diagnostic().render({miss.span.file: read(miss.span.file)}).split("\n")[1:]
    return "\n".join([f"it was not applied: {miss.reason}", *shown])


def _applied(egraph: EGraph, names: Mapping[int, str], roots: Sequence[int], rule: str) -> str:
    """Describe what a rule built where it must not be applied."""
    lines = ["it was applied"]
    for root in roots:
        with contextlib.suppress(Unprintable):
            before = node_term(egraph, root, names)
            lines += [f"  {print_expr(before)}", f"    =>  {print_expr(term(egraph, root, names, made_by=rule))}"]
    return "\n".join(lines)


def _check_result(gives: ast.Expr, context: Evaluator, operands: Operands, roots: Sequence[int]) -> None:
    egraph = context.egraph
    value = context.evaluate(gives, dict(operands.env))
    egraph.rebuild()
    for root, item in zip(roots, value if isinstance(value, list) else [value], strict=False):
        handle = item.handle if isinstance(item, TensorRef) else build_constant(context, item, egraph.type(root).dtype)
        if egraph.find(handle) == egraph.find(root):
            continue
        says = "the result is not the expected one"
        try:
            actual = term(egraph, root, operands.names(), made_by=operands.rule.name)
        except Unprintable as why:
            raise _Failure(f"{says}, and cannot be written as an expression: {why}") from why
        raise _Failure("\n".join([says, *different(gives, actual)]), print_expr(actual))


# --- tests on terms and models ---


def _equals(suite: RuleUnderTest, test: ast.RuleTest) -> None:
    """Check that two terms become equal by the rule alone."""
    context = suite.new_context()
    egraph, operands = context.egraph, Operands(suite.rule, test, context)
    left, right = (operands.build(side)[0] for side in test.equals)
    if egraph.find(left) == egraph.find(right):
        if any("." in n.head for side in test.equals for n in side.walk() if isinstance(n, ast.Call)):
            return  # declared operators are equated with their definitions on insertion
        raise _Failure("the two sides are the same term: this is no test of the rule")
    count = suite.saturate(context, compiled(suite.rule))
    if egraph.find(left) != egraph.find(right):
        times = f"the rule was applied {count.applied} times"
        why = times if count.applied else f"the rule was not applied: {count.reason}"
        raise _Failure(f"the two sides do not become equal: {why}")
    for trial in range(2):
        _compare(suite, egraph, left, operands.values(trial))


def _on_model(suite: RuleUnderTest, test: ast.RuleTest, path: Path) -> None:
    """Check that the rule is, or is not, applied to a model; the forms that it finds of values must be equal."""
    graph = importer.read(path, declared=suite.operators)
    context = suite.new_context()
    egraph = context.egraph
    encode(graph, egraph)
    count = suite.saturate(context, compiled(suite.rule), Limits(seconds=60), constants=False)
    times = f"it was applied {count.applied} time{'s' * (count.applied != 1)}"
    if test.verdict == "refuses":
        if count.applied:
            raise _Failure(times)
        return
    if not count.applied:
        raise _Failure("it was not applied: " + (count.reason or "the pattern does not match"))
    if test.times not in (None, count.applied):
        raise _Failure(f"{times}, not {test.times}")
    values = {**{c.digest: c.array for c in graph.constants.values()}, **make_inputs(graph)}
    roots = dict.fromkeys(egraph.find(a) for a, _, rule in egraph.unions if rule == suite.rule.name)
    for root in list(roots)[:_COMPARED]:
        with contextlib.suppress(Undefined):  # `rewrite check` covers what cannot be computed here
            _compare(suite, egraph, root, values)


def model_path(file: str, model: str) -> Path:
    """Return the path of a model, which must be below the directory of the rule file, links resolved."""
    root = Path(file).resolve().parent
    path = (root / model).resolve()
    if not path.is_relative_to(root):
        raise UserError(f'`model "{model}"` leads outside the directory of the rules', where=file)
    if not path.is_file():
        raise UserError(f'`model "{model}"`: no such file', where=file)
    return path


# --- update of expectations ---


def update_expected(results: Sequence[TestResult]) -> list[TestResult]:
    """Replace the expression after `gives` of each test with another result, and return the tests that this fixes.

    A file is replaced as a whole, once its new text parses. Raises `UserError` if it cannot be written."""
    fixed = [r for r in results if not r.ok and r.actual and r.expected is not None]
    edits: dict[str, list[tuple[ast.Span, str]]] = {}
    for result in fixed:
        assert result.expected is not None
        edits.setdefault(result.file, []).append((result.expected, result.actual))
    for file, changes in edits.items():
        text = _replaced(read(file), changes)
        parse_text(text, file)
        try:
            with scoped.replacing(Path(file)) as out:
                out.write(text.encode())
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=file) from error
    return fixed


def _replaced(text: str, changes: Sequence[tuple[ast.Span, str]]) -> str:
    """Replace the text at some spans, which do not overlap."""
    starts = list(itertools.accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    for span, new in sorted(changes, key=lambda change: (change[0].line, change[0].column), reverse=True):
        start, end = starts[span.line - 1] + span.column - 1, starts[span.end_line - 1] + span.end_column - 1
        text = text[:start] + new + text[end:]
    return text
