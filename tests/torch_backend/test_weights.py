"""Parameters and buffers: weights of the program, as they are at each call; and gradients."""

from typing import Any

import pytest

from .conftest import Check, Record
from .installed import torch

nn = torch.nn


@torch.no_grad()
def _agree(compiled: Any, model: Any, x: Any) -> None:
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-4, atol=2e-4)


def test_changed_weights_are_noticed(record: Record) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    compiled = torch.compile(model, backend="rewrite")
    x = torch.randn(2, 8)
    _agree(compiled, model, x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    _agree(compiled, model, x)
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})
    _agree(compiled, model, x)
    model[0].bias.data = torch.ones(8)
    _agree(compiled, model, x)
    model[0].weight = nn.Parameter(torch.randn(8, 8))
    _agree(compiled, model, x)
    assert not record.warnings


def test_weights_that_keep_changing_become_inputs(record: Record) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    compiled = torch.compile(model, backend="rewrite")
    x = torch.randn(2, 8)
    for _ in range(12):
        with torch.no_grad():
            model[0].weight.add_(0.1)
        _agree(compiled, model, x)
    assert record.compiled <= 5
    assert record.runs == 12


def test_layers_of_one_class_share_a_graph_but_not_weights(record: Record) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.linear(x).relu()

    layers = nn.Sequential(*(Layer() for _ in range(3))).eval()
    x = torch.randn(2, 8)
    with torch.no_grad():
        wanted = layers(x)
    for layer in layers:
        layer.compile(backend="rewrite")
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(layers(x), wanted, rtol=2e-4, atol=2e-4)
    assert record.runs == 6
    assert record.compiled == 3


def test_batch_norm_in_training_mode_changes_its_buffers(check: Check) -> None:
    model = nn.BatchNorm1d(4).train()
    compiled = torch.compile(model, backend="rewrite")
    twin = nn.BatchNorm1d(4).train()
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(6, 4)
            torch.testing.assert_close(compiled(x), twin(x), rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=2e-4, atol=2e-4)


def test_gradients_come_from_eager_mode(record: Record) -> None:
    model = nn.Linear(4, 4)
    compiled = torch.compile(model, backend="rewrite")
    x = torch.randn(2, 4)
    compiled(x).sum().backward()
    found = model.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(found, model.weight.grad)
    (warning,) = record.warnings
    assert "torch.no_grad()" in warning
    assert record.runs == 0
    _agree(compiled, model, x)
    assert record.runs == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"thread": 1}}, "Did you mean 'threads'"),
        ({"options": {"threads": 0}}, "a positive number"),
        ({"options": {"precision": "f8"}}, "unknown precision"),
        ({"mode": "max-autotune"}, "no mode 'max-autotune'"),
    ],
)
def test_wrong_options_are_errors(record: Record, arguments: dict[str, Any], message: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="rewrite", **arguments)
    with pytest.raises(Exception, match=message):
        compiled(torch.ones(2))
