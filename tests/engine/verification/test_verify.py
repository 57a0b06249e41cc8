from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from rewrite.engine.ir.detached_model import DETACHED, DetachedModel
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.engine.ir.protos import set_location
from rewrite.engine.ir.symbolic import symbol
from rewrite.engine.onnx_io.importer import read
from rewrite.engine.operators.reference_runtime import Copies, Unavailable, onnx_runtime, reference_evaluator, runner
from rewrite.engine.verification import verify
from rewrite.engine.verification.compare import compare
from rewrite.engine.verification.random_inputs import assignments, make_inputs
from rewrite.engine.verification.verify import Verification, check_model, computed_in, culprit, write_reproducer
from rewrite.errors import UserError

F32 = DType.F32


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>' + text)


RELU = model("main (float[N, 4] x) => (float[N, 4] y) { h = Mul(x, x) y = Relu(h) }")
SAME = model("main (float[N, 4] x) => (float[N, 4] y) { y = Mul(x, x) }")
WRONG = model("main (float[N, 4] x) => (float[N, 4] y) { y = Add(x, x) }")
GRAPH = Graph(inputs=("x",), outputs=("y",), types={"x": TensorType(F32, (symbol("N"), 4))})


def test_equal_models_pass_on_two_sizes() -> None:
    found = check_model(RELU, SAME, GRAPH)
    assert found.ok
    assert found.compared == 2
    assert found.oracle == "onnxruntime"
    assert found.as_json()["ok"] is True


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("prefix", [0, 1])
def test_models_are_run_without_copies_of_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool, prefix: int
) -> None:
    """With external data or without, and wherever in the file tensors begin; unaligned ones are copied once."""
    monkeypatch.setattr(verify, "_LARGE", 1)
    text = "main (float[N, 64] x) => (float[N, 64] y) { h = MatMul(x, w) y = Add(h, b) }"
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((64, 64), np.float32), "b": rng.standard_normal((64, 64), np.float32)[0]}
    plain = model(text)
    plain.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    plain.graph.name = "g" * (1 + prefix)
    path = tmp_path / "m.onnx"
    onnx.save(plain, path, save_as_external_data=elsewhere, location="m.data", size_threshold=0)
    graph = read(path, mapped=True)
    copies = Copies()
    source = verify.source_model(path, detached=True)
    assert isinstance(source, DetachedModel)
    apart = onnx_runtime(source, copies=copies)
    x = {"x": rng.standard_normal((3, 64), np.float32)}
    np.testing.assert_allclose(apart.run(x)["y"], onnx_runtime(path).run(x)["y"], rtol=1e-5)
    assert len(copies) == sum(not array.flags.aligned for array in source.tensors.values())
    again = verify.source_model(graph, detached=True)
    before = len(copies)
    np.testing.assert_array_equal(onnx_runtime(again, copies=copies).run(x)["y"], apart.run(x)["y"])
    assert elsewhere or len(copies) == before
    found = check_model(path, graph, graph)
    assert found.ok
    assert found.compared == 2
    wrong = replace(graph, constants={**graph.constants, "w": Constant(weights["w"] * np.float32(1.01))})
    assert not check_model(path, wrong, graph).ok


def test_copies_live_as_long_as_the_function_that_reads_them(tmp_path: Path) -> None:
    """ONNX Runtime does not hold the memory of tensors that it shares."""
    w = np.random.default_rng(0).standard_normal((512, 1024), np.float32)
    shared = model("main (float[2, 512] x) => (float[2, 1024] y) { y = MatMul(x, w) }")
    shared.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    buffer = np.empty(w.nbytes + 1, np.uint8)
    unaligned = np.frombuffer(buffer.data, np.float32, w.size, offset=1).reshape(w.shape)
    unaligned[...] = w
    apart = shared.graph.initializer[0]
    apart.ClearField("raw_data")
    set_location(apart, DETACHED)
    run = onnx_runtime(DetachedModel(shared, {"w": unaligned})).run
    gc.collect()
    taken = [np.full(w.shape, np.nan, np.float32) for _ in range(20)]  # of the copy, if it is free
    found = run({"x": np.ones((2, 512), np.float32)})["y"]
    del taken
    np.testing.assert_allclose(found[0], w.sum(0), atol=1e-3)


def test_tensors_of_bodies_may_be_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read into a model whose other weights are not copied: it has no folder in which to look for them."""
    monkeypatch.setattr(verify, "_LARGE", 1)
    branches = " ".join(
        f"{name} = {kind} () => (float[64] {kind}y) <float[64] w> {{ {kind}y = Identity (w) }}"
        for name, kind in (("then_branch", "t"), ("else_branch", "e"))
    ).replace(" else_branch", ", else_branch")
    conditional = model(f"main (float[64] x, bool c) => (float[64] y) {{ z = If <{branches}> (c) y = Mul (x, z) }}")
    for number, attribute in enumerate(conditional.graph.node[0].attribute):
        array = np.arange(64, dtype=np.float32) + number
        attribute.g.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(conditional, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").stat().st_size >= 512
    graph = read(path, mapped=True)
    source = verify.source_model(path, detached=True)
    assert isinstance(source, DetachedModel)
    feeds = {"x": np.ones(64, np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(onnx_runtime(source).run(feeds)["y"], onnx_runtime(path).run(feeds)["y"])
    assert check_model(path, graph, graph).compared


def test_a_wrong_model_fails_with_its_output_and_sizes_named() -> None:
    found = check_model(RELU, WRONG, GRAPH)
    assert not found.ok
    assert "output 'y'" in str(found)
    assert "sizes N = " in str(found)
    assert found.inputs is not None
    assert found.max_rel > 1e-2


def test_outputs_near_zero_tell_little_and_other_sizes_are_tried() -> None:
    def near(scale: str) -> onnx.ModelProto:
        return model(
            f"main (float[N, 4] x) => (float[N, 4] y) <float k = {{{scale}}}, float o = {{1}}>"
            "{ s = Sigmoid(x) h = Mul(s, k) p = Add(h, o) y = Sub(p, o) }"
        )

    found = check_model(near("3e-7"), near("2e-7"), GRAPH)
    assert found.ok
    assert found.compared > 2
    assert "near 0" in str(found)
    assert not check_model(near("3e-4"), near("2e-4"), GRAPH).ok


def test_a_model_that_is_right_only_for_one_size_fails() -> None:
    fixed = model("main (float[N, 4] x) => (float[N, 4] y) <int64[2] s = {1, 4}> { h = Mul(x, x) y = Reshape(h, s) }")
    found = check_model(RELU, fixed, GRAPH)
    assert not found.ok
    assert "fails where the original runs" in str(found)


def test_other_implementations_are_compared_too() -> None:
    def program(feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": feeds["x"] * feeds["x"] * (1 + 1e-3)}

    found = check_model(RELU, SAME, GRAPH, others={"the program": program})
    assert not found.ok
    assert "the program differs in output 'y'" in str(found)
    assert check_model(RELU, SAME, GRAPH, others={"the program": program}, numerics="fast").ok


def test_inputs_cannot_be_written_to_by_a_candidate() -> None:
    def program(feeds: Mapping[str, Any]) -> dict[str, Any]:
        y = feeds["x"] * feeds["x"]
        feeds["x"][:] = 0
        return {"y": y}

    assert check_model(RELU, SAME, GRAPH, others={"a": program, "b": program}).ok


def test_models_that_nothing_runs_are_said_not_to_be_verified() -> None:
    odd = model("main (float[4] x) => (float[4] y) { y = Relu(x) }")
    odd.graph.node[0].op_type, odd.graph.node[0].domain = "Thing", "no.such"
    odd.opset_import.append(onnx.helper.make_opsetid("no.such", 1))
    found = check_model(odd, odd, Graph(inputs=("x",), types={"x": TensorType(F32, (4,))}), seconds=20)
    assert found.ok
    assert found.compared == 0
    assert str(found).startswith("not verified")
    assert found.as_json()["ok"] is None


@pytest.mark.parametrize("factor", [2, 3])
def test_operators_that_a_rule_made_are_computed_by_their_definition(tmp_path: Path, factor: int) -> None:
    rules = tmp_path / "own.rules"
    rules.write_text(
        "use com.acme(1)\n\nop com.acme.Gate(x) = x * Sigmoid(x * 2.0)\n  given x: f32\n  class reassoc\n\n"
        f"rule gate\n  x * Sigmoid(x * {factor}.0)  =>  com.acme.Gate(x)\n  class reassoc\n"
    )
    text = f"""<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[4] x) => (float[4] y) {{
        k = Constant<value = float {{{factor}.0}}>() a = Mul(x, k) s = Sigmoid(a) y = Mul(x, s) }}"""
    model = onnx.parser.parse_model(text)
    result = rewrite.optimize(model, rules=[str(rules)])
    assert [node.op_type for node in result.model.graph.node] == ["Gate"]
    found = result.verify(model)
    assert found.ok == (factor == 2)
    assert found.compared
    assert "com.acme by definition" in found.oracle


@pytest.mark.parametrize("seed", [None, 1.0])
def test_random_models_are_not_compared(seed: float | None) -> None:
    attributes, attrs = ("", {}) if seed is None else (f"<seed = {seed}>", {"seed": seed})
    noise = model(f"main (float[4] x) => (float[4] y) {{ y = RandomNormalLike {attributes} (x) }}")
    graph = Graph(
        inputs=("x",),
        nodes=[Node("RandomNormalLike", ("x",), ("y",), attrs)],
        types={"x": TensorType(F32, (4,))},
    )
    assert "random" in str(check_model(noise, noise, graph))


def test_the_reference_evaluator_agrees_and_is_stopped_in_time() -> None:
    x = {"x": np.array([[1, -2, 3, -4]], np.float32)}
    by_reference = reference_evaluator(RELU, seconds=60).run(x)["y"]
    np.testing.assert_array_equal(by_reference, onnx_runtime(RELU).run(x)["y"])
    with pytest.raises(Unavailable, match="did not finish"):
        reference_evaluator(RELU, seconds=0.01).run(x)


def test_old_batch_normalization_is_converted_for_the_reference_evaluator() -> None:
    old = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 9]> main (float[2, 3, 4] x) => (float[2, 3, 4] y)'
        " <float[3] s = {1, 2, 3}, float[3] b = {0, 1, 0}, float[3] m = {1, 1, 2}, float[3] v = {1, 4, 9}>"
        " { y = BatchNormalization(x, s, b, m, v) }"
    )
    x = {"x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)}
    np.testing.assert_allclose(
        reference_evaluator(old).run(x)["y"], onnx_runtime(old).run(x)["y"], rtol=1e-5, atol=1e-6
    )


def test_bfloat16_goes_to_the_reference_evaluator() -> None:
    half = model("main (bfloat16[4] x) => (bfloat16[4] y) { y = Add(x, x) }")
    graph = Graph(inputs=("x",), types={"x": TensorType(DType.BF16, (4,))})
    found = check_model(half, half, graph)
    assert found.oracle == "onnx.reference"
    assert (found.ok, found.compared) == (True, 1)


def test_runner_takes_paths(tmp_path: Path) -> None:
    onnx.save(RELU, tmp_path / "m.onnx")
    assert list(runner(tmp_path / "m.onnx").run({"x": np.ones((1, 4), np.float32)})) == ["y"]


# --- comparison ---


def arr(*values: float, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("a", "b", "numerics", "fine"),
    [
        (arr(1, 100), arr(1.005, 100), "reassoc", True),  # scaled by the largest
        (arr(1, 100), arr(1.05, 100), "reassoc", False),
        (arr(1, 100), arr(1.05, 100), "fast", True),
        (arr(1), np.nextafter(arr(1), arr(2)), "exact", False),
        (arr(0.0), arr(-0.0), "exact", True),
        (arr(np.nan, 1), arr(np.nan, 1), "exact", True),
        (arr(np.nan, 1), arr(1, 1), "fast", False),
        (arr(np.inf), arr(-np.inf), "fast", False),
        (arr(np.inf, 1), arr(np.inf, 1), "exact", True),
        (arr(0, 0), arr(0, 1e-6), "reassoc", False),
        (arr(0, 0), arr(0, 1e-9), "exact", False),
        (arr(3e-8, 0), arr(6e-8, 0), "reassoc", True),  # what is left of probabilities computed near 1
        (arr(3e-8, 0), arr(6e-8, 0), "exact", False),
        (arr(3e-6, 0), arr(6e-6, 0), "reassoc", False),
        (arr(1, dtype=np.int64), arr(2, dtype=np.int64), "fast", False),
        (arr(100, dtype=np.uint8), arr(101, dtype=np.uint8), "reassoc", True),
        (arr(100, dtype=np.uint8), arr(101, dtype=np.uint8), "exact", False),
        (arr(1), arr(1, 1), "fast", False),
        (arr(1), arr(1, dtype=np.float64), "fast", False),
        (np.array(["a"], object), np.array(["b"], object), "fast", False),
        ([arr(1), arr(2)], [arr(1)], "fast", False),
        (None, None, "exact", True),
        (arr(), arr(), "exact", True),
    ],
)
def test_compare(a: Any, b: Any, numerics: str, fine: bool) -> None:
    assert (compare(a, b, numerics).problem == "") is fine


# --- generated inputs ---


def test_a_type_that_is_finer_than_the_arithmetic_promises_nothing() -> None:
    exact, rounded = np.array([1.0, 2.0]), np.array([1.0, 2.00002])
    assert compare(exact, rounded, "reassoc").problem
    assert not compare(exact, rounded, "reassoc", "float32").problem
    assert compare(exact, np.array([1.0, 2.01]), "reassoc", "float32").problem
    assert compare(exact, rounded, "exact", "float32").problem


def test_the_coarsest_arithmetic_behind_each_value() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, double[4] d, bool c) => (double[4] far) {'
        " moved = Cast <to = 11> (x) plain = Add(moved, d)"
        " small = Exp(x) wide = Cast <to = 11> (small) far = Mul(wide, d)"
        " place = ArgMax(small) count = Cast <to = 11> (place) shifted = Add(count, d) }"
    )
    found = computed_in(read(model))
    assert {v: found.get(v, "") for v in ("moved", "plain", "small", "wide", "far", "place", "count", "shifted")} == {
        "moved": "", "plain": "float64", "small": "float32", "wide": "float32", "far": "float32", "place": "",
        "count": "", "shifted": "float64",
    }  # fmt: skip


def test_indices_lie_within_what_they_index() -> None:
    graph = Graph(
        inputs=("ids", "n"),
        nodes=[
            Node("Cast", ("ids",), ("i",), {"to": 7}),
            Node("Gather", ("table", "i"), ("y",), {"axis": 0}),
            Node("ConstantOfShape", ("n",), ("z",)),
        ],
        constants={"table": Constant(np.zeros((3, 8), np.float32))},
        types={"ids": TensorType(DType.I32, (500,)), "n": TensorType(DType.I64, (2,))},
    )
    found = make_inputs(graph)
    assert set(found["ids"].tolist()) == {0, 1, 2}
    assert found["ids"].dtype == np.int32
    assert min(found["n"].tolist()) >= 1


def test_sizes_are_consistent_and_inputs_repeatable() -> None:
    n = symbol("N")
    graph = Graph(
        inputs=("a", "b"), types={"a": TensorType(F32, (n, 2)), "b": TensorType(DType.BOOL, (2, parse("2*N+1")))}
    )
    sizes = {"N": 5}
    a, b = make_inputs(graph, sizes), make_inputs(graph, sizes)
    assert a["a"].shape == (5, 2)
    assert a["b"].shape == (2, 11)
    assert all((a[k] == b[k]).all() for k in a)
    assert not (make_inputs(graph, sizes, seed=1)["a"] == a["a"]).all()
    chosen = [s["N"] for s in assignments(graph)]
    assert len(set(chosen)) >= 2
    assert list(assignments(graph, sizes)) == [sizes]


def test_sizes_at_which_a_tensor_is_empty_are_passed_over() -> None:
    graph = Graph(
        inputs=("x",),
        types={"x": TensorType(F32, (1, 3, symbol("H"), 8)), "pooled": TensorType(F32, (1, 3, parse("H//64"), 8))},
    )
    found = [s["H"] for s in assignments(graph)]
    assert found[0] == 64
    assert min(found) >= 64
    assert [s["H"] for s in assignments(graph, {"H": 8})] == [8]


def test_sizes_of_a_signal_and_its_state_are_found() -> None:
    x, state = TensorType(F32, (symbol("_d0"), symbol("_d1"))), TensorType(F32, (2, symbol("_d2"), 128))
    found = list(assignments(Graph(inputs=("x", "state"), types={"x": x, "state": state})))
    assert {"_d0": 2, "_d1": 576, "_d2": 2} in found
    assert {"_d0": 1, "_d1": 512, "_d2": 1} in found
    assert len(found) < 100


def test_an_image_without_a_batch_is_large_enough_for_its_convolutions() -> None:
    """Both sizes of `x` are more than 8, though the first dim of most inputs is a batch."""
    graph = read(
        model("""g (float[H, W] x, float[1, 1, 9, 9] w) => (float[A, B, C, D] y) {
        axes = Constant<value_ints = [0, 1]>() image = Unsqueeze(x, axes) y = Conv(image, w) }""")
    )
    assert all(min(sizes["H"], sizes["W"]) >= 9 for sizes in assignments(graph))


def test_an_image_that_is_flattened_for_a_product_is_of_the_size_of_its_weights() -> None:
    graph = read(
        model("""g (float[T, F] x, float[60, 3] w) => (float[A, 3] y) {
        k = Constant<value_ints = [1]>() a = Unsqueeze(x, k) c = Concat<axis = 1>(a, a, a, a)
        shape = Constant<value_ints = [-1, 60]>() r = Reshape(c, shape) y = MatMul(r, w) }""")
    )
    assert [sizes["F"] for sizes in assignments(graph)][:2] == [15, 15]
    assert next(iter(assignments(graph, {"F": 30})))["F"] == 30


def test_integers_may_be_lengths_of_other_inputs() -> None:
    text = "g (float[2, T] x, int64[2] lengths, uint8 kind) => (int64[2] y) { y = Neg(lengths) }"
    graph = read(model(text))
    found = [make_inputs(graph, {"T": 1000}, seed, long=True) for seed in range(4)]
    assert max(int(f["lengths"].max()) for f in found) > 100
    assert max(int(make_inputs(graph, {"T": 1000}, seed)["lengths"].max()) for seed in range(4)) < 8
    first = check_model(model(text), model(text), graph)
    assert first.ok
    assert first.compared == 2


def test_one_run_is_with_small_integers() -> None:
    """With all sizes given there is one run: labels far outside their range would hide what the values are."""

    def one_hot(low: int) -> onnx.ModelProto:
        return model(f"""g (float[T] x, int64[1] label) => (float[1, 10] y) {{
            depth = Constant<value_int = 10>() values = Constant<value_floats = [0.0, {low}.0]>()
            y = OneHot(label, depth, values) }}""")

    found = check_model(one_hot(1), one_hot(2), read(one_hot(1)), shapes={"T": 1000})
    assert not found.ok


def test_no_choice_of_sizes_fills_the_memory() -> None:
    graph = Graph(inputs=("x",), types={"x": TensorType(F32, (symbol("H"), symbol("W"), symbol("C")))})
    assert max(np.prod([*sizes.values()], dtype=float) for sizes in assignments(graph)) <= 2**27


def test_integers_that_are_too_large_are_drawn_again() -> None:
    """ONNX Runtime refuses indices outside; how many words there are is not visible."""
    one = model("g (float[T, 9] x, int64 at) => (float[9] y) { b = Mul(at, at) y = Gather(x, b) }")
    found = check_model(one, one, read(one))
    assert found.ok
    assert found.compared == 2


def test_an_input_that_is_compared_takes_every_way_in_turn() -> None:
    graph = read(model("g (int64 rate) => (bool y) { c = Constant<value_int=16000>() y = Equal(rate, c) }"))
    assert [int(make_inputs(graph, seed=seed)["rate"]) for seed in (0, 1, 2)] == [16000, 16001, 16000]


def test_unknown_types_are_refused() -> None:
    with pytest.raises(UserError, match="'x'"):
        make_inputs(Graph(inputs=("x",), types={"x": TensorType(F32, None)}))


# --- culprit search ---


@pytest.mark.parametrize("bad", [{"r7"}, {"r0", "r99"}, {"r3", "r4", "r50"}, set()])
def test_culprit(bad: set[str]) -> None:
    rules = [f"r{i}" for i in range(100)]
    calls = []

    def fails(disabled: frozenset[str]) -> bool:
        calls.append(disabled)
        return not bad & disabled

    assert set(culprit(rules, fails)) == bad
    assert len(calls) == len(set(calls)) < 60


def test_culprit_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing fails"):
        culprit(["a"], lambda disabled: False)


def test_the_reproducer_holds_models_inputs_and_findings(tmp_path: Path) -> None:
    found = check_model(RELU, WRONG, GRAPH)
    place = write_reproducer(tmp_path / "failure", RELU, WRONG, found, ["bad_rule"])
    again = write_reproducer(tmp_path / "failure", RELU, WRONG, found)
    assert (place.name, again.name) == ("failure", "failure-1")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["failure", "failure-1"]
    about = json.loads((place / "failure.json").read_text())
    assert about["rules"] == ["bad_rule"]
    assert about["ok"] is False
    tensor = onnx.load_tensor(place / "input_0.pb")
    feeds = {tensor.name: onnx.numpy_helper.to_array(tensor)}
    a, b = (onnx_runtime(place / f"{name}.onnx").run(feeds)["y"] for name in ("original", "optimized"))
    assert np.abs(a - b).max() > 0.1


def test_findings_are_plain_json() -> None:
    found = Verification(False, np.inf, np.inf, 1, "onnxruntime", "exact", failures=("x",))
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["max_abs"] is None
