"""The Python API on the model of `make_model.py`: optimise, compile, run, and the drop-in for ONNX Runtime's class.

python python_api.py [MODEL]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import rewrite

RULES = Path(__file__).with_name("my.rules")


def main(path: str = "tiny.onnx") -> None:
    """Show each function once; raises if one of them computes something else."""
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)

    # Only the graph: an ONNX model for any runtime.
    result = rewrite.optimize(path, rules=[RULES], numerics="exact")
    print([node.op_type for node in result.model.graph.node])
    print("\n".join(result.explain("size")))
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(result.model, Path(folder) / "tiny.opt.onnx")

    # Native code for this machine. N stays free: one program for every batch size.
    program = rewrite.compile(path, rules=[RULES], threads=1)
    y = program.run({"x": x})["y"]

    # What uses onnxruntime.InferenceSession can use this instead.
    session = rewrite.InferenceSession(path)
    (other,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, other, rtol=1e-5, atol=1e-6)
    print("program and session agree on", y.shape)


if __name__ == "__main__":
    main(*sys.argv[1:])
