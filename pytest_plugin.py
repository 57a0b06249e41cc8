"""A pytest plugin that collects `*.rules` files: every `test` clause of a rule is one test.

    pytest rules/                              all of them
    pytest rules/algebra.rules::mul_one        the tests of one rule
    pytest rules/ --rewrite-soundness          and for each rule, whether it is true on drawn instances

The tests of a file run together, the first time that one of its results is needed, because loading the rules is
most of the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .engine.rule_tests import TestResult
    from .grammar.ast import Rule
    from .grammar.library import Library


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that has rules checked, not just tested."""
    group = parser.getgroup("rewrite", "rule files")
    group.addoption(
        "--rewrite-soundness",
        action="store_true",
        help="check that each rule of a .rules file is true, as `rewrite check` does",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Claim files whose name ends in `.rules`."""
    return RulesFile.from_parent(parent, path=file_path) if file_path.suffix == ".rules" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """In a checkout the root is the package itself: pytest must not import it again under the folder's name."""
    return pytest.Dir.from_parent(parent, path=path) if path == Path(__file__).parent else None


class RulesFile(pytest.File):
    """A rule file; its children are the rules that have tests."""

    @cached_property
    def results(self) -> dict[int, TestResult]:
        """The outcome of every test of the file by its line."""
        from .engine.rule_tests import run_tests

        return {result.line: result for result in run_tests([self.path])}

    @cached_property
    def library(self) -> Library:
        """The rules of the file beside the standard library."""
        from .engine.library import load_rules

        return load_rules([self.path])

    def rule(self, name: str) -> Rule:
        """A rule of the file, or the one by which an operator declared there is recognised."""
        from .engine.library import recognitions

        rules = [*self.library.rules, *recognitions(self.library)]
        return next(
            r
            for r in rules
            if r.name in (name, f"recognise_{name}") and Path(r.span.file).resolve() == self.path.resolve()
        )

    def collect(self) -> Iterable[pytest.Collector]:
        """Parse the file; a file that does not parse fails as one, with all its diagnostics."""
        from .grammar.ast import Op, Rule
        from .grammar.parse import parse_file

        check = self.config.getoption("--rewrite-soundness")
        for item in parse_file(self.path).items:
            is_rule = isinstance(item, Rule) or (isinstance(item, Op) and item.definition is not None)
            if isinstance(item, Rule | Op) and (item.tests or (check and is_rule)):
                lines = [(test.verdict, test.span.line) for test in item.tests]
                yield RuleTests.from_parent(
                    self, name=item.name, lines=lines, check=item.span.line if check and is_rule else 0
                )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a rule file's own diagnostics instead of a traceback."""
        from .errors import RewriteError

        if isinstance(excinfo.value, RewriteError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RuleTests(pytest.Collector):
    """The tests of one rule; `check` is its line if it is to be checked as well."""

    def __init__(self, *, lines: list[tuple[str, int]], check: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lines = lines
        self.check = check

    def collect(self) -> Iterable[pytest.Item]:
        """One item per `test` clause, named by its verdict and its line."""
        for verdict, line in self.lines:
            yield RuleTestItem.from_parent(self, name=f"{verdict}:{line}", line=line)
        if self.check:
            yield SoundnessItem.from_parent(self, name="sound", line=self.check)


class RuleTestItem(pytest.Item):
    """One `test fires` or `test refuses` clause."""

    def __init__(self, *, line: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line = line
        self.funcargs: dict[str, Any] = {}  # there are plugins that take every item to be a function

    def runtest(self) -> None:
        """Fail with the message of the rule tester when the rule did not do what the clause says."""
        file = self.getparent(RulesFile)
        assert file is not None
        result = file.results[self.line]
        if not result.ok:
            raise RuleTestFailure(result.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message is written for people; the stack below it says nothing about the rule."""
        from .errors import RewriteError

        if isinstance(excinfo.value, RuleTestFailure | RewriteError):
            return f"{self.path}:{self.line}: {excinfo.value}"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the clause stands."""
        rule = self.parent.name if self.parent else ""
        return self.path, self.line - 1, f"{rule} {self.name}"


class SoundnessItem(RuleTestItem):
    """Whether a rule is true on drawn instances."""

    def runtest(self) -> None:
        """Fail with the counterexample, or what else stands against the rule."""
        from .engine.soundness import check_rule

        file = self.getparent(RulesFile)
        assert file is not None
        assert self.parent is not None
        report = check_rule(file.rule(self.parent.name), file.library)
        if not report.ok:
            raise RuleTestFailure(str(report))


class RuleTestFailure(Exception):
    """A rule fired where it must not, did not fire where it must, or changed the values."""
