"""Wider extensions are hidden from the peers where ours may use AVX2 only."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rewrite.benchmarks import equal_terms
from rewrite.system import cpu, hardware

WIDE = {"avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8"}
SEEN = """
import ctypes, subprocess, sys, threading
from rewrite.benchmarks import equal_terms
from rewrite.system import cpu
assert equal_terms.begin()
seen = []
thread = threading.Thread(target=lambda: seen.extend(cpu.features()))
thread.start()
thread.join()
started = "from rewrite.system import cpu; print(*cpu.features())"
print(*cpu.features(), "|", *seen, "|", subprocess.check_output([sys.executable, "-c", started], text=True))
"""


def run(code: str, monkeypatch: pytest.MonkeyPatch, limit: str = "avx2") -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("REWRITE_MAX_ISA", limit)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def needs_faults() -> None:
    if "cpuid_fault" not in hardware.cpu_info("flags").split():
        pytest.skip("CPUID cannot fault here")


def test_a_process_and_its_threads_see_no_wider_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_faults()
    done = run(SEEN, monkeypatch)
    assert done.returncode == 0, done.stderr
    here, in_thread, in_program = (set(part.split()) for part in done.stdout.split("|"))
    assert not WIDE & (here | in_thread)
    hidden = {f for f in cpu.features() if f.startswith(("avx512", "avx_vnni", "amx"))}
    assert here == in_thread == set(cpu.features()) - hidden
    assert in_program == set(cpu.features())


def test_other_faults_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_faults()
    code = "import ctypes\nfrom rewrite.benchmarks import equal_terms\nequal_terms.begin()\nctypes.string_at(8)"
    assert run(code, monkeypatch).returncode == -11


def test_nothing_is_hidden_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWRITE_MAX_ISA", raising=False)
    before = set(cpu.features())
    assert equal_terms.begin()
    assert set(cpu.features()) == before


def test_other_limits_are_not_for_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_MAX_ISA", "portable")
    assert not equal_terms.begin()
