"""The cache of programs: a compiled model is loaded, and no other entry is mistaken for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import rewrite
from rewrite.backend.bundle.program_cache import ProgramCache
from rewrite.backend.runtime.program import Program
from rewrite.engine import optimizer
from rewrite.engine.cost import machine
from rewrite.engine.cost.kernel_constants import KernelConstants
from rewrite.system.store import Store

MODEL = '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y) { t = Exp(x) y = Relu(t) }'
OWN_RULES = '"""Own rules."""\n\nrule own\n  Relu(Exp(x))  =>  Exp(x)\n  class fast\n'
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache with only the user's compiled kernels, which are slow to build."""
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    if (Store().root / "kernels").is_dir():
        (root / "kernels").symlink_to(Store().root / "kernels")
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(root))
    return root


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return path


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("it was optimized again")


def test_a_model_is_compiled_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rewrite.compile(model, threads=1)
    monkeypatch.setattr(optimizer, "optimize_native", refuse)
    again = rewrite.compile(model, threads=1)
    np.testing.assert_array_equal(again.run({"x": X})["y"], first.run({"x": X})["y"])
    np.testing.assert_allclose(again.run({"x": X})["y"], np.exp(X), rtol=1e-6)
    assert (again.threads, len(ProgramCache().entries())) == (1, 1)


def test_a_program_is_cached_by_a_process_that_ends_as_soon_as_it_is_compiled(tmp_path: Path) -> None:
    loaded, path = onnx.parser.parse_model(MODEL), tmp_path / "large.onnx"
    weights = np.ones((5_000_000, 1), np.float32)  # more than one chunk of the hash and of the checksum
    loaded.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    loaded.graph.node.append(onnx.helper.make_node("Add", ["w", "w"], ["sum"]))
    loaded.graph.node.append(onnx.helper.make_node("MatMul", ["sum", "row"], ["z"]))
    loaded.graph.input.append(onnx.helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [1, 1]))
    loaded.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [5_000_000, 1]))
    onnx.save(loaded, path)
    code = f"import rewrite; rewrite.compile({str(path)!r}, threads=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(ProgramCache().entries()) == 1


def test_a_model_of_another_size_or_with_other_settings_is_not_read_to_search_the_cache(model: Path) -> None:
    program, programs, settings = rewrite.compile(model, threads=1), ProgramCache(), {"threads": 1}
    key = programs.key(model, settings)
    assert key is not None
    assert not programs.may_have(model, settings)
    programs.add(key, program)
    assert programs.may_have(model, settings)
    assert not programs.may_have(model.read_bytes() + b"\0", settings)
    assert not programs.may_have(model, {"threads": 2})


def test_a_model_that_changes_while_it_is_compiled_is_not_cached(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimize = optimizer.optimize_native

    def changed_after(*args: Any) -> Any:
        found = optimize(*args)
        onnx.save(onnx.parser.parse_model(MODEL.replace("Relu", "Tanh")), model)
        return found

    monkeypatch.setattr(optimizer, "optimize_native", changed_after)
    first = rewrite.compile(model, threads=1)
    np.testing.assert_allclose(first.run({"x": X})["y"], np.exp(X), rtol=1e-6)
    assert ProgramCache().entries() == []
    again = rewrite.compile(model, threads=1)
    np.testing.assert_allclose(again.run({"x": X})["y"], np.tanh(np.exp(X)), rtol=1e-6)


@pytest.mark.parametrize("most_read", [0, 1 << 30], ids=["large", "small"])
def test_a_model_that_is_truncated_while_it_is_hashed_kills_no_process(tmp_path: Path, most_read: int) -> None:
    """A service may overwrite its model as soon as `compile` has returned, while the program is cached."""
    path = tmp_path / "m.onnx"
    code = f"""
import os, pathlib
from rewrite.backend.bundle import program_cache
def cut(contents):
    os.truncate({str(path)!r}, 10)
    return False
program_cache._may_be_elsewhere = cut
program_cache._READ = {most_read}
print(program_cache.ProgramCache().key(pathlib.Path({str(path)!r}), {{}}) is not None)
"""
    path.write_bytes(bytes(1 << 20))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_program_is_not_cached_under_rules_that_changed_since(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, add = tmp_path / "own.rules", ProgramCache.add_in_background
    rules.write_text(OWN_RULES)

    def late(self: ProgramCache, key: Callable[[], str | None], program: Program) -> None:
        rules.write_text(OWN_RULES.replace("own", "other"))
        add(self, key, program)

    monkeypatch.setattr(ProgramCache, "add_in_background", late)
    rewrite.compile(model, threads=1, rules=[rules])
    monkeypatch.setattr(optimizer, "optimize_native", refuse)
    with pytest.raises(AssertionError, match="optimized again"):
        rewrite.compile(model, threads=1, rules=[rules])


def test_a_model_compiled_before_starts_with_numpy_alone(model: Path) -> None:
    """Each of these takes longer to import than the program to load."""
    rewrite.compile(model, threads=1)
    assert len(ProgramCache().entries()) == 1  # written, for another process to find
    code = f"""
import sys, rewrite
rewrite.compile({str(model)!r}, threads=1)
heavy = {{"onnx", "ml_dtypes", "egglog", "jinja2", "lark", "rich", "rewrite.grammar.syntax", "rewrite.engine.pipeline"}}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_bytes_of_a_model_are_compiled_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rewrite.InferenceSession(model.read_bytes(), compile_in_background=False)
    monkeypatch.setattr(optimizer, "optimize_native", refuse)
    again = rewrite.InferenceSession(model.read_bytes(), compile_in_background=False)
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], first.run(None, {"x": X})[0])
    assert len(ProgramCache().entries()) == 1


@pytest.mark.parametrize("change", ["threads", "numerics", "shapes", "target", "rules", "model", "rule file"])
def test_any_other_setting_is_another_program(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    rules = tmp_path / "own.rules"
    rules.write_text(OWN_RULES)
    given: dict[str, object] = {"threads": 1, "rules": [rules] if change == "rule file" else []}
    rewrite.compile(model, **given)  # type: ignore[arg-type]
    monkeypatch.setattr(optimizer, "optimize_native", refuse)
    if change == "model":
        onnx.save(onnx.parser.parse_model(MODEL.replace("Exp", "Sin")), model)
    elif change == "rule file":
        rules.write_text(rules.read_text().replace("Own", "Other"))
    else:
        others = {"threads": 2, "numerics": "exact", "shapes": {"N": 3}, "target": "portable", "rules": [rules]}
        given[change] = others[change]
    with pytest.raises(AssertionError, match="optimized again"):
        rewrite.compile(model, **given)  # type: ignore[arg-type]


def test_a_damaged_program_is_rebuilt(model: Path) -> None:
    rewrite.compile(model, threads=1)
    [entry] = ProgramCache().entries()
    (entry / "weights.bin").write_bytes(b"?")
    with pytest.warns(UserWarning, match=r"cached program is unusable .*weights\.bin has changed"):
        again = rewrite.compile(model, threads=1)
    np.testing.assert_allclose(again.run({"x": X})["y"], np.exp(X), rtol=1e-6)
    assert ProgramCache().entries() == [entry]


def _opened(entry: Path) -> None:
    (entry / "weights.bin").chmod(0o666)


def _linked(entry: Path) -> None:
    [library] = entry.glob("kernels/*.so")
    library.symlink_to(library.rename(entry.parent.parent / library.name))


def _open(entry: Path) -> None:
    (entry / "kernels").chmod(0o777)


def _elsewhere(entry: Path) -> None:
    entry.symlink_to(entry.rename(entry.parent.parent / "moved"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_opened, r"weights\.bin: others may write to it"),
        (_linked, r"\.so: it is not a regular file"),
        (_open, "kernels: others may write to it"),
        (_elsewhere, "it is"),
    ],
)
def test_a_program_that_others_could_have_written_is_rebuilt(
    model: Path, change: Callable[[Path], None], reason: str
) -> None:
    rewrite.compile(model, threads=1)
    [entry] = ProgramCache().entries()
    change(entry)
    with pytest.warns(UserWarning, match=f"cached program is unusable .*others could have written .*{reason}"):
        again = rewrite.compile(model, threads=1)
    np.testing.assert_allclose(again.run({"x": X})["y"], np.exp(X), rtol=1e-6)
    assert not entry.is_symlink()


def test_entries_are_private_whatever_the_umask(model: Path, own_cache: Path) -> None:
    before = os.umask(0)
    try:
        rewrite.compile(model, threads=1)
    finally:
        os.umask(before)
    [entry] = ProgramCache().entries()
    modes = {path.stat().st_mode & 0o777 for path in (own_cache, entry.parent, entry, *entry.rglob("*"))}
    assert modes == {0o600, 0o700}
    assert ProgramCache().find(entry.name, threads=1) is not None


def test_models_with_external_data_are_not_cached(model: Path) -> None:
    loaded = onnx.load(model)
    loaded.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2000, np.float32), "w"))
    onnx.save(loaded, model, save_as_external_data=True, location="w.bin")
    assert ProgramCache().key(model, {}) is None


def test_the_programs_used_longest_ago_are_evicted(model: Path) -> None:
    program = rewrite.compile(model, threads=1)
    [first] = ProgramCache().entries()
    size = sum(info.size for info in Store().info() if info.name == "programs")
    programs = ProgramCache(Store(limit=size // 4 + 250))
    programs.add("second", program)
    assert [entry.name for entry in programs.entries()] == ["second"]
    assert not first.exists()


def test_clearing_removes_programs(model: Path, own_cache: Path) -> None:
    rewrite.compile(model, threads=1)
    (own_cache / "kernels").unlink(missing_ok=True)
    Store().clear()
    assert ProgramCache().entries() == []


def test_another_profile_of_the_machine_makes_another_program(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is found again with the profile that chose its graph, and with no other."""
    rewrite.compile(model, threads=1)
    assert len(ProgramCache().entries()) == 1  # written: what changes before that is not cached
    machine.store(replace(machine.default(), constants=KernelConstants(product=1.5)))
    with monkeypatch.context() as patched:
        patched.setattr(optimizer, "optimize_native", refuse)
        with pytest.raises(AssertionError, match="optimized again"):
            rewrite.compile(model, threads=1)
    rewrite.compile(model, threads=1)
    monkeypatch.setattr(optimizer, "optimize_native", refuse)
    rewrite.compile(model, threads=1)
    machine.profile_path().unlink()
    rewrite.compile(model, threads=1)
