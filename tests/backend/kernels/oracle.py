"""Comparison of groups run natively with ONNX Runtime or the reference implementation; many kernels per build."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rewrite.backend.ir.kernel import Kernel
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import Target, describe, make_target, runs_here
from rewrite.backend.toolchain import builder
from rewrite.backend.toolchain.builder import build
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import DType, Node, TensorType
from rewrite.system.store import Store

from .exact_integers import EXACT, exact_product

Array = NDArray[Any]
OPSET = 23


@dataclass
class Case:
    """One group: its nodes, their inputs, and the tolerance of the results.

    `outputs` are the compared values, by default those that no node reads. `symbolic` names dims of inputs; `types` are
    the types of values in terms of them. `expected` replaces the oracle's results."""

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
    """Return a case of one node with one input and one output."""
    return Case([Node(op, ("x",), ("y",), attrs, name=op)], {"x": x})


def oracle(case: Case) -> dict[str, Array]:
    """Return the expected value of every output of the case's nodes."""
    import onnx
    from onnx import helper

    if case.expected:
        return dict(case.expected)
    read = {k: np.asarray(v) for k, v in (*case.inputs.items(), *case.constants.items())}
    if len(case.nodes) > 1 and any(node.op in EXACT for node in case.nodes):
        for node in case.nodes:
            read |= oracle(Case([node], {k: read[k] for k in node.inputs if k}, reference=case.reference))
        return {v: read[v] for node in case.nodes for v in node.outputs if v}
    if case.nodes[0].op in EXACT:
        return {case.nodes[0].outputs[0]: exact_product(case.nodes[0], read)}
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
    imports = [helper.make_opsetid(*each) for each in (("", OPSET), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
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


def check(cases: Sequence[Case], targets: Sequence[Target] = ()) -> None:
    """Lower all cases, build their kernels at once, run each on several numbers of threads, and compare.

    It does so for the targets, by default each that this CPU runs of those of $REWRITE_TEST_TARGETS (comma-separated
    names)."""
    wanted = os.environ.get("REWRITE_TEST_TARGETS", "native,avx2,portable").split(",")
    answers = [oracle(case) for case in cases]
    wrong = []
    for target in targets or filter(runs_here, dict.fromkeys(map(make_target, wanted))):
        wrong += [f"{describe(target)}: {problem}" for problem in _problems(cases, answers, target)]
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:8])


def _problems(cases: Sequence[Case], answers: Sequence[dict[str, Array]], target: Target) -> list[str]:
    prepared = []
    kernels: dict[Kernel, None] = {}
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
        for threads in case.threads:  # the choice of kernels depends on their number
            items, _ = harness.lower(graph, threads=threads, target=target)
            assert items is not None, f"case {number} ({_label(case)}) is not lowered"
            kernels.update((item.kernel, None) for item in items if isinstance(item, Step))
        prepared.append((number, case, graph, expected))
    with one_module():
        build(list(kernels), target, Store())
    wrong: list[str] = []
    for number, case, graph, expected in prepared:
        for threads in case.threads:
            got = harness.run(graph, case.inputs, threads=threads, target=target)
            for name, array in got.items():
                try:
                    assert array.dtype == expected[name].dtype
                    _assert_close(array, expected[name], case)
                except AssertionError as error:
                    wrong.append(f"case {number} ({_label(case)}), {threads} threads, {name}:\n{error}")
    return wrong


def _assert_close(found: Array, expected: Array, case: Case) -> None:
    if found.dtype.name == "bfloat16":  # NumPy does not know it as a number
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=case.rtol, atol=case.atol, equal_nan=True)


@contextlib.contextmanager
def one_module() -> Iterator[None]:
    """Build as on one core if tests run in parallel: a module per core costs processor time that others need."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            patch.setattr(builder, "usable_cores", lambda: 1)
        yield


def _label(case: Case) -> str:
    shapes = ", ".join(f"{k}: {DType.from_numpy(v.dtype)}{list(v.shape)}" for k, v in case.inputs.items())
    return " ".join(n.op + (str(n.attrs) if n.attrs else "") for n in case.nodes) + f" on {shapes}"
