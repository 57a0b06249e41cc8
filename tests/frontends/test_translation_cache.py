"""The cache of translations: what is translated once, and what must not be mistaken for it."""

from pathlib import Path
from typing import Any

import pytest
from rewrite.engine.ir.detached_model import DetachedModel
from rewrite.frontends import torch_models, translation_cache

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make nightly` runs these tests")
pytest.importorskip("onnxscript", reason="the exporter of PyTorch needs onnxscript")


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path))


def _traced(function: Any, *args: Any, mode: str = "fake") -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode=mode)(*args).graph


def _translated(graph: Any) -> int:
    """Return the number of translations that two requests for the model of a graph take."""
    import onnx

    made = []

    def translate() -> DetachedModel:
        made.append(onnx.ModelProto(producer_name="test"))
        return DetachedModel(made[-1], {})

    for _ in range(2):
        assert translation_cache.translated(graph, translate).model.producer_name == "test"
    return len(made)


def test_a_graph_is_translated_once() -> None:
    x = torch.ones(2, 3)
    assert _translated(_traced(lambda x: x + 1, x)) == 1
    assert _translated(_traced(lambda x: x + 1, x)) == 0


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x + 2, torch.ones(2, 3)),
        (lambda x: x + 1.0, torch.ones(2, 3)),
        (lambda x: x - 1, torch.ones(2, 3)),
        (lambda x: x + 1, torch.ones(2, 4)),
        (lambda x: x + 1, torch.ones(2, 3, dtype=torch.float64)),
        (lambda x: x + 1, torch.ones(3, 2).T),
    ],
    ids=["number", "type of a number", "operator", "shape", "dtype", "strides"],
)
def test_other_graphs_are_translated(function: Any, x: Any) -> None:
    assert _translated(_traced(lambda x: x + 1, torch.ones(2, 3))) == 1
    assert _translated(_traced(function, x)) == 1


def test_free_sizes_are_part_of_the_content() -> None:
    assert _translated(_traced(lambda x: x + 1, torch.ones(2, 3))) == 1
    assert _translated(_traced(lambda x: x + 1, torch.ones(2, 3), mode="symbolic")) == 1


def test_graphs_that_refer_to_objects_are_always_translated() -> None:
    graph = _traced(lambda x: x + 1, torch.ones(2, 3))
    (call,) = (node for node in graph.nodes if node.op == "call_function")
    call.args = (call.args[0], object())
    assert _translated(graph) == 2


def test_models_with_tensors_beside_them_are_not_cached() -> None:
    import numpy as np
    import onnx

    graph = _traced(lambda x: x + 1, torch.ones(2, 3))
    for _ in range(2):
        found = translation_cache.translated(graph, lambda: DetachedModel(onnx.ModelProto(), {"w": np.ones(3)}))
        assert list(found.tensors) == ["w"]


def test_a_second_translator_makes_no_table_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    first = torch_models.Translator()
    assert "aten::add.Tensor" in first.operators
    monkeypatch.setattr(torch_models.Translator, "_registered", lambda _: pytest.fail("the table was made again"))
    second = torch_models.Translator()
    assert second.operators == first.operators
    assert set(second.decompositions) == set(first.decompositions)
    assert torch.ops.aten.add.Tensor not in second.decompositions
