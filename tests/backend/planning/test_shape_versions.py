"""Versions by sizes: Ifs on shapes are decided at compile time, for each combination of branches."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite.backend.bundle.load_bundle import load
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel_graph import Control, ModelPlan, Step
from rewrite.backend.planning.constant_branches import resolve
from rewrite.backend.planning.shape_versions import MAX_VERSIONS, versions_of
from rewrite.backend.runtime.program import Program
from rewrite.engine.onnx_io import importer
from rewrite.errors import UserError

RNG = np.random.default_rng(11)


def squeeze(prefix: str, source: str, axis: int) -> list[onnx.NodeProto]:
    """`source.squeeze(axis)` as exporters write it: an If on the size of that dim; the result is `<prefix>out`."""
    a, one = f"{prefix}axis", f"{prefix}one"

    def constant(name: str, value: int) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array([value])))

    yes = helper.make_graph([helper.make_node("Squeeze", [source, a], [f"{prefix}yes"])], "yes", [],
                            [helper.make_empty_tensor_value_info(f"{prefix}yes")])  # fmt: skip
    no = helper.make_graph([helper.make_node("Identity", [source], [f"{prefix}no"])], "no", [],
                           [helper.make_empty_tensor_value_info(f"{prefix}no")])  # fmt: skip
    return [
        constant(a, axis),
        constant(one, 1),
        helper.make_node("Shape", [source], [f"{prefix}shape"]),
        helper.make_node("Gather", [f"{prefix}shape", a], [f"{prefix}size"]),
        helper.make_node("Equal", [f"{prefix}size", one], [f"{prefix}is"]),
        helper.make_node("If", [f"{prefix}is"], [f"{prefix}out"], then_branch=yes, else_branch=no),
    ]


def make(nodes: list[onnx.NodeProto], shape: list[str | int], more: list[onnx.ValueInfoProto] | None = None,
         constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *(more or [])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def squeezed() -> onnx.ModelProto:
    """softmax(x.squeeze(0)) + 1, whose rank depends on the number of rows."""
    return make(
        [
            helper.make_node("Exp", ["x"], ["e"]),
            *squeeze("q", "e", 0),
            helper.make_node("Softmax", ["qout"], ["s"], axis=-1),
            helper.make_node("Add", ["s", "one"], ["y"]),
        ],
        ["N", 5],
        constants={"one": np.array(1, np.float32)},
    )


def compiled(model: onnx.ModelProto) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return compile_graph(importer.read(model), threads=1)


def agree(program: Program, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    [want] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    [found] = program.run(feeds).values()
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def controls(plan: ModelPlan) -> int:
    return sum(isinstance(i, Control) for i in plan.items) + sum(controls(v.plan) for v in plan.versions)


def test_each_rank_has_a_version_without_fallbacks() -> None:
    model = squeezed()
    program = compiled(model)
    assert [[(str(g.left), str(g.right), g.equal) for g in v.guards] for v in program.plan.versions] == [
        [("N", "1", True)],
        [("N", "1", False)],
    ]
    assert controls(program.plan) == 0
    assert program.fallbacks() == {}
    for n in (1, 3, 1, 2):
        agree(program, model, {"x": RNG.standard_normal((n, 5), np.float32)})


def test_a_dim_that_must_be_one_is_the_number_one() -> None:
    yes, no = compiled(squeezed()).plan.versions
    assert yes.plan.type("x").shape == (1, 5)
    assert str(no.plan.type("x").shape[0]) == "N"  # type: ignore[index]


def test_bundles_hold_all_versions(tmp_path: Path) -> None:
    model = squeezed()
    program = load(compiled(model).save(tmp_path / "m.rewrite"))
    for n in (1, 4):
        agree(program, model, {"x": RNG.standard_normal((n, 5), np.float32)})


def test_wrong_inputs_are_reported_with_versions_too() -> None:
    program = compiled(squeezed())
    for bad in (np.zeros((2, 4), np.float32), np.zeros(5, np.float32), np.zeros((1, 5))):
        with pytest.raises(UserError, match=r"input .x. (has|is)|of input .x. is"):
            program.run({"x": bad})


def test_a_size_asked_for_twice_is_decided_once() -> None:
    model = make(
        [
            *squeeze("p", "x", 0),
            *squeeze("q", "x", 0),
            helper.make_node("Add", ["pout", "qout"], ["y"]),
        ],
        ["N", 5],
    )
    program = compiled(model)
    assert len(program.plan.versions) == 2
    for n in (1, 3):
        agree(program, model, {"x": RNG.standard_normal((n, 5), np.float32)})


def test_two_questions_make_four_versions() -> None:
    model = make([*squeeze("p", "x", 1), *squeeze("q", "pout", 0), helper.make_node("Relu", ["qout"], ["y"])],
                 ["N", "M", 5])  # fmt: skip
    program = compiled(model)
    assert len(program.plan.versions) == 4
    for shape in ((1, 1, 5), (2, 1, 5), (1, 2, 5), (2, 3, 5)):
        agree(program, model, {"x": RNG.standard_normal(shape, np.float32)})


def test_a_version_that_always_fails_is_not_warned_of() -> None:
    weights = {"w": RNG.standard_normal((1, 16, 5), np.float32), "r": RNG.standard_normal((1, 16, 4), np.float32)}
    nodes = [
        *squeeze("q", "x", 1),
        helper.make_node("LSTM", ["qout", "w", "r"], ["y"], hidden_size=4),
    ]
    model = make(nodes, ["T", "one", "B", 5], constants=weights)
    program = compiled(model)  # raises if it warns
    assert [v.fails for v in program.plan.versions] == [False, True]
    agree(program, model, {"x": RNG.standard_normal((3, 1, 2, 5), np.float32)})


def test_there_is_a_limit_to_versions() -> None:
    count = MAX_VERSIONS + 2
    nodes = []
    for i in range(count):
        nodes += squeeze(f"q{i}", "x", i)
        nodes.append(helper.make_node("ReduceSum", [f"q{i}out"], [f"r{i}"], keepdims=0))
    nodes.append(helper.make_node("Sum", [f"r{i}" for i in range(count)], ["y"]))
    model = make(nodes, [f"d{i}" for i in range(count)])
    found = versions_of(importer.read(model), [f"d{i}" for i in range(count)])
    assert len(found) == MAX_VERSIONS
    assert any(n.op == "If" for n in found[-1].graph.nodes)


def branch(name: str, nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(output)])


def test_a_known_condition_leaves_one_branch() -> None:
    yes = branch("yes", [helper.make_node("Exp", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["a"])], "a")
    no = branch("no", [helper.make_node("Sqrt", ["x"], ["b"])], "b")
    model = make([helper.make_node("If", ["known"], ["y"], then_branch=yes, else_branch=no)], ["N", 5],
                 constants={"known": np.array(True)})  # fmt: skip
    settled = resolve(importer.read(model)).graph
    assert [n.op for n in settled.nodes] == ["Exp", "Neg"]
    agree(compiled(model), model, {"x": RNG.standard_normal((2, 5), np.float32)})


def test_equal_branches_need_no_condition() -> None:
    sides = [branch(n, [helper.make_node("Exp", ["x"], [f"{n}t"]), helper.make_node("Neg", [f"{n}t"], [n])], n)
             for n in ("p", "q")]  # fmt: skip
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = make([helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])], ["N", 5],
                 [condition])  # fmt: skip
    program = compiled(model)
    assert controls(program.plan) == 0
    agree(program, model, {"x": RNG.standard_normal((2, 5), np.float32), "c": np.array(False)})


def test_different_branches_on_data_stay() -> None:
    sides = [branch(n, [helper.make_node(op, ["x"], [n])], n) for n, op in (("p", "Exp"), ("q", "Neg"))]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = make([helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])], ["N", 5],
                 [condition])  # fmt: skip
    program = compiled(model)
    assert [i.when for i in program.plan.items if isinstance(i, Step)] == [(("c", True),), (("c", False),)]
    for c in (False, True):
        agree(program, model, {"x": RNG.standard_normal((2, 5), np.float32), "c": np.array(c)})


def test_versions_inside_a_branch_on_data() -> None:
    inner = branch("yes", [*squeeze("q", "x", 0), helper.make_node("Softmax", ["qout"], ["a"], axis=-1)], "a")
    other = branch("no", [helper.make_node("Neg", ["x"], ["b"])], "b")
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = make([helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other)], ["N", 5], [condition])
    program = compiled(model)
    for n in (1, 3):
        for c in (False, True):
            agree(program, model, {"x": RNG.standard_normal((n, 5), np.float32), "c": np.array(c)})
