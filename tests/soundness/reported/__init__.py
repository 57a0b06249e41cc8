"""Rules written after bug reports of other optimizers: wrong ones as reported, and right ones beside them.

Input: the folders `wrong/` and `right/`, one file per family. The comment above a rule names the report
(`owner/repository#number`, on GitHub) whose kind of mistake it makes, or avoids; the rules themselves are our own.
Output: `load` returns them with the library that they need.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast

HERE = Path(__file__).parent
SOURCE = re.compile(r"^# ([\w.-]+/[\w.-]+)#(\d+): \S")
TRACKERS = frozenset({
    "apache/tvm", "inisis/OnnxSlim", "jax-ml/jax", "jax-ml/ml_dtypes", "microsoft/onnxruntime", "onnx/onnx",
    "onnx/optimizer", "onnx/tensorflow-onnx", "onnxsim/onnxsim", "openxla/xla", "pytorch/pytorch",
    "tensorflow/tensorflow", "tsingmicro-toolchain/OnnxSlim",
})  # fmt: skip
"""Repositories whose reports are cited. onnxsim runs the passes of onnx/optimizer, TensorFlow and JAX those of XLA."""


@dataclass(frozen=True)
class Reported:
    """One rule of the set. `right` says whether it holds."""

    rule: ast.Rule
    right: bool

    @property
    def name(self) -> str:
        """Family and name."""
        return f"{Path(self.rule.span.file).stem}-{self.rule.name}"


def chosen(name: str, one_in: int) -> bool:
    """Whether a rule belongs to the share that every run tests; other rules do not change that."""
    return zlib.crc32(name.encode()) % one_in == 0


def load() -> tuple[Library, list[Reported]]:
    """Return the standard library with all rules of the set, and these."""
    folders = {folder: (HERE / folder).resolve() for folder in ("wrong", "right")}
    library = load_rules(list(folders.values()))
    found = []
    for rule in library.rules:
        parent = Path(rule.span.file).resolve().parent
        if parent in folders.values():
            found.append(Reported(rule, parent == folders["right"]))
    return library, found


def sources(path: Path) -> dict[str, str]:
    """Return the line above each rule of a file by the rule's name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.split()[1]: lines[at - 1] for at, line in enumerate(lines) if line.startswith("rule ")}
