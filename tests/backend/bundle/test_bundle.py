"""Bundles: equal results after a round trip, and a clear error for everything that can be wrong with one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend.bundle import load_bundle
from rewrite.backend.bundle.manifest import sealed
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir import target as targeting
from rewrite.backend.ir.target import cpu_features, make_target, runs_here
from rewrite.errors import UserError

from .. import models
from ..runtime.test_program import branches

RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile_graph(models.mixed(), threads=2).save(tmp_path_factory.mktemp("bundles") / "mixed.rewrite")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "m.rewrite"))


def edit(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_bytes(sealed({**manifest, **changes}))


def test_round_trip(saved: Path) -> None:
    program = load_bundle.load(saved)
    assert program.threads == 2
    for n in (3, 1, 0):
        x = RNG.standard_normal((n, 8), np.float32)
        found = program.run({"x": x})
        for name, expected in models.mixed_reference(x).items():
            np.testing.assert_array_equal(found[name], expected)


def test_running_needs_no_more_than_numpy(tmp_path: Path) -> None:
    """The other dependencies of the package take 9 MB and more of a process that only runs a model."""
    bundled = compile_graph(models.chain(), threads=1).save(tmp_path / "c.rewrite")
    code = f"""
import sys, numpy, rewrite
program = rewrite.load({str(bundled)!r})
program.run({{"x": numpy.zeros((6, 8), numpy.float32)}})
others = {{"onnx", "ml_dtypes", "google", "egglog", "jinja2", "lark", "Cython", "rich", "blake3"}}
print(sorted(others & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_reference_implementation_waits_until_it_is_needed(saved: Path) -> None:
    """A branch with an operator without a kernel may never be taken."""
    code = f"import sys, numpy, rewrite; rewrite.load({str(saved)!r}); print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_weights_are_mapped_and_exact(tmp_path: Path) -> None:
    program = compile_graph(models.chain(), threads=1)
    loaded = load_bundle.load(program.save(tmp_path / "c.rewrite"))
    x = RNG.standard_normal((6, 8), np.float32)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], program.run({"x": x})["y"])
    bases = [c.array.base for c in loaded.plan.constants.values()]
    assert bases
    assert all(isinstance(base, np.memmap) for base in bases)


def test_bodies_survive(tmp_path: Path) -> None:
    program = load_bundle.load(compile_graph(branches(), threads=1).save(tmp_path / "b.rewrite"))
    x = np.array([1, -2, 3, -4], np.float32)
    np.testing.assert_array_equal(program.run({"x": x, "go": np.bool_(False)})["y"], -8 * x)


def test_saving_is_deterministic(tmp_path: Path) -> None:
    one = compile_graph(models.chain(), threads=1).save(tmp_path / "1.rewrite")
    two = compile_graph(models.chain(), threads=1).save(tmp_path / "2.rewrite")
    assert (one / "manifest.json").read_bytes() == (two / "manifest.json").read_bytes()
    assert (one / "weights.bin").read_bytes() == (two / "weights.bin").read_bytes()


def test_an_older_bundle_is_replaced_and_nothing_else(copy: Path, tmp_path: Path) -> None:
    compile_graph(models.chain(), threads=1).save(copy)
    assert "y" in load_bundle.load(copy).plan.outputs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.rewrite"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("")
    with pytest.raises(UserError, match="is not a bundle"):
        compile_graph(models.chain(), threads=1).save(tmp_path / "full")
    assert (tmp_path / "full" / "precious").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        compile_graph(models.chain(), threads=1).save(tmp_path / "file" / "m.rewrite")


@pytest.mark.parametrize("name", ["weights.bin", "kernel"])
def test_changed_files_are_noticed(copy: Path, name: str) -> None:
    file = copy / name if name == "weights.bin" else next((copy / "kernels").glob("*.so"))
    data = bytearray(file.read_bytes())
    file.write_bytes(bytes([*data[:-1], data[-1] ^ 1]) if data else b"more")
    with pytest.raises(UserError, match=f"{file.name} has changed"):
        load_bundle.load(copy)


def test_large_weights_are_checked_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading does not wait for them, the first run does, and so does saving."""
    monkeypatch.setattr(load_bundle, "_LARGE", 0)
    path = compile_graph(models.chain(), threads=1).save(tmp_path / "c.rewrite")
    x = RNG.standard_normal((6, 8), np.float32)
    assert load_bundle.load(path).run({"x": x})
    data = (path / "weights.bin").read_bytes()
    (path / "weights.bin").write_bytes(bytes([*data[:-1], data[-1] ^ 1]))
    program = load_bundle.load(path)
    for use in (lambda: program.run({"x": x}), lambda: program.run({"x": x}), lambda: program.save(tmp_path / "d")):
        with pytest.raises(UserError, match=r"weights\.bin has changed"):
            use()
    with pytest.raises(UserError, match=r"weights\.bin has changed"):
        load_bundle.load(path, complete=True)


def test_missing_files_are_noticed(copy: Path) -> None:
    (copy / "weights.bin").unlink()
    with pytest.raises(UserError, match=r"weights\.bin is missing"):
        load_bundle.load(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}'])
def test_a_broken_manifest(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(UserError, match="damaged"):
        load_bundle.load(copy)


@pytest.mark.parametrize("key", ["variants", "files", "threads"])
def test_a_manifest_without_a_part(copy: Path, key: str) -> None:
    edit(copy, **{key: {"nonsense": []}})
    with pytest.raises(UserError, match="damaged"):
        load_bundle.load(copy)


def test_a_changed_number_in_the_manifest(copy: Path) -> None:
    """A number that nothing else contradicts: the checksum tells."""
    text = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(text.replace('"threads":2', '"threads":1'))
    with pytest.raises(UserError, match="its manifest has changed"):
        load_bundle.load(copy)
    for cut in ("", '"checksum":1}', '"checksum":"x"}'):
        (copy / "manifest.json").write_text(text[: text.rindex('"checksum"')].rstrip(",") + ("," + cut if cut else "}"))
        with pytest.raises(UserError, match="its manifest has changed"):
            load_bundle.load(copy)


def test_another_format(copy: Path) -> None:
    edit(copy, format=99, version="9.9")
    with pytest.raises(UserError, match=r"made by version 9\.9"):
        load_bundle.load(copy)


def retarget(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    for variant in manifest["variants"]:
        variant["target"].update(changes)
    (path / "manifest.json").write_bytes(sealed(manifest))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"isa": "vax"}, "vax"),
        ({"machine": "sparc"}, "on sparc"),
        ({"features": ["avx512_vnni", "amx"]}, "with avx512_vnni and amx"),
    ],
)
def test_a_cpu_that_runs_no_variant_gets_one_message(copy: Path, changes: dict[str, object], wanted: str) -> None:
    retarget(copy, **changes)
    with pytest.raises(UserError, match=f"cannot run the bundle's kernels, which are for .*{wanted}") as caught:
        load_bundle.load(copy)
    assert "--target" in str(caught.value)


def test_one_bundle_for_several_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [name for name in ("portable", "avx2", "avx512") if runs_here(make_target(name))]
    program = compile_graph(models.long_chain(2), threads=1, target=",".join(targets))
    path = program.save(tmp_path / "m.rewrite")
    x = RNG.standard_normal((7, 64), np.float32)
    expected = models.long_chain_reference(x, 2)
    machine = cpu_features()
    for isa in targets[::-1]:
        loaded = load_bundle.load(path)
        [(target, _)] = loaded.variants
        assert target.isa == isa
        np.testing.assert_allclose(loaded.run({"v0": x})["v2"], expected, rtol=1e-4, atol=1e-5)
        machine = machine - {f for f in machine if f.startswith(isa)}  # what it would be on a lesser CPU
        monkeypatch.setattr(targeting, "cpu_features", lambda less=machine: less)
        targeting.detect.cache_clear()
    monkeypatch.undo()
    targeting.detect.cache_clear()


@pytest.fixture
def forget_targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    targeting.detect.cache_clear()


@pytest.mark.skipif(not runs_here(make_target("avx2")), reason="the CPU cannot have lost what it never had")
def test_bundle_for_a_better_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_targets: None) -> None:
    """The program runs here all the same, with kernels of its own that are not in the bundle."""
    monkeypatch.setattr(targeting, "cpu_features", frozenset)
    monkeypatch.setattr(targeting, "vector_extension", lambda: "portable")
    targeting.detect.cache_clear()
    program = compile_graph(models.long_chain(2), threads=1, target="avx2")
    x = RNG.standard_normal((7, 64), np.float32)
    expected = models.long_chain_reference(x, 2)
    np.testing.assert_allclose(program.run({"v0": x})["v2"], expected, rtol=1e-4, atol=1e-5)
    assert [target.isa for target, _ in program.variants] == ["avx2"]
    path = program.save(tmp_path / "m.rewrite")
    with pytest.raises(UserError, match=r"this CPU \(portable\) cannot run the bundle's kernels, which are for avx2"):
        load_bundle.load(path)
    monkeypatch.undo()
    targeting.detect.cache_clear()
    np.testing.assert_allclose(load_bundle.load(path).run({"v0": x})["v2"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not shutil.which("aarch64-linux-gnu-gcc"), reason="needs a compiler for another architecture")
def test_bundle_for_another_architecture(tmp_path: Path) -> None:
    program = compile_graph(models.long_chain(2), threads=1, target="neon,portable")
    path = program.save(tmp_path / "m.rewrite")
    machines = {file.read_bytes()[18:20] for file in (path / "kernels").iterdir()}
    assert machines == {b"\xb7\x00", b"\x3e\x00"}  # EM_AARCH64, EM_X86_64
    assert {target["isa"] for target in targets_of(path)} == {"neon", "portable"}
    load_bundle.load(path)


def targets_of(path: Path) -> list[dict[str, str]]:
    return [variant["target"] for variant in json.loads((path / "manifest.json").read_text())["variants"]]


def test_paths_cannot_lead_out(copy: Path) -> None:
    files = json.loads((copy / "manifest.json").read_text())["files"]
    edit(copy, files={**files, "../../etc/passwd": "0"})
    with pytest.raises(UserError, match="damaged"):
        load_bundle.load(copy)


def test_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such bundle"):
        load_bundle.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"no manifest\.json"):
        load_bundle.load(tmp_path)
