from __future__ import annotations

import dataclasses

import pytest
from rewrite.engine.cost import fitting
from rewrite.engine.cost.constants import DEFAULTS, FACTOR, NAMES
from rewrite.engine.cost.cost_model import CostModel
from rewrite.engine.cost.machine import Machine
from rewrite.engine.cost.samples import Application, Sample
from rewrite.engine.ir.graph import DType, TensorType

MACHINE = Machine(isa="avx2", flops=100e9)


def t(*shape: int) -> TensorType:
    return TensorType(DType.F32, shape)


def product(m: int, k: int, n: int) -> Application:
    return Application("MatMul", {}, [t(m, k), t(k, n)], [t(m, n)])


NODES = [
    *(product(*s) for s in ((256, 256, 256), (64, 512, 64), (512, 64, 512), (1, 2048, 2048), (1, 512, 4096))),
    *(Application("Transpose", {"perm": (1, 0)}, [t(n, n)], [t(n, n)]) for n in (64, 256, 1024)),
    *(Application("Softmax", {"axis": -1}, [t(n, 256)], [t(n, 256)]) for n in (16, 256, 2048)),
]


def timed(machine: Machine, factors: dict[int, float] | None = None) -> list[Sample]:
    """Samples whose times are those that a machine predicts, some of them times a factor."""
    cost = CostModel(target="native", machine=machine)
    exact = [Sample("kernel", 1.0, [node]).predicted(cost) for node in NODES]
    return [Sample("kernel", s * (factors or {}).get(i, 1.0), [NODES[i]]) for i, s in enumerate(exact)]


def test_constants_that_made_the_times_are_found() -> None:
    truth = dataclasses.replace(
        MACHINE, constants=dataclasses.replace(DEFAULTS, product=0.6, turned_bytes=6.0, row=0.3, weight_bytes=5.0)
    )
    found = fitting.fit(MACHINE, timed(truth))
    assert found.before > 1.5
    assert found.after < 1.05
    for name in ("product", "row"):
        assert getattr(found.machine.constants, name) == pytest.approx(getattr(truth.constants, name), rel=0.25)


def test_constants_without_kernels_keep_their_defaults() -> None:
    found = fitting.fit(MACHINE, timed(MACHINE, dict.fromkeys(range(len(NODES)), 3.0))).machine.constants
    assert found.winograd_product == DEFAULTS.winograd_product
    assert found.product > DEFAULTS.product


def test_one_wrong_time_changes_little() -> None:
    usual = fitting.fit(MACHINE, timed(MACHINE)).machine.constants
    found = fitting.fit(MACHINE, timed(MACHINE, {0: 100.0})).machine.constants
    assert found.product == pytest.approx(usual.product, rel=0.35)


def test_constants_stay_within_what_a_profile_may_hold() -> None:
    found = fitting.fit(MACHINE, timed(MACHINE, dict.fromkeys(range(len(NODES)), 1e6))).machine.constants
    for name in NAMES:
        assert (
            getattr(DEFAULTS, name) / FACTOR <= getattr(found, name) * 1.001 <= getattr(DEFAULTS, name) * FACTOR * 1.01
        )


def test_equal_samples_give_equal_constants() -> None:
    samples = timed(MACHINE, {2: 1.7, 5: 0.4})
    assert fitting.fit(MACHINE, samples) == fitting.fit(MACHINE, samples)


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_nothing_can_be_fitted_to_no_times(seconds: float | None) -> None:
    samples = [] if seconds is None else [Sample("kernel", seconds, [NODES[0]])]
    with pytest.raises(ValueError, match="samples, and times"):
        fitting.fit(MACHINE, samples)
