"""Building and the cache of kernels: what is compiled, damage, eviction, directories of other users."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rewrite.backend.codegen.render import is_lean, kernel_name, render_kernel
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.kernel import Kernel
from rewrite.backend.ir.kernel_graph import Step
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.backend.toolchain import builder as building
from rewrite.backend.toolchain.builder import Builder, build
from rewrite.backend.toolchain.compiler import Compiler
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node
from rewrite.errors import RewriteError, UserError
from rewrite.system.store import NamespaceInfo, Store

from .. import models

OWNERS = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners here")


@pytest.fixture(scope="module")
def kernels() -> tuple[Kernel, ...]:
    return lower(group(models.chain(), PlanSettings(standard_policy(), detect(), 1))).kernels


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def test_a_second_build_compiles_nothing(kernels: tuple[Kernel, ...], store: Store) -> None:
    assert build(kernels, detect(), store).compiled == len(kernels)
    again = build(kernels, detect(), store)
    assert again.compiled == 0
    assert set(again.addresses) == {kernel_name(k, detect()) for k in kernels}


def test_only_missing_kernels_are_compiled(kernels: tuple[Kernel, ...], store: Store) -> None:
    build(kernels, detect(), store)
    more = lower(group(models.long_chain(1), PlanSettings(standard_policy(), detect(), 1))).kernels
    assert build([*kernels, *more], detect(), store).compiled == len(set(more) - set(kernels))


def test_names_depend_on_everything_that_counts(kernels: tuple[Kernel, ...]) -> None:
    kernel = kernels[0]
    other = Kernel(kernel.template, {**kernel.params, "unused_by_the_template": 1})
    assert kernel_name(kernel, detect()) != kernel_name(other, detect())
    assert kernel_name(kernel, detect()) == kernel_name(Kernel(kernel.template, dict(kernel.params)), detect())
    assert render_kernel(kernel, detect()) == render_kernel(kernel, detect())


def test_kernels_are_compiled_once_layers_are_repeated(
    kernels: tuple[Kernel, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for a whole module need not wait until the last layer is planned."""
    monkeypatch.setattr(building, "SMALL_MODULE", 1)
    more = lower(group(models.long_chain(1), PlanSettings(standard_policy(), detect(), 1))).kernels
    first, kernels = kernels[0], (*kernels, *more)
    with Builder(detect(), store) as builder:
        for kernel in kernels:
            builder.add(kernel)  # the first starts a module, the others wait
        for _ in range(building.REPEATED - 1):
            builder.add(first)
        assert len(builder._modules) == 1
        builder.add(first)
        assert len(builder._modules) == 2
        for _ in range(building.REPEATED):
            builder.add(first)
        library = builder.finish(kernels)
    assert library.compiled == len(kernels)
    assert len(library.files) == 2


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
def test_a_damaged_module_is_rebuilt(kernels: tuple[Kernel, ...], store: Store, damage: bytes | None) -> None:
    build(kernels, detect(), store)
    [module] = store.root.glob("kernels/*/*.so")
    module.write_bytes(module.read_bytes()[:-100] if damage is None else damage)
    with pytest.warns(UserWarning, match="checksum is wrong"):
        assert build(kernels, detect(), store).compiled == len(kernels)
    assert build(kernels, detect(), store).compiled == 0


@pytest.mark.parametrize("damage", ["", "{", "../../evil", '0123\n["../../evil", "0123"]'])
def test_a_damaged_index_is_rebuilt(kernels: tuple[Kernel, ...], store: Store, damage: str) -> None:
    build(kernels, detect(), store)
    index = next(store.root.glob("kernels/*/by_kernel/*"))
    index.write_text(damage)
    assert build(kernels, detect(), store).compiled == 1
    assert build(kernels, detect(), store).compiled == 0


def modules(store: Store) -> NamespaceInfo:
    return next(info for info in store.info() if info.name == "kernels")


def test_info_and_clear(kernels: tuple[Kernel, ...], store: Store) -> None:
    assert modules(store).entries == 0
    build(kernels, detect(), store)
    info = modules(store)
    assert info.entries == 1
    assert store.clear() >= info.size > 0
    assert modules(store).entries == 0


def test_the_oldest_modules_are_evicted(kernels: tuple[Kernel, ...], store: Store) -> None:
    build(kernels, detect(), store)
    [first] = store.root.glob("kernels/*/*.so")
    os.utime(first, (1, 1))
    store = Store(store.root, limit=first.stat().st_size + 100)
    more = lower(group(models.long_chain(1), PlanSettings(standard_policy(), detect(), 1))).kernels
    build(more, detect(), store)
    assert not first.exists()
    assert modules(store).entries == 1


def test_the_root_is_private(kernels: tuple[Kernel, ...], store: Store) -> None:
    build(kernels, detect(), store)
    assert store.root.stat().st_mode & 0o077 == 0


@OWNERS
def test_another_users_directory_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.prepare()
    monkeypatch.setattr(os, "geteuid", lambda: store.root.stat().st_uid + 1)
    with pytest.raises(UserError, match=r"cannot be trusted: it belongs to another user\nWhat is in it is executed"):
        store.prepare()


@OWNERS
def test_directories_that_others_may_write_to_are_closed(kernels: tuple[Kernel, ...], store: Store) -> None:
    build(kernels, detect(), store)
    [room] = store.root.glob("kernels/*")
    inside = [store.root, room.parent, room, room / "by_kernel"]
    for path in inside:
        path.chmod(0o777)
    assert build(kernels, detect(), store).compiled == 0
    assert {path.stat().st_mode & 0o777 for path in inside} == {0o700}


def _opened(path: Path) -> None:
    path.chmod(0o666)


def _linked(path: Path) -> None:
    elsewhere = path.rename(path.parent.parent.parent.parent / path.name)
    path.symlink_to(elsewhere)


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


@OWNERS
@pytest.mark.parametrize("change", [_opened, _linked, _given_away])
def test_a_module_that_others_could_have_written_is_rebuilt(
    kernels: tuple[Kernel, ...], store: Store, change: Callable[[Path], None]
) -> None:
    build(kernels, detect(), store)
    [file] = store.root.glob("kernels/*/*.so")
    change(file)
    reason = {_opened: "others may write to it", _linked: "it is a link", _given_away: "it belongs to another user"}
    with pytest.warns(UserWarning, match=f"unusable .others could have written it: {reason[change]}"):
        assert build(kernels, detect(), store).compiled == len(kernels)
    assert not file.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert build(kernels, detect(), store).compiled == 0


@OWNERS
@pytest.mark.parametrize("change", [_opened, _linked, _given_away])
def test_an_index_that_others_could_have_written_is_not_believed(
    kernels: tuple[Kernel, ...], store: Store, change: Callable[[Path], None]
) -> None:
    build(kernels, detect(), store)
    index = next(store.root.glob("kernels/*/by_kernel/*"))
    change(index)
    assert build(kernels, detect(), store).compiled == 1
    assert build(kernels, detect(), store).compiled == 0


def test_a_root_that_cannot_be_made(kernels: tuple[Kernel, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="REWRITE_CACHE_DIR"):
        build(kernels, detect(), Store(tmp_path / "file" / "cache"))


def test_the_environment_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "there"))
    assert Store().root == tmp_path / "there"


def test_sources_are_written_on_request(tmp_path: Path) -> None:
    compile_graph(models.chain(), threads=1, cache_dir=tmp_path / "cache", keep_source=tmp_path / "source")
    [source] = (tmp_path / "source").glob("*.c")
    assert "k_entry k_table[]" in source.read_text()


def test_a_full_disk_is_reported(kernels: tuple[Kernel, ...], store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rewrite.system.store.write_atomic", full)
    with pytest.raises(UserError, match="No space left on device"):
        build(kernels, detect(), store)


def test_chunks_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "usable_cores", lambda: 2)
    rendered = [building.Rendered(f"k{i}", "x" * 1000 * (1 + i % 4), lean=True) for i in range(40)]
    chunks = building._chunks(rendered)
    loads = [sum(k.weight for k in chunk) for chunk in chunks]
    assert len(chunks) == 2
    assert abs(loads[0] - loads[1]) <= 4000
    assert sorted(k.name for chunk in chunks for k in chunk) == sorted(k.name for k in rendered)


def test_the_heaviest_module_is_compiled_first(
    kernels: tuple[Kernel, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one compiler runs, the others wait in the order of their weights, not in that of their kernels."""
    started, free = list[int](), threading.Event()
    real = building._start_compiler

    def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
        [source] = (Path(word) for word in command if word.endswith(".c"))
        started.append(len(source.read_text()))
        free.wait(10)
        return real(command, folder)

    monkeypatch.setattr(building, "_start_compiler", start)
    monkeypatch.setattr(building, "usable_cores", lambda: 2)
    rendered = render_kernel(kernels[0], detect())
    with Builder(detect(), store) as builder:
        for spaces in (9000, 1000, 2000, 4000, 3000):
            builder._start([replace(rendered, source=rendered.source + " " * spaces)])
            while not started:  # the first one has the only core
                time.sleep(0.001)
        free.set()
        for module in builder._modules:
            module.result()
    assert started == sorted(started, reverse=True)


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("gcc"), reason="gcc for x86-64 compiles so")
def test_kernels_of_written_out_vectors_are_compiled_lean(
    kernels: tuple[Kernel, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops that the compiler vectorizes are in modules of their own, which get all optimizers."""
    graph = harness.make_graph(
        [Node("MatMul", ("x", "w"), ("y",))],
        {"x": np.zeros((32, 64), np.float32)},
        constants={"w": np.ones((64, 48), np.float32)},
    )
    products = lower(group(graph, PlanSettings(standard_policy(), detect(), 1))).kernels
    assert [k.template for k in products if is_lean(k)] == ["gemm"]
    assert not any(map(is_lean, kernels))
    started: list[tuple[bool, str]] = []
    real = building._start_compiler

    def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
        [source] = (Path(word) for word in command if word.endswith(".c"))
        started.append(("-fpeel-loops" in command, source.read_text()))
        return real(command, folder)

    monkeypatch.setattr(building, "_start_compiler", start)
    build([*kernels, *products], detect(), store, compiler=Compiler(("gcc",), "Free Software Foundation"))
    assert len(started) == 2
    for lean, text in started:
        rendered = [kernel for kernel in (*kernels, *products) if f"void {kernel_name(kernel, detect())}(" in text]
        assert rendered
        assert all(is_lean(kernel) == lean for kernel in rendered)


def test_modules_do_not_depend_on_timing(store: Store, tmp_path: Path) -> None:
    plan = lower(group(models.long_chain(40), PlanSettings(standard_policy(), detect(), 1)))
    first, second = (build(plan.kernels, detect(), Store(tmp_path / name)).files for name in "ab")
    assert sorted(first) == sorted(second)


def test_a_failed_compiler_is_reported(kernels: tuple[Kernel, ...], store: Store) -> None:
    with pytest.raises(RewriteError, match="the C compiler failed on generated code"):
        build(kernels, detect(), store, compiler=Compiler(("false",), "none"))


@pytest.mark.parametrize("end", ["kill -9 $$", "echo 'fatal error: Killed signal terminated program cc1' >&2; exit 1"])
def test_a_killed_compiler_is_reported(kernels: tuple[Kernel, ...], store: Store, tmp_path: Path, end: str) -> None:
    script = tmp_path / "killed"
    script.write_text(f"#!/bin/sh\n{end}\n")
    script.chmod(0o700)
    with pytest.raises(UserError, match=r"the C compiler was killed .* perhaps since no memory was left"):
        build(kernels, detect(), store, compiler=Compiler((str(script),), "none"))


def test_a_full_disk_of_temporary_files_is_named(
    kernels: tuple[Kernel, ...], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=r"/.*build.*the C compiler's files cannot be written: No space left on device"):
        build(kernels, detect(), store)


def test_a_full_disk_below_the_compiler_is_named(kernels: tuple[Kernel, ...], store: Store, tmp_path: Path) -> None:
    script = tmp_path / "full"
    script.write_text("#!/bin/sh\necho 'fatal error: No space left on device' >&2\nexit 1\n")
    script.chmod(0o700)
    with pytest.raises(UserError, match=r"/.*build.*the C compiler's files cannot be written: No space left on device"):
        build(kernels, detect(), store, compiler=Compiler((str(script),), "none"))


def test_the_end_of_the_block_ends_compilers(kernels: tuple[Kernel, ...], store: Store, tmp_path: Path) -> None:
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o700)
    with building.Builder(detect(), store, compiler=Compiler((str(script),), "none")) as builder:
        for rendered in (render_kernel(kernel, detect()) for kernel in kernels[:1] * 4):
            builder._start([rendered])
    assert not builder._running


def test_steps_carry_their_nodes() -> None:
    [step] = [
        i
        for i in lower(group(models.chain(), PlanSettings(standard_policy(), detect(), 1))).items
        if isinstance(i, Step)
    ]
    assert set(step.nodes) == {"add", "relu", "sigmoid", "mul"}
    assert np.all([isinstance(n, str) for n in step.nodes])
