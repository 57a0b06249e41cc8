"""A working directory with Python files of a stranger: no process imports them."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser, save

from .command import rewrite

MODULES = ("egglog", "json", "multiprocessing", "numpy", "onnx", "onnxruntime", "pickle", "rewrite", "subprocess")
RULES = """
rule twice
  Neg(Neg(x))  =>  x
  class exact
  test fires    x: f32[2]

rule same
  Abs(Abs(x))  =>  Abs(x)
  class exact
  test fires    x: f32[2]
"""
MODELS = {
    "m": "g (float[2] x) => (float[2] y) { y = Neg(x) }",
    "product": "g (float[64, 256] x, float[256, 256] w) => (float[64, 256] y) { y = MatMul(x, w) }",
    "may_crash": "g (int64[2] x) => (int64[2] y) { y = Div(x, x) }",  # by zero: verified in a child
}
WITHOUT_RUNTIME = "import sys; sys.modules['onnxruntime'] = None"  # the reference evaluator runs in a child


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a model, rules, and modules that leave a mark when they are imported."""
    for name, text in MODELS.items():
        save(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / f"{name}.onnx")
    (tmp_path / "r.rules").write_text(RULES)
    for name in MODULES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        (("m.onnx",), ""),
        (("m.onnx",), WITHOUT_RUNTIME),
        (("may_crash.onnx",), ""),
        (("check", "r.rules", "--jobs", "2"), ""),
        (("tune", "product.onnx", "--budget", "1s"), ""),
    ],
)
def test_nothing_is_imported_from_it(folder: Path, arguments: tuple[str, ...], before: str) -> None:
    done = rewrite(*arguments, cwd=folder, before=before, env={"REWRITE_CACHE_DIR": str(folder / "cache")})
    assert not (folder / "imported").exists()
    assert done.returncode == 0, done.stderr
