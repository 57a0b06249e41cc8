from __future__ import annotations

import numpy as np
import pytest
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.machine import Machine
from rewrite.engine.extraction.decode import TermValues, decode
from rewrite.engine.extraction.extract import extract
from rewrite.engine.ir.graph import Constant, DType, Graph, Node, TensorType
from rewrite.errors import UserError

from .hand_egraph import HandEGraph, f32


def run(egraph: HandEGraph, original: Graph, fold_bytes: float | None = None) -> Graph:
    cost = CostModel(machine=Machine(), fold_bytes=fold_bytes)
    return decode(egraph, extract(egraph, cost), original)


def graph(inputs: str, outputs: str, nodes: list[Node] | None = None, **constants: object) -> Graph:
    return Graph(
        inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()),
        nodes=nodes or [],
        constants={k: Constant(np.asarray(v)) for k, v in constants.items()},
        ir_version=9,
    )


def text(found: Graph) -> list[str]:
    return [f"{', '.join(n.outputs)} = {n.op}({', '.join(n.inputs)})" for n in found.nodes]


def test_keeps_the_names_of_values_and_nodes() -> None:
    e = HandEGraph()
    x = e.input("x", f32(4))
    hidden = e.add("Relu", [x], origin="first")
    e.roots = {"y": e.add("Exp", [hidden], origin="second")}
    original = graph("x", "y", [Node("Relu", ("x",), ("h",), name="first"), Node("Exp", ("h",), ("y",), name="second")])
    found = run(e, original)
    assert text(found) == ["h = Relu(x)", "y = Exp(h)"]
    assert [n.name for n in found.nodes] == ["first", "second"]
    assert found.types["h"] == f32(4)


def test_new_values_take_no_name_that_is_used_anywhere() -> None:
    e = HandEGraph()
    x = e.input("relu_0", f32(4))
    e.roots = {"relu_1": e.add("Exp", [e.add("Relu", [x])])}
    assert text(run(e, graph("relu_0", "relu_1"))) == ["relu_2 = Relu(relu_0)", "relu_1 = Exp(relu_2)"]


def test_several_outputs_of_one_value() -> None:
    e = HandEGraph()
    y = e.add("Relu", [e.input("x", f32(4))])
    e.roots = {"a": y, "b": y}
    assert text(run(e, graph("x", "a b"))) == ["a = Relu(x)", "b = Identity(a)"]


def test_outputs_that_are_inputs_or_constants() -> None:
    e = HandEGraph()
    x, c = e.input("x", f32(2)), e.const(np.ones(2, np.float32))
    e.roots = {"same": x, "fixed": c, "x": x, "c": c}
    found = run(e, graph("x", "same fixed x c", c=np.ones(2, np.float32)))
    assert text(found) == ["same = Identity(x)", "fixed = Identity(c)"]
    assert list(found.constants) == ["c"]


def test_constants_are_evaluated_once_and_the_dead_ones_go() -> None:
    e = HandEGraph()
    x = e.input("x", f32(2))
    a, b = e.const(np.array([1, 2], np.float32)), e.const(np.array([3, 4], np.float32))
    product = e.add("Mul", [a, b], rule="fold_scale")
    e.roots = {"y": e.add("Add", [x, product]), "z": e.add("Sub", [x, product])}
    found = run(e, graph("x", "y z", a=np.array([1, 2], np.float32), b=np.array([3, 4], np.float32)))
    assert text(found) == ["y = Add(x, const_0)", "z = Sub(x, const_0)"]
    assert found.constants["const_0"].array.tolist() == [3, 8]
    assert list(found.constants) == ["const_0"]
    assert found.nodes[0].rules == ("fold_scale",)


def test_large_transposed_constants_are_not_copied() -> None:
    e = HandEGraph()
    large, small = (np.random.default_rng(0).normal(size=(2, n, 2 * n)).astype(np.float32) for n in (512, 64))
    e.roots = {
        name: e.add("Transpose", [e.const(array)], f32(array.shape[2], 2, array.shape[1]), perm=(2, 0, 1))
        for name, array in (("y", large), ("z", small))
    }
    found = run(e, graph("", "y z", a=large, b=small), fold_bytes=1e9)
    y, z = (c.array for c in sorted(found.constants.values(), key=lambda c: -c.nbytes))
    assert np.shares_memory(y, large)
    assert z.flags.c_contiguous
    for array, original in ((y, large), (z, small)):
        np.testing.assert_array_equal(array, original.transpose(2, 0, 1))
        assert Constant(array) == Constant(np.ascontiguousarray(array))


def test_equal_terms_are_evaluated_once_for_all_extractions() -> None:
    known = TermValues()
    found = []
    for _ in range(2):
        e = HandEGraph()
        c, x = e.const(np.arange(6, dtype=np.float32)), e.input("x", f32(6))
        e.roots = {"y": e.add("Add", [x, e.add("Neg", [e.add("Exp", [c])])])}
        original = graph("x", "y", c=np.arange(6, dtype=np.float32))
        found.append(decode(e, extract(e, CostModel(machine=Machine())), original, evaluated=known))
    [first], [second] = (g.constants.values() for g in found)
    assert first is second
    np.testing.assert_allclose(first.array, -np.exp(np.arange(6)), rtol=1e-6)


def test_what_cannot_be_evaluated_stays_and_what_it_reads_is_still_folded() -> None:
    e = HandEGraph()
    ints = TensorType(DType.I64, (2,))
    zero, one = e.const(np.zeros(2, np.int64)), e.const(np.ones(2, np.int64))
    quotient = e.add("Div", [one, e.add("Add", [zero, zero], ints)], ints)  # no result by ONNX
    e.roots = {"y": e.add("Mul", [e.input("x", ints), quotient])}
    found = run(e, graph("x", "y", zero=np.zeros(2, np.int64), one=np.ones(2, np.int64)))
    assert text(found) == ["div_0 = Div(one, zero)", "y = Mul(x, div_0)"]


def test_large_constants_stay_expressions() -> None:
    e = HandEGraph()
    one, shape = e.const(np.ones(1, np.float32)), e.const(np.array([1000, 1000]))
    e.roots = {"y": e.add("Add", [e.input("x", f32(1000, 1000)), e.add("Expand", [one, shape], f32(1000, 1000))])}
    original = graph("x", "y", one=np.ones(1, np.float32), shape=np.array([1000, 1000]))
    assert text(run(e, original)) == ["expand_0 = Expand(one, shape)", "y = Add(x, expand_0)"]
    assert text(run(e, original, fold_bytes=1e8)) == ["y = Add(x, const_0)"]


def test_several_outputs_of_a_node() -> None:
    e = HandEGraph()
    x = e.input("x", f32(6))
    split = e.add("Split", [x], (f32(2), f32(2), f32(2)), origin="s", axis=0)
    first, last = (e.add("Proj", [split], f32(2), index=i, origin="s") for i in (0, 2))
    e.roots = {"y": e.add("Add", [first, last])}
    original = graph("x", "y", [Node("Split", ("x",), ("a", "", "c"), {"axis": 0}, name="s")])
    assert text(run(e, original)) == ["a, split_unused_0, c = Split(x)", "y = Add(a, c)"]


def test_unread_optional_outputs_are_omitted() -> None:
    e = HandEGraph()
    x = e.input("x", f32(2, 4))
    norm = e.add("LayerNormalization", [x, e.input("g", f32(4)), 0], (f32(2, 4), f32(2, 1), f32(2, 1)))
    e.roots = {"y": e.add("Proj", [norm], f32(2, 4), index=0)}
    assert text(run(e, graph("x g", "y"))) == ["y = LayerNormalization(x, g)"]
    e.roots["d"] = e.add("Proj", [norm], f32(2, 1), index=2)
    assert text(run(e, graph("x g", "y d"))) == ["y, , d = LayerNormalization(x, g)"]


def test_captured_values_keep_their_names() -> None:
    body = Graph(outputs=("o",), nodes=[Node("Add", ("v", "w"), ("o",))])
    e = HandEGraph()
    x, cond = e.input("x", f32(2)), e.input("c", TensorType(DType.BOOL, ()))
    v = e.add("Relu", [x])
    branch = e.add("If", [cond, v, x], f32(2), **{"then_branch": body, "else_branch": body, "$captures": ("v", "w")})
    e.roots = {"y": branch, "v_out": v}
    original = graph("c x", "y v_out")
    found = run(e, original)
    assert text(found) == [
        "v_out = Relu(x)",
        "v = Identity(v_out)",
        "w = Identity(x)",
        "y = If(c)",
    ]
    assert found.nodes[-1].attrs == {"then_branch": body, "else_branch": body}


def test_provenance_names_rules_and_what_was_replaced() -> None:
    e = HandEGraph()
    x = e.input("x", f32(1000, 8))
    sigmoid = e.add("Sigmoid", [x], origin="sig")
    product = e.add("Mul", [x, sigmoid], origin="mul")
    e.add("Swish", [x], rule="recognize_swish", equals=product, alpha=1.0)
    e.roots = {"y": product}
    original = graph(
        "x", "y", [Node("Sigmoid", ("x",), ("s",), name="sig"), Node("Mul", ("x", "s"), ("y",), name="mul")]
    )
    found = run(e, original)
    (node,) = found.nodes
    assert node.rules == ("recognize_swish",)
    assert node.origins == ("mul", "sig")

    from rewrite.engine.extraction.provenance import explain

    text = "\n".join(explain(original, found, "sig"))
    assert "made by  recognize_swish" in text
    assert "stands for mul (Mul), sig (Sigmoid)" in text
    with pytest.raises(UserError, match=r"'sigg'[\s\S]*Did you mean sig"):
        explain(original, found, "sigg")
