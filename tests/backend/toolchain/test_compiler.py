"""Finding a C compiler, for this architecture and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.toolchain import compiler
from rewrite.errors import UserError

from .. import models


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.find_compiler.cache_clear()
    try:
        monkeypatch.setattr(compiler, "c_compilers", list)
        monkeypatch.delenv("CC", raising=False)
        with pytest.raises(UserError, match="no C compiler found") as caught:
            compile_graph(models.chain(), cache_dir=tmp_path)
        assert "onnx-rewrite[zig]" in str(caught.value)
        monkeypatch.undo()
        compiler.find_compiler.cache_clear()
        monkeypatch.setenv("CC", "/no/such/compiler")
        with pytest.raises(UserError, match="does not run"):
            compile_graph(models.chain(), cache_dir=tmp_path)
    finally:
        monkeypatch.undo()
        compiler.find_compiler.cache_clear()


def test_compilers_for_another_architecture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """$CC serves if it makes code for the architecture; with no other compiler there is one message."""
    machine = "riscv64"
    ours = tmp_path / "its-cc"
    ours.write_text(f"#!/bin/sh\n[ $1 = -dumpmachine ] && echo {machine}-unknown-linux-gnu || echo ours 1.0\n")
    ours.chmod(0o755)
    compiler.find_compiler.cache_clear()
    monkeypatch.setenv("CC", str(ours))
    assert compiler.find_compiler(machine) == compiler.Compiler((str(ours),), "ours 1.0")
    monkeypatch.setattr(compiler, "cross_compilers", lambda machine: [["cc"]])
    compiler.find_compiler.cache_clear()
    with pytest.raises(UserError, match="no C compiler for riscv64 found") as caught:
        compiler.find_compiler(machine)
    assert "gcc-riscv64-linux-gnu" in str(caught.value)
    compiler.find_compiler.cache_clear()
