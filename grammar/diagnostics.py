"""Diagnostics of rule files: code, message, source excerpt with a caret, and a hint.

Stages collect diagnostics and continue, so that one run shows every error of a file. `RuleErrors` carries them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from ..errors import UserError
from .syntax.ast import Span, Syntax

_N = TypeVar("_N", bound=Syntax)
_place = attrgetter("span.file", "span.line", "span.column", "code", "message")


@dataclass(frozen=True, slots=True)
class Label:
    """A secondary place of a diagnostic, and its relation to it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A text edit that resolves a diagnostic: `replacement` instead of `span`."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in a rule file. `code` is a stable word such as `unbound-variable`.

    `severity` is `error`, or `warning` for what does not stop a run. `fix` is the edit that an editor offers; it
    defaults to the only candidate of a "did you mean" hint."""

    code: str
    message: str
    span: Span
    labels: tuple[Label, ...] = ()
    hint: str = ""
    severity: str = "error"
    fix: Fix | None = None

    def __post_init__(self) -> None:
        if self.fix is None and self.hint.startswith("did you mean"):
            words = re.findall(r"`([^`]+)`", self.message)
            meant = next((w for w in words if start_of(self.span, len(w)) == self.span), None)
            if meant is not None:
                object.__setattr__(self, "fix", spelling_fix(self.hint, meant, self.span))

    def render(self, sources: Mapping[str, str]) -> str:
        """Return the finding as text. `sources` maps file names to contents; other files are shown without excerpt."""
        out = [f"{self.severity}[{self.code}]: {self.message}", *_excerpt(self.span, sources, "^", "")]
        for label in self.labels:
            out += _excerpt(label.span, sources, "-", label.text)
        if self.hint:
            out.append(f"  = {self.hint}")
        return "\n".join(out)


class RuleErrors(UserError):
    """All errors of one or several rule files, as `diagnostics` in source order."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        self.diagnostics = sorted(diagnostics, key=_place)
        self.sources = dict(sources)
        super().__init__(report(self.diagnostics, self.sources))


def repeated(named: Iterable[_N], name: Callable[[_N], str] = attrgetter("name")) -> Iterator[tuple[_N, Label]]:
    """Yield what has the name of something before it, with a label of the first of that name."""
    first: dict[str, _N] = {}
    for one in named:
        if first.setdefault(name(one), one) is not one:
            yield one, Label(first[name(one)].span, "the first one is here")


def report(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    """Return all findings as text, in source order, followed by their number."""
    found = sorted(diagnostics, key=_place)
    rendered = [diagnostic.render(sources) for diagnostic in found]
    counts = [(word, sum(d.severity == word for d in found)) for word in ("error", "warning")]
    total = ", ".join(f"{count} {word}{'s' * (count != 1)}" for word, count in counts if count)
    return "\n\n".join([*rendered, total or "no errors"])


def spelling_fix(hint: str, word: str, span: Span) -> Fix | None:
    """Return the edit of `word` at the start of a span to the candidate of a hint, if it has exactly one."""
    guess = re.fullmatch(r"did you mean (?:the operator )?`([^`]+)`\?", hint)
    if guess is None:
        return None
    return Fix(start_of(span, len(word)), (".." if word.startswith("..") else "") + guess[1])


def start_of(span: Span, length: int) -> Span:
    """Return the first characters of a span."""
    return Span(span.file, span.line, span.column, span.line, span.column + length)


def _excerpt(span: Span, sources: Mapping[str, str], mark: str, text: str) -> list[str]:
    """Return `file:line:column`, the source line, and a line of marks below the span."""
    head = f"  --> {span.file}:{span.line}:{span.column}"
    lines = sources.get(span.file, "").split("\n")
    if not 1 <= span.line <= len(lines):
        return [f"{head} {text}".rstrip()]
    line = lines[span.line - 1].rstrip("\r")
    last = span.end_column if span.end_line == span.line else len(line) + 1
    width = max(1, min(last, len(line) + 1) - span.column)
    pad = "".join("\t" if c == "\t" else " " for c in line[: span.column - 1]).ljust(span.column - 1)
    number = str(span.line)
    gutter = " " * len(number)
    return [head, f" {number} | {line}", f" {gutter} | {pad}{mark * width} {text}".rstrip()]


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return a hint that names the most similar choices, or nothing; one or two letters resemble too much."""
    if len(name) < 3:
        return ""
    close = difflib.get_close_matches(name, list(choices), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""
