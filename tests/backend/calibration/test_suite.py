from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from rewrite.backend.calibration import calibrate, suite, timing
from rewrite.backend.calibration.suite import Network
from rewrite.engine.cost.constants import DEFAULTS
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.machine import Machine
from rewrite.engine.ir.graph import TensorType


@pytest.mark.parametrize("name", list(suite.NETWORKS))
def test_every_network_has_known_types(name: str) -> None:
    graph = suite.graph(name)
    assert graph.outputs
    assert all(isinstance(t, TensorType) and t.is_static for t in graph.types.values())
    assert {v for node in graph.nodes for v in node.inputs if v} <= {*graph.types}


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_the_networks_depend_on_nearly_every_constant(isa: str) -> None:
    """Those of integers and volumes have no kernels in the networks."""
    machine = Machine(isa=isa)
    nodes = [(graph, node) for graph in map(suite.graph, suite.NETWORKS) for node in graph.nodes]

    def costs(machine: Machine) -> list[float]:
        cost = CostModel(target="native", machine=machine)
        types = [([g.types[v] if v else None for v in n.inputs], [g.types[v] for v in n.outputs]) for g, n in nodes]
        return [cost.node_cost(n.op, n.attrs, *t) for (_, n), t in zip(nodes, types, strict=True)]

    usual = costs(machine)
    unused = set()
    for field in dataclasses.fields(DEFAULTS):
        found = [dataclasses.replace(DEFAULTS, **{field.name: f * getattr(DEFAULTS, field.name)}) for f in (0.5, 2.0)]
        if all(costs(dataclasses.replace(machine, constants=constants)) == usual for constants in found):
            unused.add(field.name)
    assert unused == {"run", "quantized", "packed", "depthwise_quantized"}


def tiny(net: Network) -> None:
    x = net.add("MatMul", [net.input(4, 8), net.weights(8, 16)])
    net.output(net.add("Softmax", [x], axis=-1))


def test_kernels_of_a_network_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    networks: dict[str, Callable[[Network], None]] = {"tiny": tiny}
    monkeypatch.setattr(suite, "NETWORKS", networks)
    monkeypatch.setattr(timing, "EVICTED", 1 << 10)
    found = timing.time_network("tiny", 0.01)
    assert [[node.op for node in sample.nodes] for sample in found] == [["MatMul"], ["Softmax"]]
    assert all(sample.seconds > 0 for sample in found)
    assert str(found[0].nodes[0].outputs[0]) == "f32[4, 16]"
    stages: list[str] = []
    fit, samples = calibrate.calibrate(1.0, lambda stage, _: stages.append(stage))
    assert stages == ["calibrate"]
    assert len(samples) == 2
    assert fit.machine.source == "calibrated"
    assert fit.machine.constants != DEFAULTS
