"""Reference runs of a model: in ONNX Runtime, or in the reference evaluator that comes with `onnx`.

The reference evaluator can take minutes and cannot be interrupted, so it runs in a child process with a time limit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import pickle
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...system import scoped
from ...system.mapped_memory import MappedArrays
from ..ir.detached_model import DetachedModel
from .reference_replacements import opset_of, replacements

if TYPE_CHECKING:
    from onnx import ModelProto

Feeds = Mapping[str, Any]
Copies = dict[tuple[int, str, tuple[int, ...]], tuple[NDArray[Any], NDArray[Any]]]
"""Aligned copies of arrays by address, type and shape, each with the array, whose memory then stays in use."""
Run = Callable[[Feeds], dict[str, Any]]
_TWO_GIB = 1 << 31
_NOT_PASSED = frozenset(
    f"tensor({name})"
    for name in (
        "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1",
        "int4", "uint4", "int2", "uint2",
    )
)  # fmt: skip
"""Types that ONNX Runtime computes with but does not accept from NumPy."""


class Unavailable(Exception):
    """The model cannot be run this way; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Runner:
    """A way to compute a model. `run` raises `Unavailable` for inputs that it cannot compute."""

    name: str
    run: Run


Load = Callable[["ModelProto | Path | bytes | DetachedModel"], Runner]
"""A way to load models in ONNX Runtime; it raises `Unavailable`."""


def runner(
    model: ModelProto | Path | bytes | DetachedModel, *, seconds: float = 60.0, load: Load | None = None
) -> Runner:
    """Return ONNX Runtime where it is installed and accepts the model, else the reference evaluator with its time
    limit. `load` is the way to load it there, by default `onnx_runtime`.

    Raises `Unavailable` if neither accepts it."""
    try:
        return (load or onnx_runtime)(model)
    except Unavailable as error:
        reason = f"ONNX Runtime: {error}"
    try:
        return reference_evaluator(model, seconds=seconds)
    except Unavailable as error:
        raise Unavailable(f"{reason}; onnx.reference: {error}") from error


def onnx_runtime(
    model: ModelProto | Path | bytes | DetachedModel, *, threads: int = 0, copies: Copies | None = None
) -> Runner:
    """Return the model in ONNX Runtime on the CPU, with its optimizations off. `threads` = 0 leaves their number to it.

    That of a `DetachedModel` reads its tensors where they are, and has no copies of them in another order; `copies` are
    those of unaligned ones, which other models have too.

    Raises `Unavailable` if it is not installed or refuses the model."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise Unavailable("not installed")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    tensors = model.tensors if isinstance(model, DetachedModel) else {}
    weights, shared = MappedArrays(tensors.values()), []
    if tensors:
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        for name, array in tensors.items():
            shared.append(onnxruntime.OrtValue.ortvalue_from_numpy(_aligned(array, {} if copies is None else copies)))
            options.add_initializer(name, shared[-1])
            weights.note(array.nbytes)
        with _loadable(model) as source:
            session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base class
        raise Unavailable(_brief(error)) from error
    odd = sorted({v.type for v in (*session.get_inputs(), *session.get_outputs())} & _NOT_PASSED)
    if odd:
        raise Unavailable(f"its Python interface does not pass {', '.join(odd)}")
    outputs = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    alive = session, shared  # ONNX Runtime does not hold the memory of shared tensors

    def run(feeds: Feeds) -> dict[str, Any]:
        try:
            found = alive[0].run(None, {k: v for k, v in feeds.items() if k in wanted})
        except Exception as error:
            raise Unavailable(_brief(error)) from error
        finally:
            weights.give_back()
        return dict(zip(outputs, found, strict=True))

    return Runner("onnxruntime", run)


def _aligned(array: NDArray[Any], copies: Copies) -> NDArray[Any]:
    """Return an array whose elements are aligned, in the same memory if possible: vectorized code relies on it."""
    if array.flags.aligned:
        return array
    key = array.__array_interface__["data"][0], array.dtype.str, array.shape
    if key not in copies:
        copies[key] = array.copy(), array
    return copies[key][0]


def reference_evaluator(model: ModelProto | Path | bytes | DetachedModel, *, seconds: float = 60.0) -> Runner:
    """Return the model in `onnx.reference`, in a child process that is ended after `seconds`.

    Raises `Unavailable` for a model with an operator that the evaluator does not know or gets wrong."""
    import onnx

    proto = _proto(model)
    if opset_of(proto) < 7 and any(n.op_type == "BatchNormalization" for n in proto.graph.node):
        # It mixes batch statistics into the oldest versions of this operator.
        try:
            proto = onnx.version_converter.convert_version(proto, 15)
        except Exception as error:
            raise Unavailable("its BatchNormalization before opset 7 is unreliable") from error

    def run(feeds: Feeds) -> dict[str, Any]:
        with scoped.directory("reference") as place:
            onnx.save_model(proto, place / "model.onnx", save_as_external_data=proto.ByteSize() > _TWO_GIB)
            # Pickles, since NumPy's array formats do not support bfloat16; only this process and its child access them.
            (place / "inputs").write_bytes(pickle.dumps(dict(feeds)))
            command = scoped.python(f"from {__name__} import _child; _child({str(place)!r})")
            try:
                done = scoped.run(command, seconds=seconds)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"the reference evaluator did not finish in {seconds:.0f} s") from None
            if done.returncode:
                lines = done.stderr.decode(errors="replace").strip().splitlines()
                raise Unavailable(lines[-1][:300] if lines else "the reference evaluator failed")
            found = pickle.loads((place / "outputs").read_bytes())
        return dict(found)

    return Runner("onnx.reference", run)


def _child(folder: str) -> None:
    """Run the model in the child process of `reference_evaluator`."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    scoped.die_with_parent()
    place = Path(folder)
    proto = onnx.load(place / "model.onnx")
    evaluator = ReferenceEvaluator(proto, new_ops=replacements(opset_of(proto)))
    feeds = pickle.loads((place / "inputs").read_bytes())
    found = evaluator.run(None, {k: v for k, v in feeds.items() if k in evaluator.input_names})
    (place / "outputs").write_bytes(pickle.dumps(list(zip(evaluator.output_names, found, strict=True))))


def _proto(model: ModelProto | Path | bytes | DetachedModel) -> ModelProto:
    import onnx

    if isinstance(model, DetachedModel):
        return model.whole()  # type: ignore[no-any-return]
    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load(model) if isinstance(model, str | Path) else model


@contextlib.contextmanager
def _loadable(model: ModelProto | Path | bytes | DetachedModel) -> Iterator[str | bytes]:
    """Return the model in a form that ONNX Runtime loads: a path, or bytes below protobuf's limit of 2 GiB."""
    if isinstance(model, DetachedModel):
        yield model.model.SerializeToString()
    elif isinstance(model, bytes | str | Path):
        yield model if isinstance(model, bytes) else str(model)
    elif model.ByteSize() < _TWO_GIB - (1 << 20):
        yield model.SerializeToString()
    else:
        import onnx

        with scoped.directory("model") as folder:
            copy = type(model)()
            copy.CopyFrom(model)
            onnx.save_model(copy, folder / "model.onnx", save_as_external_data=True, location="model.data")
            yield str(folder / "model.onnx")


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
