"""`rewrite lsp`: the language server, and what the engine tells it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UserError
from ..options import StdRules

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ProcessPoolExecutor

    from ...engine.library import OperatorTable
    from ...grammar import ast
    from ...grammar.library import Library
    from ...grammar.lsp.services import Outcome

    Work = Callable[[Sequence[Path], Path, Mapping[Path, str], str], list[Outcome]]


def command(
    std_rules: StdRules = True,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what goes on to a file.")] = None,
) -> None:
    """Serve an editor: diagnostics, hover, completion, renaming, formatting, tests and checks of rules.

    Speaks the Language Server Protocol on standard input and output; docs/editors.md says how to set editors up.
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
    # What libraries may print must not come between the messages.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    RuleServer(Engine(std=std_rules), VERSION).start_io(stdout=answers)


class Engine:
    """What the engine tells the language server; see `grammar.lsp.services`."""

    def __init__(self, *, std: bool) -> None:
        self.std = std
        self._worker: ProcessPoolExecutor | None = None

    @cache  # noqa: B019  there is one engine, which lives as long as the process
    def operators(self) -> OperatorTable:
        """The table of ONNX operators."""
        from ...engine.library import OperatorTable

        return OperatorTable()

    def operator_doc(self, op: str) -> str | None:
        """What an operator does, with its inputs, attributes and types, as Markdown."""
        from ...engine.operators import find_schema

        schema = find_schema(op)
        return None if schema is None else _operator_doc(op, schema)

    def standard_files(self) -> Sequence[Path]:
        """The files of the standard library, or the one with the schedules."""
        from ...engine.library import SCHEDULES, STANDARD, standard_files

        return standard_files() if self.std else [STANDARD / SCHEDULES]

    def run_tests(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Run the tests of a rule in the text as the editor has it."""
        return self._apart(_run_tests, path, texts, rule)

    def check(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Check the soundness of a rule in the text as the editor has it."""
        return self._apart(_check, path, texts, rule)

    def _apart(self, work: Work, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Do work in another process: it may take long, and the e-graph must stay in the thread that made it."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        from ...transient import die_with_parent

        if self._worker is None:
            spawn = multiprocessing.get_context("spawn")
            self._worker = ProcessPoolExecutor(1, mp_context=spawn, initializer=die_with_parent)
        try:
            return self._worker.submit(work, self.standard_files(), path, dict(texts), rule).result()
        except BrokenProcessPool:
            self._worker = None
            raise UserError("the process that ran the rule has ended; try again") from None


def _run_tests(standard: Sequence[Path], path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
    from ...engine.rule_tests import run_test, suites
    from ...grammar.lsp.services import Outcome

    found = [s for s in suites(_library(standard, path, texts)) if _is(s.rule, path, rule)]
    results = [run_test(suite, test) for suite in found for test in suite.rule.tests]
    return [Outcome(r.line, r.ok, r.message) for r in results]


def _check(standard: Sequence[Path], path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
    from ...engine.rule_tests import suites
    from ...engine.soundness import check_rule
    from ...grammar.lsp.services import Outcome

    library = _library(standard, path, texts)
    outcomes = []
    for found in (s.rule for s in suites(library) if _is(s.rule, path, rule)):
        report = check_rule(found, library)
        message = f"{report.verdict}: fired on {report.fired} of {report.instances} instances"
        if report.counterexample is not None:
            message = f"unsound: {report.counterexample.message}\nfor {report.counterexample.operands}"
        elif report.problems:
            message = f"{report.verdict}: {'; '.join(report.problems)}"
        outcomes.append(Outcome(found.span.line, report.ok, message))
    return outcomes


def _library(standard: Sequence[Path], path: Path, texts: Mapping[Path, str]) -> Library:
    from ...engine.library import OperatorTable
    from ...grammar.library import load

    return load([*standard, path], OperatorTable(), texts=texts)


def _is(rule: ast.Rule, path: Path, name: str) -> bool:
    return rule.name in (name, f"recognise_{name}") and Path(rule.span.file).resolve() == path


def _operator_doc(op: str, schema: object) -> str:
    """The schema of an operator as Markdown: doc, inputs, outputs, attributes, types."""
    import textwrap
    from typing import Any

    s: Any = schema
    domain = s.domain or "ai.onnx"
    parts = [f"**{op}** · {domain}, since version {s.since_version}{', deprecated' if s.deprecated else ''}"]
    parts.append(textwrap.dedent(s.doc or "").strip())
    for title, formals in (("Inputs", s.inputs), ("Outputs", s.outputs)):
        rows = [f"- `{f.name}`: {f.type_str}{_option(f)} — {_sentence(f.description)}" for f in formals]
        if rows:
            parts.append("\n".join([f"**{title}**", *rows]))
    rows = []
    for name, attribute in sorted(s.attributes.items()):
        from ...engine.operators import signature

        known = signature(op)
        default = known.attributes[name].default if known is not None else None
        kind = attribute.type.name.lower()
        shown = f" = {default!r}" if default is not None else ", required" if attribute.required else ""
        rows.append(f"- `{name}`: {kind}{shown} — {_sentence(attribute.description)}")
    if rows:
        parts.append("\n".join(["**Attributes**", *rows]))
    rows = [
        f"- `{c.type_param_str}`: {', '.join(t.replace('tensor(', '').replace(')', '') for t in c.allowed_type_strs)}"
        for c in s.type_constraints
    ]
    if rows:
        parts.append("\n".join(["**Types**", *rows]))
    return "\n\n".join(part for part in parts if part)


def _option(formal: object) -> str:
    name = formal.option.name  # type: ignore[attr-defined]
    return "" if name == "Single" else f" ({name.lower()})"


def _sentence(text: str) -> str:
    """A description on one line."""
    return " ".join(text.split())
