"""The model zoo and its report, without the packages that only `make bench` needs."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from rewrite.benchmarks import graphs, light, report
from rewrite.benchmarks.inputs import make_inputs


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zoo") / "squeezenet.onnx"
    light.make("light_squeezenet", path)
    return path


def test_a_light_model_computes_something(squeezenet: Path) -> None:
    model = onnx.load(squeezenet)
    assert not [n for n in model.graph.node if n.op_type == "ConstantOfShape"]
    session = onnxruntime.InferenceSession(str(squeezenet))
    (one,), (two,) = (session.run(None, make_inputs(model, seed=seed)) for seed in (0, 1))
    assert np.isclose(one.sum(), 1, atol=1e-4)
    assert 0.002 < one.max() < 0.9
    assert np.abs(one - two).max() > 1e-3


def test_a_light_model_is_made_the_same_each_time(squeezenet: Path, tmp_path: Path) -> None:
    light.make("light_squeezenet", tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == squeezenet.read_bytes()


def test_inputs_follow_names_and_sizes() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (int64[batch, seq] input_ids, int64[batch, seq] attention_mask, float[batch, K] x) => (float[batch, K] y)"
        "{ y = Relu(x) }"
    )
    arrays = make_inputs(model, {"batch": 3, "x.1": 7})
    assert {name: array.shape for name, array in arrays.items()} == {
        "input_ids": (3, 32), "attention_mask": (3, 32), "x": (3, 7),
    }  # fmt: skip
    assert set(np.unique(arrays["attention_mask"])) == {0, 1}
    assert arrays["input_ids"].min() >= 0
    assert all(
        np.array_equal(a, b)
        for a, b in zip(arrays.values(), make_inputs(model, {"batch": 3, "x.1": 7}).values(), strict=True)
    )


def test_nodes_of_bodies_count_and_constants_do_not() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (bool c, float[2] x) => (float[2] y) {"
        " k = Constant <value: tensor = float[1] {2}> ()"
        " y = If (c) <then_branch: graph = t () => (float[2] a) { a = Mul(x, k) },"
        "             else_branch: graph = e () => (float[2] b) { m = Neg(x) b = Add(m, k) }> }"
    )
    assert graphs.count(model.graph) == 4


def test_verdicts() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {{ y = {} }}'
    feeds = {"x": np.array([1, -2], np.float32)}
    expected = graphs.run(onnx.parser.parse_model(text.format("Relu(x)")), feeds)
    assert graphs.verdict(onnx.parser.parse_model(text.format("Relu(x)")), feeds, expected) == "same"
    assert graphs.verdict(onnx.parser.parse_model(text.format("Abs(x)")), feeds, expected) == "wrong"
    assert graphs.verdict(onnx.parser.parse_model(text.format("Missing(x)")), feeds, expected) == "does not run"


def test_the_report_has_ratios_and_failures() -> None:
    records = {
        "a": {"latency": {"optimize": 1.0, "compile": 2.0, "difference": 1e-6, "fallbacks": {"Loop": 2},
                          "threads": {"1": {"rewrite": 0.010, "onnxruntime": 0.020, "openvino": 0.005}}}},
        "b": {"latency": {"optimize": 1.0, "threads": {"1": {"rewrite": 0.010, "onnxruntime": 0.080}}},
              "graphs": {"before": 9, "optimizers": {"rewrite": {"nodes": 4, "seconds": 1.0, "verdict": "same"},
                                                     "onnxsim": {"nodes": 3, "seconds": 2.0, "verdict": "wrong"}}}},
        "c": {"latency": {"error": "a | b"}},
    }  # fmt: skip
    text = report.render(records)
    assert "| a | 10.000 | 20.000 | 5.000 | 2.00 | 0.50 |" in text
    assert "| b | 10.000 | 80.000 | cannot run it | 8.00 |  |" in text
    assert "**4.00** | **0.50**" in text
    assert "failed: a / b" in text
    assert "| b | 9 | 4 | failed | 3 (wrong) |" in text


def test_the_report_shows_every_pass_and_their_middle() -> None:
    times = [{"rewrite": 1.0, "onnxruntime": t, "openvino": 1.0} for t in (2.0, 9.0, 3.0)]
    records = {
        "a": {
            "latency": {"threads": {"1": times[0]}},
            "passes": [{"1": times[0], "2": times[0]}, *({"2": t} for t in times[1:])],
        }
    }
    text = report.render(records)
    assert "| a | 1000.000 | 2000.000 | 1000.000 | 2.00 | 1.00 |\n" in text
    assert "| a | 1000.000 | 3000.000 | 1000.000 | 3.00 | 1.00 | 2.00 1.00; 9.00 1.00; 3.00 1.00 |" in text


def test_the_report_shows_memory_errors_and_layers() -> None:
    records = {
        "a": {
            "latency": {"arena": 110, "arena_bound": 100},
            "memory": {"nothing": 30 << 20, "rewrite": 50 << 20, "onnxruntime": 100 << 20},
            "exact": {"rewrite": 1.5e-6, "onnxruntime": 2e-6},
        },
        "b": {"memory": {"error": "no"}, "exact": {"error": "slow"}},
        "c": {"memory": {"nothing": 30 << 20, "rewrite": 90 << 20, "onnxruntime": 60 << 20, "fallbacks": 3}},
    }
    layer = {
        "layer": "gemm", "threads": 1, "rewrite": 2e-6, "onnxruntime": 4e-6, "difference": 1e-7, "least_compute": 1e-6,
        "least_memory": 5e-7, "level": "L2",
    }  # fmt: skip
    layers = {"machine": {"flops": 1e11, "bandwidths": [4e11, 2e11, 1e11, 5e10]}, "layers": [layer]}
    text = report.render(records, layers)
    assert "| a | 50 | 100 | 2.00 | 10.0 % |" in text
    assert "| b | failed: no |" in text
    assert "Not below ONNX Runtime: c, of which the reference implementation runs 3 nodes.\n" in text
    assert "| a | 1.5e-06 | 2.0e-06 |" in text
    assert "| b | not computed: slow |" in text
    assert "| gemm | 2.0 | 50 % compute | 2.00 |  | 1e-07 |" in text
