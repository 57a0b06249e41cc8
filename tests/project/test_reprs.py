"""`repr` of every public object is short, whatever the size of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.engine import pipeline
from rewrite.engine.ir.graph import Graph, Node, content_text
from rewrite.engine.options import Options

LONGEST = 400
LAYERS = 20


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """A model with many nodes, inputs and names far longer than a line."""
    long = "a_rather_long_scope/" * 8
    inputs = [f"{long}x{i}" for i in range(40)]
    nodes = [helper.make_node("Concat", inputs, ["v0"], name=f"{long}concat", axis=1)]
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [f"v{i}", f"W{i % 2}"], [f"m{i}"], name=f"{long}matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"v{i + 1}"], name=f"{long}relu{i}"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1]) for name in inputs]
    result = helper.make_tensor_value_info(f"v{LAYERS}", TensorProto.FLOAT, None)
    random = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(random.random((40, 40), np.float32), f"W{i}") for i in range(2)]
    graph = helper.make_graph(nodes, long, values, [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def roots(model: onnx.ModelProto) -> Mapping[str, Any]:
    result = rewrite.optimize(model, why_not="conv_bn")
    program = rewrite.compile(model, threads=1)
    feeds = {port.name: np.ones((2, 1), np.float32) for port in program.inputs}
    return {
        "result": result,
        "verification": result.verify(model),
        "program": program,
        "bound run": program.bind(feeds),
        "profile": program.profile(feeds, seconds=0.01),
        "session": rewrite.InferenceSession(model.SerializeToString(), compile_in_background=False),
        **{f"stage {name}": value for name, value in pipeline.stages(model, Options()) if name != "export"},
    }


def public(root: object) -> Iterator[tuple[str, object]]:
    """Yield the objects of this package in public attributes, and in containers in these, with their paths."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        path, value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            pending += [(f"{path}[{str(key)[:20]!r}]", item) for key, item in [*value.items()][:3]]
        elif isinstance(value, list | tuple):
            pending += [(f"{path}[{n}]", item) for n, item in enumerate(value[:3])]
        elif type(value).__module__.startswith("rewrite."):
            yield path, value
            names = {*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())}
            names |= {name for name, found in vars(type(value)).items() if isinstance(found, property)}
            for name in sorted(name for name in names if not name.startswith("_")):
                if hasattr(value, name):
                    pending.append((f"{path}.{name}", getattr(value, name)))


@pytest.mark.slow
def test_reprs_are_short(roots: Mapping[str, Any]) -> None:
    found = [(f"{name}{path}", value) for name, root in roots.items() for path, value in public(root)]
    long = {f"{path}: {type(value).__name__}": len(repr(value)) for path, value in found if len(repr(value)) > LONGEST}
    assert long == {}
    kinds = {type(value).__name__ for _, value in found}
    assert {
        "Optimized",
        "Report",
        "Program",
        "InferenceSession",
        "Graph",
        "Node",
        "LazyLibrary",
        "Rule",
        "Profile",
    } <= kinds


def test_the_interface_of_onnx_runtime_is_described() -> None:
    ort, tensor = rewrite.ort, np.zeros((2, 3), np.float32)
    options, run, binding = ort.SessionOptions(), ort.RunOptions(), ort.IOBinding(None)
    assert (repr(options), repr(run)) == ("<SessionOptions: defaults>", "<RunOptions: defaults>")
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(tensor))
    set_ones = "intra_op_num_threads=2, session.set_denormal_as_zero=1, initializers w"
    assert repr(options) == f"<SessionOptions: {set_ones}>"
    assert repr(ort.OrtValue.ortvalue_from_numpy(tensor)) == "<OrtValue tensor(float)[2, 3]>"
    assert repr(ort.OrtValue([tensor, tensor])) == "<OrtValue seq(tensor(float)) of 2 tensors>"
    assert repr(ort.OrtDevice()) == "<OrtDevice cpu:0>"
    assert repr(binding) == "<IOBinding nothing → nothing>"
    binding.bind_cpu_input("x", tensor)
    binding.bind_output("y")
    assert repr(binding) == "<IOBinding x → y>"


def test_a_repr_says_what_the_object_is(model: onnx.ModelProto) -> None:
    result = rewrite.optimize(model)
    assert f"{LAYERS * 2 + 1} → " in repr(result)
    assert f"{LAYERS * 2 + 1} nodes, 2 constants" in repr(result.graph_in)
    rule = next(rule for rule in result.library.rules if rule.name == "conv_bn")
    assert repr(rule).startswith("<Rule conv_bn at ")
    assert repr(rule).endswith(f"conv.rules:{rule.span.line}>")


def test_the_content_of_graphs_is_told_apart() -> None:
    """Texts that key caches do not abbreviate, as `repr` does."""
    bodies = [Graph(nodes=[Node("Add", ("a", value), ("b",))]) for value in ("x", "y")]
    assert repr(bodies[0]) == repr(bodies[1])
    assert content_text({"body": bodies[0]}) != content_text({"body": bodies[1]})
    assert content_text(bodies[0]) == content_text(Graph(nodes=[Node("Add", ("a", "x"), ("b",))]))
