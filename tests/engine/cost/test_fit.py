from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rewrite.engine.cost import fit
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.kernel_constants import KernelConstants
from rewrite.engine.cost.machine import Machine
from rewrite.engine.ir.graph import DType, TensorType

MACHINE = Machine(isa="avx2", flops=1e11)


def t(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


def predict(machine: Machine, kernels: Sequence[int] = range(8)) -> list[float]:
    """Predict products and elementwise kernels of several sizes."""
    cost = CostModel("latency", "native", machine)
    found = []
    for n in (16, 64, 256, 1024):
        found.append(cost.node_cost("MatMul", {}, [t(n, n), t(n, n)], [t(n, n)], [False, True]))
        found.append(cost.node_cost("Exp", {}, [t(n, n)], [t(n, n)], joins=False))
    return [found[i] for i in kernels]


def test_constants_are_found_again() -> None:
    true = replace(MACHINE, launch=3e-6, constants=KernelConstants(product=1.5, pointwise=9.0))
    found = fit.fit(MACHINE, predict, predict(true))
    assert found.constants.product == pytest.approx(1.5, rel=0.05)
    assert found.constants.pointwise == pytest.approx(9.0, rel=0.1)
    assert found.launch == pytest.approx(3e-6, rel=0.2)
    assert fit.mean_error(predict(found), predict(true)) < 1.05 < fit.mean_error(predict(MACHINE), predict(true))


def test_constants_that_no_kernel_depends_on_stay() -> None:
    found = fit.fit(MACHINE, predict, [2 * s for s in predict(MACHINE)])
    assert found.constants.gathered == pytest.approx(MACHINE.constants.gathered)
    assert found.constants.product > 1.5 * MACHINE.constants.product


def test_slopes_are_computed_of_the_kernels_that_read_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [1.5 * s for s in predict(MACHINE)]

    def fitted() -> tuple[Machine, int]:
        asked: list[int] = []

        def counting(machine: Machine, kernels: Sequence[int]) -> list[float]:
            asked.append(len(kernels))
            return predict(machine, kernels)

        return fit.fit(MACHINE, counting, times), sum(asked)

    found, some = fitted()
    monkeypatch.setattr(fit, "_readers", lambda *_: [list(range(len(times)))] * len(fit.FITTED))
    same, every = fitted()
    assert found == same
    assert some < 0.3 * every


def test_a_launch_far_from_the_measured_one_is_found() -> None:
    true = replace(MACHINE, launch=MACHINE.launch / 12)
    assert fit.fit(MACHINE, predict, predict(true)).launch == pytest.approx(true.launch, rel=0.5)


def test_one_wrong_time_changes_little() -> None:
    times = predict(MACHINE)
    times[2] *= 20
    found = fit.fit(MACHINE, predict, times)
    assert predict(found)[6] == pytest.approx(predict(MACHINE)[6], rel=0.2)
    assert predict(found)[2] < times[2] / 5


def test_errors_and_ranks() -> None:
    assert fit.mean_error([1.0, 4.0], [2.0, 2.0]) == pytest.approx(2.0)
    assert fit.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert fit.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert fit.rank_correlation([1, 2], [1, 2]) == 0.0
    for other in ([3, 5, 9], [5, 3, 9]):  # a tie has no order
        assert fit.rank_correlation([1, 1, 2], other) == pytest.approx(0.75**0.5)
    assert fit.rank_correlation([1, 1, 1], [3, 5, 9]) == 0.0
