"""DFT and STFT against the oracle: lengths with small and large factors, axes, parts, windows, sizes free and empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import detect
from rewrite.backend.kernels.fourier.fourier import is_smooth
from rewrite.benchmarks import harness
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(37)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def dft(x: Array, length: int | None = None, axis: int | None = None, **attrs: Any) -> Case:
    """Return a case with what NumPy computes in double precision."""
    at = -2 if axis is None else axis
    names = ["x", "" if length is None else "n", "" if axis is None else "a"]
    constants = {} if length is None else {"n": np.array(length)}
    constants |= {} if axis is None else {"a": np.array(axis)}
    signal = x[..., 0] + 1j * (x[..., 1].astype(np.float64) if x.shape[-1] == 2 else 0)
    along = at % x.ndim
    if attrs.get("inverse") and attrs.get("onesided"):
        found = np.fft.irfft(signal, length, along)[..., None]
    else:
        complete = (np.fft.ifft if attrs.get("inverse") else np.fft.fft)(signal, length, along)
        if attrs.get("onesided"):
            complete = complete.take(range(complete.shape[along] // 2 + 1), along)
        found = np.stack((complete.real, complete.imag), -1)
    scale = float(np.abs(found).max(initial=0)) or 1.0
    eps = 2e-7 if x.dtype == np.float32 else 1e-15
    expected = {"y": found.astype(x.dtype)}
    return Case([Node("DFT", tuple(names), ("y",), attrs)], {"x": x}, constants, expected=expected, rtol=0,
                atol=eps * 8 * scale)  # fmt: skip


def test_is_smooth() -> None:
    assert [n for n in range(1, 50) if not is_smooth(n)] == [37, 41, 43, 47]


def test_lengths() -> None:
    cases = []
    for i, n in enumerate((1, 2, 5, 9, 31, 37, 74, 400, 512)):
        parts = 1 + i % 2
        cases += [dft(floats(3, n, parts)), dft(floats(1, n, 3 - parts)), dft(floats(2, n, 2), inverse=1)]
        cases.append(dft(floats(2, n, 1), onesided=1))
    for case in cases:
        case.threads = (1, 2)
    check(cases)


def test_vectors_of_signals() -> None:
    """Signals that fill vectors are transposed in registers where their samples lie together, whole or in part."""
    cases = []
    for n in (12, 37, 48, 400):
        cases.append(dft(floats(33, n, 1)))  # the last one fills all lanes of its vector
        cases += [dft(floats(37, n, 1)), dft(floats(37, n, 2)), dft(floats(37, n, 1), onesided=1)]
        cases += [dft(floats(37, n, 2), inverse=1), dft(floats(37, n, 2), inverse=1, onesided=1)]
        cases += [dft(floats(2, n, 19, 1), axis=1), dft(floats(37, n, 1), n // 2), dft(floats(37, n, 2), n + 9)]
        cases.append(stft(floats(2, 50 * n, 1), n // 2, floats(n), n))
        cases.append(stft(floats(1, 20 * n, 2), n // 3, floats(n), n, onesided=0))
    cases += [dft(floats(19, n, parts).astype(np.float64)) for n in (12, 74) for parts in (1, 2)]
    for case in cases:
        case.threads = (1, 2)
    check(cases)


def test_axes_and_lengths_of_their_own() -> None:
    cases = []
    for axis, length, other in ((0, 4, None), (1, 12, 4), (2, 7, 16), (-2, 12, 7), (-4, 7, None)):
        cases += [dft(floats(5, 6, 9, 1), axis=axis), dft(floats(5, 6, 9, 2), axis=axis, inverse=1)]
        cases.append(dft(floats(5, 6, 9, 1), length, axis, onesided=1))
        cases.append(dft(floats(5, 6, 9, 2), other, axis, inverse=1, onesided=1))
    cases += [dft(floats(2, 9, 2), length) for length in (1, 5, 20, 37)]
    check(cases)


def test_double_precision_and_empty_extents() -> None:
    cases = [dft(floats(3, n, parts).astype(np.float64)) for n in (12, 74, 127, 256) for parts in (1, 2)]
    cases.append(dft(floats(2, 33, 2).astype(np.float64), inverse=1, onesided=1))
    cases.append(dft(floats(0, 8, 1)))
    cases.append(dft(floats(3, 8, 0, 1), axis=1))
    check(cases)


def test_free_sizes() -> None:
    cases = []
    for shape, names in (((3, 12), ("B", 12)), ((3, 12), ("B", "N")), ((3, 37), (3, "N")), ((1, 1), ("B", "N")),
                         ((2, 74), ("B", "N")), ((0, 5), ("B", "N"))):  # fmt: skip
        for parts, attrs in ((1, {}), (2, {}), (1, {"onesided": 1}), (2, {"inverse": 1})):
            case = dft(floats(*shape, parts), **attrs)
            dims = [symbol(d) if isinstance(d, str) else d for d in names]
            bins = dims[1] // 2 + 1 if attrs.get("onesided") else dims[1]
            case.symbolic = {"x": (*names, parts)}
            case.types = {"y": TensorType(DType.F32, (dims[0], bins, 2))}
            cases.append(case)
    check(cases)


def test_signals_of_an_unlikely_number_fill_vectors() -> None:
    """A number of frames is an expression, which may be small for a likely length of the signal."""
    target = detect()
    for shape, lanes in ((("N // 1000", 12, 1), target.lanes), ((1, 12, 1), 1), (("batch", 12, 1), 1)):
        case = dft(floats(1, 12, 1))
        graph = harness.make_graph(
            list(case.nodes), case.inputs, symbolic_shapes={"x": shape},
            types={"y": TensorType(DType.F32, (parse(str(shape[0])), 12, 2))},
        )  # fmt: skip
        items, _ = harness.lower(graph, target=target)
        assert items is not None
        assert [item.kernel.params["lanes"] for item in items if isinstance(item, Step)] == [lanes]


def stft(x: Array, step: int, window: Array | None, length: int | None, *, constant: bool = True, **attrs: Any) -> Case:
    n = length if length is not None else len(window) if window is not None else x.shape[1]
    frames = max((x.shape[1] - n) // step + 1, 0)
    signal = x[..., 0] + 1j * (x[..., 1] if x.shape[-1] == 2 else 0)
    cut = (
        np.stack([signal[:, i * step : i * step + n] for i in range(frames)], 1) if frames else np.zeros((len(x), 0, n))
    )
    found = np.fft.fft(cut * (1 if window is None else window), axis=-1)
    found = found[..., : n // 2 + 1] if attrs.get("onesided", 1) else found
    names = ("x", "s", "" if window is None else "w", "" if length is None else "n")
    inputs, constants = {"x": x}, {"s": np.array(step)} | ({} if length is None else {"n": np.array(length)})
    if window is not None:
        (constants if constant else inputs)["w"] = window
    expected = {"y": np.stack((found.real, found.imag), -1).astype(x.dtype)}
    atol = (2e-6 if x.dtype == np.float32 else 1e-14) * (float(np.abs(found).max(initial=0)) or 1)
    return Case([Node("STFT", names, ("y",), attrs)], inputs, constants, expected=expected, rtol=0, atol=atol)


def test_stft() -> None:
    cases = []
    for n, step in ((16, 4), (25, 10), (37, 5), (400, 160)):
        window = np.asarray(np.hanning(n), np.float32)
        for constant in (True, False):
            cases.append(stft(floats(2, 1000, 1), step, window, n, constant=constant))
        cases.append(stft(floats(1, 500, 2), step, window, None, onesided=0))
        cases.append(stft(floats(1, 500, 1), step, None, n, onesided=0))
    cases.append(stft(floats(2, 64, 1), 3, None, None))
    cases.append(stft(floats(2, 10, 1), 3, None, 16))
    cases.append(stft(floats(1, 300, 1).astype(np.float64), 7, np.hanning(30), 30))
    check(cases)


def test_stft_of_free_sizes() -> None:
    cases = []
    for length in (160, 7, 400):
        case = stft(floats(2, length, 1), 5, floats(16), None)
        case.symbolic = {"x": ("B", "T", 1)}
        frames = symbol("T") - 16
        case.types = {"y": TensorType(DType.F32, (symbol("B"), frames // 5 + 1, 9, 2))}
        if length > 16:
            cases.append(case)
    check(cases)


def test_a_real_signal_may_lack_its_last_axis() -> None:
    """Some exporters write it so, and ONNX Runtime takes it; it may be shorter than a frame."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17]> g (float[B, T] x) => (float[B, F, 9, 2] y) <float[16] w> {
            s = Constant<value_int = 5>() y = STFT(x, s, w) }"""
    )
    window = floats(16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(window, "w"))
    program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {}
    for batch, length in ((2, 160), (1, 16), (2, 7), (0, 40)):
        x = floats(batch, length)
        expected = stft(x[..., None], 5, window, None).expected["y"]
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
def test_onnx_runtime_agrees(onesided: int) -> None:
    names = ("x", "s", "w", "n")
    constants = {"s": np.array(8), "w": floats(32), "n": np.array(32)}
    one = Node("STFT", names, ("y",), {"onesided": onesided})
    two = Node("DFT", ("x", "", "a"), ("y",), {"onesided": onesided})
    check([
        Case([one], {"x": floats(2, 200, 1)}, constants, rtol=1e-4, atol=1e-4),
        Case([two], {"x": floats(2, 40, 3, 1)}, {"a": np.array(1)}, rtol=1e-4, atol=1e-4),
    ])  # fmt: skip


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
def test_models_of_all_opsets(opset: int, dtype: str) -> None:
    """The axis is an attribute at first, then an input; with f16, the transform is computed in f32."""
    kind = np.dtype({"float": "f4", "float16": "f2", "double": "f8"}[dtype])
    body = "y = DFT<axis = 1>(x)" if opset == 17 else "a = Constant<value_int = 1>() y = DFT(x, , a)"
    ports = f"({dtype}[B, 12, 3, 1] x) => ({dtype}[B, 12, 3, 2] y)"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> g {ports} {{ {body} }}')
    x = RNG.standard_normal((2, 12, 3, 1)).astype(kind)
    program = rewrite.compile(proto, threads=1)
    assert program.fallbacks() == {}
    found, expected = program.run({"x": x})["y"], np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    assert found.dtype == kind
    rtol = {2: 2e-3, 4: 1e-5, 8: 1e-13}[kind.itemsize]
    np.testing.assert_allclose(found, np.stack((expected.real, expected.imag), -1), rtol=rtol, atol=rtol * 5)
