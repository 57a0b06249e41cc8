"""Inputs of bodies: which ones the node provides, and which are constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rewrite
from onnx import helper, numpy_helper
from rewrite.engine.onnx_io import importer
from rewrite.errors import UserError

from ..models import BOOL, FLOAT, INT64, model, run

Port = tuple[str, int, tuple[int, ...]]
W: Port = ("w", FLOAT, (2,))
S: Port = ("s", FLOAT, (2,))
E: Port = ("e", FLOAT, (2,))
STEP: tuple[Port, ...] = (("i", INT64, ()), ("go", BOOL, ()))


def body(nodes: list[Any], inputs: tuple[Port, ...], outputs: tuple[Port, ...], *, constants: str = "w") -> Any:
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(np.array([1, 2], np.float32), name) for name in constants],
    )


def branch(inputs: tuple[Port, ...], constants: str = "w", *, fixed: bool = False, ir_version: int = 8) -> Any:
    then, other = (
        body([helper.make_node(op, ["x", "w"], ["a"])], inputs, (("a", FLOAT, (2,)),), constants=constants)
        for op in ("Add", "Mul")
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)
    ports: list[Port] = [("c", BOOL, ()), ("x", FLOAT, (2,))]
    constant = {"c": np.array(True)} if fixed else {}
    return model([node], ports[fixed:], [("y", FLOAT, (2,))], constant, ir_version=ir_version)


def loop(inputs: tuple[Port, ...], constants: str = "w", results: int = 1, *, ir_version: int = 8) -> Any:
    nodes = [helper.make_node("Add", ["s", "w"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
    outputs: tuple[Port, ...] = (("on", BOOL, ()), *[("t", FLOAT, (2,))] * results)
    inner = body(nodes, inputs, outputs, constants=constants)
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=inner)
    return model([node], [("n", INT64, ()), ("x", FLOAT, (2,))], [("y", FLOAT, (2,))], ir_version=ir_version)


def scan(inputs: tuple[Port, ...], constants: str = "w", *, ir_version: int = 8) -> Any:
    nodes = [helper.make_node("Add", ["s", "w"], ["t"]), helper.make_node("Mul", ["t", "e"], ["o"])]
    inner = body(nodes, inputs, (("t", FLOAT, (2,)), ("o", FLOAT, (2,))), constants=constants)
    node = helper.make_node("Scan", ["x", "xs"], ["y", "ys"], name="scan", body=inner, num_scan_inputs=1)
    ports: list[Port] = [("x", FLOAT, (2,)), ("xs", FLOAT, (3, 2))]
    return model([node], ports, [("y", FLOAT, (2,)), ("ys", FLOAT, (3, 2))], ir_version=ir_version)


FEEDS = {
    "c": np.array(True),
    "n": np.array(3),
    "x": np.array([3, 4], np.float32),
    "xs": np.arange(6, dtype=np.float32).reshape(3, 2),
}


@pytest.mark.parametrize("ir_version", [3, 8])
@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (branch, (W,)),
        (loop, (*STEP, S, W)),
        (loop, (*STEP, W, S)),
        (scan, (S, E, W)),
        (scan, (W, S, E)),
    ],
)
def test_initializer_among_the_inputs_of_a_body_is_a_constant(
    make: Callable[..., Any], inputs: tuple[Port, ...], ir_version: int
) -> None:
    proto = make(inputs, ir_version=ir_version)
    feeds = {port.name: FEEDS[port.name] for port in proto.graph.input}
    found = rewrite.compile(proto).run(feeds)
    for value, expected in zip(found.values(), run(proto, feeds), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_branch_with_an_initializer_among_its_inputs_is_inlined() -> None:
    assert [node.op for node in importer.read(branch((W,), fixed=True)).nodes] == ["Add"]


def test_initializer_of_an_input_that_the_node_provides_is_only_a_default() -> None:
    program = rewrite.compile(loop((*STEP, S), "ws"))
    np.testing.assert_array_equal(program.run({"n": FEEDS["n"], "x": FEEDS["x"]})["y"], [6, 10])


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (branch((W,), ""), r"node 'choice' \(If\): its body 'body' has 1 inputs; the node provides 0"),
        (branch((W,), "", fixed=True), r"node 'choice' \(If\): its body 'body' has 1 inputs; the node provides 0"),
        (loop((*STEP, S, E)), r"node 'loop' \(Loop\): its body 'body' has 4 inputs; the node provides 3"),
        (loop(STEP, "ws"), r"node 'loop' \(Loop\): its body 'body' has 2 inputs; the node provides 3"),
        (loop((*STEP, S), results=0), r"node 'loop' \(Loop\): its body 'body' has 1 outputs; the node needs 2"),
        (scan((S,), "we"), r"node 'scan' \(Scan\): its body 'body' has 1 inputs; the node provides 2"),
    ],
)
def test_bodies_that_do_not_fit_their_node(proto: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        importer.read(proto)
