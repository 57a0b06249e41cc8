"""A table of the ONNX standard's operators, as the engine gives it to the checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite.engine.operators import Signature as Schema
from rewrite.engine.operators import signature
from rewrite.grammar.ast import RuleFile
from rewrite.grammar.parse import parse_file

collect_ignore_glob = ["*.rules"]  # the sample is there to be parsed; its tests mean nothing


@dataclass(frozen=True)
class Signature:
    inputs: tuple[tuple[str, bool, bool], ...]
    attributes: Mapping[str, Any]
    min_inputs: int
    max_inputs: int


class Schemas:
    """The newest schemas of the `onnx` package."""

    def __init__(self) -> None:
        self._all = {f"{s.domain}.{s.name}".lstrip("."): s for s in onnx.defs.get_all_schemas()}

    def signature(self, op: str) -> Signature | None:
        schema = self._all.get(op)
        if schema is None:
            return None
        inputs = tuple((i.name, i.option.name == "Optional", i.option.name == "Variadic") for i in schema.inputs)
        return Signature(inputs, schema.attributes, schema.min_input, schema.max_input)

    def schema(self, op: str) -> Schema | None:
        return signature(op)

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        return f"exists from {s.since_version} on" if (s := self._all[op]).since_version > low else ""

    def newest(self, domain: str) -> int | None:
        return 24 if domain == "" else None

    def is_tensor(self, op: str, attribute: str) -> bool:
        schema = self._all.get(op)
        found = schema.attributes.get(attribute) if schema is not None else None
        return found is not None and found.type == onnx.defs.OpSchema.AttrType.TENSOR

    def version(self) -> str:
        return str(onnx.__version__)

    def names(self) -> Iterable[str]:
        return self._all


@pytest.fixture(scope="session")
def operators() -> Schemas:
    return Schemas()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of the tests."""
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


SAMPLE = Path(__file__).with_name("sample.rules")


@pytest.fixture
def sample() -> RuleFile:
    """A file with one of everything."""
    return parse_file(SAMPLE)
