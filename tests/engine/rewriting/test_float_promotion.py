"""Promotion of 16-bit floats: what computes in f32, where values are rounded, and what keeps its type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import rewrite
from rewrite.engine import pipeline
from rewrite.engine.ir.graph import DType, Graph
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'  # constants of f16 are written by their bits


def promoted(text: str, numerics: str = "reassoc", std_rules: bool = True) -> Graph:
    options, library = Options(numerics=numerics, std_rules=std_rules), load_rules((), std=std_rules)
    graph = pipeline.promote(pipeline.read(onnx.parser.parse_model(f"{HEAD} {text}"), options, library), options)
    assert graph is not None
    return graph


def chain(graph: Graph) -> list[str]:
    """Operators with the element type of their first operand and of their result."""
    names = []
    for node in graph.nodes:
        first, last = (graph.type(v).dtype for v in (node.inputs[0], node.outputs[0]))
        names.append(f"{node.op} {first}" if first is last else f"{node.op} {first} {last}")
    return names


def test_interface_and_constants_keep_their_types() -> None:
    graph = promoted(
        "m (float16[2,3] x) => (float16[2,3] y) <float16[3] c = {15360, 0, 0}> { s = Add(x, c) y = Exp(s) }"
    )
    assert chain(graph) == ["Cast f16 f32", "Cast f16 f32", "Add f32", "Exp f32", "Cast f32 f16"]
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))
    assert graph.type("x").dtype is graph.type("y").dtype is graph.constants["c"].type.dtype is DType.F16


@pytest.mark.parametrize("std_rules", [True, False])
@pytest.mark.parametrize("jumps", ["Floor", "Tan"])
def test_results_are_rounded_before_discontinuous_operators_only(jumps: str, std_rules: bool) -> None:
    text = f"m (bfloat16[4] x) => (bfloat16[4] y) {{ a = Exp(x) b = {jumps}(a) y = Add(a, b) }}"
    graph = promoted(text, std_rules=std_rules)
    assert chain(graph) == [
        *("Cast bf16 f32", "Exp f32", "Cast f32 bf16", "Cast bf16 f32", f"{jumps} f32"),
        *("Add f32", "Cast f32 bf16"),
    ]
    exp, jump, add = (next(n for n in graph.nodes if n.op == op) for op in ("Exp", jumps, "Add"))
    assert add.inputs == (exp.outputs[0], jump.outputs[0])


def test_every_result_is_rounded_where_bits_count() -> None:
    graph = promoted("m (float16[4] x) => (float16[4] y) { a = Exp(x) y = Neg(a) }", "exact")
    assert chain(graph) == [
        *("Cast f16 f32", "Exp f32", "Cast f32 f16", "Cast f16 f32", "Neg f32", "Cast f32 f16"),
    ]


@pytest.mark.parametrize(
    ("kind", "made", "expected"),
    [
        ("bool[4]", "y = Greater(a, x)", ["Cast f32 f16", "Cast f16 f32", "Greater f32 bool"]),
        ("bool[4]", "y = IsInf(a)", ["Cast f32 f16", "Cast f16 f32", "IsInf f32 bool"]),
        ("int64[1]", "y = ArgMax <axis = 0> (a)", ["Cast f32 f16", "Cast f16 f32", "ArgMax f32 i64"]),
        ("int64[4]", "y = Cast <to = 7> (a)", ["Cast f32 f16", "Cast f16 f32", "Cast f32 i64"]),
        ("double[4]", "y = Cast <to = 11> (a)", ["Cast f32 f64"]),
        ("float[4]", "y = Cast <to = 1> (a)", ["Identity f32"]),
        ("int64[2]", "v, y = TopK <axis = 0> (a, k)", ["Cast f32 f16", "Cast f16 f32", "TopK f32"]),
        (
            "uint8[4]",
            "y = QuantizeLinear(a, s, z)",
            ["Cast f32 f16", "Cast f16 f32", "Cast f16 f32", "QuantizeLinear f32 u8"],
        ),
        ("int64[1]", "y = Shape(a)", ["Shape f32 i64"]),
        (
            "int64[1,1,2]",
            "b = Unsqueeze(a, o) v, y = MaxPool <kernel_shape = [3]> (b)",
            ["Unsqueeze f32", "Cast f32 f16", "Cast f16 f32", "MaxPool f32"],
        ),
    ],
)
def test_operators_whose_meaning_depends_on_the_type(kind: str, made: str, expected: list[str]) -> None:
    graph = promoted(
        f"m (float16[4] x) => ({kind} y)"
        f" <float16 s = {{14336}}, uint8 z = {{3}}, int64[1] k = {{2}}, int64[2] o = {{0, 1}}> {{ a = Exp(x) {made} }}"
    )
    assert chain(graph)[2:] == expected


def test_what_the_model_converts_back_and_forth_is_rounded() -> None:
    graph = promoted("""m (float[4] x) => (float[4] y, float[4] z) {
      h = Cast <to = 10> (x) y = Cast <to = 1> (h) e = Exp(h) z = Cast <to = 1> (e) }""")
    exp = next(n for n in graph.nodes if n.op == "Exp")
    assert exp.inputs == ("x",)  # an island in f32 hands its result over as it is
    back = next(n for n in graph.nodes if n.outputs == ("y",))
    makers = graph.producers()
    assert makers[makers[back.inputs[0]].inputs[0]].attrs["to"] == DType.F16.onnx


def test_moved_inputs_stay_small_and_moved_results_stay_exact() -> None:
    graph = promoted(
        "m (float16[2,3] x) => (float16[3,2] y) { t = Transpose(x) e = Exp(t) u = Transpose(e) y = Transpose(u) }"
    )
    assert chain(graph) == [
        *("Transpose f16", "Cast f16 f32", "Exp f32", "Transpose f32", "Transpose f32", "Cast f32 f16"),
    ]


LOOP = """m (float16[3] x, int64 n) => (float16[3] y, float16[N,3] ys) <float16[3] w = {15360, 16384, 16896}> {
  one = Exp(w)
  y, ys = Loop(n, , x) <body = step (int64 i, bool c, float16[3] h) => (bool d, float16[3] g, float16[3] s)
    { d = Identity(c) g = Mul(h, one) s = Floor(g) }>
}"""


def test_bodies_are_promoted_with_what_they_carry_and_capture() -> None:
    graph = promoted(LOOP)
    loop = next(n for n in graph.nodes if n.op == "Loop")
    body = loop.attrs["body"]
    assert isinstance(body, Graph)
    assert [body.type(v).dtype for v in (body.inputs[2], *body.outputs[1:])] == [DType.F32] * 3
    assert [graph.type(v).dtype for v in (loop.inputs[2], *loop.outputs)] == [DType.F32] * 3
    assert {graph.type(v).dtype for v in body.captures()} == {DType.F32}
    assert "Floor f32" in chain(body)
    exact = next(n for n in promoted(LOOP, "exact").nodes if n.op == "Loop").attrs["body"]
    assert isinstance(exact, Graph)
    assert exact.type(exact.inputs[2]).dtype is DType.F16


def test_branches_agree_in_the_types_of_their_results() -> None:
    graph = promoted("""m (float16[3] x, bool c) => (float16[3] y) {
      e = Exp(x)
      y = If(c) <then_branch = t () => (float16[3] a) { a = Neg(e) },
                 else_branch = f () => (float16[3] b) { b = Identity(x) }>
    }""")
    branch = next(n for n in graph.nodes if n.op == "If")
    assert [body.type(body.outputs[0]).dtype for _, body in branch.subgraphs()] == [DType.F32] * 2
    assert [n.op for n in graph.nodes][-1] == "Cast"


def test_attributes_that_name_a_type_follow() -> None:
    graph = promoted("""m (float16[4,4] x, int64[2] s) => (float16[4,4] y) {
      i = EyeLike <dtype = 10> (x) o = ConstantOfShape <value = float16[1] {16640}> (s)
      a = Add(x, i) y = Mul(a, o) }""")
    made = [n.outputs[0] for n in graph.nodes if n.op in ("EyeLike", "ConstantOfShape")]
    assert [graph.type(v).dtype for v in made] == [DType.F32] * 2


def test_models_without_arithmetic_on_halves_are_left_alone() -> None:
    text = "m (float[4] x) => (float[4] y) <float16[4] w = {1, 2, 3, 4}> { c = Cast <to = 1> (w) y = Add(x, c) }"
    source = pipeline.read(onnx.parser.parse_model(f"{HEAD} {text}"), Options(), load_rules())
    assert pipeline.promote(source, Options()) is None


def test_the_file_keeps_the_types_of_the_model() -> None:
    text = "m (float16[2,3] x) => (float16[2,3] y) <float16[3] c = {1, 2, 3}> { s = Add(x, c) r = Relu(s) y = Relu(r) }"
    result = rewrite.optimize(onnx.parser.parse_model(f"{HEAD} {text}"))
    assert [node.op_type for node in result.model.graph.node] == ["Add", "Relu"]
    assert not [n for n in result.portable.nodes if n.op == "Cast"]
    assert [n.op for n in result.native.nodes].count("Cast") == 2
    assert next(r for r in result.report.rules if r.name == "idempotent").applied == 2  # counted in both graphs


def test_overflow_shows_where_it_is_asked_for() -> None:
    text = "m (float16[2] x) => (bool[2] y, float16[2] z) { s = Add(x, x) y = IsInf(s) d = Add(s, s) z = Div(d, s) }"
    model = onnx.parser.parse_model(f"{HEAD} {text}")
    found = rewrite.compile(model).run({"x": np.array([40000, 1], np.float16)})
    assert found["y"].tolist() == [True, False]
    assert found["z"].tolist() == [2, 2]  # f32 holds 160,000


def test_members_of_a_sequence_keep_their_type() -> None:
    text = """m (float[2,3] x, float16[2,3] z) => (float16[2,3] y) <int64 i = {-2}> {
        a = Cast<to = 10>(x) s = SequenceConstruct(a, z) y = SequenceAt(s, i) }"""
    graph = promoted(text)
    construct = next(node for node in graph.nodes if node.op == "SequenceConstruct")
    assert {graph.type(v).dtype for v in construct.inputs} == {DType.F16}
    x, z = np.full((2, 3), 1 / 3, np.float32), np.zeros((2, 3), np.float16)
    found = rewrite.compile(onnx.parser.parse_model(f"{HEAD} {text}"), threads=1).run({"x": x, "z": z})["y"]
    np.testing.assert_array_equal(found, x.astype(np.float16))


def test_operators_whose_types_are_unknown_stay() -> None:
    """Of an operator of a domain of its own nothing is known: its result would be taken for what it was."""
    text = """<ir_version: 9, opset_import: ["": 18, "own": 1]> m (float16[8, 1] x) => (bool[8, 1] y) {
        r = Relu(x) n = own.Odd(r) y = Equal(n, x) }"""
    options = Options()
    graph = pipeline.promote(pipeline.read(onnx.parser.parse_model(text), options, load_rules()), options)
    assert graph is not None
    odd = next(node for node in graph.nodes if node.op == "own.Odd")
    assert graph.type(odd.inputs[0]).dtype is DType.F16


def test_the_older_group_normalization_is_computed_in_f32() -> None:
    x = np.linspace(-1, 1, 8).astype(np.float16).reshape(8, 1)
    text = f"""{HEAD} m (float16[8, 1] x, float16[1] s) => (bool[8, 1] y)
        {{ n = GroupNormalization<num_groups = 1>(x, s, s) y = Equal(n, x) }}"""
    program = rewrite.compile(onnx.parser.parse_model(text), threads=1)
    assert not program.fallbacks()
    found = program.run({"x": x, "s": np.ones(1, np.float16)})["y"]
    np.testing.assert_array_equal(found, x == 1)  # of one element a group is its own mean: 0 * s + s
