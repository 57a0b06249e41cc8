"""Networks whose images have any size: the kernels and layouts of fixed sizes, and ONNX Runtime's results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
import rewrite
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.runtime.fallback import FallbackWarning
from rewrite.engine.cost import likely_sizes, machine
from rewrite.errors import UserError

RNG = np.random.default_rng(7)
SIZES = ((1, 64, 64), (2, 33, 70), (1, 224, 224), (1, 8, 5))


def network(nodes: str, channels: int, **weights: Sequence[int]) -> onnx.ModelProto:
    """Return a network of images [n, channels, h, w] with random weights of these shapes."""
    head = f'<ir_version: 8, opset_import: ["": 18]> g (float[n,{channels},h,w] x) => (float[n,c,p,q] y)'
    model = onnx.parser.parse_model(f"{head} {{ {nodes} }}")
    for name, shape in weights.items():
        array = RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


def templates(program: rewrite.Program) -> list[str]:
    return [item.kernel.template for item in program.plan.items if isinstance(item, Step)]


def check(model: onnx.ModelProto, program: rewrite.Program, sizes: Sequence[tuple[int, int, int]] = SIZES) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for n, h, w in sizes:
        x = RNG.standard_normal((n, channels, h, w)).astype(np.float32)
        [expected] = session.run(None, {"x": x})
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions(threads: int) -> None:
    model = network(
        """a = Conv<strides = [2, 2], pads = [3, 3, 3, 3]>(x, w0) b = Relu(a)
        c = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(b)
        d = Conv<pads = [1, 1, 1, 1]>(c, w1) e = Relu(d) f = Conv<pads = [1, 1, 1, 1]>(e, w2) g = Add(f, c) k = Relu(g)
        y = Conv<pads = [1, 1, 1, 1], group = 64>(k, w3)""",
        3, w0=(64, 3, 7, 7), w1=(64, 64, 3, 3), w2=(64, 64, 3, 3), w3=(64, 1, 3, 3),
    )  # fmt: skip
    program = rewrite.compile(model, threads=threads)
    assert templates(program).count("winograd_nhwc") == 2
    assert not program.fallbacks()
    check(model, program)


@pytest.mark.parametrize("threads", [1, 2])
def test_quantized_convolutions(threads: int) -> None:
    """Pointwise and 3 x 3 products of bytes, strided and not, and a residual: sums are exact for every size."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (uint8[n,32,h,w] x) => (int32[n,c,p,q] y) {
        a = ConvInteger(x, w0, z) b = Mod(a, m) c = Cast<to = 2>(b)
        d = ConvInteger<pads = [1, 1, 1, 1]>(c, w1, z) e = Mod(d, m) f = Cast<to = 2>(e)
        k = ConvInteger<pads = [1, 1, 1, 1], strides = [2, 2]>(f, w2, z) y = Mod(k, big) }"""
    )
    weights = {"w0": (64, 32, 1, 1), "w1": (64, 64, 3, 3), "w2": (64, 64, 3, 3)}
    arrays = {name: RNG.integers(-128, 128, shape).astype(np.int8) for name, shape in weights.items()}
    arrays |= {"z": np.array(9, np.uint8), "m": np.array(256, np.int32), "big": np.array(1 << 28, np.int32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    program = rewrite.compile(model, threads=threads)
    assert not program.fallbacks()
    if machine.isa_name() == "avx2" and machine.rates()["int8 winograd"]:
        assert "winograd_nhwc_int8" in templates(program)
    for n, h, w in SIZES:
        x = RNG.integers(0, 256, (n, 32, h, w)).astype(np.uint8)
        expected = x
        for name, pad, stride, modulus in (("w0", 0, 1, 256), ("w1", 1, 1, 256), ("w2", 1, 2, 1 << 28)):
            padded = np.pad(expected.astype(np.int64) - 9, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
            k = arrays[name].shape[-1]
            views = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
            expected = np.einsum("nchwij,mcij->nmhw", views, arrays[name].astype(np.int64), optimize=True) % modulus
        np.testing.assert_array_equal(program.run({"x": x})["y"], expected)


def test_relative_positions_are_sliced_where_the_sign_of_the_start_depends_on_the_size() -> None:
    """Attention of Transformer-XL: the middle 2n - 1 rows of a table of positions, shifted row by row."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[1,n,16] x) => (float[1,n,16] y) {
        n = Shape<start = 1, end = 2>(x) first = Sub(c40, n) last = Add(c39, n)
        positions = Slice(table, first, last, c1) keys = Transpose<perm = [0, 2, 1]>(positions)
        s = MatMul(x, keys) padded = Pad(s, pads)
        p = Shape<start = 2, end = 3>(s) p1 = Add(p, c1) to = Concat<axis = 0>(c1, p1, n) turned = Reshape(padded, to)
        rest = Slice(turned, c1, huge, c1) back = Concat<axis = 0>(c1, n, p) shifted = Reshape(rest, back)
        own = Slice(shifted, c0, n, c2) xt = Transpose<perm = [0, 2, 1]>(x) content = MatMul(x, xt)
        scores = Add(content, own) w = Softmax<axis = -1>(scores) y = MatMul(w, x) }"""
    )
    table = RNG.standard_normal((1, 79, 16)).astype(np.float32)
    arrays = {"table": table, "pads": np.array([0, 0, 1, 0, 0, 0])}
    arrays |= {name: np.array([value]) for name, value in
               {"c0": 0, "c1": 1, "c2": 2, "c39": 39, "c40": 40, "huge": 2**62}.items()}  # fmt: skip
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 2, 7, 40):
        x = RNG.standard_normal((1, n, 16)).astype(np.float32)
        np.testing.assert_allclose(program.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="do not fit together"):  # the table is too short
        program.run({"x": np.zeros((1, 50, 16), np.float32)})


def test_operands_of_products_agree_in_a_size_known_at_run_time() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[m,k] x, float[l,n] y) => (float[m,n] z, float[l] s) {
        z = MatMul(x, y) s = ReduceSum<keepdims = 0>(y, one) }"""
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    x, y = RNG.standard_normal((3, 9)).astype(np.float32), RNG.standard_normal((9, 21)).astype(np.float32)
    np.testing.assert_allclose(program.run({"x": x, "y": y})["z"], x @ y, rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"'MatMul_0' \(MatMul\): inner dims: k is not l\nHere m = 3, k = 9, l = 8"):
        program.run({"x": x, "y": y[:8]})


def test_images_that_come_from_rows_of_pixels_are_not_transposed() -> None:
    """A depthwise convolution between two products, as in PVT and SegFormer; the image's size is a tensor."""
    model = network(
        """s = Shape(x) r0 = Constant<value_ints = [0, 32, -1]>() r1 = Reshape(x, r0)
        rows = Transpose<perm = [0, 2, 1]>(r1) wide = MatMul(rows, w0)
        back = Transpose<perm = [0, 2, 1]>(wide) n = Shape<start = 0, end = 1>(x) c = Constant<value_ints = [128]>()
        hw = Shape<start = 2, end = 4>(x) to = Concat<axis = 0>(n, c, hw) image = Reshape(back, to)
        d = Conv<pads = [1, 1, 1, 1], group = 128>(image, w1) f = Constant<value_ints = [0, 128, -1]>()
        flat = Reshape(d, f) again = Transpose<perm = [0, 2, 1]>(flat) narrow = MatMul(again, w2)
        last = Transpose<perm = [0, 2, 1]>(narrow) y = Reshape(last, s)""",
        32, w0=(32, 128), w1=(128, 1, 3, 3), w2=(128, 32),
    )  # fmt: skip
    program = rewrite.compile(model, threads=1)
    assert templates(program) == ["copy", "gemm", "depthwise_pool_nhwc", "gemm", "copy"]
    check(model, program)


def test_groups_with_a_scale_of_their_own_are_normalized_in_the_layout_of_convolutions() -> None:
    """GroupNormalization of opset 18 has scale and bias by group; its images have any size."""
    model = network(
        """a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w0) b = GroupNormalization<num_groups = 8>(a, s, t)
        c = Relu(b) d = Conv(c, w1) e = Relu(d) f = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(e, w2)
        y = GlobalAveragePool(f)""",
        32, w0=(64, 32, 3, 3), w1=(64, 64, 1, 1), w2=(64, 64, 3, 3), s=(8,), t=(8,),
    )  # fmt: skip
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    assert "normalize_channels" in templates(program)
    check(model, program)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_groups_of_any_number_of_channels(kind: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]> g ({kind}[n,c,h] x, {kind}[3] s, {kind}[3] b) => ({kind}[n,c,h] y)
        {{ y = GroupNormalization<num_groups = 3, epsilon = 0.001>(x, s, b) }}"""
    )
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    dtype = np.float32 if kind == "float" else np.float64
    for shape in ((2, 6, 5), (1, 3, 1), (3, 12, 17)):
        sizes = {"x": shape, "s": 3, "b": 3}
        feeds = {name: RNG.standard_normal(size).astype(dtype) for name, size in sizes.items()}
        np.testing.assert_allclose(program.run(feeds)["y"], session.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def test_resizing_to_the_size_of_another_image_stays_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is that of a machine with vectors of 16 floats, for small images."""
    monkeypatch.setattr(likely_sizes, "DENSE", likely_sizes.IMAGE)
    sizes, rates = (48 << 10, 2 << 20, 32 << 20), (200e9, 90e9, 45e9, 18e9)
    profile = machine.Machine("", "avx512", 100e9, sizes, rates)
    monkeypatch.setattr(machine, "default", lambda isa="": profile)
    model = network(
        """a = Conv(x, w0) b = Conv<pads = [1, 1, 1, 1], group = 64>(a, w1)
        c = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(b, w2) d = Conv<pads = [1, 1, 1, 1], group = 64>(c, w1)
        nc = Shape<start = 0, end = 2>(d) hw = Shape<start = 2, end = 4>(b) to = Concat<axis = 0>(nc, hw)
        e = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(d, , , to)
        f = Concat<axis = 1>(b, e) k = Conv(f, w3) l = Conv<pads = [1, 1, 1, 1], group = 64>(k, w1) y = Conv(l, w4)""",
        16, w0=(64, 16, 1, 1), w1=(64, 1, 3, 3), w2=(64, 64, 3, 3), w3=(64, 128, 1, 1), w4=(32, 64, 1, 1),
    )  # fmt: skip
    program = rewrite.compile(model, threads=1)
    kernels = templates(program)
    assert kernels[0] == kernels[-1] == "copy"
    assert "resize" in kernels
    assert not {"conv", "winograd"} & set(kernels)
    check(model, program)


def test_any_axis_may_be_reversed_and_a_squeezed_one_may_be_a_free_one() -> None:
    """As converters write recurrent layers that run backwards, and their last result."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[T, C] x) => (float[C] y, float[T, C] z) {
            last = Constant<value_ints = [-1]>() first = Constant<value_ints = [-9223372036854775807]>()
            axis = Constant<value_ints = [0]>() z = Slice(x, last, first, axis, last) s = Sigmoid(z) y = Squeeze(s) }"""
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {}  # a view is no work
    for sizes in ((1, 4), (3, 4), (1, 1), (0, 2)):
        x = RNG.standard_normal(sizes).astype(np.float32)
        found = program.run({"x": x})
        np.testing.assert_array_equal(found["z"], x[::-1])
        np.testing.assert_allclose(found["y"], np.squeeze(1 / (1 + np.exp(-x[::-1]))), rtol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizing_by_a_fraction(mode: str) -> None:
    model = network(f"""f = Constant<value = float[4] {{1, 1, 0.75, 2.5}}>() y = Resize<mode = "{mode}">(x, , f)""", 3)
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    check(model, program)


def test_unpooling() -> None:
    model = network(
        """a, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x)
        y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(a, i)""", 3
    )  # fmt: skip
    program = rewrite.compile(model, threads=1)
    assert not program.fallbacks()
    check(model, program, ((1, 64, 64), (2, 34, 70), (1, 2, 8)))  # an odd row would have indices past the result
