"""Operator table of the installed `onnx` package, and a sample rule file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
import pytest
from rewrite.engine.operators.schemas import Signature, signature
from rewrite.grammar.syntax.ast import RuleFile
from rewrite.grammar.syntax.parse import parse_file

collect_ignore_glob = ["*.rules"]  # the sample is there to be parsed; its tests mean nothing


class Schemas:
    """The newest schemas of the `onnx` package."""

    def __init__(self) -> None:
        self._all = {f"{s.domain}.{s.name}".lstrip("."): s for s in onnx.defs.get_all_schemas()}

    def schema(self, op: str) -> Signature | None:
        return signature(op)

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        return f"exists from {s.since_version} on" if (s := self._all[op]).since_version > low else ""

    def newest(self, domain: str) -> int | None:
        return 24 if domain == "" else None

    def release(self) -> str:
        return "1"

    def version(self) -> str:
        return str(onnx.__version__)

    def names(self) -> Iterable[str]:
        return self._all


@pytest.fixture(scope="session")
def operators() -> Schemas:
    return Schemas()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate the tests from the user's cache."""
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


SAMPLE = Path(__file__).with_name("sample.rules")


@pytest.fixture
def sample() -> RuleFile:
    """A file with one of everything."""
    return parse_file(SAMPLE)
