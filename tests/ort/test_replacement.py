"""`rewrite.ort` in the place of `onnxruntime`: for a script, and for modules imported later."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import onnxruntime
import pytest
from rewrite import ort
from rewrite.ort import replacement
from rewrite.system import installed_onnxruntime


def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rewrite.ort", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **more}, check=False)


SCRIPT = """
    import sys
    import numpy as np
    import onnxruntime as rt
    from onnxruntime.capi import _pybind_state as C
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
    import onnxruntime.quantization
    from onnx import parser
    import helper

    assert rt.InferenceSession.__module__ == "rewrite.ort.session" == helper.found
    assert C.SessionOptions is rt.SessionOptions
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }')
    session = rt.InferenceSession(model.SerializeToString(), providers=rt.get_available_providers())
    print(session.run(None, {"x": np.ones(2, np.float32)})[0].tolist(), sys.argv[1:], __name__)
    for wrong, error in ((np.ones(3, np.float32), InvalidArgument), (np.ones(2), InvalidArgument)):
        try:
            session.run(None, {"x": wrong})
        except error:
            print("refused")
    try:
        rt.InferenceSession("none.onnx")
    except NoSuchFile:
        print("missing")
"""


def test_a_script_and_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "helper.py").write_text(
        "from onnxruntime import InferenceSession\nfound = InferenceSession.__module__\n"
    )
    for arguments in (("script.py", "a", "-b"), ("-m", "script", "a", "-b")):
        for wait in ("0", "1"):
            done = run(*arguments, cwd=tmp_path, REWRITE_COMPILE_IN_BACKGROUND=wait)
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines() == ["[-1.0, -1.0] ['a', '-b'] __main__", "refused", "refused", "missing"]


def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    done = run("none.py", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: none.py: no such file")
    assert run(cwd=tmp_path).returncode == 2
    assert run("--help", cwd=tmp_path).returncode == 0


def test_the_package_itself_stays_available() -> None:
    replacement.install()
    try:
        import onnxruntime as found

        assert found.InferenceSession is ort.InferenceSession
        assert installed_onnxruntime.onnxruntime() is onnxruntime
        assert installed_onnxruntime.is_installed()
    finally:
        replacement.uninstall()
    assert sys.modules["onnxruntime"] is onnxruntime


OURS = {"wait", "program", "deliver"}
"""Methods that ONNX Runtime does not have."""


@pytest.mark.parametrize("name", ["InferenceSession", "OrtValue", "IOBinding"])
def test_parameters_have_the_same_names(name: str) -> None:
    ours, theirs = getattr(ort, name), getattr(onnxruntime, name)
    for method in vars(ours):
        if method.startswith("_") or method in OURS:
            continue
        mine, want = (list(inspect.signature(getattr(c, method)).parameters) for c in (ours, theirs))
        assert mine == want, method
