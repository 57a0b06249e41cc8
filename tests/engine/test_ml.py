"""The operators of ai.onnx.ml mean what `rules/ml.rules` says: against ONNX Runtime, and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator
from rewrite import compile as compile_model
from rewrite import optimize
from rewrite.engine import pipeline
from rewrite.engine.onnx_io.exporter import write
from rewrite.engine.operators.reference_runtime import onnx_runtime
from rewrite.engine.options import Options
from rewrite.engine.rewriting.definition_expansion import expand_definitions
from rewrite.engine.rewriting.rule_library import load_rules, operators_of

pytest.importorskip("onnxruntime")
F32, I64 = TensorProto.FLOAT, TensorProto.INT64

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "scaler": ("Scaler", F32, {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 2.0, 3.0, -1.0]}),
    "scaler_of_one": ("Scaler", F32, {"offset": [1.0], "scale": [0.5]}),
    "scaler_of_integers": ("Scaler", I64, {"offset": [1.0], "scale": [0.5]}),
    "binarizer": ("Binarizer", F32, {"threshold": 0.25}),
    "imputer": ("Imputer", F32, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}),
    "imputer_of_a_number": ("Imputer", F32, {"imputed_value_floats": [9.0], "replaced_value_float": 0.0}),
    "imputer_of_integers": ("Imputer", I64, {"imputed_value_int64s": [7, 8, 9, 10], "replaced_value_int64": 3}),
    "normalizer_max": ("Normalizer", F32, {"norm": "MAX"}),
    "normalizer_l1": ("Normalizer", F32, {"norm": "L1"}),
    "normalizer_l2": ("Normalizer", F32, {"norm": "L2"}),
    "one_hot": ("OneHotEncoder", I64, {"cats_int64s": [2, 0, 5]}),
    "labels": ("LabelEncoder", I64, {"keys_int64s": [0, 1, 3], "values_int64s": [7, 8, -9], "default_int64": 4}),
    "labels_in_floats": (
        "LabelEncoder",
        I64,
        {"keys_int64s": [0, 3], "values_floats": [0.5, 8.0], "default_float": 4.0},
    ),
    "labels_of_floats": ("LabelEncoder", F32, {"keys_floats": [0.0, 2.5], "values_int64s": [7, 8], "default_int64": 4}),
    "floats_of_floats": ("LabelEncoder", F32, {"keys_floats": [0.0, 2.5], "values_floats": [7.0, 8.0]}),
    "regressor": ("LinearRegressor", F32, {"coefficients": [1.0, -2.0, 0.5, 3.0] * 2, "targets": 2}),
    "regressor_of_one": ("LinearRegressor", F32, {"coefficients": [1.0, -2.0, 0.5, 3.0], "intercepts": [0.5]}),
    **{
        f"classifier_{transform.lower()}": (
            "LinearClassifier",
            F32,
            {
                "coefficients": [1.0, -2.0, 0.5, 3.0, 2.0, 0.0, -1.0, 1.0, 0.25, -0.5, 1.0, 1.5],
                "intercepts": [0.5, -0.5, 0.25],
                "classlabels_ints": [4, 2, 9],
                "post_transform": transform,
            },
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX")
    },
}


def model(op: str, dtype: int, attrs: dict[str, Any]) -> onnx.ModelProto:
    outputs = ["label", "y"] if "Classifier" in op else ["y"]
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attrs)
    whole = "values_int64s" in attrs or "imputed_value_int64s" in attrs
    integers = ("label", "y") if whole else ("label",)
    ports = [helper.make_tensor_value_info(name, I64 if name in integers else F32, None) for name in outputs]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", dtype, ["N", 4])], ports)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def rows(dtype: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    if dtype != F32:
        return {"x": rng.integers(0, 6, (9, 4)).astype(helper.tensor_dtype_to_np_dtype(dtype))}
    x = rng.standard_normal((9, 4)).astype(np.float32)
    x[3], x[4, 1], x[5, 2] = 0.0, 0.0, 2.5
    return {"x": x}


@pytest.mark.parametrize("case", CASES)
def test_the_definition_is_what_onnx_runtime_computes(case: str) -> None:
    op, dtype, attrs = CASES[case]
    proto, feeds = model(op, dtype, attrs), rows(dtype)
    if case == "imputer":
        feeds["x"][feeds["x"] > 0.5] = np.nan
    library = load_rules()
    graph = pipeline.read(proto, Options(), library).graph
    assert all(graph.type(name).shape is not None for name in graph.outputs)
    plain = write(expand_definitions(graph, operators_of(library, graph.opset)))
    assert all(node.domain == "" for node in plain.graph.node)
    expected, found = onnx_runtime(proto).run(feeds), onnx_runtime(plain).run(feeds)
    compiled = compile_model(proto).run(feeds)
    for name, value in expected.items():
        for other in (found[name], compiled[name]):
            assert other.dtype == value.dtype
            np.testing.assert_allclose(other, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["binarizer", "imputer", "imputer_of_a_number"])
def test_doubles_by_the_reference(case: str) -> None:
    """ONNX Runtime has these in f32 only."""
    op, _, attrs = CASES[case]
    x = rows(F32)["x"].astype(np.float64)
    x[x > 0.5] = np.nan if case == "imputer" else 0.5
    proto = model(op, TensorProto.DOUBLE, attrs)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    program = compile_model(proto)
    assert not program.fallbacks()
    np.testing.assert_array_equal(program.run({"x": x})["y"], ReferenceEvaluator(proto).run(None, {"x": x})[0])


@pytest.mark.parametrize("shape", [[5], ["N", 5], [2, "N", 5]])
def test_features_are_extracted_of_any_rank(shape: list[Any]) -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", F32, shape), helper.make_tensor_value_info("i", I64, ["M"])],
        [helper.make_tensor_value_info("y", F32, None)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=8)
    x = np.random.default_rng(0).standard_normal([3 if d == "N" else d for d in shape]).astype(np.float32)
    feeds = {"x": x, "i": np.array([4, 0, 2])}
    expected = onnx_runtime(proto).run(feeds)["y"]
    np.testing.assert_array_equal(compile_model(proto).run(feeds)["y"], expected)
    np.testing.assert_array_equal(onnx_runtime(optimize(proto).model).run(feeds)["y"], expected)


def test_probabilities_by_label_are_maps() -> None:
    """ZipMap is the last operator of scikit-learn's classifiers, unless they are converted without it."""
    op, dtype, attrs = CASES["classifier_softmax"]
    proto = model(op, dtype, attrs)
    proto.graph.node.append(
        helper.make_node("ZipMap", ["y"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[4, 2, 9])
    )
    value = helper.make_value_info("maps", helper.make_sequence_type_proto(
        helper.make_map_type_proto(I64, helper.make_tensor_type_proto(F32, None))))  # fmt: skip
    del proto.graph.output[1]
    proto.graph.output.append(value)
    feeds = rows(dtype)
    expected = onnx_runtime(proto).run(feeds)["maps"]
    with pytest.warns(UserWarning, match="ZipMap"):
        found = compile_model(proto).run(feeds)["maps"]
    assert [list(row) for row in found] == [[2, 4, 9]] * 9 == [list(row) for row in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose([*one.values()], [*other.values()], rtol=1e-5)
    assert optimize(proto).verify(proto).ok


def test_rows_that_outputs_state_otherwise_are_those_of_the_input() -> None:
    """LightGBM's converter states one label for any number of rows."""
    op, dtype, attrs = CASES["classifier_none"]
    proto = model(op, dtype, attrs)
    for port, shape in ((proto.graph.input[0], [None, 4]), (proto.graph.output[0], [1])):
        port.CopyFrom(helper.make_tensor_value_info(port.name, port.type.tensor_type.elem_type, shape))
    feeds = rows(dtype)
    expected, found = onnx_runtime(proto).run(feeds), compile_model(proto).run(feeds)
    np.testing.assert_array_equal(found["label"], expected["label"])


def test_a_definition_that_does_not_apply_gives_no_types() -> None:
    """With one row of coefficients for two labels, scores are no product of that shape."""
    attrs = {"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.5], "classlabels_ints": [0, 1]}
    graph = pipeline.read(model("LinearClassifier", F32, attrs), Options(), load_rules()).graph
    assert graph.type("y").shape is None


@pytest.mark.parametrize("kind", ["double", "int64"])
def test_a_scaled_constant_is_f32(kind: str) -> None:
    """ONNX's reference implementation returns the type of the operand, which no kernel expects."""
    head = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> g () => (float[1, 3] y)'
    text = head + f"<{kind}[1, 3] k = {{1, 2, 4}}> {{ y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(k) }}"
    program = compile_model(parser.parse_model(text), threads=1)
    np.testing.assert_array_equal(program.run({})["y"], np.array([[1, 3, 7]], np.float32))


def test_outputs_that_the_standard_requires_are_written() -> None:
    """Nothing reads the scores of this classifier. A rule file declares it, where a second output is optional."""
    classify = """label, scores = ai.onnx.ml.LinearClassifier<classlabels_ints = [0, 1], coefficients = [1.0, 0.5],
        intercepts = [0.25, -1.0]>(x)"""
    text = f"""<ir_version: 8, opset_import: ["": 13, "ai.onnx.ml": 3]> g (float[N, 1] x, bool c) => (int64[M] y) {{
        y = If(c) <then_branch = yes () => (label) {{ {classify} }},
                   else_branch = no () => (none) {{ none = Constant<value_ints = [7]>() }}> }}"""
    proto = parser.parse_model(text)
    feeds = {"x": np.array([[1], [-9], [3]], np.float32), "c": np.array(True)}
    expected = onnx_runtime(proto).run(feeds)["y"]
    written = optimize(proto).model
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(onnx_runtime(written).run(feeds)["y"], expected)
    np.testing.assert_array_equal(compile_model(proto, threads=1).run(feeds)["y"], expected)
