"""Make `tiny.onnx`: |x| written as relu(x) + relu(-x), then a product with a constant matrix.

python make_model.py [FILE]
"""

from __future__ import annotations

import sys

import onnx

TINY = """
<ir_version: 8, opset_import: ["": 17]>
tiny (float[N, 4] x) => (float[N, 3] y)
<float[4, 3] W = {1, 0, 0,  0, 1, 0,  0, 0, 1,  1, 1, 1}>
{
  [above] above = Relu(x)
  [minus] minus = Neg(x)
  [below] below = Relu(minus)
  [size]  size  = Add(above, below)
  [out]   y     = MatMul(size, W)
}
"""


def main(path: str = "tiny.onnx") -> None:
    """Write the model to `path`."""
    model = onnx.parser.parse_model(TINY)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
