"""Whole networks: the numbers of eager mode, from programs, in all float types."""

import threading
from typing import Any

import pytest

from .conftest import Check, Record
from .installed import torch
from .models import Bert, Llama, ResNet

TOKENS = (2, 9)


def test_resnet_compiles_once_for_all_batches(check: Check, record: Record) -> None:
    batches = [(torch.randn(n, 3, 32, 32),) for n in (2, 3, 5, 8)]
    check(ResNet().eval(), *batches, dynamic=True)
    assert (record.compiled, record.runs, record.warnings) == (1, 4, [])


def test_a_second_batch_size_makes_a_program_for_any(check: Check, record: Record) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    check(model, *((torch.randn(n, 8),) for n in (2, 3, 4, 9)))
    assert (record.compiled, record.runs) == (2, 4)


def test_channels_last_stays_channels_last(check: Check, record: Record) -> None:
    last = torch.channels_last
    model, x = torch.nn.Conv2d(3, 8, 3).eval(), torch.randn(2, 3, 9, 9).to(memory_format=last)
    compiled = check(model, (x,))
    with torch.no_grad():
        assert compiled(x).is_contiguous(memory_format=last)
    assert record.runs
    assert not record.warnings


def test_bert(check: Check, record: Record) -> None:
    mask = torch.ones(TOKENS, dtype=torch.int64)
    mask[0, 5:] = 0
    check(
        Bert().eval(), (torch.randint(50, TOKENS), mask), (torch.randint(50, (3, 12)), torch.ones(3, 12)), dynamic=True
    )
    assert record.runs == 2
    assert not record.warnings


def test_llama(check: Check, record: Record) -> None:
    check(Llama().eval(), *((torch.randint(50, shape),) for shape in (TOKENS, (3, 12))), dynamic=True)
    assert record.runs == 2
    assert not record.warnings


@pytest.mark.parametrize(("name", "tolerance"), [("float16", 2e-2), ("bfloat16", 6e-2), ("float64", 1e-6)])
@pytest.mark.parametrize("model", [ResNet, Llama])
def test_float_types(check: Check, record: Record, model: Any, name: str, tolerance: float) -> None:
    dtype = getattr(torch, name)
    x = torch.randn(2, 3, 32, 32).to(dtype) if model is ResNet else torch.randint(50, TOKENS)
    check(model().eval().to(dtype), (x,), tolerance=tolerance)
    assert record.runs == 1
    assert not record.warnings


def test_options_reach_the_compiler(check: Check, record: Record) -> None:
    options = {"threads": 1, "precision": "bf16", "numerics": "fast"}
    check(torch.nn.Linear(64, 64), (torch.randn(8, 64),), tolerance=5e-2, options=options)
    assert record.runs == 1


def test_two_models_in_threads(record: Record) -> None:
    models = [ResNet().eval(), torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()).eval()]
    inputs = [torch.randn(2, 3, 32, 32), torch.randn(4, 16)]
    with torch.no_grad():
        wanted = [model(x) for model, x in zip(models, inputs, strict=True)]
    found: list[list[Any]] = [[], []]

    def work(number: int) -> None:
        compiled = torch.compile(models[number], backend="rewrite")
        with torch.no_grad():
            found[number] += [compiled(inputs[number]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, result in zip(found, wanted, strict=True):
        assert len(results) == 20
        for y in results:
            torch.testing.assert_close(y, result, rtol=2e-4, atol=2e-4)
    assert record.runs == 40
