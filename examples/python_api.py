"""The Python API on the model of `make_model.py`: optimize, compile, run, and the drop-in for ONNX Runtime's class.

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
    """Call each function once; raise if one of them computes something else."""
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)

    # region api
    # Only the graph: an ONNX model for any runtime.
    result = rewrite.optimize(path, rules=[RULES], numerics="exact")
    model, report = result.model, result.report

    # Native code for this machine. N stays free: one program for every batch size.
    program = rewrite.compile(path, rules=[RULES], threads=1)
    y = program.run({"x": x})["y"]

    # In the place of onnxruntime.InferenceSession: it answers at once, and compiles in the background.
    session = rewrite.InferenceSession(path)
    (other,) = session.run(None, {"x": x})
    # endregion

    print(f"{report.nodes_before} nodes became {report.nodes_after}:", [node.op_type for node in model.graph.node])
    print("\n".join(result.explain("size")))
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, Path(folder) / "tiny.opt.onnx")
    np.testing.assert_allclose(y, other, rtol=1e-5, atol=1e-6)
    print("program and session agree on", y.shape)


if __name__ == "__main__":
    main(*sys.argv[1:])
