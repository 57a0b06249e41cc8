"""The distribution that runs bundles with NumPy alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import rewrite
from onnx import TensorProto, helper
from rewrite.distribution import runtime_wheel
from rewrite.system.hardware import cpu_features
from rewrite.tests.cli.command import environment
from rewrite.tests.cli.command import rewrite as cli

LIGHT = {"rewrite", "numpy"}
"""All that the runtime imports besides the standard library."""
MODULES = """
import sys
names = {name.partition(".")[0] for name in sys.modules if getattr(sys.modules[name], "__file__", None)}
print(sorted(names - set(sys.stdlib_module_names) - {"__main__", "_distutils_hack", "sitecustomize"}))
"""
RUN = """
import sys
import numpy as np, rewrite
program = rewrite.load(sys.argv[1])
np.savez(sys.argv[2], **program.run(dict(np.load(sys.argv[3]))))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a free size, beside its model, inputs and outputs as files."""
    folder = tmp_path_factory.mktemp("bundle")
    weights = np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [onnx.numpy_helper.from_array(weights, "W")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), folder / "model.onnx")
    program = rewrite.compile(folder / "model.onnx", threads=1)
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    np.savez(folder / "inputs.npz", x=x)
    np.savez(folder / "outputs.npz", **program.run({"x": x}))
    return program.save(folder / "model.rewrite")


def python(code: str, *arguments: object) -> str:
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_running_a_bundle_imports_numpy_only(bundle: Path, tmp_path: Path) -> None:
    found = python(RUN + MODULES, bundle, tmp_path / "out.npz", bundle.with_name("inputs.npz"))
    names = set(json.loads(found.replace("'", '"')))
    assert {name for name in names if not name.startswith(("_cython", "__editable__"))} == LIGHT


def test_starting_a_program_imports_neither_rules_nor_templates(bundle: Path) -> None:
    code = "import sys, rewrite; rewrite.load(sys.argv[1]); print(*sorted(n for n in sys.modules if 'rewrite.' in n))"
    loaded = python(code, bundle).split()
    files = [name.removeprefix("rewrite.").replace(".", "/") for name in loaded if not name.startswith("__")]
    beyond = [
        name
        for name in files
        if not any(runtime_wheel._is_runtime(f"rewrite/{name}{end}") for end in (".py", "/__init__.py", ".so"))
    ]
    assert beyond == []


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment in which only the runtime and NumPy are installed."""
    folder = tmp_path_factory.mktemp("runtime")
    built = runtime_wheel.build(wheel, folder)
    venv.create(folder / "venv", with_pip=True)
    commands = folder / "venv" / "bin"
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    for path in here.glob("numpy*"):  # the one that is here: nothing is downloaded
        (packages / path.name).symlink_to(path)
    install = [commands / "python", "-m", "pip", "install", "--quiet", "--no-index", str(built)]
    done = subprocess.run(install, check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return commands


def bare(installed: Path, *command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    line = [str(installed / str(command[0])), *map(str, command[1:])]
    clean = {key: value for key, value in environment().items() if not key.startswith("PYTHON")}
    return subprocess.run(line, check=False, timeout=120, capture_output=True, text=True, env=clean, cwd=cwd)


def same(found: Path, bundle: Path) -> None:
    with np.load(found) as got, np.load(bundle.with_name("outputs.npz")) as wanted:
        assert sorted(got) == sorted(wanted)
        np.testing.assert_array_equal(got["y"], wanted["y"])


@pytest.mark.slow
def test_a_bundle_runs_from_python(installed: Path, bundle: Path, tmp_path: Path) -> None:
    done = bare(installed, "python", "-P", "-c", RUN, bundle, tmp_path / "out.npz", bundle.with_name("inputs.npz"))
    assert done.returncode == 0, done.stderr
    same(tmp_path / "out.npz", bundle)


@pytest.mark.slow
def test_a_bundle_runs_from_the_command_line(installed: Path, bundle: Path, tmp_path: Path) -> None:
    given = f"x={bundle.with_name('inputs.npz')}"
    done = bare(installed, "rewrite", "run", bundle, "-i", given, "--output", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    same(tmp_path / "out.npz", bundle)
    shown = bare(installed, "rewrite", "run", bundle, "-i", given)
    assert shown.returncode == 0
    assert "[3, 10]" in shown.stdout


@pytest.mark.slow
def test_a_bundle_is_measured(installed: Path, bundle: Path) -> None:
    done = bare(installed, "rewrite", "bench", bundle, "--seconds", "0.1", "--shape", "N=2", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bench"]["engines"]["rewrite"]["median"] > 0
    table = bare(installed, "rewrite", "bench", bundle, "--seconds", "0.1")
    assert table.stdout.splitlines()[0].split()[:2] == ["engine", "median"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["model.onnx"], ["run", "model.onnx"], ["check"], ["bench", "model.rewrite", "--profile"], ["lsp"]],
    ids=" ".join,
)
def test_other_commands_name_what_to_install(installed: Path, bundle: Path, arguments: list[str]) -> None:
    done = bare(installed, "rewrite", *(bundle.parent / a if a.startswith("model.") else a for a in arguments))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert done.stderr.endswith("needs more than the runtime: pip install onnx-rewrite\n")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["compile(model)", "optimize(model)", "InferenceSession(model)", "ort"])
def test_other_functions_name_what_to_install(installed: Path, call: str) -> None:
    code = f"""
import rewrite
from rewrite.errors import NotInstalled
model = "model.onnx"
try:
    rewrite.{call}
except NotInstalled as error:
    print(error)
"""
    done = bare(installed, "python", "-P", "-c", code)
    assert done.stdout.endswith("needs more than the runtime: pip install onnx-rewrite\n"), done.stderr


@pytest.mark.slow
def test_arguments_are_checked_as_by_the_whole_command_line(installed: Path, bundle: Path) -> None:
    assert bare(installed, "rewrite", "run", bundle, "--threads", "0").returncode == 2
    unknown = bare(installed, "rewrite", "runn", bundle)
    assert unknown.returncode == 2
    assert "unknown command 'runn'" in unknown.stderr
    assert bare(installed, "rewrite", "--version").stdout == f"rewrite {rewrite.__version__}\n"
    assert "--seconds" in bare(installed, "rewrite", "help", "bench").stdout


@pytest.mark.slow
def test_the_wheel_of_the_runtime_is_a_part_of_the_whole(wheel: Path, tmp_path: Path) -> None:
    first = runtime_wheel.build(wheel, tmp_path)
    before = first.read_bytes()
    assert runtime_wheel.build(wheel, tmp_path).read_bytes() == before
    with zipfile.ZipFile(first) as part, zipfile.ZipFile(wheel) as whole:
        shared = [name for name in part.namelist() if name.startswith("rewrite/")]
        assert all(part.read(name) == whole.read(name) for name in shared)
        metadata = part.read("onnx_rewrite_runtime-0.1.0.dist-info/METADATA").decode()
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and ";" not in line] == [
        "Requires-Dist: numpy>=2.0"
    ]


@pytest.mark.slow
def test_the_container_recipe_works(installed: Path, bundle: Path, tmp_path: Path) -> None:
    """Its own steps, one environment for each stage; installing is what the fixtures do."""
    page = Path(rewrite.__file__).with_name("docs").joinpath("deploy.md").read_text()
    recipe = page.partition("```dockerfile")[2].partition("```")[0]
    [compiles] = re.findall(r"^RUN (rewrite .*)$", recipe, re.MULTILINE)
    [runs] = re.findall(r"^CMD (.*)$", recipe, re.MULTILINE)
    (tmp_path / "model.onnx").write_bytes(bundle.with_name("model.onnx").read_bytes())
    compiled = cli(*compiles.split()[1:], cwd=tmp_path, timeout=280)
    assert compiled.returncode == 0, compiled.stderr
    (tmp_path / "model.onnx").unlink()
    np.save(tmp_path / "x.npy", np.ones((2, 64), np.float32))
    command, *arguments = json.loads(runs)
    done = bare(installed, command, *arguments, cwd=tmp_path)
    if {"avx2", "fma"} <= cpu_features():
        assert done.returncode == 0, done.stderr
        assert "[2, 10]" in done.stdout
    else:
        assert "cannot run the bundle's kernels" in done.stderr
