"""A pytest plugin that collects `*.rules` files: every `test` clause of a rule is one test.

    pytest rules/                              all of them
    pytest rules/algebra.rules::mul_one        the tests of one rule

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

    def collect(self) -> Iterable[pytest.Collector]:
        """Parse the file; a file that does not parse fails as one, with all its diagnostics."""
        from .grammar.ast import Op, Rule
        from .grammar.parse import parse_file

        for item in parse_file(self.path).items:
            if isinstance(item, Rule | Op) and item.tests:
                lines = [(test.verdict, test.span.line) for test in item.tests]
                yield RuleTests.from_parent(self, name=item.name, lines=lines)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show a rule file's own diagnostics instead of a traceback."""
        from .errors import RewriteError

        if isinstance(excinfo.value, RewriteError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class RuleTests(pytest.Collector):
    """The tests of one rule."""

    def __init__(self, *, lines: list[tuple[str, int]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lines = lines

    def collect(self) -> Iterable[pytest.Item]:
        """One item per `test` clause, named by its verdict and its line."""
        for verdict, line in self.lines:
            yield RuleTestItem.from_parent(self, name=f"{verdict}:{line}", line=line)


class RuleTestItem(pytest.Item):
    """One `test fires` or `test refuses` clause."""

    def __init__(self, *, line: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line = line

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


class RuleTestFailure(Exception):
    """A rule fired where it must not, did not fire where it must, or changed the values."""
