"""Groups of nodes run natively and by ONNX Runtime (or the reference implementation), many kernels to a build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rewrite.backend import harness
from rewrite.backend.build import build
from rewrite.backend.cache import Cache
from rewrite.backend.kernel_graph import Step, Target
from rewrite.backend.target import make_target, runs_here
from rewrite.engine.graph import DType, Node, TensorType

Array = NDArray[Any]
OPSET = 23


@dataclass
class Case:
    """One group: its nodes, what they read, and how close the results have to be.

    `outputs` are the values compared, by default those that no node reads. `symbolic` names dims of inputs;
    `types` gives the types of values in terms of them. `expected` replaces the oracle's results."""

    nodes: Sequence[Node]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    outputs: Sequence[str] | None = None
    symbolic: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    types: Mapping[str, TensorType] = field(default_factory=dict)
    expected: Mapping[str, Array] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6
    threads: Sequence[int] = (1, 2, 5)
    reference: bool = False  # ask onnx.reference, not ONNX Runtime


def unary(op: str, x: Array, **attrs: Any) -> Case:
    """A case of one node with one input and one output."""
    return Case([Node(op, ("x",), ("y",), attrs, name=op)], {"x": x})


def oracle(case: Case) -> dict[str, Array]:
    """What every value made by the case's nodes should be."""
    import onnx
    from onnx import helper

    if case.expected:
        return dict(case.expected)
    read = {k: np.asarray(v) for k, v in (*case.inputs.items(), *case.constants.items())}
    infos = [helper.make_tensor_value_info(k, DType.from_numpy(v.dtype).onnx, v.shape) for k, v in read.items()]
    nodes = [
        helper.make_node(
            n.op.rpartition(".")[2],
            list(n.inputs),
            list(n.outputs),
            domain=n.domain,
            **{k: _plain(v) for k, v in n.attrs.items()},
        )
        for n in case.nodes
    ]
    made = [o for n in case.nodes for o in n.outputs if o]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=o) for o in made])
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    if not case.reference:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return dict(zip(made, session.run(made, read), strict=True))
        except Exception as error:  # no kernel for this type: the reference has one
            if "NOT_IMPLEMENTED" not in str(error) and "type inference failed" not in str(error).lower():
                raise
    from onnx.reference import ReferenceEvaluator

    for info in graph.output:
        info.type.tensor_type.elem_type = 1
    return dict(zip(made, ReferenceEvaluator(model).run(made, dict(read)), strict=True))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def check(cases: Sequence[Case]) -> None:
    """Lowers all cases, builds their kernels at once, runs each on several numbers of threads, and compares: for each
    target that this CPU runs. With $REWRITE_TEST_TARGETS (names with commas between) for these."""
    wanted = os.environ.get("REWRITE_TEST_TARGETS", "native,avx2,portable").split(",")
    answers = [oracle(case) for case in cases]
    wrong = []
    for name in wanted:
        target = make_target(name)
        if runs_here(target):
            wrong += [f"{name}: {problem}" for problem in _problems(cases, answers, target)]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:8])


def _problems(cases: Sequence[Case], answers: Sequence[dict[str, Array]], target: Target) -> list[str]:
    cache = Cache()
    prepared = []
    kernels = []
    for number, (case, expected) in enumerate(zip(cases, answers, strict=True)):
        types = {k: TensorType(DType.from_numpy(v.dtype), v.shape) for k, v in expected.items()} | dict(case.types)
        graph = harness.make_graph(
            list(case.nodes),
            case.inputs,
            constants=case.constants,
            outputs=case.outputs,
            symbolic_shapes=case.symbolic,
            types=types,
        )
        items, _ = harness.lower(graph, target=target)
        assert items is not None, f"case {number} ({_label(case)}) is not lowered"
        kernels += [item.kernel for item in items if isinstance(item, Step)]
        prepared.append((number, case, graph, expected))
    build(kernels, target, cache)
    wrong: list[str] = []
    for number, case, graph, expected in prepared:
        for threads in case.threads:
            got = harness.run(graph, case.inputs, threads=threads, target=target, cache=cache)
            for name, array in got.items():
                try:
                    assert array.dtype == expected[name].dtype
                    np.testing.assert_allclose(array, expected[name], rtol=case.rtol, atol=case.atol, equal_nan=True)
                except AssertionError as error:
                    wrong.append(f"case {number} ({_label(case)}), {threads} threads, {name}:\n{error}")
    return wrong


def _label(case: Case) -> str:
    shapes = ", ".join(f"{k}: {DType.from_numpy(v.dtype)}{list(v.shape)}" for k, v in case.inputs.items())
    return " ".join(n.op + (str(n.attrs) if n.attrs else "") for n in case.nodes) + f" on {shapes}"
