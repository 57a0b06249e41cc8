"""Running the tests that stand beside rules: `test fires …` and `test refuses …`.

A test builds the rule's left side from its operands, saturates with that rule alone, and looks whether it was applied.
Where it was, every form of the result is computed with NumPy on drawn inputs and compared under the numerics class that
the rule claims, so that a rule that fires wrongly fails its own tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RewriteError
from ..grammar import ast
from ..grammar.library import Library
from .egraph import EGraph
from .evaluate import Evaluator
from .instances import Operands, evaluate_members, unequal
from .library import compiled, load_rules, recognition, rule_set
from .patterns import Unsupported
from .saturate import Limits, Saturator
from .shapes import IllTyped
from .values import TensorRef, Unprovable, Value


@dataclass(frozen=True, slots=True)
class TestResult:
    """The outcome of one test. `kind` is `fires` or `refuses`; `message` says what went wrong."""

    __test__ = False

    file: str
    rule: str
    line: int
    kind: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Suite:
    rule: ast.Rule
    kinds: dict[str, str]
    commutative: frozenset[str]
    declared: dict[str, ast.Op]


def run_tests(paths: Iterable[str | Path], select: str | None = None, *, std: bool = True) -> list[TestResult]:
    """Runs the tests in rule files (directories stand for the `*.rules` in them); those of rule `select` only, if
    given.

    Operators declared by the standard library are known if `std`. Raises `RuleErrors` for files that are not right."""
    wanted = [f for p in map(Path, paths) for f in (sorted(p.glob("*.rules")) if p.is_dir() else [p])]
    library = load_rules(wanted, std=std)
    files = {str(Path(f).resolve()) for f in wanted}
    return [
        run_test(suite, test)
        for suite in suites(library)
        if str(Path(suite.rule.span.file).resolve()) in files and (select is None or suite.rule.name == select)
        for test in suite.rule.tests
    ]


def suites(library: Library) -> list[_Suite]:
    """All rules of a library with what their tests need; operators with a definition as the rule that
    recognises them."""
    rules = rule_set(library, "fast")
    every = [*library.rules, *(recognition(op) for op in library.ops if op.definition is not None)]
    return [_Suite(rule, rules.kinds, rules.commutative, rules.declared) for rule in every]


def run_test(suite: _Suite, test: ast.RuleTest) -> TestResult:
    """Runs one test, once for each way that alternatives in the pattern leave."""
    rule = suite.rule

    def result(ok: bool, message: str = "") -> TestResult:
        return TestResult(rule.span.file, rule.name, test.span.line, test.verdict, ok, message)

    try:
        for lhs in _ways(rule.lhs):
            message = _run(suite, test, lhs)
            if message:
                return result(False, message)
    except (Unprovable, IllTyped) as why:
        return result(False, f"the left side cannot be built from these operands: {why}")
    except Unsupported as why:
        return result(False, f"the pattern cannot be matched: {why}")
    except RewriteError as error:
        return result(False, str(error))
    return result(True)


def _run(suite: _Suite, test: ast.RuleTest, lhs: ast.Expr | ast.Roots) -> str:
    """What is wrong, or an empty string."""
    rule = suite.rule
    egraph = EGraph.create(suite.commutative)
    assert egraph.matcher is not None
    try:
        evaluator = Evaluator(egraph)
        evaluator.declared = suite.declared
        operands = Operands(rule, test, evaluator)
        roots = operands.build(lhs)
        before = {egraph.find(r): r for r in roots}
        forward = list(compiled(rule))[:1]
        limits = Limits(seconds=10, nodes=20_000, iterations=8)
        report = Saturator(egraph, forward, suite.kinds, limits, declared=suite.declared, constants=True).run()
        count = report.counts[rule.name]
        if test.verdict == "refuses":
            return f"it was applied {count.applied} times" if count.applied else ""
        if not count.applied:
            return "it was not applied: " + (count.reason or "the pattern does not match")
        for trial in range(2):
            values = operands.values(trial)
            for root in before.values():
                found = evaluate_members(egraph, root, values)
                for other in found[1:]:
                    message = unequal(found[0], other, rule)
                    if message:
                        return f"the two sides differ: {message}"
        return _gives(test, evaluator, operands, roots)
    finally:
        egraph.matcher.close()


def _gives(test: ast.RuleTest, evaluator: Evaluator, operands: Operands, roots: Sequence[int]) -> str:
    if test.gives is None:
        return ""
    egraph = evaluator.egraph
    value: Value = evaluator.evaluate(test.gives, dict(operands.env))
    expected = value if isinstance(value, list) else [value]
    egraph.rebuild()
    for root, item in zip(roots, expected, strict=False):
        handle = item.handle if isinstance(item, TensorRef) else evaluator.constant(item, egraph.type(root).dtype)
        if egraph.find(handle) != egraph.find(root):
            return "it does not give the expected expression"
    return ""


def _ways(expr: ast.Expr | ast.Roots) -> list[ast.Expr | ast.Roots]:
    """The pattern with every alternative chosen in turn."""
    import dataclasses

    def expand(node: ast.Syntax) -> list[ast.Syntax]:
        if isinstance(node, ast.Alternatives):
            return [way for option in node.options for way in expand(option)]
        choices: list[list[object]] = []
        names = []
        for f in dataclasses.fields(node):
            value = getattr(node, f.name)
            if isinstance(value, tuple) and any(isinstance(v, ast.Syntax) for v in value):
                parts = [expand(v) if isinstance(v, ast.Syntax) else [v] for v in value]
                choices.append(list(itertools.product(*parts)))
                names.append(f.name)
            elif isinstance(value, ast.Syntax):
                choices.append(list(expand(value)))
                names.append(f.name)
        ways = [dict[str, Any](zip(names, way, strict=True)) for way in itertools.product(*choices)]
        return [dataclasses.replace(node, **fields) for fields in ways]

    return expand(expr)[:16]  # type: ignore[return-value]
