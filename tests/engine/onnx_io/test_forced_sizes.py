"""Free sizes with one value in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from rewrite.engine.onnx_io import importer
from rewrite.engine.onnx_io.forced_sizes import forced_sizes
from rewrite.errors import UserError

from ..models import BOOL, FLOAT, model, run

WEIGHTS = {"W": np.ones((8, 3), np.float32), "dims": np.array([1, 4, -1])}


def folded(*more: Any, output: str = "y", weights: dict[str, np.ndarray] | None = None) -> Any:
    """A model that reshapes its batch into the inner dim of a product."""
    nodes = [
        helper.make_node("Reshape", ["x", "dims"], ["h"]),
        helper.make_node("MatMul", ["h", "W"], ["y"], name="product"),
        *more,
    ]
    return model(nodes, [("x", FLOAT, ("batch", 8, 4))], [(output, FLOAT, None)], WEIGHTS | (weights or {}))


def shape(proto: Any, **options: Any) -> str:
    return str(importer.read(proto, **options).type("x"))


def test_a_batch_in_the_inner_dim_of_a_product_is_one() -> None:
    assert shape(folded()) == "f32[1, 8, 4]"
    assert shape(folded(weights={"W": np.ones((24, 3), np.float32)})) == "f32[3, 8, 4]"
    assert run(folded(), {"x": np.ones((1, 8, 4), np.float32)})[0].shape == (1, 4, 3)
    with pytest.raises(Exception, match="MatMul"):
        run(folded(), {"x": np.ones((2, 8, 4), np.float32)})


def test_a_size_that_was_given_and_does_not_fit_is_an_error() -> None:
    with pytest.raises(UserError, match="operands do not fit"):
        shape(folded(), shapes={"batch": 2})


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_the_weights_of_a_recurrent_cell_say_how_many_features_a_step_has(op: str, gates: int) -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["steps"]),
        helper.make_node(op, ["steps", "W", "R"], ["y"], hidden_size=5),
    ]
    weights = {
        "one": np.array([1]), "W": np.ones((1, gates * 5, 7), np.float32), "R": np.ones((1, gates * 5, 5), np.float32),
    }  # fmt: skip
    proto = model(nodes, [("x", FLOAT, ("steps", "features"))], [("y", FLOAT, None)], weights)
    assert shape(proto) == "f32[steps, 7]"


@pytest.mark.parametrize("op", ["Gemm", "Conv"])
def test_other_operators_with_equal_dims(op: str) -> None:
    if op == "Gemm":
        nodes = [
            helper.make_node("Reshape", ["x", "dims"], ["h"]),
            helper.make_node("Gemm", ["h", "W"], ["y"], transB=1),
        ]
        weights = {"W": np.ones((3, 8), np.float32), "dims": np.array([4, -1])}
    else:
        nodes = [
            helper.make_node("Reshape", ["x", "dims"], ["h"]),
            helper.make_node("Conv", ["h", "W"], ["y"], group=2, kernel_shape=[1, 1]),
        ]
        weights = {"W": np.ones((2, 4, 1, 1), np.float32), "dims": np.array([1, -1, 2, 2])}
    proto = model(nodes, [("x", FLOAT, ("batch", 8, 4))], [("y", FLOAT, None)], weights)
    assert shape(proto) == "f32[1, 8, 4]"


def test_sizes_that_are_not_determined_stay_free() -> None:
    free = "f32[batch, 8, 4]"
    assert shape(folded(helper.make_node("Relu", ["x"], ["z"]), output="z")) == free  # no output needs the product
    assert shape(folded(weights={"W": np.ones((12, 3), np.float32)})) == free  # no size fits
    taken = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "dims"], ["h"]),
            helper.make_node("MatMul", ["h", "W"], ["t"]),
        ], "taken", [], [helper.make_tensor_value_info("t", FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["o"])], "other", [], [helper.make_tensor_value_info("o", FLOAT, None)]
    )
    branches = [helper.make_node("If", ["c"], ["y"], then_branch=taken, else_branch=other)]
    ports = [("x", FLOAT, ("batch", 8, 4)), ("c", BOOL, ())]
    assert shape(model(branches, ports, [("y", FLOAT, None)], WEIGHTS)) == free  # perhaps the branch is never taken


def test_a_sum_of_two_sizes_is_not_determined() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "z"], ["h"], axis=1),
        helper.make_node("MatMul", ["h", "W"], ["y"]),
    ]
    ports = [("x", FLOAT, (2, "A")), ("z", FLOAT, (2, "B"))]
    graph = importer.read(model(nodes, ports, [("y", FLOAT, None)], {"W": np.ones((8, 3), np.float32)}))
    assert not forced_sizes(graph)
    assert str(graph.type("x")) == "f32[2, A]"


def test_a_size_without_a_name_is_found_by_its_place() -> None:
    nodes = [helper.make_node("MatMul", ["x", "W"], ["y"])]
    proto = model(nodes, [("x", FLOAT, (None, None))], [("y", FLOAT, None)], {"W": np.ones((8, 3), np.float32)})
    graph = importer.read(proto)
    assert graph.type("x").shape is not None
    assert graph.type("x").shape[1] == 8
