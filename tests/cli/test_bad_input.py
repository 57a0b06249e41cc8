"""Bad input: one clear message, exit code 2, no traceback, no files left behind.

Length: one short test for each kind of bad input.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite as package
from onnx import TensorProto, helper
from rewrite.engine.onnx_io import importer
from rewrite.errors import UserError

from .command import Running, rewrite

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(3)
RUNAWAY = """\
rule doubled
  Relu(x)  =>  Relu(x + Relu(x - 1.0))
  class exact
rule sum
  x + y  =>  (x + y) + (x - x)
  class fast
rule difference
  x - y  =>  (x + Neg(x)) - y + Neg(y)
  class fast
"""
GROW = ("--rules", "runaway.rules", "--no-std-rules", "--numerics", "fast", "--no-verify")


def info(name: str, *shape: int | str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any] | None = None) -> Any:
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    domains = dict.fromkeys(["", *(node.domain for node in nodes)])
    opsets = [helper.make_opsetid(domain, 1 if domain else 17) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def good() -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["t"]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    weights = {"W": RNG.standard_normal((64, 32)).astype(np.float32)}
    return model(nodes, [info("x", "N", 64)], [info("y", "N", 32)], weights)


def custom() -> Any:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Magic", ["b"], ["y"], name="trick", domain="my.ops"),
    ]
    return model(nodes, [info("x", 2, 3)], [info("y", 2, 3)])


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels are compiled once for this module, and not into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWRITE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(good(), tmp_path / "m.onnx")
    (tmp_path / "runaway.rules").write_text(RUNAWAY)
    return tmp_path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its outputs."""
    place = tmp_path_factory.mktemp("compiled")
    onnx.save(good(), place / "m.onnx")
    done = rewrite("m.onnx", cwd=place)
    assert done.returncode == 0, done.stderr
    assert names(place) == ["m.onnx", "m.opt.onnx", "m.rewrite"]
    return place


@pytest.fixture
def bundle(compiled: Path, tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.ones((2, 64), np.float32))
    return Path(shutil.copytree(compiled / "m.rewrite", tmp_path / "m.rewrite"))


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def refused(place: Path, *arguments: str, message: str, before: str = "", **env: str) -> str:
    """Runs a command that must end with 2 and this message and change nothing; standard error."""
    found = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    done = rewrite(*arguments, cwd=place, before=before, env=env)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.count("error:") == 1
    assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == found
    return done.stderr


# --- models -----------------------------------------------------------------------------------------------------------


def _cyclic() -> Any:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="n1"),
        helper.make_node("Relu", ["a"], ["b"], name="n2"),
    ]
    return model(nodes, [info("x", 2)], [info("b", 2)])


def _one(op: str) -> Any:
    return model([helper.make_node(op, ["x"], ["y"], name="act")], [info("x", 2)], [info("y", 2)])


def _external(location: str) -> Any:
    proto = good()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return proto


def _misfit(op: str, a: tuple[int | str, ...], b: tuple[int | str, ...], **attributes: Any) -> Any:
    nodes = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node(op, ["r", "b"], ["y"], name="join", **attributes)]
    return model(nodes, [info("a", *a), info("b", *b)], [helper.make_tensor_value_info("y", FLOAT, None)])


MODELS: dict[str, tuple[Any, str]] = {
    "truncated": (good().SerializeToString()[:5000], "bad.onnx: not an ONNX model\nIt is truncated or damaged"),
    "text": (b"hello world\nthis is text\n", "bad.onnx: not an ONNX model"),
    "json": (b'{"a": 1}', "It is text, not a binary ONNX model."),
    "empty": (b"", "bad.onnx: the file is empty"),
    "cyclic": (_cyclic(), "the graph is cyclic: node 'n1' (Add) → node 'n2' (Relu) → node 'n1' (Add)"),
    "unknown": (_one("Rellu"), "node 'act' (Rellu): unknown operator Rellu (opset 17)\nDid you mean Relu"),
    "no data": (_external("w.bin"), "tensor 'W': its data file 'w.bin' is missing\nExpected at"),
    "escape": (_external("../../etc/passwd"), "tensor 'W': its data file '../../etc/passwd' is outside the model's"),
    "sizes": (
        _misfit("Add", (2, 4), (3, 5)),
        "bad.onnx: node 'join' (Add): its operands do not fit: cannot broadcast [2, 4] with [3, 5]\n"
        "Here r is f32[2, 4], b is f32[3, 5].",
    ),
    "inner sizes": (
        _misfit("MatMul", ("N", 4), (3, 5)),
        "node 'join' (MatMul): its operands do not fit: inner dims: 4 is not 3\nHere r is f32[N, 4], b is f32[3, 5].",
    ),
    "other sizes": (
        _misfit("Concat", ("N", 4), ("M", 5), axis=0),
        "node 'join' (Concat): its operands do not fit: axis 1: 4 is not 5\nHere r is f32[N, 4], b is f32[M, 5].",
    ),
    "a window": (
        _misfit("Conv", (1, 3, 4, "W"), (2, 3, 7, 7), pads=[0, 3, 0, 3]),
        "node 'join' (Conv): its operands do not fit: axis 2: a window of 7 does not fit into 4\nHere r is f32[1, 3,",
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_models_that_are_none(tmp_path: Path, kind: str) -> None:
    content, message = MODELS[kind]
    (tmp_path / "bad.onnx").write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    refused(tmp_path, "bad.onnx", message=message)
    with pytest.raises(UserError) as error:
        package.optimize(tmp_path / "bad.onnx")
    assert message in str(error.value)
    assert names(tmp_path) == ["bad.onnx"]


@pytest.mark.parametrize("place", ["branch", "unused", "symbols", "declared"])
def test_sizes_that_may_never_meet_are_no_error(place: str) -> None:
    """In a branch that is never taken, where nothing needs it, and where names or declarations alone differ."""
    inputs = [info("a", "N", 4), info("b", "N", 5), info("one", 1, 4), info("c", kind=TensorProto.BOOL)]
    result = helper.make_tensor_value_info("y", FLOAT, None)
    if place == "branch":
        result_of = {op: helper.make_tensor_value_info(op, FLOAT, None) for op in ("Add", "Neg")}
        then = helper.make_graph([helper.make_node("Add", ["a", "b"], ["Add"])], "then", [], [result_of["Add"]])
        other = helper.make_graph([helper.make_node("Neg", ["a"], ["Neg"])], "else", [], [result_of["Neg"]])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    elif place == "unused":
        nodes = [helper.make_node("Add", ["a", "b"], ["t"]), helper.make_node("Relu", ["a"], ["y"])]
    elif place == "symbols":
        nodes = [helper.make_node("Concat", ["a", "one"], ["t"], axis=0), helper.make_node("Add", ["a", "t"], ["y"])]
    else:
        nodes = [helper.make_node("NonZero", ["a"], ["i"]), helper.make_node("NonZero", ["b"], ["j"])]
        nodes.append(helper.make_node("Add", ["i", "j"], ["y"]))
        result = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    proto = model(nodes, inputs, [result])
    if place == "declared":
        proto.graph.value_info.extend(info(name, 2, n, kind=TensorProto.INT64) for name, n in (("i", 4), ("j", 5)))
    assert importer.read(proto).outputs == ("y",)


def test_unknown_operators_are_left_alone(tmp_path: Path) -> None:
    onnx.save(custom(), tmp_path / "c.onnx")
    done = rewrite("c.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert "node trick (my.ops.Magic): the program could not be compiled: no implementation of operator" in done.stderr
    assert "The optimized model was written: c.opt.onnx" in done.stderr
    assert "not verified" in done.stdout
    assert names(tmp_path) == ["c.onnx", "c.opt.onnx"]
    ops = [node.op_type for node in onnx.load(tmp_path / "c.opt.onnx").graph.node]
    assert ops == ["Relu", "Magic"]
    (tmp_path / "c.opt.onnx").unlink()
    refused(tmp_path, "c.onnx", "--emit", "program", message="no implementation of operator my.ops.Magic")
    assert rewrite("c.onnx", "--emit", "onnx", cwd=tmp_path).returncode == 0


# --- inputs of a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "array", "message"),
    [
        ("z", np.ones((2, 64), np.float32), "the model has no input 'z'"),
        ("x", np.ones((2, 64)), "input 'x' has dtype float64, the model wants float32"),
        ("x", np.ones((2, 63), np.float32), "dim 1 of input 'x' is 63, the model wants 64"),
        ("x", np.ones(64, np.float32), "input 'x' has rank 1, the model wants 2"),
        ("", None, "no value given for input 'x'"),
    ],
)
def test_inputs_that_do_not_fit(bundle: Path, given: str, array: Any, message: str) -> None:
    if array is not None:
        np.save(bundle.parent / "a.npy", array)
    options = ("-i", f"{given}=a.npy") if given else ()
    refused(bundle.parent, "run", "m.rewrite", *options, "-o", "out.npz", message=message)
    with pytest.raises(UserError, match=message):
        package.load(bundle).run({given: array} if given else {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numerics": "wild"}, "unknown numerics 'wild'\nChoose one of exact, reassoc, fast."),
        ({"precision": "f8"}, "unknown precision 'f8'\nChoose one of f32, bf16, int8."),
        ({"shapes": {"N": -3}}, "the size of 'N' must be a non-negative integer, not -3"),
        ({"shapes": {"N": "a"}}, "the size of 'N' must be a non-negative integer, not 'a'"),
        ({"shapes": {"M": 2}}, "no input has a dimension 'M'\nFree dimensions: N"),
    ],
)
def test_settings_from_python_that_are_none(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        package.optimize(good(), **settings)
    assert message in str(error.value)


# --- rules ------------------------------------------------------------------------------------------------------------


def test_all_errors_of_a_rule_file_are_reported(folder: Path) -> None:
    (folder / "bad.rules").write_text(
        "rule a\n  Rellu(x)  =>  Relu(y)\n  class exact\n\n"
        "rule b\n  Relu(Relu(x)  =>  Relu(x)\n  class exact\n\n"
        "rule c\n  Relu(x)  =>  Relu(x)\n  where rnk(x) == 2\n  class exact\n"
    )
    done = rewrite("m.onnx", "--rules", "bad.rules", cwd=folder)
    assert done.returncode == 2
    for place in ("bad.rules:2:3", "bad.rules:2:22", "bad.rules:6:7", "bad.rules:11:9"):
        assert f"--> {place}\n" in done.stderr
    assert done.stderr.count("^") >= 4
    assert "did you mean `Relu`" in done.stderr
    assert "4 errors" in done.stderr
    assert "Traceback" not in done.stderr
    assert names(folder) == ["bad.rules", "m.onnx", "runaway.rules"]


@pytest.mark.parametrize("limit", ["time", "node"])
def test_rules_without_end_give_the_best_graph_found(folder: Path, limit: str) -> None:
    bound = {"time": ("--time-limit", "1"), "node": ("--node-limit", "3000")}[limit]
    done = rewrite("m.onnx", *GROW, *bound, "--emit", "onnx", "--json", "r.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"saturation reached its {'time limit' if limit == 'time' else 'limit of e-nodes'}" in done.stdout
    report = json.loads((folder / "r.json").read_text())
    assert report["egraph"]["stop_reason"] == f"{limit}_limit"
    assert report["nodes_after"] <= report["nodes_before"]
    onnx.checker.check_model(onnx.load(folder / "m.opt.onnx"))


def test_rules_that_eat_the_memory_are_stopped_and_the_model_is_compiled(folder: Path) -> None:
    message = "warning: saturation was killed: it exceeded its memory limit of 200 MiB\nSome rules"
    limits = ("--memory-limit", "200", "--time-limit", "100", "--node-limit", "10000000")
    done = rewrite("m.onnx", *GROW, *limits, "--emit", "onnx", "--json", "r.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert message in done.stderr
    assert "saturation reached its memory limit (--memory-limit)" in done.stdout
    report = json.loads((folder / "r.json").read_text())
    assert report["egraph"]["stop_reason"] == "memory_limit"
    onnx.checker.check_model(onnx.load(folder / "m.opt.onnx"))


def test_a_model_that_does_not_fit_the_memory_is_refused(folder: Path) -> None:
    refused(folder, "m.onnx", "--memory-limit", "64", message="it exceeded its memory limit of 64 MiB\nSome rules")
    with pytest.raises(UserError, match="memory limit of 1 MiB"):
        package.optimize(folder / "m.onnx", memory_limit=1)


# --- the compiler -----------------------------------------------------------------------------------------------------

NO_ZIG = "import sys; sys.modules['ziglang'] = None"


def test_without_a_compiler_the_model_is_still_written(folder: Path) -> None:
    done = rewrite("m.onnx", cwd=folder, before=NO_ZIG, env={"PATH": "/nowhere", "CC": ""})
    assert done.returncode == 2
    assert "error: the program could not be compiled: no C compiler found\nInstall gcc or clang" in done.stderr
    assert "The optimized model was written: m.opt.onnx" in done.stderr
    assert names(folder) == ["m.onnx", "m.opt.onnx", "runaway.rules"]
    onnx.checker.check_model(onnx.load(folder / "m.opt.onnx"))
    done = rewrite("m.onnx", "--emit", "onnx", cwd=folder, before=NO_ZIG, env={"PATH": "/nowhere", "CC": ""})
    assert done.returncode == 0, done.stderr
    refused(folder, "m.onnx", "--emit", "program", message="the C compiler named by $CC does not run", CC="/nowhere/cc")


def test_without_a_compiler_a_bundle_runs(bundle: Path) -> None:
    env = {"PATH": "/nowhere", "CC": ""}
    done = rewrite("run", "m.rewrite", "-i", "x=x.npy", cwd=bundle.parent, before=NO_ZIG, env=env)
    assert done.returncode == 0, done.stderr


# --- disks ------------------------------------------------------------------------------------------------------------

FULL_FILES = """
import builtins, errno
import rewrite.system.scoped as scoped
import rewrite.engine.onnx_io.exporter as writer
def full(name, *arguments, **options):
    file = builtins.open(name, *arguments, **options)
    if not str(name).endswith(("so", "json")) and "index" not in str(name):
        file.close()
        raise OSError(errno.ENOSPC, "No space left on device", str(name))
    return file
scoped.open = writer.open = full
"""
FULL_BUNDLE = """
import errno
import rewrite.backend.bundle.save_bundle as bundle
def full(self, file):
    raise OSError(errno.ENOSPC, "No space left on device")
bundle.Weights.write = full
"""


@pytest.mark.parametrize(
    ("what", "before", "message"),
    [
        (("--emit", "onnx"), FULL_FILES, "m.opt.onnx: cannot be written: No space left on device"),
        ((), FULL_BUNDLE, "m.rewrite: the bundle cannot be written: No space left on device"),
        (("--emit", "onnx", "--report", "r.html"), FULL_FILES, "cannot be written: No space left on device"),
    ],
)
def test_a_full_disk_leaves_what_was_there(folder: Path, what: tuple[str, ...], before: str, message: str) -> None:
    (folder / "m.opt.onnx").write_bytes(b"old")
    (folder / "m.rewrite").mkdir()
    (folder / "m.rewrite" / "manifest.json").write_text("old")
    refused(folder, "m.onnx", *what, message=message, before=before)
    assert names(folder) == ["m.onnx", "m.opt.onnx", "m.rewrite", "runaway.rules"]


def test_places_that_cannot_be_written(folder: Path, bundle: Path) -> None:
    refused(folder, "m.onnx", "-o", "/proc/m.onnx", "--emit", "onnx", message="/proc/m.onnx: cannot be written")
    refused(folder, "m.onnx", "--program", "/proc/m", "--emit", "program", message="/proc/m: the bundle cannot be")
    refused(folder, "run", "m.rewrite", "-i", "x=x.npy", "-o", "nowhere/o.npz", message="nowhere: no such directory")
    (folder / "mine").mkdir()
    (folder / "mine" / "letter.txt").write_text("dear …")
    refused(folder, "m.onnx", "--program", "mine", message="mine: exists and is not a program of rewrite")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_without_permission(folder: Path) -> None:
    folder.chmod(0o500)
    try:
        refused(folder, "m.onnx", message="cannot be written to")
    finally:
        folder.chmod(0o700)


# --- caches and bundles -----------------------------------------------------------------------------------------------


def test_a_damaged_cache_is_rebuilt(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.mktemp("own")
    env = {"REWRITE_CACHE_DIR": str(cache)}
    assert rewrite("m.onnx", cwd=folder, env=env).returncode == 0
    (module,) = (cache / "kernels").rglob("*.so")
    module.write_bytes(module.read_bytes()[:2000])
    shutil.rmtree(cache / "programs")
    done = rewrite("m.onnx", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert "warning: a cached module of kernels is unusable (its checksum is wrong); it is rebuilt" in done.stderr
    done = rewrite("m.onnx", cwd=folder, env=env)
    assert "warning" not in done.stderr


def test_an_unusable_cache_directory_is_reported_before_the_work(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = rewrite("m.onnx", cwd=folder, env={"REWRITE_CACHE_DIR": str(tmp_path / "file")})
    assert done.returncode == 2
    assert "the cache directory cannot be created" in done.stderr
    assert "saturate" not in done.stderr


def test_one_rule_file_is_not_a_list_of_files() -> None:
    with pytest.raises(UserError, match=r"`rules` is a list of files, not 'my\.rules'"):
        package.optimize("m.onnx", rules="my.rules")


def _truncate_kernel(path: Path) -> None:
    (library,) = path.rglob("*.so")
    library.write_bytes(library.read_bytes()[:100])


def _truncate_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[: len(text) // 2])


def _foreign(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 99, "version": "99.0"}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate_kernel, "the bundle is damaged: kernels/"),
        (_truncate_manifest, "the bundle is damaged: its manifest is not valid JSON"),
        (_foreign, "the bundle was made by version 99.0 of rewrite"),
        (lambda path: (path / "weights.bin").unlink(), "the bundle is damaged: weights.bin is missing"),
        (lambda path: (path / "manifest.json").unlink(), "this is not a bundle: it has no manifest.json"),
    ],
)
def test_damaged_bundles(bundle: Path, damage: Any, message: str) -> None:
    damage(bundle)
    errors = refused(bundle.parent, "run", "m.rewrite", "-i", "x=x.npy", message=f"m.rewrite: {message}")
    assert "Compile the model again" in errors or "A bundle is the directory that" in errors
    with pytest.raises(UserError):
        package.load(bundle)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def _endless() -> Any:
    """A model that computes for a long time: a loop of 10⁸ iterations."""
    step = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["s", "s"], ["t"])],
        "body",
        [info("i", kind=TensorProto.INT64), info("go", kind=TensorProto.BOOL), info("s", 64, 64)],
        [info("on", kind=TensorProto.BOOL), info("t", 64, 64)],
    )
    loop = helper.make_node("Loop", ["count", "go", "x"], ["y"], body=step)
    return model([loop], [info("x", 64, 64)], [info("y", 64, 64)], {"count": np.array(10**8), "go": np.array(True)})


def _interrupted(running: Running, place: Path, temporary: Path, number: int = signal.SIGINT) -> None:
    code, seconds, errors = running.interrupt(number)
    assert code == 128 + number, errors
    assert seconds < 1.5
    assert "Traceback" not in errors
    assert names(place) == ["m.onnx", "runaway.rules"]
    assert set(names(temporary)) <= {".ses"}  # ONNX Runtime's own
    assert running.left() == []


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


def test_an_interrupt_while_saturating(folder: Path, temporary: Path) -> None:
    running = Running("m.onnx", *GROW, "--time-limit", "100", cwd=folder, temporary=temporary)
    running.wait_for("read model")
    with pytest.raises(TimeoutError):
        _pause(running, 2.0)
    assert len(running.left()) == 2
    _interrupted(running, folder, temporary)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_compiling(folder: Path, temporary: Path, number: int) -> None:
    compiler = folder.parent / f"{folder.name}-cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *--version*) echo cc 1 ;; *) sleep 100 ;; esac\n')
    compiler.chmod(0o755)
    running = Running("m.onnx", cwd=folder, temporary=temporary, CC=str(compiler))
    running.wait_for("plan kernels")
    end = time.monotonic() + 60
    while not any("sleep 100" in line for line in running.left()):
        assert time.monotonic() < end
        with pytest.raises(TimeoutError):
            _pause(running, 0.2)
    _interrupted(running, folder, temporary, number)


def test_another_program_that_writes_to_the_model_ends_the_run(folder: Path, temporary: Path) -> None:
    """The file is not cut: bytes mapped from a truncated file may end the process before it can say anything."""
    compiler = folder.parent / f"{folder.name}-cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *--version*) echo cc 1 ;; *) sleep 100 ;; esac\n')
    compiler.chmod(0o755)
    running = Running("m.onnx", cwd=folder, temporary=temporary, CC=str(compiler))
    running.wait_for("plan kernels")
    with (folder / "m.onnx").open("r+b") as model:
        model.write(b"other")
    _, errors = running.child.communicate(timeout=20)
    assert running.child.returncode == 2
    assert "m.onnx: another program is writing to the model\nTry again when it is done." in errors
    assert names(folder) == ["m.onnx", "runaway.rules"]
    assert running.left() == []


@pytest.mark.parametrize("oracle", ["onnxruntime", "reference"])
def test_an_interrupt_while_verifying(folder: Path, temporary: Path, oracle: str) -> None:
    onnx.save(_endless(), folder / "m.onnx")
    without = "import sys; sys.modules['onnxruntime'] = None" if oracle == "reference" else ""
    running = Running("m.onnx", "--emit", "onnx", cwd=folder, temporary=temporary, before=without)
    running.wait_for("extract")
    with pytest.raises(TimeoutError):
        _pause(running, 3.0)
    assert len(running.left()) == (2 if oracle == "reference" else 1)
    _interrupted(running, folder, temporary)


def _pause(running: Running, seconds: float) -> None:
    """Lets it run for a while; TimeoutError when it still does."""
    import subprocess

    try:
        running.child.wait(seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
