"""What the tests of the backend share: a comparison with eager mode, and counts of what was compiled and run."""

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Record:
    """What happened: programs that were compiled, runs of programs, those without arrays between, and warnings."""

    compiled: int = 0
    runs: int = 0
    direct: int = 0
    warnings: list[str] = field(default_factory=list)


class _Warnings(logging.Handler):
    def __init__(self, record: Record) -> None:
        super().__init__(logging.WARNING)
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        self._record.warnings.append(record.getMessage())


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    from rewrite.backend import compile_model
    from rewrite.torch_backend import settings, subgraph

    from .installed import torch  # not above: that would end the collection instead of skipping modules

    found, compiled = Record(), compile_model.compile_model
    run, direct = subgraph.WeightedProgram.run, subgraph.WeightedProgram.run_directly

    def counting_run(self: Any, args: Any) -> Any:
        found.runs += 1
        return run(self, args)

    def counting_direct(self: Any, args: Any) -> Any:
        outputs = direct(self, args)
        found.runs += outputs is not None
        found.direct += outputs is not None
        return outputs

    def counting_compile(*args: Any, **options: Any) -> Any:
        found.compiled += 1
        return compiled(*args, **options)

    monkeypatch.setattr(subgraph.WeightedProgram, "run", counting_run)
    monkeypatch.setattr(subgraph.WeightedProgram, "run_directly", counting_direct)
    monkeypatch.setattr(compile_model, "compile_model", counting_compile)
    monkeypatch.setattr(settings, "_noted", set())
    handler = _Warnings(found)
    settings.LOG.addHandler(handler)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield found
    settings.LOG.removeHandler(handler)
    torch._dynamo.reset()


Check = Callable[..., Any]


@pytest.fixture
def check(record: Record) -> Check:
    """A function that compiles another one and compares results, and arguments afterwards, with those of eager mode."""
    from .installed import torch

    def run(function: Any, *calls: tuple[Any, ...], tolerance: float = 2e-4, grad: bool = False, **options: Any) -> Any:
        compiled = torch.compile(function, backend="rewrite", **options)
        for args in calls:
            first, second = copy.deepcopy(args), copy.deepcopy(args)
            with contextlib.nullcontext() if grad else torch.no_grad():
                found, wanted = compiled(*first), function(*second)
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)
        return compiled

    return run
