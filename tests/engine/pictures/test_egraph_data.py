"""The forms of a value: its class, costs of the whole with each form, and the reason for the chosen one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rewrite.engine.options import Options
from rewrite.engine.pictures.egraph_data import Explored, egraph_data, explore, summary
from rewrite.errors import UserError


def conv_bn() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {"W": random.random((4, 3, 3, 3), np.float32)} | {n: random.random(4, np.float32) for n in "gbmv"}
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", *"gbmv"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 14, 14])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def found() -> Explored:
    return explore(conv_bn(), Options(), "portable")


def root_of(data: dict[str, Any]) -> dict[str, Any]:
    [root] = [c for c in data["classes"] if c["id"] == data["root"]]
    return root  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["norm", "n"])
def test_all_forms_with_the_chosen_one_first(found: Explored, name: str) -> None:
    data = egraph_data(found, name, 2)
    root = root_of(data)
    chosen, *others = root["forms"]
    assert (chosen["operator"], chosen["rule"], chosen["chosen"], chosen["used"]) == ("Conv", "conv_bn", True, True)
    assert "BatchNormalization" in {form["operator"] for form in others}
    assert not any(form["chosen"] for form in others)
    assert root["type"] == "f32[1, 4, 14, 14]"


def test_the_change_is_that_of_the_whole_graph(found: Explored) -> None:
    """With the original normalization the convolution before it has to run as well."""
    data = egraph_data(found, "norm", 2)
    conv, *others = root_of(data)["forms"]
    [norm] = [form for form in others if form["operator"] == "BatchNormalization"]
    [plain] = [c for c in data["classes"] if c["id"] == norm["children"][0]]
    before = next(form for form in plain["forms"] if form["chosen"])
    assert not plain["used"]
    assert norm["change"] == pytest.approx(norm["own"] + before["own"] - conv["own"], rel=1e-2)  # and its weights
    assert norm["change"] > 0
    assert "its operands add" in norm["reason"]


def test_no_form_of_a_used_value_is_cheaper(found: Explored) -> None:
    data = egraph_data(found, "y", 4)
    changes = [f["change"] for c in data["classes"] if c["used"] for f in c["forms"] if f["change"] is not None]
    assert min(changes) >= -1e-12


def test_the_depth_bounds_the_classes(found: Explored) -> None:
    sizes = [len(egraph_data(found, "y", depth)["classes"]) for depth in range(4)]
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert sizes[3] > sizes[1]
    assert max(c["distance"] for c in egraph_data(found, "y", 3)["classes"]) <= 3


def test_kernels_have_forms_of_their_own() -> None:
    data = egraph_data(explore(conv_bn(), Options(), "native"), "y", 3)
    assert any(f["operator"].startswith("rewrite.") for c in data["classes"] for f in c["forms"])


def test_the_data_is_plain_and_the_same_each_time(found: Explored) -> None:
    text = json.dumps(egraph_data(found, "norm", 3), allow_nan=False)
    assert text == json.dumps(egraph_data(explore(conv_bn(), Options(), "portable"), "norm", 3))
    lines = summary(json.loads(text))
    assert lines[1].startswith("* Conv ")
    assert "conv_bn" in lines[1]


def test_a_value_of_one_form_has_one_form(found: Explored) -> None:
    data = egraph_data(found, "norm", 3)
    root_of(data)["forms"] = root_of(data)["forms"][:1]
    assert summary(data)[0].endswith("], 1 form (portable)")


def test_unknown_names_are_refused_with_near_ones(found: Explored) -> None:
    with pytest.raises(UserError, match="no node or value is called 'nrom'") as error:
        egraph_data(found, "nrom", 1)
    assert "norm" in (error.value.hint or "")
