"""Sign analysis: what it proves, and that it looks at each e-node a bounded number of times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from rewrite.engine.egraph import analysis, signs
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import DType, TensorType
from rewrite.engine.operators.schemas import normalize_attrs

UNARY = ("Relu", "Abs", "Exp", "Sqrt", "Neg", "Sigmoid", "Tanh", "Identity", "Transpose", "GlobalAveragePool", "Floor")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")


@pytest.fixture
def egraph() -> EGraph:
    return EGraph.create(("Add", "Mul"))


def tensor(egraph: EGraph, name: str = "x", dtype: DType = DType.F32) -> int:
    return egraph.add_input(name, TensorType(dtype, (2, 3, 4, 5)))


def node(egraph: EGraph, op: str, *children: int) -> int:
    return egraph.add(op, normalize_attrs(op, {}), children)


def test_a_sign_is_seen_through_any_number_of_moves(egraph: EGraph) -> None:
    x = node(egraph, "Relu", tensor(egraph))
    for _ in range(20):
        x = node(egraph, "Transpose", x)
    assert egraph.sign(x).nonnegative
    assert not egraph.sign(node(egraph, "Neg", x)).nonnegative


def test_a_cycle_proves_nothing_about_itself(egraph: EGraph) -> None:
    x = tensor(egraph)
    assert egraph.union(node(egraph, "Identity", x), x)
    assert not egraph.sign(x).nonnegative


def test_what_is_learned_later_reaches_all_users(egraph: EGraph) -> None:
    x, y = tensor(egraph), tensor(egraph, "y")
    product = node(egraph, "Mul", x, y)
    top = node(egraph, "Transpose", product)
    assert not egraph.sign(top).nonnegative
    egraph.union(x, y)  # the product is a square now
    assert egraph.sign(top).nonnegative


def test_integers_wrap_around(egraph: EGraph) -> None:
    x = tensor(egraph, dtype=DType.I8)
    assert not egraph.sign(node(egraph, "Abs", x)).nonnegative
    assert egraph.sign(node(egraph, "Relu", x)).nonnegative


def test_a_clip_with_a_negative_upper_limit_is_negative() -> None:
    positive, unknown = signs.Sign(nonnegative=True), signs.UNKNOWN
    assert signs.infer_sign("Clip", [unknown, positive], wraps=False, square=False).nonnegative
    assert signs.infer_sign("Clip", [unknown, positive, positive], wraps=False, square=False).nonnegative
    assert not signs.infer_sign("Clip", [unknown, positive, unknown], wraps=False, square=False).nonnegative


def grow(egraph: EGraph, chain: Sequence[str]) -> int:
    x = tensor(egraph)
    for op in chain:
        x = node(egraph, op, x) if op in UNARY else node(egraph, op, x, x)
    return x


@pytest.mark.parametrize("pair", list(itertools.product((*UNARY, *BINARY), repeat=2)), ids="-".join)
def test_a_chain_of_any_operators_takes_one_step_for_each_node(
    egraph: EGraph, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    infer = signs.infer_sign

    def counted(*args: object, **options: object) -> signs.Sign:
        nonlocal steps
        steps += 1
        return infer(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(analysis, "infer_sign", counted)
    top = grow(egraph, pair * 20)
    assert steps <= len(egraph.nodes)
    for _ in range(100):
        egraph.sign(top)  # asking is free
    assert steps <= len(egraph.nodes)
