"""Random inputs: what the use of an input shows of its values."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from rewrite.engine.onnx_io.importer import read
from rewrite.engine.verification.random_inputs import make_inputs


@pytest.mark.parametrize(
    ("nodes", "largest"),
    [
        ("u = Unsqueeze(m, axes) f = Cast<to = 1>(u) i = Sub(one, f) y = Mul(i, low)", 1),
        ("b = Cast<to = 9>(m) y = Not(b)", 1),
        ("b = Cast<to = 9>(m) t = Gather(table, m) y = Where(b, t, low)", 4),  # an index is one all the same
        ("b = Cast<to = 9>(m) e = Equal(m, five) y = And(b, e)", 6),  # and what is compared with 5, 5 or 6
        ("f = Cast<to = 1>(m) i = Sub(low, f) y = Mul(i, low)", 7),
        ("f = Cast<to = 1>(m) i = Sub(f, one) y = Mul(i, low)", 7),
    ],
)
def test_masks_are_0_or_1(nodes: str, largest: int) -> None:
    """(1 - m) times the least float is infinite for larger ones, and NaN after a Softmax."""
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (int64[4, 64] m) => (float y)
        <float one = {{1}}, float low = {{-3e38}}, int64[1] axes = {{1}}, int64 five = {{5}},
         float[5] table = {{1, 2, 3, 4, 5}}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].ClearField("type")
    [drawn] = make_inputs(read(model), {}).values()
    assert drawn.dtype == np.int64
    assert drawn.min() == (5 if largest == 6 else 0)
    assert drawn.max() == largest
