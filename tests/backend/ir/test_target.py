"""Targets: flags that name their instructions, and kernels compiled for another architecture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from rewrite.backend.ir.target import Target, detect, make_target, parse_targets, rank, runs_here
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.planning.plan import PlanSettings, group, lower
from rewrite.backend.toolchain.builder import build
from rewrite.backend.toolchain.compiler import Compiler
from rewrite.engine.cost import machine
from rewrite.errors import UserError
from rewrite.system.hardware import architecture, cpu_features
from rewrite.system.store import Store

from .. import models

GCC = Compiler(("gcc",), "gcc 12, Free Software Foundation")
ZIG = Compiler((sys.executable, "-m", "ziglang", "cc"), "clang 22")


@pytest.mark.parametrize(
    ("target", "gcc", "zig"),
    [
        (
            Target("avx512", 64, features=("avx512_bf16",)),
            "-march=x86-64-v4 -mavx512bf16",
            "-mcpu=x86_64_v4+avx512bf16",
        ),
        (
            Target("avx512", 64, features=("avx512_vnni", "amx_bf16", "amx_int8")),
            "-march=x86-64-v4 -mavx512vnni",
            "-mcpu=x86_64_v4+avx512vnni+amx_bf16+amx_int8",
        ),
        (Target("avx2", 32), "-march=x86-64-v3", "-mcpu=x86_64_v3"),
        (Target("portable", 16), "-march=x86-64", "-mcpu=x86_64"),
        (Target("neon", 16, machine="aarch64"), "-march=armv8-a", "-mcpu=generic"),
    ],
)
def test_flags_name_the_instructions(target: Target, gcc: str, zig: str) -> None:
    assert set(gcc.split()) <= set(GCC.flags(target))
    assert zig in ZIG.flags(target)
    assert not any("amx" in flag for flag in GCC.flags(target))  # written in assembler, gcc 10 has no option
    assert not any("native" in flag for compiler in (GCC, ZIG) for flag in compiler.flags(target))
    assert GCC.key(target) != ZIG.key(target)
    lean = set(GCC.flags(target, lean=True)) - set(GCC.flags(target))
    assert ({"-O1", "-fexpensive-optimizations"} <= lean) == (target.machine == "x86_64")  # else no multiply-adds
    assert ZIG.flags(target, lean=True) == ZIG.flags(target)


def test_the_best_target_comes_first() -> None:
    found = parse_targets("portable, native")
    assert all(map(runs_here, found))
    assert found == sorted(found, key=rank)
    assert found[0] == detect()


def test_unknown_targets_are_reported() -> None:
    with pytest.raises(UserError, match="unknown target 'avx9'") as caught:
        parse_targets("native,avx9")
    assert "avx512" in str(caught.value) or "portable" in str(caught.value)


def test_portable_is_the_baseline_of_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs_here(make_target("portable"))
    for here, isa in {"x86_64": "portable", "aarch64": "neon"}.items():
        monkeypatch.setattr("rewrite.backend.ir.target.architecture", lambda here=here: here)
        made = make_target("portable")
        assert (made.isa, made.machine, made.vector_bytes) == (isa, here, 16)


def test_cpu_features_are_detected() -> None:
    if Path("/proc/cpuinfo").exists() and detect().machine == "x86_64":
        [flags, *_] = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")]
        known = set(flags.split()) | ({"lzcnt"} if "abm" in flags.split() else set())
        assert cpu_features() <= known


REFUSED = """
import ctypes

# Linux refuses tiles to a process with a stack for signals too small to save them
class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(6144)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, len(memory))), None) == 0
from rewrite.backend.ir.target import detect, runs_here
from rewrite.engine.cost import machine
from rewrite.system.hardware import cpu_features

assert not any(name.startswith("amx") for name in cpu_features()), cpu_features()
assert not any(name.startswith("amx") for name in detect().features)
assert runs_here(detect()) and machine.rates()["bf16"] <= 2
"""


def run_python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not any("amx" in f for f in detect().features), reason="this CPU lacks AMX")
def test_tiles_that_the_system_refuses_are_left_unused() -> None:
    """The CPU lists the feature, but using it would end the process."""
    run_python(REFUSED)


THREAD = """
import threading

started, ready, found = threading.Event(), threading.Event(), []

def work():
    started.set()
    ready.wait()
    import ml_dtypes, numpy as np
    from rewrite.benchmarks import harness
    from rewrite.engine.ir.graph import Node

    x, w = np.ones((40, 64), ml_dtypes.bfloat16), np.ones((64, 48), np.float32)
    graph = harness.make_graph([Node("rewrite.MatMulBf16", ("x", "w"), ("y",))], {"x": x}, constants={"w": w})
    found.append(harness.run(graph, {"x": x}, threads=1)["y"])

thread = threading.Thread(target=work)
thread.start()
started.wait()
from rewrite.backend.ir.target import detect

assert "amx_bf16" in detect().features
ready.set()
thread.join()
assert (found[0] == 64).all()
"""


@pytest.mark.skipif("amx_bf16" not in detect().features, reason="this CPU lacks AMX")
def test_threads_started_before_detection_may_use_tiles() -> None:
    run_python(THREAD)


@pytest.mark.skipif(not find_spec("ziglang"), reason="needs a compiler for another architecture")
def test_kernels_compile_for_neon(tmp_path: Path) -> None:
    """Such kernels use vectors of 16 bytes; this CPU cannot run them, so they are not loaded."""
    target = make_target("neon")
    compiler = Compiler((*ZIG.command, "-target", "aarch64-linux-gnu"), "clang for aarch64")
    kernels = [*lower(group(models.chain(), PlanSettings(standard_policy(), target, 1))).kernels]
    kernels += lower(group(models.long_chain(1), PlanSettings(standard_policy(), target, 1))).kernels
    library = build(kernels, target, Store(tmp_path), compiler=compiler)
    assert library.compiled == len(set(kernels))
    assert library.addresses == {}
    for file in library.files.values():
        assert file.read_bytes()[18:20] == b"\xb7\x00"  # EM_AARCH64


@pytest.fixture
def forget_features() -> Iterator[None]:
    """Let the test detect the CPU again, and what comes after it as well."""
    for remembered in (cpu_features, detect, machine.rates):
        remembered.cache_clear()
    yield
    for remembered in (cpu_features, detect, machine.rates):
        remembered.cache_clear()


@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_wider_extensions_left_unused(isa: str, monkeypatch: pytest.MonkeyPatch, forget_features: None) -> None:
    """Targets and costs are those of a CPU without the wider ones."""
    if architecture() != "x86_64" or not runs_here(make_target(isa)):
        pytest.skip("needs a CPU that has it")
    monkeypatch.setenv("REWRITE_MAX_ISA", isa)
    cpu_features.cache_clear()
    assert detect() == make_target("native") == make_target(isa)
    assert machine.default().isa == {"avx2": "avx2", "portable": "generic"}[isa]
    assert machine.profile_path().stem.endswith(f"-{isa}")
    assert not runs_here(make_target("avx512"))


def test_unknown_extension_as_limit(monkeypatch: pytest.MonkeyPatch, forget_features: None) -> None:
    monkeypatch.setenv("REWRITE_MAX_ISA", "avx3")
    with pytest.raises(UserError, match="REWRITE_MAX_ISA is 'avx3'"):
        cpu_features()
