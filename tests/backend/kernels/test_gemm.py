"""MatMul, Gemm and recurrent layers against the oracle: edges of tiles, batches, epilogues, run-time sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, make_target
from rewrite.backend.kernels.gemm import matmul, tiles
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node
from rewrite.engine.ir.symbolic import symbol

from .oracle import Array, Case, check

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape), np.float32)


def case(
    nodes: Sequence[Node],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    symbolic: Mapping[str, Sequence[int | str]] | None = None,
    outputs: Sequence[str] | None = None,
) -> Case:
    """Return a case with tolerances for sums of products; types in terms of symbolic dims are inferred."""
    types = {}
    if symbolic:
        types = dict(harness.make_graph(nodes, inputs, constants=constants, symbolic_shapes=symbolic).types)
    return Case(nodes, inputs, constants or {}, outputs, symbolic or {}, types, rtol=1e-4, atol=3e-5, threads=(1, 2, 3))


MATMUL = Node("MatMul", ("x", "w"), ("y",), name="product")


def product(
    a: Sequence[int],
    b: Sequence[int],
    *,
    constant: bool = True,
    symbolic: Mapping[str, Sequence[int | str]] | None = None,
) -> Case:
    x, w = floats(*a), floats(*b) / np.float32(np.sqrt(max(1, b[-2] if len(b) > 1 else b[0])))
    return case([MATMUL], {"x": x} if constant else {"x": x, "w": w}, {"w": w} if constant else {}, symbolic)


def test_constants_without_elements() -> None:
    """Any extent of a constant may be zero: there are no results, or they are zero."""
    shapes = [
        ((0, 4, 8), (0, 8, 5)),
        ((2, 4, 0), (2, 0, 5)),
        ((2, 4, 8), (2, 8, 0)),
        ((0, 8), (8, 5)),
        ((3, 0), (0, 5)),
    ]
    check([product(a, b) for a, b in shapes])
    check([product(a, b, symbolic={"x": (*a[:-2], "M", a[-1])}) for a, b in shapes])


def test_matmul_sizes() -> None:
    sizes = [
        (1, 64, 100),
        (1, 5, 1),
        (7, 1, 1),
        (1, 1, 1),
        (13, 5, 3),
        (49, 33, 47),
        (128, 96, 80),
        (17, 300, 129),
        (3, 7, 16),
    ]
    check(
        [product((m, k), (k, n)) for m, k, n in sizes]
        + [product((m, k), (k, n), constant=False) for m, k, n in sizes[3:7]]
    )


def test_threads_that_divide_rows() -> None:
    """Rows in even and uneven shares, in groups, in blocks of k, and fewer blocks than threads."""
    cases = []
    for m, k, n in ((400, 64, 48), (197, 384, 96), (3000, 300, 40), (150, 3000, 33), (20, 900, 20)):
        w = floats(k, n) / np.float32(np.sqrt(k))
        nodes = [Node("MatMul", ("x", "w"), ("p",)), Node("Add", ("p", "r"), ("s",)), Node("Relu", ("s",), ("y",))]
        made = case(nodes, {"x": floats(m, k), "r": floats(m, n)}, {"w": w})
        cases.append(replace(made, threads=(2, 3, 4, 7)))
    assert tiles._divides_rows(400, 48, 64, 50, 2)
    assert not tiles._divides_rows(20, 20, 900, 3, 2)
    check(cases)


def test_matmul_batches() -> None:
    check(
        [
            product((2, 3, 9, 20), (2, 3, 20, 21), constant=False),
            product((2, 1, 9, 20), (3, 20, 21), constant=False),
            product((2, 1, 9, 20), (3, 20, 21)),
            product((3, 9, 20), (1, 20, 21)),
            product((9, 20), (2, 20, 21)),
            product((20,), (20, 31)),
            product((31, 20), (20,)),
            product((20,), (20,)),
            product((2, 5, 20), (20,)),
            product((20,), (3, 20, 7), constant=False),
            product((0, 20), (20, 7)),
            product((4, 0), (0, 7)),
        ]
    )


def test_matmul_with_dims_of_run_time() -> None:
    rows: dict[str, Sequence[int | str]] = {"x": ("N", "S", 20)}
    cases = [product((n, s, 20), (20, 50), symbolic=rows) for n, s in ((1, 1), (2, 7), (1, 33), (0, 4))]
    every: dict[str, Sequence[int | str]] = {"x": ("N", 2, "S", "K"), "w": ("N", 2, "K", "T")}
    for s, k, t in ((9, 40, 21), (1, 5, 48), (33, 1, 100)):
        cases.append(product((2, 2, s, k), (2, 2, k, t), constant=False, symbolic=every))
    cases.append(product((2, 20, 16), (2, 16, 20), constant=False, symbolic={"x": (2, "S", 16), "w": (2, 16, "S")}))
    check(cases)


def test_matmul_in_parts_of_k_and_packed_at_run_time() -> None:
    check([product((30, 8000), (8000, 50)), product((64, 700), (700, 300), constant=False)])


def test_panels_fetched_ahead() -> None:
    """Weights beyond the second-level cache: the next panel is prefetched during the current one."""
    sizes = [(9, 520, 540), (16, 600, 500), (70, 512, 520), (64, 9000, 50)]
    cases = [product((m, k), (k, n)) for m, k, n in sizes]
    cases += [product((m, 520), (520, 540), symbolic={"x": ("M", 520)}) for m in (1, 2, 35)]
    check(cases)


@pytest.mark.parametrize("gate", ["Relu", "Gelu"])
def test_few_rows_of_any_number_meet_several_panels(gate: str) -> None:
    """All panels and one by one, a partial panel, and rows after those of full tiles; products and stores of each."""
    cases = []
    for k, n in ((40, 200), (300, 131), (33, 96), (2500, 128)):
        w, bias = floats(k, n) / np.float32(np.sqrt(k)), floats(n)
        for m in (1, 2, 3, 5, 7, 9, 11, 57):
            added = [Node("Add", ("y", "b"), ("z",)), Node("Add", ("z", "r"), ("u",))]
            nodes = [MATMUL, *added, Node(gate, ("u",), ("v",))]
            inputs = {"x": floats(m, k), "r": floats(m, n)}
            cases.append(case(nodes, inputs, {"w": w, "b": bias}, {"x": ("M", k), "r": ("M", n)}, ["v"]))
    check(cases)


def test_few_rows_of_a_batch_of_matrices() -> None:
    names: dict[str, Sequence[int | str]] = {"x": ("N", 2, "M", 24), "w": ("N", 2, 24, 96)}
    check([product((3, 2, m, 24), (3, 2, 24, 96), constant=False, symbolic=names) for m in (1, 2, 3, 8)])


def test_how_many_lines_are_fetched_ahead() -> None:
    target = Target("avx512", 64, l2=1 << 20)
    tile = tiles.with_edges(target, 8, 3, 64, 768)
    ahead = [matmul.prefetched_lines(tile, target, m, 768, 768) for m in (8, 9, 16, 24, 64, 1000)]
    assert ahead == [0, 2, 2, 1, 1, 1], "enough for a whole panel over all tiles but one alone"
    assert matmul.prefetched_lines(tile, target, symbol("M"), 768, 768) == 2
    assert matmul.prefetched_lines(tile, target, 64, 48, 64) == 0, "small weights stay in the cache"


@pytest.mark.parametrize("flip_a", [0, 1])
def test_gemm(flip_a: int) -> None:
    cases = []
    for flip_b in (0, 1):
        for addend in ((1,), (50,), (20, 1), (20, 50)):
            a = floats(*((30, 20) if flip_a else (20, 30)))
            b, c = floats(*((50, 30) if flip_b else (30, 50))) / 5, floats(*addend)
            node = Node(
                "Gemm", ("a", "b", "c"), ("y",), {"alpha": 1.5, "beta": 0.5, "transA": flip_a, "transB": flip_b}
            )
            if len(addend) == 1:
                cases.append(case([node], {"a": a}, {"b": b, "c": c}))
            else:
                cases.append(case([node], {"a": a, "b": b, "c": c}))
    check(cases)


def test_epilogues() -> None:
    cases = []
    added = Node("Add", ("y", "b"), ("z",))
    for tail, extra in (
        ([Node("Relu", ("z",), ("o",))], {}),
        ([Node("Gelu", ("z",), ("o",), {"approximate": "none"})], {}),
        ([Node("Relu", ("z",), ("q",)), Node("Add", ("q", "r"), ("o",))], {"r": floats(2, 9, 70)}),
        ([Node("Sigmoid", ("z",), ("q",)), Node("Mul", ("z", "q"), ("o",))], {}),
        ([Node("Mul", ("z", "r"), ("o",))], {"r": floats(2, 9, 1)}),
    ):
        inputs = {"x": floats(2, 9, 40), **extra}
        constants = {"w": floats(40, 70) / 6, "b": floats(70)}
        cases.append(case([MATMUL, added, *tail], inputs, constants))
        names: dict[str, Sequence[int | str]] = {"x": ("N", "S", 40)}
        if extra:
            names["r"] = ("N", "S", extra["r"].shape[-1])
        cases.append(case([MATMUL, added, *tail], inputs, constants, names))
    scaled = [MATMUL, Node("Mul", ("y", "s"), ("z",)), Node("Add", ("z", "mask"), ("o",))]
    inputs = {"x": floats(2, 3, 10, 16), "w": floats(2, 3, 16, 24)}
    check(
        [
            *cases,
            case(scaled, inputs, {"s": np.asarray(0.25, np.float32), "mask": floats(24)}),
        ]
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_are_quantized_before_they_are_stored(dtype: type[np.generic]) -> None:
    """Results of bytes, and operands that are dequantized, beside partial vectors and sums in parts of k."""
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    zero = np.asarray(limits.min + 100, dtype)
    constants = {"s": np.asarray(0.02, np.float32), "zero": zero, "wide": np.asarray(0.013, np.float32)}
    quantize = Node("QuantizeLinear", ("q", "s", "zero"), ("o",), {"axis": 1})
    whole = [Node("DequantizeLinear", ("r", "wide", "zero"), ("d",), {"axis": 1}), Node("Add", ("z", "d"), ("q",))]
    cases = []
    for rows, k, n in ((9, 40, 70), (1, 24, 33), (5, 1900, 24)):
        w, b = floats(k, n) / np.float32(np.sqrt(k)), floats(n)
        inputs = {"x": floats(rows, k), "r": RNG.integers(limits.min, limits.max, (rows, n)).astype(dtype)}
        nodes = [MATMUL, Node("Add", ("y", "b"), ("z",))]
        alone = case(
            [*nodes, Node("Relu", ("z",), ("q",)), quantize], {"x": inputs["x"]}, {"w": w, "b": b, **constants}
        )
        added = case([*nodes, *whole, quantize], inputs, {"w": w, "b": b, **constants})
        cases += [replace(alone, atol=1), replace(added, atol=1)]
    check(cases)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_are_rounded_to_the_steps_of_bytes(dtype: type[np.generic]) -> None:
    """Quantized and dequantized by column, as training for int8 does: the result is f32, the zero points are bytes."""
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    zero = RNG.integers(limits.min + 100, limits.max - 100, 33).astype(dtype)
    constants = {"w": floats(24, 33), "s": np.abs(floats(33)) / 20 + np.float32(0.01), "zero": zero}
    steps = [
        Node(f"{kind}Linear", (x, "s", "zero"), (y,), {"axis": 1})
        for kind, x, y in (("Quantize", "y", "q"), ("Dequantize", "q", "o"))
    ]
    check([replace(case([MATMUL, *steps], {"x": floats(9, 24)}, constants), atol=2 * float(constants["s"].max()))])


def test_an_epilogue_that_needs_other_strides_is_refused() -> None:
    nodes = [MATMUL, Node("Add", ("y", "mask"), ("o",))]
    inputs = {"x": floats(2, 3, 10, 16), "w": floats(2, 3, 16, 24), "mask": floats(2, 1, 1, 24)}
    assert harness.lower(harness.make_graph(nodes, inputs))[0] is None


def recurrent(
    op: str, t: int, b: int, i: int, h: int, *,
    state: bool = False, bias: bool = True, lengths: Sequence[int] = (), peepholes: bool = False, **attrs: Any,
) -> Case:  # fmt: skip
    gates, directions = {"RNN": 1, "LSTM": 4, "GRU": 3}[op], 2 if attrs.get("direction") == "bidirectional" else 1
    constants = {"w": floats(directions, gates * h, i) / 4, "r": floats(directions, gates * h, h) / 4}
    names = ["x", "w", "r", *[""] * 5]
    inputs = {"x": floats(t, b, i)}
    if bias:
        constants["b"] = floats(directions, 2 * gates * h)
        names[3] = "b"
    if state:
        inputs["h0"] = floats(directions, b, h)
        names[5] = "h0"
        if op == "LSTM":
            inputs["c0"] = floats(directions, b, h)
            names[6] = "c0"
    if lengths:
        inputs["lengths"] = np.array(lengths, np.int32)
        names[4] = "lengths"
    if peepholes:
        constants["p"] = floats(directions, 3 * h)
        names[7] = "p"
    while not names[-1]:
        names.pop()
    outputs = ("y", "y_h", "y_c") if op == "LSTM" else ("y", "y_h")
    return case([Node(op, tuple(names), outputs, {"hidden_size": h, **attrs})], inputs, constants)


def test_recurrent_layers() -> None:
    check(
        [
            recurrent("LSTM", 5, 1, 10, 20),
            recurrent("LSTM", 5, 7, 10, 33, state=True, direction="bidirectional"),
            recurrent("LSTM", 1, 3, 4, 16, bias=False, direction="reverse"),
            recurrent("GRU", 5, 1, 10, 20),
            recurrent("GRU", 4, 5, 10, 20, state=True, direction="bidirectional", linear_before_reset=1),
            recurrent("GRU", 4, 9, 10, 17, state=True, direction="bidirectional"),
            recurrent("RNN", 5, 2, 10, 20, direction="bidirectional"),
        ]
    )


def variable(layer: Case, *names: str, symbolic: Mapping[str, Sequence[int | str]] | None = None) -> Case:
    """Return a layer in which these weights, or all, are inputs."""
    inputs = {name: value for name, value in layer.constants.items() if not names or name in names}
    constants = {name: value for name, value in layer.constants.items() if name not in inputs}
    return case(layer.nodes, {**layer.inputs, **inputs}, constants, symbolic)


def test_recurrent_layers_whose_weights_are_known_at_run_time() -> None:
    both = {"direction": "bidirectional"}
    cases = [
        variable(recurrent("LSTM", 5, 1, 10, 20)),
        variable(recurrent("LSTM", 5, 7, 40, 33, state=True, peepholes=True, lengths=(5, 2, 4, 1, 5, 0, 3), **both)),
        variable(recurrent("LSTM", 1, 3, 4, 70, bias=False, direction="reverse", input_forget=1, clip=0.5)),
        variable(recurrent("GRU", 5, 1, 10, 20)),
        variable(recurrent("GRU", 4, 5, 10, 48, state=True, linear_before_reset=1, **both)),
        variable(recurrent("GRU", 4, 9, 17, 17, state=True, **both)),
        variable(recurrent("GRU", 4, 2, 17, 64, bias=False, linear_before_reset=1, direction="reverse")),
        variable(recurrent("RNN", 5, 2, 10, 20, **both)),
        variable(recurrent("RNN", 5, 3, 64, 128)),
    ]
    for name in ("w", "r", "b", "p"):  # beside constant ones
        cases.append(variable(recurrent("LSTM", 3, 2, 7, 19, peepholes=True, **both), name))
    for name in ("w", "r", "b"):
        cases.append(variable(recurrent("GRU", 3, 2, 7, 19, linear_before_reset=1, **both), name))
    for t, b, i in ((1, 1, 1), (4, 9, 33)):
        free = {"x": ("T", "B", "I"), "w": (2, 4 * 20, "I")}
        cases.append(variable(recurrent("LSTM", t, b, i, 20, **both), symbolic=free))
    check(cases)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["RNN", "LSTM", "GRU"])
def test_sequences_of_several_lengths(op: str, direction: str) -> None:
    each = [(5, 5, 5), (1, 5, 3), (3, 0, 2), (2, 2, 2)]
    cases = [recurrent(op, 5, 3, 7, 19, state=s, lengths=n, direction=direction) for n in each for s in (True, False)]
    cases.append(recurrent(op, 6, 9, 3, 8, lengths=(6, 1, 2, 3, 4, 5, 6, 1, 4), direction=direction))
    check(cases)


def test_recurrent_layers_with_bounds_and_other_activations() -> None:
    cases = []
    for op, usual in (("RNN", 1), ("LSTM", 3), ("GRU", 2)):
        cases.append(recurrent(op, 4, 3, 5, 19, clip=0.4, direction="bidirectional"))
        for name in ("Relu", "LeakyRelu", "HardSigmoid", "Softsign", "Softplus"):
            cases.append(recurrent(op, 4, 3, 5, 9, activations=("Sigmoid", name, "Tanh")[:usual][::-1]))
            cases.append(recurrent(op, 2, 1, 5, 9, activations=(name,) * usual, linear_before_reset=1))
    check([c if c.nodes[0].op == "GRU" else _without(c, "linear_before_reset") for c in cases])


def _without(case: Case, attribute: str) -> Case:
    node = case.nodes[0]
    attrs = {key: value for key, value in node.attrs.items() if key != attribute}
    return replace(case, nodes=[replace(node, attrs=attrs)])


def test_peepholes() -> None:
    wide = {"direction": "bidirectional", "state": True}
    check(
        [
            recurrent("LSTM", 5, 3, 7, 19, peepholes=True),
            recurrent("LSTM", 5, 3, 7, 33, peepholes=True, lengths=(5, 2, 4), **wide),
            recurrent("LSTM", 5, 3, 7, 19, peepholes=True, clip=0.5, **wide),
            recurrent("LSTM", 5, 3, 7, 19, input_forget=1, **wide),
        ]
    )


def test_recurrent_layers_that_ask_for_more_are_refused() -> None:
    plain = recurrent("LSTM", 5, 1, 10, 20)
    node = plain.nodes[0]
    for attrs in ({"activations": ("ThresholdedRelu", "Tanh", "Tanh")}, {"activation_alpha": (0.3,)}):
        asked = Node("LSTM", node.inputs, node.outputs, {**node.attrs, **attrs})
        graph = harness.make_graph([asked], plain.inputs, constants=plain.constants)
        assert harness.lower(graph)[0] is None


@pytest.mark.parametrize(("isa", "width"), [("avx512", 64), ("avx2", 32), ("portable", 16)])
def test_tiles_fit_the_registers_and_cover_the_matrix(isa: str, width: int) -> None:
    target = Target(isa, width)
    for rows in (None, 1, 2, 7, 49, 64, 100, 1000):
        for columns in (None, 1, 15, 16, 49, 100, 196, 3136):
            chosen = tiles.choose(target, rows, columns, 256, threads=2)
            assert chosen.mr * chosen.nv + min(chosen.mr, chosen.nv) <= target.registers
            if rows is not None:
                assert rows % chosen.mr == sum(chosen.rest)
            if columns is not None:
                over = columns % (chosen.nv * target.lanes)
                assert (chosen.tail - 1) * target.lanes < over <= chosen.tail * target.lanes or over == chosen.tail == 0
            else:
                assert chosen.tail == -1


def test_panels_are_not_fetched_ahead_on_amd_with_avx2() -> None:
    for target, near in ((Target("avx2", 32), 0), (Target("avx2", 32, intel=True), 16), (Target("avx512", 64), 16)):
        assert tiles.choose(target, 128, 3072, 768).near == near
        assert tiles.choose(target, 128, 3072, 96).near == 0  # a panel stays in the first-level cache


def test_products_of_as_wide_weights_share_a_kernel() -> None:
    target = replace(make_target("avx2"), l2=2 << 20)  # neither's weights are large enough to be fetched ahead

    def step(m: int, k: int, n: int) -> Step:
        graph = harness.make_graph([MATMUL], {"x": floats(m, k)}, constants={"w": floats(k, n)})
        items, _ = harness.lower(graph, target=target)
        assert items is not None
        (found,) = items
        assert isinstance(found, Step)
        return found

    first, second = step(42, 96, 64), step(84, 40, 64)
    assert first.kernel == second.kernel
    assert first.dims != second.dims
    assert step(42, 96, 72).kernel != first.kernel


def test_tall_register_tiles_share_a_kernel() -> None:
    """One pointer per three rows addresses them, unless sums are short."""
    target = Target("avx512", 64, l1=32 << 10, l2=1 << 20, l3=32 << 20)
    kernels = []
    for k in (136, 144, 152, 24, 32):
        graph = harness.make_graph([MATMUL], {"x": floats(196, k)}, constants={"w": floats(k, 32)})
        items, _ = harness.lower(graph, target=target)
        assert items is not None
        [step] = items
        assert isinstance(step, Step)
        kernels.append(step.kernel)
    assert kernels[0].params["tiles"]["mr"] > 8
    assert kernels[0] == kernels[1] == kernels[2]
    assert kernels[3] != kernels[4]
    check([case([MATMUL], {"x": floats(196, k)}, {"w": floats(k, 32)}) for k in (136, 144)])


def test_matmul_by_groups_of_rows() -> None:
    """A beyond the second-level cache, B within the third: known and unknown rows, batches, epilogues."""
    l2 = make_target("native").l2
    k = 96
    rows = l2 // (4 * k) + 61
    constants = {"w": floats(k, 130), "b": floats(130)}
    nodes = [
        Node("MatMul", ("x", "w"), ("t",)),
        Node("Add", ("t", "b"), ("u",)),
        Node("Add", ("u", "r"), ("y",)),
    ]
    cases = []
    for shape, names in (((rows, k), None), ((rows, k), ("M", k)), ((5, k), ("M", k)), ((2, rows, k), ("B", "M", k))):
        inputs = {"x": floats(*shape), "r": floats(*shape[:-1], 130)}
        symbolic = None if names is None else {"x": names, "r": (*names[:-1], 130)}
        cases.append(case(nodes, inputs, constants, symbolic))
    check(cases)


def test_groups_of_rows_follow_the_caches() -> None:
    target = replace(make_target("native"), l2=1 << 20, l3=32 << 20)
    assert matmul.group_rows(target, 1500, 384, 1536) == 85
    assert matmul.group_rows(target, 1500, 1536, 384) == 192
    assert matmul.group_rows(target, symbol("M"), 384, 1536) == 85
    assert matmul.group_rows(target, 100, 384, 1536) == 0  # A fits
    assert matmul.group_rows(target, 197, 3072, 768) == 0  # so does this one
    assert matmul.group_rows(target, 1600, 128, 128) == 112  # A and C together do not
    assert matmul.group_rows(target, 1500, 128, 128) == 0
    assert matmul.group_rows(target, 1600, 4608, 32) == 0  # B is too large to be read again
    assert matmul.group_rows(target, 1500, 3072, 768) == 0  # B would come from memory again
    assert matmul.group_rows(target, 1500, symbol("N"), 768) == 0
