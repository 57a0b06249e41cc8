"""ONNX Runtime in a child process, for models that may crash it.

A Scan along the second axis crashes it if there are no slices, and the lowest integer if it is divided by -1.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import IO, TYPE_CHECKING, Any

from ...system import scoped
from ..ir.detached_model import DetachedModel
from ..ir.graph import Graph
from .reference_runtime import Runner, Unavailable, onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto

_HEADER = struct.Struct("<Q")


def may_crash(graph: Graph) -> bool:
    """Whether a graph has operators that crash ONNX Runtime on some operands."""
    for node in graph.nodes:
        if node.op == "Scan" or any(may_crash(body) for _, body in node.subgraphs()):
            return True
        if node.op in ("Div", "Mod") and node.inputs[1] not in graph.constants:
            kind = graph.type(node.inputs[1])
            if kind.dtype is None or not kind.dtype.is_float:
                return True
    return False


class Isolated:
    """A child process that runs models in ONNX Runtime, one after the other; started by the first of them.

    After a crash a new child is started, which loads the models again when they run."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._models: list[bytes | str] = []
        self._loaded: set[int] = set()

    def load(self, model: ModelProto | Path | bytes | DetachedModel) -> Runner:
        """Return a model in the child. Raises `Unavailable` if ONNX Runtime is not installed or refuses the model."""
        number = len(self._models)
        if isinstance(model, DetachedModel):
            model = model.whole()
        kept = model if isinstance(model, bytes) else str(model) if isinstance(model, str | Path) else None
        self._models.append(model.SerializeToString() if kept is None else kept)  # type: ignore[union-attr]
        self._ask(number, None)

        def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
            if number not in self._loaded:  # the child was started again after a crash
                self._ask(number, None)
            return dict(self._ask(number, dict(feeds)))

        return Runner("onnxruntime", run)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            scoped.end(self._child)
        self._child, self._loaded = None, set()

    def _ask(self, number: int, feeds: dict[str, Any] | None) -> Any:
        child = self._child = self._child or _start()
        assert child.stdin is not None
        assert child.stdout is not None
        model = None if number in self._loaded else self._models[number]
        try:
            _send(child.stdin, (number, model, feeds))
            good, found = _receive(child.stdout)
        except (OSError, EOFError):
            code = child.wait()
            self.close()
            how = f"signal {Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise Unavailable(f"ONNX Runtime ended its process ({how})") from None
        except BaseException:  # an interrupt between a question and its answer
            self.close()
            raise
        if not good:
            raise Unavailable(found)
        self._loaded.add(number)
        return found


@contextmanager
def isolated() -> Iterator[Isolated]:
    """Yield a process for models, which ends with the block."""
    found = Isolated()
    try:
        yield found
    finally:
        found.close()


def _start() -> subprocess.Popen[bytes]:
    command = scoped.python(f"from {__name__} import _serve; _serve()")
    return scoped.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _serve() -> None:
    """Answer the questions of `Isolated` in its child: load a model, or run it."""
    scoped.die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print to stdout
    runners: dict[int, Runner] = {}
    while True:
        try:
            number, model, feeds = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if model is not None:
                runners[number] = onnx_runtime(Path(model) if isinstance(model, str) else model)
            found = None if feeds is None else runners[number].run(feeds)
        except Unavailable as error:
            _send(answers, (False, str(error)))
        else:
            _send(answers, (True, found))


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=5)
    pipe.write(_HEADER.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    """Return the next message. Raises EOFError at the end; only this process and its child write to the pipe."""
    header = pipe.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    (size,) = _HEADER.unpack(header)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
