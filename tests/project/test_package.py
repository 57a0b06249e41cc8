"""The distribution: what is in it, and that importing it costs nothing."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import rewrite

ROOT = Path(rewrite.__file__).parent


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_importing_the_package_imports_no_dependency() -> None:
    heavy = {"numpy", "onnx", "egglog", "jinja2", "lark", "Cython", "typer", "rich", "torch"}
    assert run(f"import sys, rewrite; print(sorted({heavy!r} & set(sys.modules)))") == "[]"


def test_nothing_but_its_own_rooms_imports_pytorch() -> None:
    """Not even for a user's model: what is no object of PyTorch does not need it."""
    code = """
import sys
sys.modules["torch"] = None
import rewrite
from rewrite import api, ort
from rewrite.backend.sessions import onnx_backend
from rewrite.cli import app
from rewrite.frontends import sources
assert ort.InferenceSession and sources.as_source(b"model") == b"model"
"""
    assert run(code) == ""
    rooms = (
        "frontends/torch_models.py",
        "torch_backend/",
        "benchmarks/",
        "tests/",
        "build/",
        "examples/",
        "docs/",
        ".",
    )
    pattern = re.compile(r"^\s*(import|from) torch\b", re.MULTILINE)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    assert [name for name, text in texts.items() if pattern.search(text) and not name.startswith(rooms)] == []


@pytest.mark.parametrize("name", rewrite.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rewrite, name) is not None
    assert name in dir(rewrite)


def test_errors_are_named_before_anything_else_is_used() -> None:
    assert run("import rewrite; print(rewrite.errors.UserError.__name__)") == "UserError"


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimizer'"):
        _ = rewrite.optimizer  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib import metadata

    assert rewrite.__version__ == metadata.version("onnx-rewrite")


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name.removeprefix("rewrite/") for name in names if name.startswith("rewrite/")}
    assert all(name.startswith(("rewrite/", "onnx_rewrite-")) for name in names)
    assert not {"setup.py", "conftest.py"} & inside
    assert not [
        name for name in inside if name.startswith(("tests/", "benchmarks/", "build/", "docs/", "examples/", "."))
    ]
    assert {"__init__.py", "py.typed", "api.py", "cli/app.py", "grammar/syntax/rules.lark"} <= inside
    rooms = [
        f"{room}/**/*.py"
        for room in (
            "system",
            "pages",
            "grammar",
            "engine",
            "soundness",
            "backend",
            "tuning",
            "frontends",
            "cli",
            "ort",
            "torch_backend",
        )
    ]
    for pattern in (
        *rooms,
        "rules/*.rules",
        "pages/*.html",
        "pages/*.css",
        "pages/*.js",
        "pages/vendor/*",
        "backend/kernels/*/*.j2",
        "backend/kernels/*/*.h",
        "backend/runtime/c_library/*.[ch]",
        "backend/runtime/native/*.h",
        "system/*.h",
        "engine/cost/*.c",
    ):
        wanted = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)}
        assert wanted
        assert wanted <= inside
    assert {"rules/standard.prepared", "backend/kernels/templates.prepared"} <= inside
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "installed")!r})
from rewrite.engine.rewriting.rule_library import load_rules
assert all("/installed/rewrite/rules/" in file for file, _ in load_rules().places().values())
print("lark" in sys.modules)
"""
    environment = {**os.environ, "REWRITE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    assert done.stdout.strip() == "False"  # no rule was parsed
    extensions = {path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "backend").rglob("*.pyx")}
    assert all(any(name.startswith(f"{stem}.") and name.endswith(".so") for name in inside) for stem in extensions)
