"""The precompiled header of kernels: it is made once, used, and never in the way of compiling."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rewrite.backend.codegen.render import HEADERS
from rewrite.backend.ir.kernel import Kernel
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.backend.toolchain.builder import build
from rewrite.backend.toolchain.compiler import Compiler, find_compiler
from rewrite.backend.toolchain.precompiled_header import find_header
from rewrite.system import scoped
from rewrite.system.store import Store

from .. import models

GCC = pytest.mark.skipif("Free Software" not in find_compiler().version, reason="the compiler is not gcc")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with enough modules for a header to pay."""
    store = Store(tmp_path / "cache")
    for number in range(8):
        store.namespace("kernels").write(f"another/k{number}.so", b"", bare=True)
    return store


def kernels() -> tuple[Kernel, ...]:
    return lower(group(models.chain(), PlanSettings(standard_policy(), detect(), 1))).kernels


@GCC
def test_gcc_reads_the_precompiled_header(store: Store, tmp_path: Path) -> None:
    compiler, target = find_compiler(), detect()
    folder = find_header(store, compiler, target)
    assert folder is not None
    source = tmp_path / "a.c"
    source.write_text('#include "kernel.h"\nint64_t least(int64_t a) { return k_min(a, 1); }\n#include "kernel.h"\n')
    command = [
        *compiler.command,
        *compiler.flags(target),
        "-H",
        f"-I{folder}",
        f"-I{HEADERS}",
        str(source),
        "-o",
        str(tmp_path / "a.so"),
    ]
    done = scoped.run(command, seconds=60)
    assert done.returncode == 0
    assert done.stderr.decode().startswith(f"! {folder}/kernel.h.gch")


@GCC
def test_it_is_compiled_once(store: Store) -> None:
    build(kernels(), detect(), store)
    [header] = store.root.glob("headers/*/kernel.h.gch")
    before = header.stat().st_mtime_ns
    assert find_header(store, find_compiler(), detect()) == header.parent
    assert header.stat().st_mtime_ns == before


@GCC
def test_a_damaged_one_is_compiled_again(store: Store) -> None:
    folder = find_header(store, find_compiler(), detect())
    assert folder is not None
    header = folder / "kernel.h.gch"
    header.write_bytes(header.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"a cached header of kernels is unusable \(its checksum is wrong\)"):
        assert build(kernels(), detect(), store).compiled == len(kernels())
    assert find_header(store, find_compiler(), detect()) == folder


def test_other_compilers_get_none(store: Store) -> None:
    clang = dataclasses.replace(find_compiler(), version="clang version 14.0.6")
    assert find_header(store, clang, detect()) is None
    assert not (store.root / "headers").exists()


def test_a_new_store_gets_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    build(kernels(), detect(), store)
    assert not (store.root / "headers").exists()


@GCC
def test_a_new_store_gets_one_ahead_of_the_first_module(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    folder = find_header(store, find_compiler(), detect(), ahead=True)
    assert folder is not None
    assert find_header(store, find_compiler(), detect()) == folder


@GCC
def test_a_header_that_does_not_compile_is_left_out(store: Store) -> None:
    broken = Compiler(("false",), find_compiler().version)
    assert find_header(store, broken, detect()) is None
    assert list(store.root.glob("headers/*")) == []
