"""Trails of models: made, written, read, repeated, shown; and refused once anything in them is changed."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rewrite.engine.egraph.reasons import Applied
from rewrite.engine.ir.graph import Constant
from rewrite.engine.ir.protos import EmptyDefault, EmptyFloats, EmptyStrings
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.optimizer import optimize
from rewrite.engine.options import Options
from rewrite.engine.trails import check, make, text, trail
from rewrite.engine.trails.coding import Encoder, array_to_json, decode_attribute
from rewrite.engine.trails.replay import variables

F32, INT = TensorProto.FLOAT, TensorProto.INT64


def model(nodes: list[Any], shape: list[Any], outputs: list[str], **constants: Any) -> onnx.ModelProto:
    """Return a model with one input `x` and the given constants."""
    graph = helper.make_graph(
        nodes, "tried",
        [helper.make_tensor_value_info("x", F32, shape)],
        [helper.make_tensor_value_info(name, F32, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def network() -> onnx.ModelProto:
    """Return a convolution with normalization, a sum with 0, equal branches, and three products to merge."""
    draw = np.random.default_rng(0)
    scale, bias, mean, var = (np.abs(draw.standard_normal(4)).astype(np.float32) + 0.5 for _ in range(4))
    weights = {f"W{i}": draw.standard_normal((64, 16)).astype(np.float32) for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "W"], ["conv"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "var"], ["bn"]),
        helper.make_node("Relu", ["bn"], ["relu"]),
        helper.make_node("Add", ["relu", "zero"], ["same"]),
        helper.make_node("Sigmoid", ["same"], ["first"]),
        helper.make_node("Sigmoid", ["relu"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["sum"]),
        helper.make_node("Reshape", ["sum", "flat"], ["rows"]),
        *(helper.make_node("MatMul", ["rows", f"W{i}"], [f"y{i}"]) for i in range(3)),
    ]
    return model(
        nodes, [1, 2, 6, 6], ["y0", "y1", "y2"],
        W=draw.standard_normal((4, 2, 3, 3)).astype(np.float32), zero=np.float32(0),
        flat=np.array([1, 64], np.int64), scale=scale, bias=bias, mean=mean, var=var, **weights,
    )  # fmt: skip


@cache
def made() -> tuple[make.Run, trail.Trail]:
    """Return a run of the network, and its trail."""
    run = make.run(network().SerializeToString(), Options())
    return run, make.trail_of(run, Options())


def repeat(data: Any, run: make.Run) -> int:
    """Check a trail as JSON."""
    with declared_operators(run.source.operators):
        return check.check(trail.from_json(data), run.before, run.after, run.rules)


def as_json(steps: trail.Trail) -> Any:
    return json.loads(json.dumps(trail.to_json(steps)))


def test_a_trail_leads_to_the_result_and_is_the_same_each_time() -> None:
    run, found = made()
    names = {step.rule for stage in found.graphs[0].stages for step in stage.steps if isinstance(step, Applied)}
    assert any("conv" in name for name in names)
    assert repeat(as_json(found), run) == found.count > 3
    again = make.trail_of(make.run(network().SerializeToString(), Options()), Options())
    assert trail.to_json(again) == trail.to_json(found)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_trails_of_both_results(target: str) -> None:
    run = make.run(network().SerializeToString(), Options(), target)
    assert repeat(as_json(make.trail_of(run, Options())), run) > 3


def test_one_value_of_unknown_rank_may_be_two_outputs() -> None:
    """A Squeeze of all axes, of which one may or may not be 1; an Identity gives the second output its name."""
    text = "g (float[5, N, 8] x) => (float[A, B, C] y, float[A, B, C] z) { y = Squeeze(x) z = Squeeze(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    run = make.run(model.SerializeToString(), Options())
    assert [node.op for node in run.after.nodes] == ["Squeeze", "Identity"]
    repeat(as_json(make.trail_of(run, Options())), run)


def changes(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield a trail with one thing in it changed, for each step and each way to change one."""
    for number, stage in enumerate(data["graphs"][0]["stages"]):
        for at, step in enumerate(stage["steps"]):

            def changed(number: int = number, at: int = at) -> tuple[Any, Any]:
                copy = json.loads(json.dumps(data))
                return copy, copy["graphs"][0]["stages"][number]["steps"][at]

            if "rule" not in step:
                continue
            copy, there = changed()
            del copy["graphs"][0]["stages"][number]["steps"][at]
            yield f"without step {at}", copy
            copy, there = changed()
            there["rule"] = "relu_relu" if step["rule"] != "relu_relu" else "add_zero"
            yield f"another rule in step {at}", copy
            copy, there = changed()
            there["backward"] = not step.get("backward", False)
            yield f"the other direction in step {at}", copy
            for key in ("roots", "builds"):
                copy, there = changed()
                there[key] = [other_term(stage, there[key][0]), *there[key][1:]]
                yield f"another term in {key} of step {at}", copy
            for name, value in step["bindings"].items():
                copy, there = changed()
                if isinstance(value, dict) and "term" in value:
                    there["bindings"][name] = {"term": other_term(stage, value["term"])}
                elif isinstance(value, int) and not name.startswith(("*", "#")):
                    there["bindings"][name] = value + 1
                else:
                    continue
                yield f"another {name} in step {at} ({step['rule']})", copy
        if stage["evaluated"]:
            copy = json.loads(json.dumps(data))
            copy["graphs"][0]["stages"][number]["evaluated"][0][0] = other_term(stage, stage["evaluated"][0][0])
            yield "another term for a constant", copy


def other_term(stage: Any, number: int) -> int:
    """Return another term that is an input of the model or computed from it."""
    terms = stage["terms"]
    return next(i for i, term in enumerate(terms) if i != number and term["op"] in ("Input", "Relu", "Sigmoid"))


def test_a_trail_with_one_thing_changed_is_refused() -> None:
    run, found = made()
    tried = dict(changes(as_json(found)))
    accepted = [what for what, data in tried.items() if not is_refused(data, run)]
    assert not accepted
    assert len(tried) > 20


def is_refused(data: Any, run: make.Run) -> bool:
    try:
        repeat(data, run)
    except check.Broken:
        return True
    return False


def test_a_result_that_is_another_is_refused() -> None:
    run, found = made()
    graph = run.after
    relu = next(node for node in graph.nodes if node.op == "Relu")
    skipped = {relu.outputs[0]: relu.inputs[0]}
    nodes = [
        replace(node, inputs=tuple(skipped.get(v, v) for v in node.inputs)) for node in graph.nodes if node is not relu
    ]
    other = replace(graph, nodes=nodes)
    with declared_operators(run.source.operators), pytest.raises(check.Broken, match="does not follow") as broken:
        check.check(found, run.before, other, run.rules)
    assert broken.value.step is None


def test_a_constant_that_is_not_the_value_of_its_term_is_refused(tmp_path: Path) -> None:
    _, found = made()
    path, result = tmp_path / "m.onnx", optimize(network().SerializeToString()).model
    onnx.save(network(), path)
    assert check.check_files(found, path, result.SerializeToString(), Options()) == found.count
    stored = next(i for i in result.graph.initializer if i.dims == [4, 2, 3, 3])
    array = numpy_helper.to_array(stored).copy()
    array[0, 0, 0, 0] += 0.01
    stored.CopyFrom(numpy_helper.from_array(array, stored.name))
    with pytest.raises(check.Broken):
        check.check_files(found, path, result.SerializeToString(), Options())


def test_what_older_operator_sets_cannot_say_is_no_difference() -> None:
    """At opset 17 the axes of a mean are an attribute; rules write them as an operand that a file turns back."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Reshape", ["mean", "rows"], ["y"]),
    ]
    data = model(nodes, [4, 3], ["y"], rows=np.array([4, 1], np.int64)).SerializeToString()
    run = make.run(data, Options())
    found = make.trail_of(run, Options())
    assert found.count
    written = optimize(data).model.SerializeToString()
    assert check.check_files(found, data, written, Options()) == found.count


def test_a_trail_changed_at_random_is_read_or_refused() -> None:
    """No text of a file raises anything but what says so."""
    run, found = made()
    draw = random.Random(0)
    values = [None, True, -1, 0, 7, 10**9, 1.5, "", "Relu", "Const", [], {}, {"term": 0}, {"body": "x"}, {"rest": {}}]
    for _ in range(60):
        data = as_json(found)
        stage = draw.choice(data["graphs"][0]["stages"])
        at: Any = draw.choice([*stage["terms"], *stage["steps"]])
        while isinstance(at, dict | list) and at and draw.random() < 0.9:
            key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or draw.random() < 0.3:
                at[key] = draw.choice(values)
                break
            at = at[key]
        with contextlib.suppress(check.Broken, trail.Malformed):
            repeat(data, run)


def test_the_trail_of_a_value_has_what_it_needs_only() -> None:
    run, found = made()
    part = make.trail_of(run, Options(), "relu")
    assert 0 < part.count < found.count
    shown = "\n".join(text.lines(part, run.source))
    assert "BatchNormalization" in shown
    assert "MatMul" not in shown


def test_merges_by_congruence_have_a_trail() -> None:
    """Sigmoid(Relu(x + 0)) and Sigmoid(Relu(x)) are one since x + 0 is x: no rule made either."""
    nodes = [
        helper.make_node("Add", ["x", "zero"], ["s"]),
        helper.make_node("Relu", ["s"], ["r1"]),
        helper.make_node("Sigmoid", ["r1"], ["y1"]),
        helper.make_node("Relu", ["x"], ["r2"]),
        helper.make_node("Sigmoid", ["r2"], ["y2"]),
    ]
    data = model(nodes, [2, 3], ["y1", "y2"], zero=np.float32(0)).SerializeToString()
    run = make.run(data, Options())
    found = make.trail_of(run, Options())
    shown = list(text.lines(found, run.source))
    assert found.count == 1
    assert shown[0].startswith("1. add_zero")
    assert repeat(as_json(found), run) == 1


@pytest.mark.parametrize(
    "value", [EmptyDefault(), EmptyFloats(), EmptyStrings(), (), (1.5, float("inf")), "a", 2, -0.0]
)
def test_attributes_keep_their_types(value: Any) -> None:
    found = decode_attribute(json.loads(json.dumps(Encoder().attribute(value))))
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_optional_outputs_that_the_result_leaves_out() -> None:
    """Of nothing, the places of unique rows are a constant, and the node that made them ends with another output."""
    node = helper.make_node("Unique", ["x"], ["rows", "first", "place"], axis=0)
    run = make.run(model([node], [0, 3], ["rows", "first", "place"]).SerializeToString(), Options())
    [unique] = (node for node in run.after.nodes if node.op == "Unique")
    assert len(unique.outputs) == 2
    found = make.trail_of(run, Options())
    assert repeat(as_json(found), run) == found.count


def test_an_output_without_a_name_is_no_operand() -> None:
    """Both have the name "" in a graph: the Clip has no lower bound, whatever the second result of Unique is."""
    nodes = [
        helper.make_node("Unique", ["x"], ["y0", "", "", "count"]),
        helper.make_node("Clip", ["x", "", "most"], ["clipped"]),
        helper.make_node("Add", ["clipped", "zero"], ["y1"]),
    ]
    whole = model(nodes, [4], ["y0", "y1"], most=np.float32(1), zero=np.float32(0))
    whole.graph.output.append(helper.make_tensor_value_info("count", INT, None))
    run = make.run(whole.SerializeToString(), Options())
    found = make.trail_of(run, Options())
    assert repeat(as_json(found), run) == found.count
    written = optimize(whole).model
    assert check.check_files(found, whole.SerializeToString(), written.SerializeToString(), Options()) == found.count
    for node in written.graph.node:
        if node.op_type == "Clip":
            node.input[1] = "lower"
            node.input[2] = "most"
    written.graph.node.insert(0, helper.make_node("Identity", ["most"], ["lower"]))
    with pytest.raises(check.Broken):
        check.check_files(found, whole.SerializeToString(), written.SerializeToString(), Options())


def test_free_sizes_random_nodes_and_nothing_to_do() -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["noisy"]),
        helper.make_node("Relu", ["noisy"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    run = make.run(model(nodes, ["n", 3], ["y"]).SerializeToString(), Options())
    found = make.trail_of(run, Options())
    assert repeat(as_json(found), run) == found.count == 1
    run = make.run(model([helper.make_node("Relu", ["x"], ["y"])], ["n", 3], ["y"]).SerializeToString(), Options())
    found = make.trail_of(run, Options())
    assert found.count == 0
    assert list(text.lines(found, run.source)) == ["no step: it is as in the original"]


def first(data: Any) -> Any:
    """Return the first stage of the main graph."""
    return data["graphs"][0]["stages"][0]


def rule_step(data: Any) -> Any:
    """Return the first step of a rule."""
    return next(step for step in first(data)["steps"] if "rule" in step)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="rewrite-trail-0"), "format"),
        (lambda d: d["graphs"][0].update(stages=[]), "no stage"),
        (
            lambda d: d["graphs"][0]["stages"][0]["steps"].append({"rule": "x", "roots": [10**6], "builds": []}),
            "not a number below",
        ),
        (lambda d: d["graphs"][0]["stages"][0]["terms"].insert(0, {"op": "Relu", "inputs": [3]}), "not a number below"),
        (lambda d: d["graphs"][0]["stages"][0]["terms"].append({"op": "Const", "elements": {"dtype": "f99"}}), "f99"),
        (lambda d: d["graphs"][0]["stages"][0].pop("steps"), "not a list"),
        (lambda d: rule_step(d).update(bindings={"x": {"unknown": 1}}), "not the value of a variable"),
    ],
)
def test_damaged_files_are_named(change: Any, message: str, tmp_path: Path) -> None:
    from rewrite.errors import UserError

    data = as_json(made()[1])
    change(data)
    path = tmp_path / "trail.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=message):
        trail.read(path)


# --- trails that are made to mislead: each once led to a wrong result ---


def forged(before: onnx.ModelProto, after: onnx.ModelProto, *stages: Any) -> str:
    """Check a trail of these stages between two models, and return why it is refused."""
    data = {
        "format": trail.FORMAT,
        "model": "",
        "settings": {"numerics": "reassoc", "shapes": {}},
        "graphs": [{"stages": list(stages)}],
    }
    found, models = trail.from_json(data), (before.SerializeToString(), after.SerializeToString())
    with pytest.raises(check.Broken) as refused:
        check.check_files(found, *models, Options())
    return str(refused.value)


def one(op: str, *inputs: str, shape: Any = (3,), **constants: Any) -> onnx.ModelProto:
    """Return a model of one node `y`."""
    return model([helper.make_node(op, list(inputs), ["y"])], list(shape), ["y"], **constants)


@pytest.mark.parametrize("other", [1.0, [1]])
def test_an_attribute_of_an_unknown_operator_that_has_another_type(other: Any) -> None:
    def made(value: Any) -> onnx.ModelProto:
        found = model([helper.make_node("Foo", ["x"], ["y"], name="foo", domain="com.acme", k=value)], [3], ["y"])
        found.opset_import.append(helper.make_opsetid("com.acme", 1))
        return found

    assert "does not follow" in forged(made(1), made(other), {"terms": [], "steps": []})


X = {"op": "Input", "attrs": {"name": "x"}}
RELU, SIGMOID = ({"op": op, "inputs": [0]} for op in ("Relu", "Sigmoid"))


def test_a_stage_that_begins_without_an_output() -> None:
    first = {"terms": [X, RELU], "steps": [], "roots": {"y": 1}, "chosen": []}
    assert "without an output" in forged(one("Relu", "x"), one("Sigmoid", "x"), first, {"terms": [], "steps": []})


def test_chosen_terms_that_are_computed_from_themselves() -> None:
    zero = {"op": "Const", "attrs": {"digest": digest(np.float32(0))}, "elements": elements(np.float32(0))}
    terms = [X, zero, {"op": "Add", "inputs": [0, 1]}, {"op": "Relu", "inputs": [2]}]
    bindings = {"x": {"term": 0}, "c": {"term": 1}}
    step = {"rule": "add_zero", "roots": [2], "builds": [0], "bindings": bindings}
    first = {"terms": terms, "steps": [step], "roots": {"y": 3}, "chosen": [1, 2, 3]}
    nodes = [helper.make_node("Add", ["x", "z"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    before = model(nodes, [3], ["y"], z=np.float32(0))
    assert "computed from itself" in forged(before, one("Relu", "x"), first, {"terms": [], "steps": []})


@pytest.mark.parametrize("name", ["Relu", "inf", "max", "i", "K"])
def test_a_name_that_the_left_side_does_not_bind(name: str) -> None:
    zero = {"op": "Const", "attrs": {"digest": digest(np.float32(0))}, "elements": elements(np.float32(0))}
    value = {"operator": "Sigmoid", "attrs": {}}
    terms = [X, zero, {"op": "Max", "inputs": [0, 1]}, SIGMOID]
    step = {"rule": "max_zero_to_relu", "roots": [2], "builds": [3], "bindings": {"x": {"term": 0}, name: value}}
    why = forged(one("Max", "x", "z", z=np.float32(0)), one("Sigmoid", "x"), {"terms": terms, "steps": [step]})
    assert why.startswith(f"{name} is not a variable of the left side")


def test_attributes_of_an_operator_variable_are_compared() -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5),
        helper.make_node("LeakyRelu", ["z"], ["b"], alpha=0.25),
        helper.make_node("Where", ["p", "a", "b"], ["y"]),
    ]
    constants = {"z": np.ones(3, np.float32), "p": np.array([True, False, True])}
    before = model(nodes, [3], ["y"], **constants)
    nodes = [helper.make_node("Where", ["p", "x", "z"], ["w"]), helper.make_node("LeakyRelu", ["w"], ["y"])]
    z, p = ({"op": "Const", "attrs": {"digest": digest(v)}, "elements": elements(v)} for v in constants.values())
    leaky = [{"op": "LeakyRelu", "attrs": {"alpha": a}, "inputs": [i]} for a, i in ((0.5, 0), (0.25, 1))]
    made = [{"op": "Where", "inputs": [2, 0, 1]}, {"op": "LeakyRelu", "attrs": {"alpha": 0.01}, "inputs": [6]}]
    terms = [X, z, p, *leaky, {"op": "Where", "inputs": [2, 3, 4]}, *made]
    bound = {name: {"term": i} for name, i in (("c", 2), ("x", 0), ("y", 1), ("z", 1), ("p", 2))}
    names = replayed_names("where_of_elementwise")
    bindings = {**{k: v for k, v in bound.items() if k in names}, "f": {"operator": "LeakyRelu", "attrs": {}}}
    step = {"rule": "where_of_elementwise", "roots": [5], "builds": [7], "bindings": bindings}
    assert "is not what stands there" in forged(
        before, model(nodes, [3], ["y"], **constants), {"terms": terms, "steps": [step]}
    )


def replayed_names(rule: str) -> set[str]:
    """Return the names that the left side of a rule binds."""
    return {name for each in made()[0].rules.rules if each.name == rule for name in variables(each)}


def test_constants_with_infinities_are_compared() -> None:
    given, other = np.array([1, 2, 3], np.float32), np.array([np.inf, 0, 0], np.float32)
    term = {"op": "Const", "attrs": {"digest": digest(given)}, "elements": elements(given)}
    stage = {"terms": [term], "steps": [], "evaluated": [[0, digest(other)]]}
    assert "not the value of its term" in forged(one("Add", "x", "c", c=given), one("Add", "x", "c", c=other), stage)


def test_constants_of_narrow_floats_differ_by_their_own_rounding() -> None:
    """Two ways to compute a scale of 16 bits, of which one rounds in between, differ by a step; -0 is 0."""
    for dtype, step in ((ml_dtypes.bfloat16, 2.0**-7), (np.float16, 2.0**-10), (np.float32, 2.0**-22)):
        number, near, far = (
            Constant(np.array([zero, 1 + error], dtype)) for zero, error in ((0.0, 0.0), (-0.0, step), (0.0, 9 * step))
        )
        assert check._equal(number, near, exact=False)
        assert not check._equal(number, near, exact=True)
        if step > check.ROUNDING:
            assert not check._equal(number, far, exact=False)


def test_captured_values_of_an_operator_that_has_no_body() -> None:
    number = np.float32(5)
    constant = {"op": "Const", "attrs": {"digest": digest(number)}, "elements": elements(number)}
    clip = {"op": "Clip", "attrs": {"$captures": ["p", "q"]}, "inputs": [0, 0, 0]}
    stage = {"terms": [constant, clip], "steps": [{"terms": [1]}]}
    assert "captures other values" in forged(one("Add", "x", "c", c=number), one("Add", "x", "c", c=number), stage)


def test_types_that_a_result_states_are_not_believed() -> None:
    other = one("Relu", "x", shape=(7, 7))
    assert "is f32[7, 7] in the result" in forged(one("Relu", "x"), other, {"terms": [], "steps": []})


def test_shapes_that_a_result_states_are_not_believed() -> None:
    """Two values would be one empty constant if the result could say that they have no elements."""
    inputs = [helper.make_tensor_value_info(name, t, ["k"]) for name, t in (("x", F32), ("s", INT), ("t", INT))]

    def reshaped(first: str, second: str, keeps: int, stated: Any = None) -> onnx.ModelProto:
        nodes = [
            helper.make_node("ReduceSum", ["x", "axes"], ["r"], noop_with_empty_axes=keeps),
            helper.make_node("Reshape", ["r", first], ["y"]),
            helper.make_node("Reshape", ["r", second], ["z"]),
        ]
        outputs = [helper.make_tensor_value_info(y, F32, stated) for y in "yz"]
        axes = numpy_helper.from_array(np.array([0]), "axes")
        graph = helper.make_graph(nodes, "tried", inputs, outputs, [axes])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    stage = {"terms": [], "steps": []}
    assert "does not follow" in forged(reshaped("s", "s", 0), reshaped("s", "t", 1, stated=[0]), stage)


def test_terms_over_constants_are_told_apart() -> None:
    """The digests of the two numbers begin alike, which is all of a constant that its `repr` shows."""
    numbers, shape = (np.array([91671], np.float32), np.array([54210], np.float32)), np.array([3000])
    assert len({repr(Constant(number)) for number in numbers}) == 1
    given, other = (np.full(3000, number[0], np.float32) for number in numbers)
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["k"], value=numpy_helper.from_array(numbers[0])),
        helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    filled = [
        {"op": "ConstantOfShape", "attrs": {"value": {"array": elements(number)}}, "inputs": [0]}
        for number in reversed(numbers)
    ]
    terms = [{"op": "Const", "attrs": {"digest": digest(shape)}, "elements": elements(shape)}, *filled]
    stage = {"terms": terms, "steps": [], "evaluated": [[1, digest(other)], [2, digest(other)]]}
    before, after = model(nodes, [3000], ["y"], s=shape), one("Add", "x", "k", shape=(3000,), k=other)
    assert not np.array_equal(given, other)
    assert "not the value of its term" in forged(before, after, stage)


def digest(array: Any) -> str:
    return Constant(np.asarray(array)).digest


def elements(array: Any) -> Any:
    return array_to_json(np.asarray(array))
