"""Models in f64: all operators have kernels that compute in f64, within its rounding of other implementations.

The bound of 1e-12 fails for anything that was computed in f32. Where ONNX Runtime has no f64 kernel, ONNX's reference
implementation is compared with, or a formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
import rewrite
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from rewrite.backend.ir.kernel_graph import Step

Array = NDArray[np.float64]
TARGETS = ("native", "portable")


def _random(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape)


def _model(nodes: str, feeds: dict[str, Array], weights: dict[str, Array], results: int = 1) -> onnx.ModelProto:
    """Return the model with these nodes, whose results are y, or y0, y1 and so on."""
    names = ["y"] if results == 1 else [f"y{k}" for k in range(results)]
    inputs = ", ".join(f"double[{','.join(map(str, a.shape))}] {name}" for name, a in feeds.items())
    outputs = ", ".join(f"double {name}" for name in names)
    text = f'<ir_version: 8, opset_import: ["": 21, "com.microsoft": 1]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in weights.items())
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, None) for n in names)
    return model


def _expected(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    try:
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)  # type: ignore[no-any-return]
    except Exception:  # no kernel: its classes of errors are not public
        return ReferenceEvaluator(model).run(None, feeds)  # type: ignore[return-value]


def _check(nodes: str, feeds: dict[str, Array], weights: dict[str, Array], target: str, results: int = 1) -> None:
    model = _model(nodes, feeds, weights, results)
    program = rewrite.compile(model, target=target)
    assert not program.fallbacks()
    found = program.run(feeds)
    for output, wanted in zip(model.graph.output, _expected(model, feeds), strict=True):
        assert found[output.name].dtype == np.float64
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found[output.name], wanted, rtol=1e-12, atol=1e-12 * scale, err_msg=output.name)


@pytest.mark.parametrize("target", TARGETS)
def test_elementwise(target: str) -> None:
    """Vectors of f64, and scalar code where a program mixes element types."""
    _check(
        """t = Tanh(x) s = Sigmoid(x) e = Exp(x) p = Softplus(x) half = Constant<value = double {0.3}>()
        b = Less(x, half) y0 = Where(b, t, s) r = Sqrt(e) y1 = Div(p, r) f = Cast<to = 1>(x) g = Cast<to = 11>(f)
        y2 = Mul(g, e)""",
        {"x": _random(7, 33)}, {}, target, 3,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [6, 500])
def test_products(n: int, target: str) -> None:
    """Constant and computed operands, batches, one row, and epilogues."""
    feeds = {"x": _random(5, 33), "q": _random(33, 47), "b": _random(2, 3, 9, 33), "c": _random(2, 3, 33, 10),
             "one": _random(1, 33)}  # fmt: skip
    _check(
        """m = MatMul(x, w) a = Add(m, v) y0 = Relu(a) y1 = Gemm<alpha = 1.1, beta = 0.7>(x, q, u) z = MatMul(b, c)
        y2 = Tanh(z) o = MatMul(one, w) y3 = Add(o, v) y4 = Gemm<transB = 1>(x, wt, v) y5 = MatMul(b, q)""",
        feeds, {"w": _random(33, n), "v": _random(n), "u": _random(47), "wt": _random(n, 33)}, target, 6,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_blocked_products(target: str) -> None:
    """Panels that outgrow the second-level cache are computed in blocks of k, and computed operands are packed."""
    _check(
        "y0 = MatMul(x, w) t = Transpose<perm = [1, 0]>(b) y1 = MatMul(x, t)",
        {"x": _random(40, 9000), "b": _random(70, 9000)}, {"w": _random(9000, 70)}, target, 2,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [8, 33, 900])
def test_rows(n: int, target: str) -> None:
    """Softmax and normalizations along rows that are held in registers, and that are not."""
    _check(
        """t = Tanh(x) y0 = Softmax<axis = -1>(t) y1 = LogSoftmax<axis = -1>(x)
        y2 = LayerNormalization<axis = -1>(x, s, b) y3 = LpNormalization<axis = -1>(x) y4 = Softmax<axis = 0>(x)""",
        {"x": _random(5, n) + 3}, {"s": _random(n), "b": _random(n)}, target, 5,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_channels(target: str) -> None:
    """Normalizations of images."""
    _check(
        """y0 = InstanceNormalization(x, s, b) y1 = GroupNormalization<num_groups = 2, stash_type = 11>(x, s, b)
        v = Abs(b) y2 = BatchNormalization(x, s, b, m, v) y3 = LpNormalization<axis = 1>(x)""",
        {"x": _random(2, 6, 9, 11)}, {"s": _random(6), "b": _random(6) + 1, "m": _random(6)}, target, 4,
    )  # fmt: skip


def test_local_response_normalization() -> None:
    """Neither ONNX Runtime nor the reference implementation, which ignores attributes, computes it in f64."""
    x = _random(2, 6, 5, 7)
    program = rewrite.compile(_model("y = LRN<size = 3, alpha = 0.5, beta = 0.25>(x)", {"x": x}, {}))
    assert not program.fallbacks()
    squares = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(program.run({"x": x})["y"], x * (1 + 0.5 / 3 * sums) ** -0.25, rtol=1e-13)


@pytest.mark.parametrize(("op", "reduce"), [("ReduceMax", np.max), ("ReduceMean", np.mean)])
@pytest.mark.parametrize("axes", [[2], [2, 3]])
def test_reductions(op: str, reduce: Callable[..., Array], axes: list[int]) -> None:
    """Reductions over whole images stay reductions, for which there are kernels."""
    x = _random(*(2, 3, 5, 7)[: axes[-1] + 1])
    model = _model(
        f"a = Constant<value_ints = [{','.join(map(str, axes))}]>() y = {op}<keepdims = 1>(x, a)", {"x": x}, {}
    )
    program = rewrite.compile(model)
    assert not program.fallbacks()
    expected = reduce(x, axis=tuple(axes), keepdims=True)
    np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("target", TARGETS)
def test_reductions_with_functions(target: str) -> None:
    """Accumulations with a function before and after them, along rows and across them."""
    _check(
        """one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>() y0 = ReduceLogSumExp(x, two)
        y1 = ReduceL2(x, one) y2 = ReduceProd(x, two) y3 = ReduceMin(x, one)
        k = Constant<value_int = 1>() y4 = CumSum(x, k)""",
        {"x": _random(3, 19, 70)}, {}, target, 5,
    )  # fmt: skip


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(op: str) -> None:
    x = _random(2, 3, 5, 7)
    program = rewrite.compile(_model(f"y = {op}(x)", {"x": x}, {}))
    assert not program.fallbacks()
    reduce = np.max if op == "GlobalMaxPool" else np.mean
    np.testing.assert_allclose(
        program.run({"x": x})["y"], reduce(x, axis=(2, 3), keepdims=True), rtol=1e-14, atol=1e-16
    )


@pytest.mark.parametrize("target", TARGETS)
def test_convolutions(target: str) -> None:
    """Implicit GEMM with gathered and direct inputs, small images, depthwise, grouped and transposed convolutions."""
    weights = {"w0": _random(16, 6, 3, 3), "w1": _random(40, 16, 3, 3), "w2": _random(40, 40, 3, 3),
               "w3": _random(40, 1, 3, 3), "w4": _random(64, 40, 1, 1), "w5": _random(64, 16, 3, 3), "b": _random(40),
               "t": _random(6, 5, 3, 3)}  # fmt: skip
    _check(
        """a = Conv<pads = [1, 1, 1, 1]>(x, w0) y0 = Tanh(a) c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(y0, w1, b)
        y1 = Relu(c) d = Conv<strides = [3, 3]>(y1, w2) y2 = Sigmoid(d)
        y3 = Conv<group = 40, pads = [1, 1, 1, 1]>(y1, w3) y4 = Conv(y2, w4)
        y5 = Conv<group = 4, dilations = [2, 2]>(u, w5) y6 = ConvTranspose<strides = [2, 2]>(x, t)""",
        {"x": _random(2, 6, 19, 22), "u": _random(1, 64, 9, 8)}, weights, target, 7,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_convolutions_of_signals_of_any_length(target: str) -> None:
    """Short signals have a kernel of their own, also where a vector has two lanes only."""
    x = _random(2, 70, 40)
    model = _model("y = Conv<pads = [1, 1]>(x, w)", {"x": x}, {"w": _random(66, 70, 3)})
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "length"
    program = rewrite.compile(model, target=target)
    assert len([item for item in program.plan.items if isinstance(item, Step) and item.only]) == 2
    for length in (1, 2, 3, 8, 40):
        feeds = {"x": np.ascontiguousarray(x[:, :, :length])}
        [expected] = _expected(model, feeds)
        np.testing.assert_allclose(program.run(feeds)["y"], expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("target", TARGETS)
def test_pools(target: str) -> None:
    """Windows that are unrolled, that are not, and along signals."""
    _check(
        """y0 = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)
        a = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) y1 = Exp(a)
        y2 = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) y3 = MaxPool<kernel_shape = [9, 9]>(x)
        y4 = MaxPool<kernel_shape = [3]>(s)""",
        {"x": _random(2, 5, 17, 21), "s": _random(2, 3, 40)}, {}, target, 5,
    )  # fmt: skip


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_recurrent(target: str, constant: bool) -> None:
    """Layers in both directions, with both forms of GRU's reset, and weights that are constant or inputs."""
    weights = {"w4": _random(1, 44, 5), "r4": _random(1, 44, 11), "b4": _random(1, 88), "w3": _random(2, 33, 5),
               "r3": _random(2, 33, 11), "b3": _random(2, 66)}  # fmt: skip
    _check(
        """a, b, y0 = LSTM<hidden_size = 11>(x, w4, r4, b4)
        y1 = GRU<hidden_size = 11, direction = "bidirectional">(x, w3, r3)
        y2 = GRU<hidden_size = 11, direction = "bidirectional", linear_before_reset = 1>(x, w3, r3, b3)""",
        {"x": _random(6, 3, 5), **({} if constant else weights)}, weights if constant else {}, target, 3,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", ["4, 5", "12, 17", "70, 91"])
def test_resize(size: str, target: str) -> None:
    """Vectors whose sources are in one vector of the input, in two, and further apart."""
    _check(
        f"""e = Constant<value = float[0] {{}}>() s = Constant<value_ints = [1, 2, {size}]>()
        y0 = Resize<mode = "linear">(x, e, e, s) y1 = Resize<mode = "nearest">(x, e, e, s)
        y2 = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, e, e, s)""",
        {"x": _random(1, 2, 7, 9)}, {}, target, 3,
    )  # fmt: skip


def test_cubic_resize() -> None:
    """The reference implementation rounds cubic weights; here they are Keys' polynomials with a = -0.75."""
    x = _random(1, 2, 7, 9)
    nodes = "e = Constant<value = float[0] {}>() s = Constant<value_ints = [1, 2, 12, 17]>() "
    program = rewrite.compile(_model(nodes + 'y = Resize<mode = "cubic">(x, e, e, s)', {"x": x}, {}))
    assert not program.fallbacks()

    def weights(size: int, resized: int) -> Array:
        found = np.zeros((resized, size))
        for i in range(resized):
            at = (i + 0.5) * size / resized - 0.5
            for k in range(int(np.floor(at)) - 1, int(np.floor(at)) + 3):
                d = abs(at - k)
                near, far = 1.25 * d**3 - 2.25 * d**2 + 1, -0.75 * (d**3 - 5 * d**2 + 8 * d - 4)
                found[i, min(max(k, 0), size - 1)] += near if d <= 1 else far
        return found

    expected = weights(7, 12) @ x @ weights(9, 17).T
    np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("queries", "keys"), [(1, 40), (7, 9), (60, 700)])
def test_attention(queries: int, keys: int, target: str) -> None:
    """One query, few of them, and softmax over several spans of keys; other implementations round the scale to f32."""
    feeds = {"q": _random(2, 3, queries, 12), "k": _random(2, 3, keys, 12), "v": _random(2, 3, keys, 20),
             "m": _random(queries, keys)}  # fmt: skip
    model = _model("y0 = Attention(q, k, v) y1 = Attention<is_causal = 0>(q, k, v, m)", feeds, {}, 2)
    model.opset_import[0].version = 23
    program = rewrite.compile(model, target=target)
    assert not program.fallbacks()
    found = program.run(feeds)
    for mask, name in ((0.0, "y0"), (feeds["m"], "y1")):
        scores = feeds["q"] @ feeds["k"].swapaxes(-1, -2) / np.sqrt(12) + mask
        e = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(found[name], e / e.sum(-1, keepdims=True) @ feeds["v"], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("target", TARGETS)
def test_rotary_embedding(target: str) -> None:
    x, c, s = _random(1, 2, 5, 16), _random(1, 5, 8), _random(1, 5, 9)[:, :, :8].copy()
    model = _model("y = RotaryEmbedding(x, c, s)", {"x": x, "c": c, "s": s}, {})
    model.opset_import[0].version = 23
    program = rewrite.compile(model, target=target)
    assert not program.fallbacks()
    a, b, cos, sin = x[..., :8], x[..., 8:], c[:, None], s[:, None]
    expected = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    np.testing.assert_allclose(program.run({"x": x, "c": c, "s": s})["y"], expected, rtol=1e-13, atol=1e-15)
