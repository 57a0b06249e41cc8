"""`rewrite lsp`: the language server, with the engine behind it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ...errors import UserError
from ..options import StdRules

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ProcessPoolExecutor

    from ...engine.rewriting.rule_library import OperatorTable
    from ...engine.rule_tests.run_tests import RuleUnderTest
    from ...grammar.library.load import Library
    from ...grammar.lsp.services import Outcome

    Work = Callable[[Sequence[Path], Path, Mapping[Path, str], str], list[Outcome]]


def command(
    std_rules: StdRules = True,
    log: Annotated[Path | None, Option(metavar="FILE", help="Write a log to this file.")] = None,
) -> None:
    """Serve an editor: diagnostics, hover, completion, renaming, formatting, tests and checks of rules.

    Speaks the Language Server Protocol on standard input and output; docs/editors.md explains how to configure editors.
    """
    try:
        import pygls  # noqa: F401
    except ImportError:
        raise UserError(
            "the language server needs the package pygls", hint="Install it with: pip install 'onnx-rewrite[lsp]'"
        ) from None
    import logging

    from ...grammar.lsp.server import RuleServer
    from ...version import VERSION

    if log is not None:
        logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    # Output of libraries must not get between the messages.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    RuleServer(Engine(std=std_rules), VERSION).start_io(stdout=answers)


class Engine:
    """Engine of the language server; see `grammar.lsp.services`."""

    def __init__(self, *, std: bool) -> None:
        self.std = std
        self._worker: ProcessPoolExecutor | None = None

    @cache  # noqa: B019  there is one engine, which lives as long as the process
    def operators(self) -> OperatorTable:
        """Return the table of ONNX operators."""
        from ...engine.rewriting.rule_library import OperatorTable

        return OperatorTable()

    def operator_doc(self, op: str) -> str | None:
        """Return the documentation of an operator as Markdown."""
        from ...engine.operators.schemas import find_schema

        schema = find_schema(op)
        return None if schema is None else _operator_doc(op, schema)

    def standard_files(self) -> Sequence[Path]:
        """Return the files of the standard library, or only the one with the schedules."""
        from ...engine.rewriting.rule_library import SCHEDULES, STANDARD, standard_files

        return standard_files() if self.std else [STANDARD / SCHEDULES]

    def run_tests(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Run the tests of a rule in the unsaved text of the editor."""
        return self._in_process(_run_tests, path, texts, rule)

    def check(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Check the soundness of a rule in the unsaved text of the editor."""
        return self._in_process(_check, path, texts, rule)

    def _in_process(self, work: Work, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Do work in another process: it may take long, and an e-graph is bound to the thread that created it."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        from ...system.scoped import die_with_parent

        if self._worker is None:
            spawn = multiprocessing.get_context("spawn")
            self._worker = ProcessPoolExecutor(1, mp_context=spawn, initializer=die_with_parent)
        try:
            return self._worker.submit(work, self.standard_files(), path, dict(texts), rule).result()
        except BrokenProcessPool:
            self._worker = None
            raise UserError("the process that ran the rule ended unexpectedly", hint="Try again.") from None


def _run_tests(standard: Sequence[Path], path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
    from ...engine.rule_tests.run_tests import run_test
    from ...grammar.lsp.services import Outcome

    _, found = _suites(standard, path, texts, rule)
    results = [run_test(suite, test) for suite in found for test in suite.rule.tests]
    return [Outcome(r.line, r.ok, r.message) for r in results]


def _check(standard: Sequence[Path], path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
    from ...grammar.lsp.services import Outcome
    from ...soundness import check_rule

    library, suites = _suites(standard, path, texts, rule)
    outcomes = []
    for found in (suite.rule for suite in suites):
        report = check_rule(found, library)
        message = f"{report.verdict}: fired on {report.fired} of {report.instances} instances"
        if report.counterexample is not None:
            message = f"unsound: {report.counterexample.message}\nfor {report.counterexample.operands}"
        elif report.problems:
            message = f"{report.verdict}: {'; '.join(report.problems)}"
        outcomes.append(Outcome(found.span.line, report.ok, message))
    return outcomes


def _suites(
    standard: Sequence[Path], path: Path, texts: Mapping[Path, str], rule: str
) -> tuple[Library, list[RuleUnderTest]]:
    """Return the library with the editor's texts, and what it holds of a rule in a file."""
    from ...engine.rewriting.rule_library import OperatorTable
    from ...engine.rule_tests.run_tests import suites
    from ...grammar.library.load import load

    library = load([*standard, path], OperatorTable(), texts=texts)
    names = (rule, f"recognize_{rule}")
    return library, [s for s in suites(library) if s.rule.name in names and Path(s.rule.span.file).resolve() == path]


def _operator_doc(op: str, schema: Any) -> str:
    """Return the schema of an operator as Markdown: text, inputs, outputs, attributes, types."""
    import textwrap

    from ...engine.operators.schemas import signature

    known = signature(op)

    def formal(f: Any) -> str:
        option = "" if f.option.name == "Single" else f" ({f.option.name.lower()})"
        return f"`{f.name}`: {f.type_str}{option} — {_sentence(f.description)}"

    def attribute(name: str, a: Any) -> str:
        default = known.attributes[name].default if known is not None else None
        shown = f" = {default!r}" if default is not None else ", required" if a.required else ""
        return f"`{name}`: {a.type.name.lower()}{shown} — {_sentence(a.description)}"

    def constraint(c: Any) -> str:
        types = (t.replace("tensor(", "").replace(")", "") for t in c.allowed_type_strs)
        return f"`{c.type_param_str}`: {', '.join(types)}"

    sections = {
        "Inputs": map(formal, schema.inputs),
        "Outputs": map(formal, schema.outputs),
        "Attributes": (attribute(name, a) for name, a in sorted(schema.attributes.items())),
        "Types": map(constraint, schema.type_constraints),
    }
    domain, deprecated = schema.domain or "ai.onnx", ", deprecated" * schema.deprecated
    parts = [f"**{op}** · {domain}, since version {schema.since_version}{deprecated}"]
    parts.append(textwrap.dedent(schema.doc or "").strip())
    for title, rows in sections.items():
        listed = "".join(f"\n- {row}" for row in rows)
        parts.append(f"**{title}**{listed}" if listed else "")
    return "\n\n".join(filter(None, parts))


def _sentence(text: str) -> str:
    return " ".join(text.split())
