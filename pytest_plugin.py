"""A pytest plugin that collects `*.rules` files: every `test` clause of a rule is one test.

    pytest rules/                              all of them
    pytest rules/algebra.rules::mul_one        the tests of one rule
    pytest rules/ --rewrite-soundness          also check each rule on random instances

The tests of a file run together when the first result is needed, because loading the rules takes most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .engine.rule_tests.run_tests import TestResult
    from .grammar.library.load import Library
    from .grammar.syntax.ast import Rule


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that checks the soundness of rules, in addition to running their tests."""
    text = "check that each rule of a .rules file is sound, as `rewrite check` does"
    parser.getgroup("rewrite", "rule files").addoption("--rewrite-soundness", action="store_true", help=text)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim files whose name ends in `.rules`."""
    return RulesFile.from_parent(parent, path=file_path) if file_path.suffix == ".rules" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a checkout's root as a plain directory: pytest must not import the package again under its name."""
    return pytest.Dir.from_parent(parent, path=path) if path == Path(__file__).parent else None


class RulesFile(pytest.File):
    """Rule file; its children are the rules that have tests."""

    @cached_property
    def results(self) -> dict[int, TestResult]:
        """Results of all tests of the file by line."""
        from .engine.rule_tests.run_tests import run_tests

        return {result.line: result for result in run_tests([self.path])}

    @cached_property
    def library(self) -> Library:
        """The rules of the file together with the standard library."""
        from .engine.rewriting.rule_library import load_rules

        return load_rules([self.path])

    def rule(self, name: str) -> Rule:
        """Return a rule of the file, or the rule that recognizes an operator declared there."""
        from .engine.rewriting.rule_library import recognitions

        rules = (*self.library.rules, *recognitions(self.library))
        own = (rule for rule in rules if Path(rule.span.file).resolve() == self.path.resolve())
        return next(rule for rule in own if rule.name in (name, f"recognize_{name}"))

    def collect(self) -> Iterable[pytest.Collector]:
        """Parse the file; if that fails, the file is one failure with all its diagnostics."""
        from .grammar.syntax.ast import Op, Rule
        from .grammar.syntax.parse import parse_file

        check = self.config.getoption("--rewrite-soundness")
        for item in parse_file(self.path).items:
            checked = check and (isinstance(item, Rule) or (isinstance(item, Op) and item.definition is not None))
            if isinstance(item, Rule | Op) and (item.tests or checked):
                lines = [(test.verdict, test.span.line) for test in item.tests]
                check_at = item.span.line if checked else 0
                yield RuleTests.from_parent(self, name=item.name, lines=lines, check=check_at)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a rule file's own diagnostics instead of a traceback."""
        from .errors import RewriteError

        if isinstance(excinfo.value, RewriteError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RuleTests(pytest.Collector):
    """Tests of one rule; `check` is the line of the rule if its soundness is checked, else 0."""

    def __init__(self, *, lines: list[tuple[str, int]], check: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lines = lines
        self.check = check

    def collect(self) -> Iterable[pytest.Item]:
        """Yield one item per `test` clause, named by its verdict and line."""
        yield from (RuleTestItem.from_parent(self, name=f"{what}:{line}", line=line) for what, line in self.lines)
        if self.check:
            yield SoundnessItem.from_parent(self, name="sound", line=self.check)


class RuleTestItem(pytest.Item):
    """`test fires` or `test refuses` clause."""

    def __init__(self, *, line: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line = line
        self.funcargs: dict[str, Any] = {}  # some plugins assume that every item is a function

    @property
    def file(self) -> RulesFile:
        """The file of the rule."""
        found = self.getparent(RulesFile)
        assert found is not None
        return found

    def runtest(self) -> None:
        """Fail with the message of the rule tester if the rule does not do what the clause says."""
        result = self.file.results[self.line]
        if not result.ok:
            raise RuleTestFailure(result.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message without the stack, which says nothing about the rule."""
        from .errors import RewriteError

        if isinstance(excinfo.value, RuleTestFailure | RewriteError):
            return f"{self.path}:{self.line}: {excinfo.value}"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the clause."""
        rule = self.parent.name if self.parent else ""
        return self.path, self.line - 1, f"{rule} {self.name}"


class SoundnessItem(RuleTestItem):
    """Soundness of a rule on random instances."""

    def runtest(self) -> None:
        """Fail with the counterexample, or with whatever else is wrong with the rule."""
        from .soundness import check_rule

        assert self.parent is not None
        report = check_rule(self.file.rule(self.parent.name), self.file.library)
        if not report.ok:
            raise RuleTestFailure(str(report))


class RuleTestFailure(Exception):
    """Failure of a rule that fired where it must not, did not fire where it must, or changed the values."""
