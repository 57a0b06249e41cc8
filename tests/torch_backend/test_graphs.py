"""Graphs of all shapes: breaks, mutation, views, types, control flow, and those that have no program."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Check, Record
from .installed import torch

EAGER = "runs in eager mode"


def test_graph_breaks(check: Check, record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        y = x * 2 + 1
        print("break")  # noqa: T201  (the break)
        return (y @ y.T).relu() if y.sum() > 0 else y.sin()

    check(function, (torch.ones(4, 4),), (-torch.ones(4, 4),))
    assert capsys.readouterr().out == "break\n" * 4
    assert record.compiled >= 3
    assert not record.warnings


def test_inputs_are_changed_in_place(check: Check, record: Record) -> None:
    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        y[1:3] = x[0]
        y.add_(1)
        z = x.transpose(0, 1)
        z[0] = 5
        return z, y.view(-1)[::2]

    check(function, (torch.randn(4, 4), torch.randn(4, 4)))
    assert record.runs == 1
    assert not record.warnings


def test_buffers_are_changed_in_place(check: Check, record: Record) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.calls += x
            return self.calls * 2

    model = Counter()
    compiled = torch.compile(model, backend="rewrite")
    with torch.no_grad():
        results = [compiled(torch.ones(3)).tolist() for _ in range(5)]
    assert results == [[2.0 * n] * 3 for n in range(1, 6)]
    assert model.calls.tolist() == [5.0] * 3
    assert record.compiled == 1


def test_views_of_a_result_share_its_memory(check: Check, record: Record) -> None:
    def function(x: Any) -> Any:
        y = x.sin()
        first, second = y.split(2, 0)
        return y, first, second.t(), y[:, None].expand(4, 3, 4)

    compiled = check(function, (torch.randn(4, 4),))
    with torch.no_grad():
        y, first, second, third = compiled(torch.ones(4, 4))
    y.zero_()
    assert not any(view.any() for view in (first, second, third))
    assert record.runs == 2


def test_views_of_an_input_share_its_memory(check: Check) -> None:
    compiled = check(lambda x: (x.t(), x + 1), (torch.randn(4, 4),))
    x = torch.ones(4, 4)
    view, _ = compiled(x)
    view.zero_()
    assert not x.any()


def test_results_do_not_share_memory(check: Check, record: Record) -> None:
    compiled = check(lambda x: (x.clone(), x + 0, x.relu()), (torch.rand(3, 3),))
    x = torch.rand(3, 3)
    first, second, third = compiled(x)
    again = compiled(x)
    first.zero_()
    for value in (x, second, third, *again):
        assert value.all()
    assert record.runs == 3


def test_strides_are_those_of_eager_mode(check: Check, record: Record) -> None:
    function = lambda x: (x.sin().t(), x.cos()[:, ::2], x.exp().expand(3, 4, 4))  # noqa: E731
    x = torch.randn(4, 4)
    compiled = check(function, (x,))
    assert [y.stride() for y in compiled(x)] == [y.stride() for y in function(x)]
    assert not record.warnings


def test_integers_booleans_and_sizes(check: Check, record: Record) -> None:
    def function(x: Any, n: int, flag: bool, mask: Any) -> Any:
        chosen = torch.where(mask, x // 3 + n, x % 5)
        return chosen, x.cumsum(0) if flag else x, x.float().mean(), x > 2, (x * n).to(torch.int8), x.shape[0] + n

    mask = torch.tensor([True, False, True, False])
    x = torch.arange(12).view(3, 4)
    check(function, (x, 3, True, mask), (x - 6, -4, False, mask), (x - 6, 7, False, mask))
    assert record.runs == 3
    assert not record.warnings


def test_nested_and_absent_outputs(check: Check, record: Record) -> None:
    def function(d: dict[str, Any]) -> Any:
        return {"a": [d["x"] + 1, {"b": (d["y"] * 2, None)}], "c": d["x"], "n": d["x"].shape[0], "same": d["y"]}

    check(function, ({"x": torch.randn(3), "y": torch.arange(3)},))
    assert record.runs == 1


def test_constants_in_a_graph(check: Check, record: Record) -> None:
    check(lambda x: (x + torch.tensor([1, 2, 3]), torch.arange(5) * 2), (torch.randn(3),))
    assert record.runs == 1
    assert not record.warnings


@pytest.mark.parametrize("size", [0, 1, 3])
def test_sizes_zero_and_one(check: Check, size: int) -> None:
    check(lambda x: (x.sum(0), x + 1), (torch.randn(2, 4),), (torch.randn(size, 4),))


def test_sizes_computed_from_sizes(check: Check, record: Record) -> None:
    def function(x: Any) -> Any:
        return x.reshape(x.shape[0] * 2, -1).softmax(-1), x.shape[1] * 3, torch.ones(x.shape[0] + 1)

    check(function, (torch.randn(4, 6),), (torch.randn(6, 8),), dynamic=True)
    assert (record.compiled, record.runs) == (1, 2)


def test_cond(check: Check, record: Record) -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    check(function, (torch.ones(3),), (-torch.ones(3),))
    assert record.runs == 2
    assert not record.warnings


def test_autocast(check: Check, record: Record) -> None:
    def function(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    check(function, (torch.randn(8, 8), torch.randn(8, 8)), tolerance=5e-2)
    assert record.runs == 1


def _unknown(x: Any) -> Any:
    return torch.linalg.eigvalsh(x @ x.T) + torch.special.bessel_j0(x).sum()


def _random(x: Any) -> Any:
    return x + torch.rand_like(x) * 0


def _complex(x: Any) -> Any:
    return torch.fft.rfft(x).abs()


@pytest.mark.parametrize(
    ("function", "names"),
    [(_unknown, ["aten._linalg_eigh", "bessel_j0"]), (_random, ["rand_like"]), (_complex, ["complex", "_fft_r2c"])],
)
def test_what_has_no_program_runs_in_eager_mode(
    check: Check, record: Record, function: Callable[[Any], Any], names: list[str]
) -> None:
    x = torch.randn(4, 4)
    check(function, (x,), (x,), tolerance=1e-3)
    torch._dynamo.reset()
    check(function, (x,), tolerance=1e-3)
    (warning,) = record.warnings
    assert EAGER in warning
    assert all(name in warning for name in names)
    assert record.runs == 0


def test_a_wrong_program_is_not_used(check: Check, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite.torch_backend import subgraph

    monkeypatch.setattr(subgraph, "as_tensor", lambda array: torch.from_numpy(array + 1))
    check(lambda x: x.sin(), (torch.randn(3),), (torch.randn(3),))
    (warning,) = record.warnings
    assert "output 0 differs from eager mode" in warning
    assert record.runs == 1


def test_inference_mode(record: Record) -> None:
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="rewrite")
    x = torch.randn(2, 4)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), model(x))
    assert record.runs == 1
