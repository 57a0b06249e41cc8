"""What is wrong with a rule file, said to a person: code, message, the source line with a caret, and a hint.

Stages collect diagnostics and go on, so that one run shows every error of a file. `RuleErrors` carries them out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import UserError
from .ast import Span


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that matters for a diagnostic, with what it has to do with it."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change to the text that would mend it: `replacement` in the place of `span`."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in a rule file. `code` is a stable word such as `unbound-variable`.

    `severity` is `error`, or `warning` for what stops nobody. `fix` is what an editor can do about it at once; where
    the hint has one guess at a misspelt word that is the whole of `span`, it is that guess."""

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
            meant = next((w for w in words if _is_whole(w, self.span)), None)
            if meant is not None:
                object.__setattr__(self, "fix", guessed(self.hint, meant, self.span))

    def render(self, sources: Mapping[str, str]) -> str:
        """The finding as text. `sources` maps file names to their contents; a file not in it is shown without lines."""
        out = [f"{self.severity}[{self.code}]: {self.message}", *_excerpt(self.span, sources, "^", "")]
        for label in self.labels:
            out += _excerpt(label.span, sources, "-", label.text)
        if self.hint:
            out.append(f"  = {self.hint}")
        return "\n".join(out)


class RuleErrors(UserError):
    """All the errors found in one or several rule files, as `diagnostics` in source order; `str()` shows them."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        self.diagnostics = sorted(diagnostics, key=_place)
        self.sources = dict(sources)
        super().__init__(report(self.diagnostics, self.sources))


def report(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> str:
    """All findings as text, in source order, with their number at the end."""
    found = sorted(diagnostics, key=_place)
    rendered = [diagnostic.render(sources) for diagnostic in found]
    counts = [(word, sum(d.severity == word for d in found)) for word in ("error", "warning")]
    said = ", ".join(f"{count} {word}{'s' * (count != 1)}" for word, count in counts if count)
    return "\n\n".join([*rendered, said or "no errors"])


def guessed(hint: str, word: str, span: Span) -> Fix | None:
    """The change of a word at the start of a span into the guess of a hint, if it has one only."""
    guess = re.fullmatch(r"did you mean (?:the operator )?`([^`]+)`\?", hint)
    if guess is None:
        return None
    end = span.column + len(word)
    at = Span(span.file, span.line, span.column, span.line, end)
    return Fix(at, (".." if word.startswith("..") else "") + guess[1])


def _is_whole(word: str, span: Span) -> bool:
    return span.line == span.end_line and span.end_column - span.column == len(word)


def _place(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    span = diagnostic.span
    return span.file, span.line, span.column, diagnostic.code, diagnostic.message


def _excerpt(span: Span, sources: Mapping[str, str], mark: str, text: str) -> list[str]:
    """`file:line:column`, the line, and a line of marks below the part that is meant."""
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
    """A hint that names the likeliest of the choices, or nothing; a name of one or two letters is like too many."""
    if len(name) < 3:
        return ""
    close = difflib.get_close_matches(name, list(choices), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""
