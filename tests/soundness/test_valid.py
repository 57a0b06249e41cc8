"""What of an instance is a model that ONNX allows, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.egraph import EGraph
from rewrite.engine.graph import Constant, DType, TensorType
from rewrite.engine.library import load_rules
from rewrite.engine.operators import normalise_attrs
from rewrite.engine.soundness.instance import seeds
from rewrite.engine.soundness.operand import Tensor
from rewrite.engine.soundness.run import run, subjects
from rewrite.engine.soundness.valid import invalid
from rewrite.engine.values import OpRef


def said(op: str, scale: tuple[int, ...], zero: tuple[int, ...], **attrs: int) -> str:
    """What is wrong with a quantisation of f32[2, 4] to bytes, or back."""
    egraph = EGraph.create()
    assert egraph.matcher is not None
    x = egraph.add_input("x", TensorType(DType.F32 if op == "QuantizeLinear" else DType.U8, (2, 4)))
    s = egraph.add_constant(Constant(np.ones(scale, np.float32)))
    z = egraph.add_constant(Constant(np.zeros(zero, np.uint8)))
    return invalid(egraph, [egraph.add(op, normalise_attrs(op, attrs), [x, s, z], 1)])


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scale_and_zero_point_have_one_shape_that_the_operator_knows(op: str) -> None:
    assert not said(op, (), ())
    assert not said(op, (), (1,))
    assert not said(op, (4,), (4,))
    assert not said(op, (2,), (2,), axis=-2)
    assert not said(op, (2, 2), (2, 2), axis=1, block_size=2)
    assert "zero point" in said(op, (), (4,))
    assert "zero point" in said(op, (4,), ())
    assert "along the axis" in said(op, (2,), (2,))
    assert "along the axis" in said(op, (2, 2), (2, 2))
    assert "block" in said(op, (2, 2), (2, 2), axis=0, block_size=2)
    assert "block_size" in said(op, (), (), block_size=-1)
    assert "axis" in said(op, (4,), (4,), axis=2)


def test_a_quantisation_computes_in_real_numbers_and_gives_what_its_zero_point_is() -> None:
    assert not said("QuantizeLinear", (), (), precision=DType.BF16.onnx)
    assert "precision" in said("QuantizeLinear", (), (), precision=DType.U8.onnx)
    assert not said("QuantizeLinear", (), (), output_dtype=DType.U8.onnx)
    assert "output_dtype" in said("QuantizeLinear", (), (), output_dtype=DType.I8.onnx)
    assert not said("DequantizeLinear", (), (), output_dtype=DType.F16.onnx)
    assert "output_dtype" in said("DequantizeLinear", (), (), output_dtype=DType.U8.onnx)


RULE = """
rule turned                                    # a choice of operators for f
  Transpose(elementwise f(x, y), perm: p)  =>  f(Transpose(x, perm: p), Transpose(y, perm: p))
  where rank(x) == rank(y)
  class exact
  test fires    x: f32[2,3], y: f32[2,3], p = [1,0], f = Sub
"""


@pytest.mark.parametrize(("op", "allowed"), [("Or", False), ("Mul", True)])
def test_what_a_tensor_without_elements_was_made_of_has_to_be_valid(tmp_path: Path, op: str, allowed: bool) -> None:
    path = tmp_path / "some.rules"
    path.write_text(RULE)
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    empty = Tensor(DType.F32, (2, 0))
    other = first.replace(x=empty, y=empty, f=OpRef(op, normalise_attrs(op, {})))
    batch = run(subject, [other])
    assert batch.outcomes[0].built == allowed
    assert batch.outcomes[0].difference is None
