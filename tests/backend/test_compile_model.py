"""What a first compile does while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite.backend.compile_model import compile_model
from rewrite.engine import optimizer
from rewrite.engine.options import Options
from rewrite.errors import UserError
from rewrite.system.file_contents import ReadAhead


class _StopError(Exception):
    pass


def test_a_model_is_read_while_the_engine_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that stays mapped is not read ahead, and bytes have been read."""
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "cache"))
    given: list[Any] = []

    def optimize_native(model: Any, *_: Any) -> None:
        given.append(model)
        raise _StopError

    monkeypatch.setattr(optimizer, "optimize_native", optimize_native)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    for model, options in ((str(path), Options()), (path, Options(mapped=True)), (b"bytes", Options())):
        with pytest.raises(_StopError):
            compile_model(model, options, threads=1)
    reading, *others = given
    assert isinstance(reading, ReadAhead)
    assert reading.contents() == b"not a model"
    assert others == [path, b"bytes"]


def test_what_is_wrong_with_a_file_that_is_read_ahead_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    for model, why in ((path, "not an ONNX model"), (tmp_path / "none.onnx", "no such file")):
        with pytest.raises(UserError, match=why) as raised:
            compile_model(model, Options(), threads=1)
        assert str(model) in str(raised.value)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="no outputs"):
        compile_model(path, Options(), threads=1)
