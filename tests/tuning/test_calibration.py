from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.kernel_constants import NAMES, KernelConstants
from rewrite.engine.cost.machine import Machine, default
from rewrite.engine.ir.graph import DType, Graph, Node, TensorType
from rewrite.errors import UserError
from rewrite.tuning import calibration
from rewrite.tuning.calibration import ROUNDS, KernelTimer
from rewrite.tuning.calibration_suite import suite

UNMEASURED = {"run"}
"""Constants of volumes, of which the suite has no kernels."""


def test_every_constant_is_one_of_some_kernel() -> None:
    machine, graphs = replace(default("avx2"), sizes=(32 << 10, 1 << 20, 16 << 20)), suite()

    def total(constants: KernelConstants) -> list[float]:
        cost = CostModel("latency", "native", replace(machine, constants=constants))
        return [cost.graph_cost(graph) for graph in graphs]

    before = total(machine.constants)
    idle = {
        name
        for name in NAMES
        if total(replace(machine.constants, **{name: 3 * getattr(machine.constants, name)})) == before
    }
    assert idle == UNMEASURED


@pytest.mark.usefixtures("few")
def test_calibration() -> None:
    found = calibration.calibrate(seconds=0.5)
    assert found.machine.source == "calibrated"
    assert len(found.labels) == len(found.measured) == len(found.predicted) > 5
    assert all(0 < seconds < 1 for seconds in found.measured)
    assert math.isfinite(found.error)
    assert found.correlation > 0.5
    shipped = replace(found.machine, constants=KernelConstants())
    assert found.machine.digest() != shipped.digest()


def test_a_target_that_does_not_run_here_is_refused() -> None:
    target = "neon" if default().isa != "neon" else "avx2"
    with pytest.raises(UserError, match="cannot run kernels"):
        calibration.calibrate(target)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate with one network only."""
    one = suite()[-3:-2]
    monkeypatch.setattr(calibration, "suite", lambda: one)


@pytest.mark.usefixtures("two")
def test_networks_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow second of the machine would else make the kernels of one network look slow."""
    order, run = [], KernelTimer.run

    def noted(timer: KernelTimer, seconds: float) -> None:
        order.append(len(timer.graph.nodes))
        run(timer, seconds)

    monkeypatch.setattr(KernelTimer, "run", noted)
    calibration.calibrate(seconds=0.1)
    one, other = (len(graph.nodes) for graph in calibration.suite())
    assert one != other
    assert order == [one, other] * ROUNDS


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate with two small networks."""
    some = suite()
    monkeypatch.setattr(calibration, "suite", lambda: [some[-3], some[-5]])


def test_the_fastest_run_of_a_long_kernel_counts() -> None:
    """Another program's turn is likely to fall into each of them; clocks blur short ones."""
    assert calibration.undisturbed([7e-3, 9e-3, 5e-3, 8e-3, 9e-3]) == 5e-3
    assert calibration.undisturbed([5e-6, 7e-6, 7e-6, 7e-6, 7e-6, 7e-6]) == 7e-6


def test_predictions_are_those_of_the_cost_model() -> None:
    graph = suite()[-1]
    cost = CostModel("latency", "native", Machine(isa="avx2"))
    kernels = [calibration.KernelTime((0,), 1.0), calibration.KernelTime((0, 1), 1.0)]
    costs = cost.node_costs(graph)
    assert calibration.Measured(graph, kernels).predicted(cost) == [costs[0], costs[0] + costs[1]]


def test_a_pointwise_node_joins_the_kernel_of_a_product_but_not_behind_a_view_or_another_reader() -> None:
    def cost_of_relu(readers: int, view: bool) -> float:
        graph = Graph(inputs=("x", "w"), opset={"": 23})
        graph.types |= {v: TensorType(DType.F32, (64, 64)) for v in ("x", "w", "y", "v", "z", "other")}
        graph.nodes = [Node("MatMul", ("x", "w"), ("y",), {})]
        if view:
            graph.nodes.append(Node("Identity", ("y",), ("v",), {}))
        graph.nodes.append(Node("Relu", ("v" if view else "y",), ("z",), {}))
        if readers > 1:
            graph.nodes.append(Node("MatMul", ("y", "w"), ("other",), {}))
        graph.outputs = ("z", *(("other",) if readers > 1 else ()))
        costs = CostModel("latency", "native", Machine(isa="avx2")).node_costs(graph)
        return next(cost for cost, node in zip(costs, graph.nodes, strict=True) if node.op == "Relu")

    joined = cost_of_relu(1, view=False)
    assert cost_of_relu(2, view=False) > 2 * joined
    assert cost_of_relu(1, view=True) > 2 * joined
