"""Reference values of operators, and the rounding errors that the checker allows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Constant, DType, TensorType
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.verification.reference_values import Shared, Undefined, Values, apply


def test_the_factor_of_an_absent_addend_does_not_matter() -> None:
    low = np.iinfo(np.int64).min + 1
    a, b = np.array([[low]]), np.array([[1]])
    (found,) = apply("Gemm", {"alpha": 1.0, "beta": 0.25}, [a, b], 1)
    assert found.tolist() == [[low]]


def test_a_sum_of_products_that_cancels_reports_what_it_has_lost() -> None:
    egraph = EGraph.create(())
    assert egraph.matcher is not None
    x = egraph.add_input("x", TensorType(DType.F32, (1, 2)))
    w = egraph.add_input("w", TensorType(DType.F32, (2, 1)))
    product = egraph.add("MatMul", {}, (x, w))
    large = np.array([[3e38], [3e38]], np.float32)
    values = Values(egraph, {"x": np.array([[1, -1]], np.float32), "w": large}, {})
    found = values.of_class(product)
    assert found.arrays[0].tolist() == [[0]]
    assert found.lost == 2 * float(large[0, 0])
    small = Values(egraph, {"x": np.array([[1, 1]], np.float32), "w": large * np.float32(0.1)}, {})
    assert small.of_class(product).lost == 0


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_a_sum_of_products_that_overflows_has_lost_everything(op: str) -> None:
    egraph = EGraph.create(())
    assert egraph.matcher is not None
    x = egraph.add_input("x", TensorType(DType.F64, (1, 2)))
    w = egraph.add_input("w", TensorType(DType.F64, (2, 1)))
    product = egraph.add(op, normalize_attrs(op, {}), (x, w))
    large = np.full((2, 1), np.finfo(np.float64).max)
    found = Values(egraph, {"x": np.array([[1.0, -1.0]]), "w": large}, {}).of_class(product)
    assert found.arrays[0].tolist() == [[0]]
    assert found.lost == np.inf
    infinite = np.array([[1e300], [np.inf]])
    assert Values(egraph, {"x": np.array([[1.0, 1.0]]), "w": infinite}, {}).of_class(product).lost == 0


def test_products_of_batches_are_summed_without_error() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1, 3, 50)), rng.standard_normal((4, 50, 2))
    (found,) = apply("MatMul", {}, [a, b], 1)
    for i, j in np.ndindex(2, 4):
        (one,) = apply("MatMul", {}, [a[i, 0], b[j]], 1)
        assert found[i, j].tobytes() == one.tobytes()
        exact = [[float(sum(map(_times, row, column), Fraction())) for column in b[j].T] for row in a[i, 0]]
        assert one.tolist() == exact


def _times(x: float, y: float) -> Fraction:
    return Fraction(x) * Fraction(y)


def test_a_scalar_exponent_equals_one_per_element() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(1000))
    one, each = (apply("Pow", {}, [x, exponent], 1)[0] for exponent in (np.array(-1.0), np.full(1000, -1.0)))
    assert one.tobytes() == each.tobytes()


def test_an_invalid_element_type_has_no_value() -> None:
    operands = [np.ones(2, np.float32), np.float32(1), np.uint8(0)]
    with pytest.raises(Undefined):
        apply("QuantizeLinear", {"precision": -1}, operands, 1)


def test_a_quotient_without_elements_has_a_value_whatever_the_divisor() -> None:
    (found,) = apply("Div", {}, [np.zeros(0, np.int64), np.zeros((), np.int64)], 1)
    assert found.shape == (0,)
    with pytest.raises(Undefined) as caught:
        apply("Div", {}, [np.ones(1, np.int64), np.zeros((), np.int64)], 1)
    assert caught.value.certain


def test_a_slope_that_enlarges_its_data_has_no_value() -> None:
    x = np.array([-1], np.float32)
    for slope in (np.full(2, 0.5, np.float32), np.full((1, 1), 0.5, np.float32)):
        with pytest.raises(Undefined) as caught:
            apply("PRelu", {}, [x, slope], 1)
        assert caught.value.certain
    assert apply("PRelu", {}, [x, np.full(1, 0.5, np.float32)], 1)[0].tolist() == [-0.5]


def test_a_sum_of_products_of_three_is_not_that_of_pairs() -> None:
    x, y, z = (np.random.default_rng(k).standard_normal((9, 9), np.float32) for k in range(3))
    (whole,) = apply("Einsum", {"equation": "ij, jk, kl -> il"}, [x, y, z], 1)
    (pair,) = apply("Einsum", {"equation": "ij,jk->ik"}, [x, y], 1)
    (pairs,) = apply("Einsum", {"equation": "ij,jk->ik"}, [pair, z], 1)
    assert whole.dtype == np.float32
    assert np.allclose(whole, pairs, atol=1e-4)
    assert whole.tobytes() != pairs.tobytes()


def test_choices_of_inputs_share_what_is_computed_from_constants_only() -> None:
    egraph = EGraph.create(())
    x = egraph.add_input("x", TensorType(DType.F32, (2,)))
    c = egraph.add_constant(Constant(np.array([1, 2], np.float32)))
    twice, product = egraph.add("Neg", {}, (c,)), egraph.add("Mul", {}, (x, c))
    shared = Shared()
    found = [Values(egraph, {"x": np.full(2, k, np.float32)}, {}, shared) for k in (3.0, 5.0)]
    assert [values.of_class(product).arrays[0].tolist() for values in found] == [[3, 6], [5, 10]]
    assert [values.of_node(twice).arrays[0].tolist() for values in found] == [[-1, -2]] * 2
    assert twice in shared.constants
    assert shared.varying[product]
    assert product not in shared.constants


def test_magnitudes_are_left_out_on_request() -> None:
    egraph = EGraph.create(())
    x = egraph.add_input("x", TensorType(DType.F32, (2,)))
    total = egraph.add("Add", {}, (x, egraph.add("Neg", {}, (x,))))
    array = np.array([1, 2], np.float32)
    found = [Values(egraph, {"x": array}, {}, magnitudes=m).of_class(total) for m in (True, False)]
    assert found[0].arrays[0].tolist() == found[1].arrays[0].tolist() == [0, 0]
    assert (found[0].lost, found[1].lost) == (2.0, 0.0)


def test_a_range_without_end_is_not_empty() -> None:
    """Its number of integers wraps around in the reference, and is negative."""
    lowest, highest = np.array(np.iinfo(np.int64).min), np.array(np.iinfo(np.int64).max)
    for start, limit in ((lowest, np.array(1)), (np.array(-1), highest)):
        with pytest.raises(Undefined):
            apply("Range", {}, [start, limit, np.array(1)], 1)
    assert apply("Range", {}, [highest - 2, highest, np.array(1)], 1)[0].tolist() == [highest - 2, highest - 1]
    assert apply("Range", {}, [highest, lowest, np.array(1)], 1)[0].size == 0
