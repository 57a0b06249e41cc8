"""Operators without a kernel: in ONNX Runtime where it has them, else in the reference implementation."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import rewrite
from onnx import parser
from onnx.reference import ReferenceEvaluator
from rewrite.backend.runtime import fallback
from rewrite.backend.runtime.fallback import FallbackWarning, Runner
from rewrite.backend.runtime.program import Program
from rewrite.engine.ir.graph import Constant, DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol
from rewrite.errors import RewriteError, UserError
from rewrite.system import installed_onnxruntime

PAIRS = """<ir_version: 8, opset_import: ["": 17]> g (int64[N] x) => (float[2] y) {
    y = TfIdfVectorizer<mode = "TF", min_gram_length = 2, max_gram_length = 2, max_skip_count = 0,
                        ngram_counts = [0, 0], ngram_indexes = [0, 1], pool_int64s = [1, 2, 2, 3]>(x) }"""
"""How often 1 is followed by 2, and 2 by 3."""
ABOVE = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> g (int64[N, 4] x) => (int64[N, 4] y) {
    y = ai.onnx.ml.Binarizer<threshold = 0.25>(x) }"""
DISTANCE = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[N, 4] x) => (float[N, M] y)
{ y = com.microsoft.CDist(x, x) }"""
X = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)


def compiled(text: str) -> Program:
    with pytest.warns(FallbackWarning, match="no native kernel for .* run by"):
        return rewrite.compile(parser.parse_model(text), threads=1)


def test_a_value_whose_memory_is_an_output_of_another_type() -> None:
    """What is run from Python gets the value as its own type, not as the integers that the caller gets."""
    text = """<ir_version: 13, opset_import: ["": 26]> g (float[N, 3] x) => (float[M, 3] part, int32[N, 3] bits) {
        v = Abs(x) part, rest = Split<axis = 0, num_outputs = 2>(v) bits = BitCast<to = 6>(v) }"""
    found = compiled(text).run({"x": X[0, :, :3]})
    np.testing.assert_array_equal(found["part"], np.abs(X[0, :2, :3]))
    np.testing.assert_array_equal(found["bits"].view(np.float32), np.abs(X[0, :, :3]))


def test_an_operator_that_wants_sizes_is_refused_before_it_runs() -> None:
    """ONNX Runtime asks for the sizes of constants, which it gets in a run only, and of the operands beside them."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (int32[1, 2] i, float[P, W] places) => (float[1, 2, 4] y)
    <float[5, 4] words = {0,1,4,9, 16,25,36,49, 64,81,1,2, 3,4,5,6, 7,8,9,10}, float[4] row = {1,1,1,1}>
    { y, none = com.microsoft.EmbedLayerNormalization(i, "", words, places, "", row, row) }"""
    model = parser.parse_model(text)
    model.graph.node[0].output[1] = ""
    with pytest.raises(UserError, match="does not apply: a dim of position_embedding is W"):
        rewrite.compile(model, threads=1)


@pytest.mark.parametrize("turns", [0, 2])
def test_results_of_no_iterations_have_the_extents_that_are_known(turns: int) -> None:
    """ONNX Runtime gives them none along axes whose extents it does not know."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[N, 2] x, int64 n) => (float[T, P, Q] y)
    <bool go = {1}> { y = Loop(n, go) <body = b (int64 i, bool c) => (bool d, float[P, Q] z) {
        d = Identity(c) z = com.microsoft.CDist(x, x) }> }"""
    assert compiled(text).run({"x": X[0, :, :2], "n": np.array(turns)})["y"].shape == (turns, 4, 4)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_onnxruntime, "is_installed", lambda: False)


def test_both_implementations_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(FallbackWarning, match="run by ONNX Runtime where it follows the standard"):
        program = rewrite.compile(parser.parse_model(PAIRS), threads=1)
    tokens = np.array([1, 2, 3, 1, 2])
    calls = []
    run = onnxruntime.InferenceSession.run

    def counted(session: object, *arguments: object) -> object:
        calls.append(session)
        return run(session, *arguments)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", counted)
    found = program.run({"x": tokens})["y"]
    assert len(calls) == 1
    np.testing.assert_array_equal(found, [2, 1])
    without(monkeypatch)
    with pytest.warns(FallbackWarning, match="reference implementation"):
        other = rewrite.compile(parser.parse_model(PAIRS), threads=1)
    np.testing.assert_array_equal(other.run({"x": tokens})["y"], found)
    assert len(calls) == 1


@pytest.mark.parametrize(("kind", "saturates"), [(DType.I8, True), (DType.I8, False), (DType.U8, True)])
def test_sums_that_onnx_runtime_saturates(kind: DType, saturates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without VNNI it adds products of signed bytes in 16 bits."""
    monkeypatch.setattr(fallback, "saturates_pairs", lambda: saturates)
    types = {"x": TensorType(DType.U8, (1, 4)), "w": TensorType(kind, (4, 1))}
    runner = Runner(Node("MatMulInteger", ("x", "w"), ("y",)), types)
    exact = kind is DType.I8 and saturates
    assert isinstance(runner.evaluator, ReferenceEvaluator if exact else onnxruntime.InferenceSession)
    if exact:
        w = np.full((4, 1), -128, np.int8)
        np.testing.assert_array_equal(runner.run([np.full((1, 4), 255, np.uint8), w])[0], [[-128 * 255 * 4]])


def test_constants_whose_sums_onnx_runtime_does_not_saturate() -> None:
    """It has exact kernels for constants, on every CPU, and the reference is slow."""
    w = np.full((64, 8), 127, np.int8)
    types = {"x": TensorType(DType.U8, (2, 64)), "w": TensorType(DType.I8, w.shape)}
    runner = Runner(Node("MatMulInteger", ("x", "w"), ("y",)), types, constants={"w": Constant(w)})
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)
    x = np.full((2, 64), 255, np.uint8)
    np.testing.assert_array_equal(runner.run([x, w])[0], np.full((2, 8), 64 * 255 * 127))


def test_an_operator_that_onnx_runtime_has_at_an_earlier_opset() -> None:
    """That of opset 22 differs in its element types only, and the reference is 150 times slower."""
    types = {
        "x": TensorType(DType.F32, (1, 2, 9, 9)),
        "rois": TensorType(DType.F32, (1, 4)),
        "images": TensorType(DType.I64, (1,)),
    }
    node = Node("RoiAlign", ("x", "rois", "images"), ("y",), {"output_height": 3, "output_width": 3})
    runner = Runner(node, types)
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)
    x = np.arange(162, dtype=np.float32).reshape(1, 2, 9, 9)
    operands = [x, np.array([[1, 1, 7, 6]], np.float32), np.zeros(1, np.int64)]
    [found] = runner.run(operands)
    [expected] = ReferenceEvaluator(runner._model()).run(None, dict(zip(node.inputs, operands, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_operator_that_only_onnx_runtime_has(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X[0]
    found = compiled(DISTANCE).run({"x": x})["y"]
    np.testing.assert_allclose(found, np.linalg.norm(x[:, None] - x[None], axis=2) ** 2, rtol=1e-4, atol=1e-5)
    without(monkeypatch)
    with pytest.raises(UserError, match=r"(?s)no implementation of operator com\.microsoft\.CDist.*pip install"):
        rewrite.compile(parser.parse_model(DISTANCE), threads=1)


def test_a_type_that_onnx_runtime_lacks() -> None:
    x = np.arange(-4, 8).reshape(3, 4)
    np.testing.assert_array_equal(compiled(ABOVE).run({"x": x})["y"], x > 0)


def test_what_onnx_runtime_admits_but_does_not_compute() -> None:
    """It loads an LSTM of f64, and says when it runs that it does not support that yet."""
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 1, 2), "w": (1, 4, 2), "r": (1, 4, 1)}
    types = {name: TensorType(DType.F64, shape) for name, shape in shapes.items()}
    operands = [rng.standard_normal(shape) for shape in shapes.values()]
    runner = Runner(Node("LSTM", ("x", "w", "r"), ("", "h"), {"hidden_size": 1}), types)
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)
    [found] = runner.run(operands)
    single = Runner(runner.node, {name: TensorType(DType.F32, shape) for name, shape in shapes.items()})
    [expected] = single.run([a.astype(np.float32) for a in operands])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def _loss() -> Runner:
    n, c, h, w = map(symbol, "nchw")
    types = {"x": TensorType(DType.F32, (n, c, h, w)), "t": TensorType(DType.I64, (n, h, w))}
    node = Node("SoftmaxCrossEntropyLoss", ("x", "t"), ("y",), {"reduction": "sum"})
    return Runner(node, {**types, "y": TensorType(DType.F32, ())})


def test_sizes_that_onnx_runtime_does_not_compute() -> None:
    """It reshapes images of no element to a shape whose zero it takes for a size to copy; it has the next run again."""
    runner = _loss()
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)
    [found] = runner.run([np.zeros((1, 2, 3, 0), np.float32), np.zeros((1, 3, 0), np.int64)])
    assert (found.shape, found.dtype, float(found)) == ((), np.float32, 0.0)
    [found] = runner.run([np.zeros((1, 2, 3, 1), np.float32), np.zeros((1, 3, 1), np.int64)])
    np.testing.assert_allclose(found, 3 * np.log(2), rtol=1e-6)
    assert isinstance(runner.evaluator, onnxruntime.InferenceSession)


def test_operands_that_both_implementations_refuse() -> None:
    with pytest.raises(
        RewriteError, match=r"node y \(SoftmaxCrossEntropyLoss\): the operator failed: .*ONNXRuntimeError"
    ):
        _loss().run([np.zeros((1, 2, 3, 1), np.float32), np.full((1, 3, 1), 7)])


def test_results_of_another_type_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference implementation computes some operands that are not allowed, as NumPy does."""
    operands = [np.zeros((1, 2, 3, 0), np.float32), np.zeros((1, 3, 0), np.int64)]
    for wrong in (np.zeros((), np.float64), np.zeros(1, np.float32)):
        monkeypatch.setattr(ReferenceEvaluator, "run", lambda self, names, feeds, wrong=wrong: [wrong])
        with pytest.raises(RewriteError, match=r"the operator failed: .*ONNXRuntimeError"):
            _loss().run(operands)


def test_dilated_windows_with_padding_that_keeps_sizes() -> None:
    """ONNX Runtime pads for a window without dilation, so that the result is smaller than the standard says."""
    attributes = {"auto_pad": "SAME_UPPER", "kernel_shape": (3,), "dilations": (2,)}
    runner = Runner(Node("MaxPool", ("x",), ("y",), attributes), {"x": TensorType(DType.F32, (1, 1, 6))})
    x = np.array([[[5, 1, 2, 3, 9, 4]]], np.float32)
    [found] = runner.run([x])
    np.testing.assert_array_equal(found, [[[5, 3, 9, 4, 9, 4]]])


def test_padding_that_keeps_three_sizes() -> None:
    """The reference implementation pads images only."""
    attributes = {"auto_pad": "SAME_LOWER", "kernel_shape": (1, 2, 3), "strides": (1, 1, 2)}
    runner = Runner(Node("MaxPool", ("x",), ("y",), attributes), {"x": TensorType(DType.F32, (1, 1, 1, 2, 3))})
    [found] = runner.run([np.arange(6, dtype=np.float32).reshape(1, 1, 1, 2, 3)])
    np.testing.assert_array_equal(found, [[[[[1, 2], [4, 5]]]]])


def test_dilated_windows_that_average_what_is_padded() -> None:
    attributes = {"auto_pad": "SAME_UPPER", "kernel_shape": (3,), "dilations": (2,), "count_include_pad": 1}
    runner = Runner(Node("AveragePool", ("x",), ("y",), attributes), {"x": TensorType(DType.F32, (1, 1, 6))})
    [found] = runner.run([np.array([[[3, 0, 6, 9, 12, 3]]], np.float32)])
    np.testing.assert_array_equal(found, [[[3, 3, 7, 4, 6, 4]]])


def test_16_bit_floats_are_rounded_once() -> None:
    """The reference implementation rounds the variance of these numbers to one below zero."""
    bf16 = DType.BF16.numpy
    kinds = {name: TensorType(DType.BF16, shape) for name, shape in {"x": (1, 1, 2), "s": (1,), "b": (1,)}.items()}
    runner = Runner(Node("GroupNormalization", ("x", "s", "b"), ("y",), {"num_groups": 1}), kinds)
    [found] = runner.run([np.array([[[0.324219, 0.322266]]]).astype(bf16), np.ones(1, bf16), np.zeros(1, bf16)])
    np.testing.assert_allclose(found.astype(float), [[[0.295, -0.295]]], rtol=0.02)


@pytest.mark.parametrize(("position", "expected"), [(3, [0, 1, 2, 9]), (0, [9, 0, 1, 2]), (-1, [0, 1, 9, 2])])
def test_the_place_of_a_new_member(position: int, expected: list[int]) -> None:
    runner = Runner(Node("SequenceInsert", ("s", "x", "i"), ("t",)), {})
    [found] = runner.run([[np.array(v) for v in range(3)], np.array(9), np.array(position)])
    assert [int(v) for v in found] == expected


def test_a_place_outside_a_sequence() -> None:
    with pytest.raises(RewriteError, match="position 2 is outside a sequence of 1"):
        Runner(Node("SequenceInsert", ("s", "x", "i"), ("t",)), {}).run([[np.array(0)], np.array(1), np.array(2)])


def test_corners_are_aligned_as_in_the_tests_of_the_standard() -> None:
    """7 rows times 0.6 are 4 rows, whose corners lie as if they were 4.2; ONNX Runtime takes 4."""
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    node = Node("Resize", ("x", "", "s"), ("y",), attrs)
    types = {"x": TensorType(DType.F32, (1, 1, 7, 2)), "s": TensorType(DType.F32, (4,))}
    x = np.arange(14, dtype=np.float32).reshape(1, 1, 7, 2)
    found = Runner(node, types).run([x, np.array([1, 1, 0.6, 1], np.float32)])[0]
    np.testing.assert_allclose(found[0, 0, :, 0], [0, 3.75, 7.5, 11.25], rtol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_single_element_is_the_first_one(scaled: bool) -> None:
    """The reference implementation resizes around -0.5, or 0.5 by a scale; the standard says 0."""
    attrs = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    node = Node("Resize", ("x", "", "s") if scaled else ("x", "", "", "s"), ("y",), attrs)
    kind = TensorType(DType.F32 if scaled else DType.I64, (4,))
    x = np.array([[[[1, 5, -3], [2, 9, 4]]]], np.float32)
    operand = np.array([1, 1, 1, 0.5], np.float32) if scaled else np.array([1, 1, 2, 1])
    found = Runner(node, {"x": TensorType(DType.F32, (1, 1, 2, 3)), "s": kind}).run([x, operand])[0]
    np.testing.assert_allclose(found[0, 0, :, 0], [1, 2], rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_position_that_is_rounded_below_an_element(mode: str) -> None:
    """9 elements times 0.5 are 4.5, centered at 1, 3, 5 and 7. The reference implementation takes 1 - 2^-52 for 0."""
    node = Node(
        "Resize", ("x", "", "s"), ("y",), {"mode": mode, "coordinate_transformation_mode": "half_pixel_symmetric"}
    )
    types = {"x": TensorType(DType.F32, (1, 1, 1, symbol("n"))), "s": TensorType(DType.F32, (4,))}
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 1, 9)
    found = Runner(node, types).run([x, np.array([1, 1, 1, 0.5], np.float32)])[0]
    np.testing.assert_allclose(found.ravel(), [1, 3, 5, 7], rtol=1e-6)


def test_constant_weights_are_part_of_the_implementation() -> None:
    """ONNX Runtime packs weights when it loads a node, and again in each run where they are operands."""
    rng = np.random.default_rng(0)
    w, r = rng.standard_normal((1, 8, 3)).astype(np.float32), rng.standard_normal((1, 8, 2)).astype(np.float32)
    x = rng.standard_normal((4, 1, 3)).astype(np.float32)
    types = {name: TensorType(DType.F32, a.shape) for name, a in (("x", x), ("w", w), ("r", r))}
    node = Node("LSTM", ("x", "w", "r"), ("", "h"), {"hidden_size": 2})
    runner = Runner(node, types, constants={"w": Constant(w), "r": Constant(r), "other": Constant(x)})
    assert [value.name for value in runner.evaluator.get_inputs()] == ["x"]
    np.testing.assert_array_equal(runner.run([x, w, r])[0], Runner(node, types).run([x, w, r])[0])


@pytest.mark.parametrize(
    ("op", "operands"),
    [("And", ([True, False], [True, True])), ("Add", ([2.0], [[3.0], [4.0]])), ("Squeeze", ([[[5]]],))],
)
def test_numpy_runs_views_and_exact_operators_on_few_elements(op: str, operands: tuple[object, ...]) -> None:
    arrays = [np.array(operand) for operand in operands]
    names = tuple(f"x{i}" for i in range(len(arrays)))
    kinds = {"And": DType.BOOL, "Add": DType.F64, "Squeeze": DType.I64}
    runner = Runner(Node(op, names, ("y",)), dict.fromkeys(names, TensorType(kinds[op])))
    expected = {"And": np.logical_and, "Add": np.add, "Squeeze": np.squeeze}[op](*arrays)
    np.testing.assert_array_equal(runner.run(arrays)[0], expected)
    assert "evaluator" not in vars(runner)  # no other implementation was loaded
    if op == "Add":
        large = [np.ones(5000), np.ones(5000)]
        np.testing.assert_array_equal(runner.run(large)[0], np.full(5000, 2.0))
        assert "evaluator" in vars(runner)
