"""What the language server asks of those above it: operators, tests, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..operator_info import OperatorInfo


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out for one test or check of a rule: the line that it is about, and a message if it failed."""

    line: int
    ok: bool
    message: str


class Services(Protocol):
    """What the engine can tell an editor."""

    def operators(self) -> OperatorInfo:
        """The table of ONNX operators."""

    def operator_doc(self, op: str) -> str | None:
        """What an operator does, with its inputs, attributes and types, as Markdown; None if there is none."""

    def standard_files(self) -> Sequence[Path]:
        """The rule files that every file may take operators and definitions from."""

    def run_tests(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Run the tests of a rule. `texts` holds files that an editor has changed."""

    def check(self, path: Path, texts: Mapping[Path, str], rule: str) -> list[Outcome]:
        """Check the soundness of a rule."""
