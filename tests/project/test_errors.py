"""Errors cross process boundaries: each subclass survives pickling with its message, attributes and exit code."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import rewrite
from rewrite.engine.extraction.extract import ExtractionError
from rewrite.engine.saturation.saturation_process import OutOfBounds
from rewrite.engine.trails.make import NoTrail
from rewrite.errors import CheckFailed, NotAModel, NotInstalled, RewriteError, UserError, naming_packages
from rewrite.grammar.diagnostics import Diagnostic, RuleErrors
from rewrite.grammar.printing.format import FormatError
from rewrite.grammar.syntax.ast import Span
from rewrite.tuning.measuring_process import CandidateDied

ROOT = Path(rewrite.__file__).parent
EXAMPLES: dict[type[RewriteError], Callable[[], RewriteError]] = {
    RewriteError: lambda: RewriteError("broken", where="a.rules", hint="mend it"),
    UserError: lambda: UserError("not a model", where="m.onnx", hint="name another"),
    NotAModel: lambda: NotAModel("not an ONNX model", where="m.onnx"),
    NotInstalled: lambda: NotInstalled.of("compiling a model"),
    CandidateDied: lambda: CandidateDied("timeout"),
    CheckFailed: lambda: CheckFailed("differs"),
    ExtractionError: lambda: ExtractionError("no derivation", where="y"),
    FormatError: lambda: FormatError("changes the meaning", where="a.rules"),
    NoTrail: lambda: NoTrail("rules made bodies again and again"),
    OutOfBounds: lambda: OutOfBounds("stopped", bound="memory", hint="less"),
    RuleErrors: lambda: RuleErrors([Diagnostic("odd", "wrong", Span("a.rules", 1, 1, 1, 2))], {"a.rules": "x"}),
}


def subclasses(kind: type[RewriteError]) -> Iterator[type[RewriteError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def test_every_error_of_the_package_has_an_example() -> None:
    for source in ROOT.rglob("*.py"):
        module = source.relative_to(ROOT).with_suffix("")
        if (
            module.parts[0] in ("grammar", "engine", "soundness", "backend", "system", "tuning", "cli")
            and "Error" in source.read_text()
        ):
            import_module(".".join(("rewrite", *module.parts)).removesuffix(".__init__"))
    found = {kind for kind in subclasses(RewriteError) if kind.__module__.startswith("rewrite.")}
    elsewhere = (".tests.", "rewrite.ort.errors")  # the classes of `ort` are made when used, and tested there
    assert {kind for kind in found if not any(part in kind.__module__ for part in elsewhere)} == set(EXAMPLES)


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[RewriteError]) -> None:
    error = EXAMPLES[kind]()
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert copy.exit_code == error.exit_code


def test_a_missing_module_of_an_installed_package_is_no_missing_package() -> None:
    for name in ("rewrite.engine.lost", "onnx.lost"):
        with pytest.raises(ModuleNotFoundError, match="lost"), naming_packages("compiling a model"):
            import_module(name)
