"""`rewrite MODEL --c`: a bundle with what a program in C needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.backend.ir.target import make_target, runs_here
from rewrite.tests.backend.runtime.c_program import CProgram

from .command import rewrite as cli


def model(path: Path, op: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT if op == "Softmax" else TensorProto.INT64, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


@pytest.mark.skipif(not runs_here(make_target("avx2")), reason="this CPU has no AVX2")
def test_a_bundle_for_c_also_from_the_cache(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", "Softmax")
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    cache = {"REWRITE_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):  # the second time the program is in the cache
        done = cli(file.name, "--target", "portable,avx2", "--c", cwd=tmp_path, env=cache)
        assert done.returncode == 0, done.stderr
        bundle = tmp_path / "m.rewrite"
        found = CProgram(bundle)
        np.testing.assert_array_equal(found.run({"x": x})["y"], rewrite.load(bundle).run({"x": x})["y"])
        found.close()


def test_what_c_will_refuse_is_warned_of(tmp_path: Path) -> None:
    done = cli(model(tmp_path / "m.onnx", "NonZero").name, "--c", cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "warning: the program does not run from C: data determine the sizes of what these nodes return" in done.stderr
    )


def test_c_needs_a_program(tmp_path: Path) -> None:
    done = cli(model(tmp_path / "m.onnx", "Softmax").name, "--c", "--emit", "onnx", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: --c needs the program, which --emit leaves out\n")
