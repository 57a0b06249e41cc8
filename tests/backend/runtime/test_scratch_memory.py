"""Scratch memory of kernels, checked by the compiler while they run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT_KEYS = """
import numpy, onnx.parser
from rewrite.backend.compile_graph import compile_graph
from rewrite.engine.onnx_io.importer import read
model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 23]>
    g (float[1,2,S,16] q, float[1,2,T,16] k, float[1,2,T,16] v) => (float[1,2,S,16] y) { y = Attention(q, k, v) }''')
program = compile_graph(read(model), threads=1)
q, none = numpy.ones((1, 2, 3, 16), numpy.float32), numpy.ones((1, 2, 0, 16), numpy.float32)
for _ in range(3):
    assert not program.run({"q": q, "k": none, "v": none})["y"].any()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="gcc checks it on Linux")
def test_scratch_memory_of_no_bytes_has_an_address(tmp_path: Path) -> None:
    """Without keys there are no scores, and the kernel clears them by `memset`, which admits no null pointer."""
    checked = {"CC": "gcc -fsanitize=nonnull-attribute -fno-sanitize-recover=all", "REWRITE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_KEYS], env=os.environ | checked, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
