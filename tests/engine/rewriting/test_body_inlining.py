"""Rules about the bodies of If, Loop and Scan, from the model to the optimized model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from rewrite.tests.project.rule_models import HEAD, MODELS

RULES = """
rule if_to_where                               # cheap branches run both
  If(c, then_branch: a, else_branch: b)  =>  Where(c, inline(a)[0], inline(b)[0])
  where node_count(a) <= 2, node_count(b) <= 2
  class exact

rule if_same                                   # both branches compute the same
  If(c, then_branch: a, else_branch: b)  =>  inline(a)[0]
  where same(inline(a)[0], inline(b)[0])
  class exact

rule loop_dead                                 # no run leaves what is carried
  Loop(n, c = none, v[*], body: b)[i]  =>  v[i]
  where scalar(n) == 0
  class exact

rule loop_unroll                               # a few runs, written out
  Loop(n, c = none, v[*], body: b)[i]  =>  iterate(b, scalar(n), v[*])[i]
  where scalar(n) <= 4, c is none
  class exact

rule scan_to_vector                            # elementwise runs are one
  Scan(x[*], num_scan_inputs: k, body: b)[i]  =>  inline(b, x[*])[i]
  where len(x[*]) == k, pointwise(b)
  class exact
"""


@pytest.fixture
def optimized(tmp_path: Path) -> Callable[..., list[str]]:
    """Return the operators of a model after one of the rules, and compare its results with those of the original."""

    def run(text: str, rule: str) -> list[str]:
        path = tmp_path / "bodies.rules"
        (chosen,) = (part for part in RULES.split("\nrule ") if part.startswith(rule))
        path.write_text("op Add kind elementwise\nop Mul kind elementwise\nop Neg kind elementwise\nrule " + chosen)
        model = onnx.parser.parse_model(HEAD + text)
        onnx.checker.check_model(model)
        result: Any = rewrite.optimize(model, rules=[str(path)], std_rules=False)
        return [node.op_type for node in result.model.graph.node]

    return run


BRANCHES = """g (bool c, float[2] x) => (float[2] z) {{
  z = If (c) <then_branch = t () => (float[2] p) {{ p = {then} (x) }},
              else_branch = e () => (float[2] q) {{ q = {other} (x) }}>
}}"""


def test_cheap_branches_become_a_choice(optimized: Callable[..., list[str]]) -> None:
    found = optimized(BRANCHES.format(then="Neg", other="Relu"), "if_to_where")
    assert sorted(found) == ["Neg", "Relu", "Where"]


def test_equal_branches_are_one(optimized: Callable[..., list[str]]) -> None:
    assert optimized(BRANCHES.format(then="Neg", other="Neg"), "if_same") == ["Neg"]
    assert optimized(BRANCHES.format(then="Neg", other="Relu"), "if_same") == ["If"]


LOOP = """g (float[2] x, float[2] y) => (float[2] z, float[2] w, float[{times}, 2] s)
<int64 n = {{{times}}}> {{
  z, w, s = Loop (n, , x, y) <body = b (int64 i, bool go, float[2] p, float[2] q)
      => (bool on, float[2] p1, float[2] q1, float[2] out) {{
    on = Identity (go)
    p1 = Add (p, q)
    q1 = Mul (q, x)
    out = Neg (p1)
  }}>
}}"""


def test_a_short_loop_is_written_out(optimized: Callable[..., list[str]]) -> None:
    found = optimized(LOOP.format(times=3), "loop_unroll")
    assert found.count("Add") == 3
    assert "Loop" not in found
    assert "Loop" in optimized(LOOP.format(times=5), "loop_unroll")


def test_a_loop_with_one_output_has_a_first(optimized: Callable[..., list[str]]) -> None:
    text = """g (float[2] x) => (float[2] z) <int64 n = {2}> {
  z = Loop (n, , x) <body = b (int64 i, bool go, float[2] p) => (bool on, float[2] q) {
    on = Identity (go)
    q = Neg (p)
  }>
}"""
    assert optimized(text, "loop_unroll") == ["Neg", "Neg"]


def test_a_loop_that_does_not_run_is_what_it_carries(optimized: Callable[..., list[str]]) -> None:
    text = LOOP.format(times=0).replace(", float[0, 2] s)", ")")
    assert "Loop" not in optimized(text, "loop_dead")
    assert "Loop" in optimized(LOOP.format(times=1).replace(", float[1, 2] s)", ")"), "loop_dead")


SCAN = """g (float[5, 2] x, float[5, 2] y, float[{shape}] k) => (float[5, 2] z, float[5, 2] w) {{
  z, w = Scan <num_scan_inputs = 2, body = b (float[2] p, float[2] q) => (float[2] r, float[2] s) {{
    r = Add (p, q)
    s = {op} (r, k)
  }}> (x, y)
}}"""


def test_elementwise_runs_are_one_application(optimized: Callable[..., list[str]]) -> None:
    assert sorted(optimized(SCAN.format(op="Mul", shape="2"), "scan_to_vector")) == ["Add", "Mul"]
    assert optimized(SCAN.format(op="MatMul", shape="2, 2"), "scan_to_vector") == ["Scan"]


def run(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    """The outputs of a model on fixed inputs, computed by ONNX Runtime."""
    import onnxruntime

    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        boolean = value.type.tensor_type.elem_type == onnx.TensorProto.BOOL
        feeds[value.name] = np.ones(shape, bool) if boolean else rng.standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def optimized_as_before(text: str, **options: Any) -> onnx.GraphProto:
    """Return the graph of a model after some rules, and compare its results with those of the original."""
    model = onnx.parser.parse_model(HEAD + text)
    result: Any = rewrite.optimize(model, **options).model
    onnx.checker.check_model(result, full_check=True)
    for before, after in zip(run(model), run(result), strict=True):
        np.testing.assert_allclose(before, after, rtol=1e-5)
    return result.graph


def body_of(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The body of the only Loop of a graph."""
    (loop,) = (node for node in graph.node if node.op_type == "Loop")
    return next(a.g for a in loop.attribute if a.name == "body")


def operators(graph: onnx.GraphProto) -> list[str]:
    return sorted(node.op_type for node in graph.node if node.op_type != "Identity")


def test_bodies_written_out_read_each_their_own_values() -> None:
    graph = optimized_as_before("""g (float[4, 4] x, bool c) => (float[4, 4] z) <int64 n = {3}> {
  z = Loop (n, , x) <body = b (int64 i, bool go, float[4, 4] p) => (bool on, float[4, 4] r) {
    on = Identity (go)
    s = Sin (p)
    r = If (c) <then_branch = t () => (float[4, 4] a) { a = MatMul (s, p) },
                else_branch = e () => (float[4, 4] d) { d = MatMul (p, s) }>
  }>
}""")
    assert operators(graph) == ["If", "If", "If", "Sin", "Sin", "Sin"]


@pytest.mark.parametrize(
    ("name", "outside", "inside", "carried"),
    [
        ("loop_invariant", ["Loop", "MatMul", "Softmax"], ["Add", "Mul"], 2),
        ("loop_unchanged", ["Loop", "Sin"], ["Add"], 1),
        ("loop_unread", ["Loop"], ["Sin"], 1),
        ("loop_twins", ["Loop"], ["Add", "Sin"], 2),
    ],
)
def test_a_loop_gets_another_body(name: str, outside: list[str], inside: list[str], carried: int) -> None:
    rules = [str(Path(rewrite.__file__).parent / "rules" / "control.rules")]
    graph = optimized_as_before(MODELS[name], rules=rules, std_rules=False)
    assert operators(graph) == outside
    assert operators(body_of(graph)) == inside
    assert len(body_of(graph).input) == 2 + carried


def test_rules_of_a_body_see_constants_that_are_computed_in_it() -> None:
    square = "k = Constant <value_int = 2> ()  l = Cast <to = 1> (k)  m = Pow (p, l)  r = Add (m, u)"
    graph = optimized_as_before(MODELS["loop_invariant"].replace("r = Add (p, u)", square))
    assert operators(graph) == ["Loop", "MatMul", "Softmax"]
    assert "Pow" not in operators(body_of(graph))


def test_products_that_may_not_be_defined_stay_in_a_loop_that_may_not_run() -> None:
    sizes = MODELS["loop_of_products"].replace("float[5, 1, 2] x, float[2, 2] k", "float[5, 1, A] x, float[B, 2] k")
    text = sizes.replace("s = Mul (r, q)", "s = Relu (r)")
    rules = [str(Path(rewrite.__file__).parent / "rules" / "control.rules")]
    graph = rewrite.optimize(onnx.parser.parse_model(HEAD + text), rules=rules, std_rules=False).model.graph
    assert operators(graph) == ["Loop"]
    assert "MatMul" in operators(body_of(graph))


@pytest.mark.parametrize(("op", "widened"), [("Mul", True), ("PRelu", False)])
def test_flags_that_an_operator_reads_by_their_rank_keep_it(op: str, widened: bool) -> None:
    """The slope of PRelu may not have more axes than its data."""
    text = f"""g (float[2] x, float go, float[1] no, float half, bool c) => (float[2] z) <int64 n = {{9}}> {{
  z, f = Loop (n, , x, go) <body = b (int64 i, bool on, float[2] p, float[] q) => (bool more, float[2] r, float[] s) {{
    r = Sin (p)
    t = {op} (half, q)
    s = If (c) <then_branch = t () => (float[] a) {{ a = Add (q, no) }},
                else_branch = e () => (float[] d) {{ d = Identity (t) }}>
    more = Less (s, half)
  }}>
}}"""
    rules = [str(Path(rewrite.__file__).parent / "rules" / name) for name in ("control.rules", "operators.rules")]
    optimized = rewrite.optimize(onnx.parser.parse_model(HEAD + text), rules=rules, std_rules=False)
    assert ("Reshape" in [node.op for node in optimized.native.nodes]) == widened


@pytest.mark.parametrize(
    ("name", "outside", "inside", "inputs"),
    [
        ("scan_of_products", ["MatMul", "Scan"], ["Add", "MatMul", "Mul", "Tanh"], 3),
        ("scan_of_one_of_products", ["MatMul", "MatMul", "Scan"], ["Max"], 2),
        ("scan_products", ["Scan"], ["Add", "MatMul"], 2),
    ],
)
def test_pieces_are_multiplied_before_a_scan(name: str, outside: list[str], inside: list[str], inputs: int) -> None:
    rules = [str(Path(rewrite.__file__).parent / "rules" / "control.rules")]
    graph = optimized_as_before(MODELS[name], rules=rules, std_rules=False)
    assert operators(graph) == outside
    (scan,) = (node for node in graph.node if node.op_type == "Scan")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in scan.attribute}
    assert operators(attributes["body"]) == inside
    assert len(attributes["body"].input) == len(scan.input) == inputs
    assert attributes["num_scan_inputs"] == inputs - (name == "scan_of_products")


def test_nodes_hoisted_from_an_inner_loop_are_in_the_outer_one() -> None:
    graph = optimized_as_before("""g (float[8, 8] x) => (float[8, 8] z) <int64 n = {9}> {
  z = Loop (n, , x) <body = b (int64 i, bool go, float[8, 8] p) => (bool on, float[8, 8] r) {
    on = Identity (go)
    m = Constant <value_int = 7> ()
    q = Tanh (p)
    r = Loop (m, , q) <body = c (int64 j, bool going, float[8, 8] s) => (bool more, float[8, 8] u) {
      more = Identity (going)
      t = Softmax (q)
      u = Add (s, t)
    }>
  }>
}""")
    assert operators(body_of(graph)) == ["Loop", "Softmax", "Tanh"]
    assert operators(body_of(body_of(graph))) == ["Add"]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("loop_invariant", "Loop(n, c, drop(v[*], [0])[*], body: captured(b, [0], v[*]))[i]"),
        ("loop_unchanged", "Loop(n, c, drop(v[*], [1])[*], body: without(b, [1]))[0]"),
        ("loop_no_twins", "Loop(n, c, drop(v[*], [1])[*], body: merged(b, v[*]))[i]"),
        ("loop_9", "Loop(n, c, v[*], body: hoisted(b))[i]"),
    ],
)
def test_a_body_is_not_made_that_would_compute_something_else(tmp_path: Path, name: str, right: str) -> None:
    path = tmp_path / "wrong.rules"
    path.write_text(f"rule wrong\n  Loop(n, c = none, v[*], body: b)[i]  =>  {right}\n  class exact\n")
    model = onnx.parser.parse_model(HEAD + MODELS[name])
    result: Any = rewrite.optimize(model, rules=[str(path)], std_rules=False)
    assert [rule.applied for rule in result.report.rules if rule.name == "wrong"] == [0]


def test_what_differs_from_run_to_run_stays_in_the_loop() -> None:
    model = onnx.parser.parse_model(
        HEAD
        + """g (float[2] x) => (float[2] z) <int64 n = {9}> {
  z = Loop (n, , x) <body = b (int64 i, bool go, float[2] p) => (bool on, float[2] r) {
    on = Identity (go)
    t = RandomNormalLike (x)
    r = Add (p, t)
  }>
}"""
    )
    graph = rewrite.optimize(model).model.graph
    assert operators(graph) == ["Loop"]
    assert operators(body_of(graph)) == ["Add", "RandomNormalLike"]


COPIES = """m (float[1] x, int64 n) => (int64 z) {
  three = Constant<value_int=3>()
  zero = Constant<value_int=0>()
  last, z = Loop (three, , x, zero) <body = outer (int64 i, bool on, float[K] s, int64 acc)
      => (bool go, float[K2] s2, int64 acc2) {
    go = Identity (on)
    s2 = Concat<axis=0> (s, s)
    f = Cast<to=1> (i)
    square = Constant<value_ints=[300,300]>()
    e = Expand (f, square)
    m1 = MatMul (e, e)
    m2 = MatMul (m1, m1)
    m3 = Tanh (m2)
    r = ReduceMax<keepdims=0> (m3)
    ri = Cast<to=7> (r)
    acc1 = Add (acc, ri)
    u2, acc2 = Loop (n, , s, acc1) <body = inner (int64 j, bool inner_on, float[L] u, int64 t)
        => (bool inner_go, float[L] u1, int64 t1) {
      inner_go = Identity (inner_on)
      u1 = Identity (u)
      k = Size (u)
      t1 = Add (t, k)
    }>
  }>
}"""
"""A Loop of three iterations, in which a carried value doubles, around one that adds its size up."""


def test_copies_of_a_body_keep_the_sizes_of_their_places() -> None:
    """Unrolled, the inner Loop stands three times, with values of other sizes each time."""
    import onnxruntime as ort

    original = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{COPIES}').SerializeToString()
    feeds = {"x": np.zeros(1, np.float32), "n": np.array(2)}
    wanted = ort.InferenceSession(original).run(None, feeds)[0]
    assert wanted == 16
    result = rewrite.optimize(original).model.SerializeToString()
    assert ort.InferenceSession(result).run(None, feeds)[0] == wanted
    assert rewrite.compile(original).run(feeds)["z"] == wanted
