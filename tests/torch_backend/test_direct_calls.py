"""Calls that go from tensors to the executor without arrays in between: when they do, and when they must not."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .conftest import Record
from .installed import torch

nn = torch.nn


def _layers() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


@torch.no_grad()
def test_calls_after_the_first_are_direct(record: Record) -> None:
    model = _layers()
    compiled = torch.compile(model, backend="rewrite")
    first = compiled(x := torch.randn(2, 8))
    kept = first.clone()
    for _ in range(4):
        x = torch.randn(2, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert (record.runs, record.direct, record.warnings) == (5, 4, [])
    assert torch.equal(first, kept)  # each output has memory of its own


@torch.no_grad()
@pytest.mark.parametrize("change", ["in place", "data", "another parameter"])
def test_a_direct_call_notices_a_changed_weight(record: Record, change: str) -> None:
    model = _layers()
    compiled = torch.compile(model, backend="rewrite")
    x = torch.randn(2, 8)
    compiled(x), compiled(x)
    if change == "in place":
        model[0].weight.mul_(2)
    elif change == "data":
        model[0].weight.data = torch.randn(8, 8)
    else:
        model[0].weight = nn.Parameter(torch.randn(8, 8))
    torch.testing.assert_close(compiled(x), model(x))
    assert record.direct == 1


@torch.no_grad()
def test_sizes_orders_and_gaps_in_memory(record: Record) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    compiled = torch.compile(model, backend="rewrite", dynamic=True)
    wide = torch.randn(2, 3, 8, 16)
    inputs = [
        torch.randn(2, 3, 8, 8),
        torch.randn(5, 3, 8, 8),
        wide[..., ::2],
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        wide[..., 1:9],  # not aligned to 16 bytes
    ]
    for _ in range(3):
        for x in inputs:
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert not record.warnings
    assert record.direct


@torch.no_grad()
def test_an_input_that_is_not_aligned_is_copied(record: Record) -> None:
    model = _layers()
    compiled = torch.compile(model, backend="rewrite")
    memory = torch.randn(17)
    for start in (0, 1, 0, 1):
        x = memory[start : start + 16].view(2, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert not record.warnings


def test_two_threads_call_directly(record: Record) -> None:
    model = _layers()
    compiled = torch.compile(model, backend="rewrite")
    inputs = [torch.randn(2, 8) for _ in range(64)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        compiled(inputs[0])

    def run(x: Any) -> Any:
        with torch.no_grad():
            return compiled(x)

    with ThreadPoolExecutor(2) as pool:
        for found, expected in zip(pool.map(run, inputs), wanted, strict=True):
            torch.testing.assert_close(found, expected)
    assert record.direct
