"""DynamicQuantizeLSTM: against ONNX Runtime on one thread, and with weights that saturate there against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node

from .oracle import Case, check

Array = NDArray[Any]
OP = "com.microsoft.DynamicQuantizeLSTM"
TOLERANCE = 4e-3
"""A few bytes of the state that round to the other side, times a weight."""
NAMES = ("x", "w", "r", "b", "lengths", "h0", "c0", "p", "ws", "wz", "rs", "rz")


def lstm(
    t: int, b: int, i: int, h: int, dtype: type[np.generic] = np.int8, *,
    most: int = 64, columns: bool = False, zero: int | None = None, state: bool = False, lengths: Sequence[int] = (),
    peepholes: bool = False, bias: bool = True, outputs: Sequence[str] = ("y", "y_h", "y_c"), **attrs: Any,
) -> Case:  # fmt: skip
    """Return a layer of random weights of up to `most`, more for u8.

    ONNX Runtime adds two products of 255 and 64 exactly on every machine. `columns`: each has a scale of its own;
    `zero`: the zero points, by default those of symmetric weights."""
    rng, d = np.random.default_rng((t, b, i, h)), 2 if attrs.get("direction") == "bidirectional" else 1
    shift = 0 if dtype is np.int8 else 128
    scales, zeros = ((d, 4 * h) if columns else (d,)), np.array(shift if zero is None else zero, dtype)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    constants: dict[str, Array] = {}
    for name, k in (("w", i), ("r", h)):
        constants[name] = (rng.integers(-most, most, (d, k, 4 * h)) + shift).astype(dtype)
        constants[f"{name}s"] = (rng.uniform(0.5, 1, scales) / (most * k**0.5)).astype(np.float32)
        constants[f"{name}z"] = np.broadcast_to(zeros, scales).copy()
    if bias:
        constants["b"] = normal(d, 8 * h) / 4
    if peepholes:
        constants["p"] = normal(d, 3 * h) / 4
    inputs: dict[str, Array] = {"x": normal(t, b, i)}
    if lengths:
        inputs["lengths"] = np.array(lengths, np.int32)
    if state:
        inputs |= {"h0": normal(d, b, h) / 2, "c0": normal(d, b, h) / 2}
    given = tuple(name if name in {*inputs, *constants} else "" for name in NAMES)
    made = tuple(name if name in outputs else "" for name in ("y", "y_h", "y_c"))
    node = Node(OP, given, made, {"hidden_size": h, **attrs}, name="lstm")
    return Case([node], inputs, constants, rtol=0, atol=TOLERANCE)


def by_numpy(case: Case) -> dict[str, Array]:
    """Return the outputs of a layer with a bias, an initial state and no lengths, its sums in i64."""
    c = {**case.inputs, **case.constants}
    backwards = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}[
        case.nodes[0].attrs.get("direction", "forward")
    ]
    hidden, states, last = c["r"].shape[1], [], []

    def product(x: Array, d: int, name: str) -> Array:
        low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
        scale = np.float32(1) if low == high else (high - low) / np.float32(255)
        zero = np.rint(np.clip(-low / scale, 0, 255))
        codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64) - np.int64(zero)
        sums = codes @ (c[name][d].astype(np.int64) - c[f"{name}z"][d].astype(np.int64))
        return sums.astype(np.float32) * (scale * c[f"{name}s"][d])

    def sigmoid(x: Array) -> Array:
        return 1 / (1 + np.exp(-x))

    for d, reverse in enumerate(backwards):
        given = product(c["x"], d, "w") + c["b"][d].reshape(2, -1).sum(0)
        h, cell, found = c["h0"][d], c["c0"][d], []
        for x in given[::-1] if reverse else given:
            i, o, f, g = np.split(x + product(h, d, "r"), 4, axis=1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(cell)
            found.append(h)
        states.append(found[::-1] if reverse else found)
        last.append((h, cell))
    y = np.stack([np.stack(found) for found in states], 1)
    assert y.shape[3] == hidden
    return {"y": y, "y_h": np.stack([h for h, _ in last]), "y_c": np.stack([cell for _, cell in last])}


def test_directions_and_sizes() -> None:
    """Widths that fill vectors and words, and widths that do not; one row, and more than a block of them."""
    check(
        [
            lstm(5, 1, 12, 32),
            lstm(6, 1, 7, 19, columns=True),
            lstm(4, 3, 9, 33, direction="reverse"),
            lstm(5, 8, 10, 20, state=True, direction="bidirectional", columns=True),
            lstm(1, 2, 4, 16, bias=False, direction="reverse"),
            lstm(3, 13, 130, 70, direction="bidirectional"),
            lstm(4, 2, 5, 9, outputs=("y_h",)),
            lstm(4, 2, 5, 9, outputs=("y", "y_c"), direction="bidirectional"),
        ]
    )


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_sequences_of_several_lengths(direction: str) -> None:
    """What is behind the longest one has no part in the range of the input."""
    each = [(5, 5, 5), (1, 5, 3), (3, 0, 2), (2, 2, 2), (4, 1, 3)]
    cases = [lstm(5, 3, 7, 19, state=s, lengths=n, direction=direction) for n in each for s in (True, False)]
    cases += [lstm(5, 3, 7, 19, lengths=n, direction=direction, outputs=("y_h", "y_c")) for n in ((5, 2, 4), (1, 3, 3))]
    for case in cases:
        lengths = case.inputs["lengths"]
        case.inputs["x"][max(lengths) :] = 50
    check(cases)


@pytest.mark.parametrize(
    ("dtype", "zero"), [(np.int8, 3), (np.int8, -100), (np.uint8, None), (np.uint8, 40), (np.uint8, 0)]
)
def test_zero_points_and_types(dtype: type[np.generic], zero: int | None) -> None:
    """Weights less their zero points that fit signed bytes, and ones that need the sums of rows."""
    kinds = [{"columns": False}, {"columns": dtype is np.uint8, "direction": "bidirectional", "state": True}]
    cases = [lstm(4, b, i, 19, dtype, zero=zero, **kind) for kind in kinds for b, i in ((1, 8), (3, 7))]
    if dtype is np.uint8:  # all bytes
        cases += [lstm(4, 2, 6, 17, dtype, most=127, zero=zero, columns=True)]
    check(cases)


def test_bounds_peepholes_and_activations() -> None:
    wide = {"direction": "bidirectional", "state": True}
    check(
        [
            lstm(5, 3, 7, 19, peepholes=True),
            lstm(5, 3, 7, 33, peepholes=True, lengths=(5, 2, 4), **wide),
            lstm(5, 3, 7, 19, clip=0.5, **wide),
            lstm(5, 3, 7, 19, input_forget=1, **wide),
            lstm(4, 2, 5, 9, activations=("HardSigmoid", "Softsign", "Relu")),
            lstm(4, 2, 5, 9, activations=("Sigmoid", "Softplus", "LeakyRelu") * 2, direction="bidirectional"),
        ]
    )


def test_sums_do_not_saturate() -> None:
    """Weights up to 127, whose products with bytes add up to more than 16 bits hold."""
    cases = [
        lstm(5, b, i, h, most=127, state=True, columns=True, direction="bidirectional")
        for b, i, h in ((1, 64, 48), (5, 31, 40))
    ]
    for case in cases:
        case.inputs["x"][...] = np.abs(case.inputs["x"])
        case.expected = by_numpy(case)
    check(cases)


def test_batches_and_lengths_known_at_run_time() -> None:
    for t, b in ((5, 1), (1, 3), (4, 11)):
        case = lstm(t, b, 6, 21, state=True, lengths=(t,) * b, direction="bidirectional")
        symbolic = {"x": ("T", "B", 6), "lengths": ("B",), "h0": (2, "B", 21), "c0": (2, "B", 21)}
        case.symbolic, case.threads = symbolic, (1, 2)
        check([case])


def test_layers_that_ask_for_more_are_refused() -> None:
    plain = lstm(5, 1, 10, 20)
    node = plain.nodes[0]
    for attrs in ({"activations": ("ThresholdedRelu", "Tanh", "Tanh")}, {"activation_alpha": (0.3,)}):
        asked = Node(OP, node.inputs, node.outputs, {**node.attrs, **attrs})
        graph = harness.make_graph([asked], plain.inputs, constants=plain.constants)
        assert harness.lower(graph)[0] is None
    for name in ("w", "rs", "wz"):
        constants = {key: value for key, value in plain.constants.items() if key != name}
        graph = harness.make_graph([node], {**plain.inputs, name: plain.constants[name]}, constants=constants)
        assert harness.lower(graph)[0] is None
