"""Which instances are models that ONNX allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Constant, DType, TensorType
from rewrite.engine.ir.values import OpRef
from rewrite.engine.operators.inference import IllTyped
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.soundness.checking.run_instances import run
from rewrite.soundness.sampling.instance import Tensor
from rewrite.soundness.sampling.seeds import seeds
from rewrite.soundness.sampling.subject import subjects
from rewrite.soundness.sampling.validity import invalid


def message(op: str, scale: tuple[int, ...], zero: tuple[int, ...], **attrs: int) -> str:
    """Return what is wrong with a quantization of f32[2, 4] to bytes, or back."""
    egraph = EGraph.create()
    assert egraph.matcher is not None
    x = egraph.add_input("x", TensorType(DType.F32 if op == "QuantizeLinear" else DType.U8, (2, 4)))
    s = egraph.add_constant(Constant(np.ones(scale, np.float32)))
    z = egraph.add_constant(Constant(np.zeros(zero, np.uint8)))
    return invalid(egraph, [egraph.add(op, normalize_attrs(op, attrs), [x, s, z], 1)])


@pytest.mark.parametrize(("index", "valid"), [(-1, True), (0, True), (1, False), (-2, False)])
def test_an_index_is_within_the_tensor_even_if_nothing_is_selected(index: int, valid: bool) -> None:
    egraph = EGraph.create()
    table = egraph.add_constant(Constant(np.zeros((1, 0), np.int64)))
    indices = egraph.add_constant(Constant(np.array([index])))
    assert (invalid(egraph, [egraph.add("Gather", normalize_attrs("Gather", {}), [table, indices])]) == "") == valid


def test_a_loss_has_one_class_for_each_place_and_one_weight_for_each_class() -> None:
    def found(scores: tuple[int, ...], classes: tuple[int, ...], weights: tuple[int, ...], how: str = "mean") -> str:
        egraph = EGraph.create()
        types = [TensorType(DType.F32, scores), TensorType(DType.I64, classes), TensorType(DType.F32, weights)]
        inputs = [egraph.add_input(f"x{i}", t) for i, t in enumerate(types)]
        attrs = normalize_attrs("NegativeLogLikelihoodLoss", {"reduction": how})
        return invalid(egraph, [egraph.add("NegativeLogLikelihoodLoss", attrs, inputs, 1)])

    assert not found((2, 3, 4), (2, 4), (3,))
    assert "classes" in found((2, 3), (2, 1), (3,))
    assert "classes" in found((1, 1, 0), (3, 1, 1), (1,))
    assert "weight" in found((2, 3), (2,), (2,))
    assert not found((2, 3), (2,), (3,), "sum")
    assert "reduction is 'tanh'" in found((2, 3), (2,), (3,), "tanh")


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scale_and_zero_point_have_one_supported_shape(op: str) -> None:
    assert not message(op, (), ())
    assert not message(op, (), (1,))
    assert not message(op, (4,), (4,))
    assert not message(op, (2,), (2,), axis=-2)
    assert not message(op, (2, 2), (2, 2), axis=1, block_size=2)
    assert "zero point" in message(op, (), (4,))
    assert "zero point" in message(op, (4,), ())
    assert "along the axis" in message(op, (2, 2), (2, 2))
    with pytest.raises(IllTyped, match="scales: 2 is neither 1 nor 4"):
        message(op, (2,), (2,))
    with pytest.raises(IllTyped, match="scales on axis 0: 2 is not 1"):
        message(op, (2, 2), (2, 2), axis=0, block_size=2)
    assert "block_size" in message(op, (), (), block_size=-1)
    assert "axis" in message(op, (4,), (4,), axis=2)


def test_a_quantization_computes_in_floats_and_returns_the_type_of_its_zero_point() -> None:
    assert not message("QuantizeLinear", (), (), precision=DType.BF16.onnx)
    assert "precision" in message("QuantizeLinear", (), (), precision=DType.U8.onnx)
    assert not message("QuantizeLinear", (), (), output_dtype=DType.U8.onnx)
    assert "output_dtype" in message("QuantizeLinear", (), (), output_dtype=DType.I8.onnx)
    assert not message("DequantizeLinear", (), (), output_dtype=DType.F16.onnx)
    assert "output_dtype" in message("DequantizeLinear", (), (), output_dtype=DType.U8.onnx)


RULE = """
rule turned                                    # several operators for f
  Transpose(elementwise f(x, y), perm: p)  =>  f(Transpose(x, perm: p), Transpose(y, perm: p))
  where rank(x) == rank(y)
  class exact
  test fires    x: f32[2,3], y: f32[2,3], p = [1,0], f = Sub
"""


@pytest.mark.parametrize(("op", "allowed"), [("Or", False), ("Mul", True)])
def test_the_operands_of_an_empty_tensor_must_be_valid(tmp_path: Path, op: str, allowed: bool) -> None:
    path = tmp_path / "some.rules"
    path.write_text(RULE)
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject)))
    empty = Tensor(DType.F32, (2, 0))
    other = first.replace(x=empty, y=empty, f=OpRef(op, normalize_attrs(op, {})))
    batch = run(subject, [other])
    assert batch.outcomes[0].built == allowed
    assert batch.outcomes[0].difference is None
