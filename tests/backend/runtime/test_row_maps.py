"""Maps at the end of a classifier: their labels, and runs that make them after one call of the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.backend.runtime.program import Program
from rewrite.errors import RewriteError

pytestmark = pytest.mark.filterwarnings("ignore::rewrite.backend.runtime.fallback.FallbackWarning")
LABELS: dict[str, Any] = {"classlabels_strings": ["b", "c", "a"]}


def compiled(labels: dict[str, Any], *, columns: int = 3, shown: bool = False) -> Program:
    """Return a program that doubles its input and ends in maps; `shown` adds the doubled numbers as an output."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("ZipMap", ["y"], ["maps"], domain="ai.onnx.ml", **labels),
    ]
    kind = TensorProto.STRING if "classlabels_strings" in labels else TensorProto.INT64
    row = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = [helper.make_value_info("maps", helper.make_sequence_type_proto(row))]
    if shown:
        outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", columns])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph(nodes, "maps", [x], outputs)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return rewrite.compile(model, threads=1)


def test_labels_are_in_ascending_order() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    program = compiled(LABELS)
    for rows in (x, x[:1], x[:0], x):  # of sizes that ran before, and of new ones
        found = program.run({"x": rows})["maps"]
        assert found == [{"a": 2 * c, "b": 2 * a, "c": 2 * b} for a, b, c in rows.tolist()]
        assert all(list(row) == ["a", "b", "c"] for row in found)
    assert program.fallbacks() == {"ai.onnx.ml.ZipMap": 1}


@pytest.mark.parametrize("shown", [False, True])
def test_maps_beside_their_numbers(shown: bool) -> None:
    program, x = compiled({"classlabels_int64s": [7, -1]}, columns=2, shown=shown), np.eye(2, dtype=np.float32)
    assert program.run({"x": x})["maps"] == [{-1: 0.0, 7: 2.0}, {-1: 2.0, 7: 0.0}]
    assert list(program.run({"x": x}, ["maps"])) == ["maps"]
    assert program.call([x])[0] == program.run({"x": x})["maps"]


def test_rows_of_another_length() -> None:
    with pytest.raises(RewriteError, match="other lengths than the list of labels"):
        compiled(LABELS, columns=2).run({"x": np.ones((1, 2), np.float32)})
