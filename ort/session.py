"""`InferenceSession` with ONNX Runtime's interface.

A model that was compiled before runs natively at once. Any other is answered by ONNX Runtime, or by NumPy where that is
not installed, until a child process has compiled it (`background`)."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.runtime.interface import as_array, deliver
from ..errors import NotAModel, RewriteError, UserError
from ..system import installed_onnxruntime
from ..system.hardware import saturates_pairs
from ..system.process_pool import usable_cores
from ..system.short_text import listed
from . import errors
from .background import Compilation, Job
from .metadata import ELEMENT_NAMES, ModelMetadata, NodeArg, read_metadata
from .options import LOG, SessionOptions, entry, ignored, note_once, passed_on, set_severity
from .pace import Pace
from .values import IOBinding, OrtValue, unwrapped

if TYPE_CHECKING:
    from ..backend.runtime.program import Program

_TYPES = {f"tensor({name})": dtype for dtype, name in ELEMENT_NAMES.items()}
_LARGEST = 1 << 31
"""Bytes of a model from which protobuf's library does not serialize it."""
_IN_BACKGROUND = "rewrite.compile_in_background"
Names = Sequence[str] | None
Outputs = Mapping[str, Any] | None


class _Native:
    """A compiled program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Mapping[str, Any], names: Names, out: Outputs) -> dict[str, Any]:
        return self.program.run(inputs, names, out=out)


class _Peer:
    """A session of ONNX Runtime."""

    name = "ONNX Runtime"

    def __init__(self, session: Any) -> None:
        self.session, self.pace = session, Pace()
        self.answered = self.pace.known
        self._names = [port.name for port in session.get_outputs()]
        self._inputs = {port.name for port in session.get_inputs()}
        self._compiled = getattr(session, "_sess", session)
        """What its session in Python calls after checking names, in versions that have it."""

    def results(self, names: Names, inputs: Mapping[str, Any]) -> list[Any] | None:
        """Return the outputs for a dict of exactly the inputs that are required, all of them arrays; None for others.

        It does least of what Python can do, since a service pays for each line once per request."""
        if type(inputs) is not dict or inputs.keys() != self._inputs:
            return None
        for value in inputs.values():
            if type(value) is not np.ndarray:
                return None
        try:
            found: list[Any] = self.pace.request(self._compiled.run, names or self._names, inputs, None)
        except Exception as error:  # its errors have no common base class
            raise _error_of_peer(error) from error
        return found

    def run(self, inputs: Mapping[str, Any], names: Names, out: Outputs) -> dict[str, Any]:
        names = list(self._names if names is None else names)
        try:
            results = self.pace.request(self.session.run, names, dict(inputs))
        except Exception as error:
            raise _error_of_peer(error) from error
        found = dict(zip(names, results, strict=True))
        for name, array in (out or {}).items():
            found[name] = deliver(name, found[name], array)
        return found


def _error_of_peer(error: Exception) -> UserError:
    name = type(error).__name__
    return errors.make(name if name in errors.NAMES else "InvalidArgument", UserError(str(error)))


class _Interpreted:
    """A program that NumPy runs."""

    name = "NumPy"

    def __init__(self, program: Program) -> None:
        self.interpreted = program
        self.answered, self.pace = threading.Event(), Pace()

    def run(self, inputs: Mapping[str, Any], names: Names, out: Outputs) -> dict[str, Any]:
        found = self.interpreted.run(inputs, names, out=out)
        self.answered.set()
        return found


class InferenceSession:
    """A model that is optimized and compiled; `run` returns its outputs.

    The model is a path, bytes, a `ModelProto`, or the directory of a bundle. Options of the session are ours or ONNX
    Runtime's; those without an effect are logged once, as providers are: everything runs on the CPU.

    With `compile_in_background` (the default) an unknown model runs in ONNX Runtime, or with NumPy where that is not
    installed, until it is compiled; `wait` waits for that, and the logger `rewrite.ort` reports it. Results of both
    differ by rounding.

    Raises NoSuchFile, InvalidProtobuf or Fail: UserErrors, and ONNX Runtime's own errors if it is installed."""

    def __init__(
        self,
        path_or_bytes: str | PathLike[str] | bytes | Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        compile_in_background: bool | None = None,
        **_: Any,
    ) -> None:
        self._options = options = sess_options if sess_options is not None else SessionOptions()
        self._note_ignored(providers)
        self._engine: _Native | _Peer | _Interpreted
        self._compilation: Compilation | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._started, self._records = time.time_ns(), list[Any]()
        if compile_in_background is None:
            wanted = entry(options, _IN_BACKGROUND) or os.environ.get("REWRITE_COMPILE_IN_BACKGROUND", "1")
            compile_in_background = wanted not in ("0", "false")
        try:
            self._open(path_or_bytes, compile_in_background)
        except NotAModel as error:
            raise errors.make("InvalidProtobuf", error) from error
        except UserError as error:
            if type(error) is not UserError:
                raise
            raise errors.make("Fail", error) from error

    def __repr__(self) -> str:
        ports = [listed(port.name for port in found) for found in (self._inputs, self._outputs)]
        state = "compiled" if isinstance(self._engine, _Native) else f"in {self._engine.name}"
        return f"<InferenceSession {' → '.join(ports)}: {state}>"

    # --- loading ------------------------------------------------------------------------------------------------------

    def _note_ignored(self, providers: Sequence[Any] | None) -> None:
        severity = getattr(self._options, "log_severity_level", -1)
        if severity >= 0:
            set_severity(severity)
        for name in ignored(self._options):
            note_once(f"the session option {name} has no effect on compiled code")
        for provider in providers or ():
            name = provider if isinstance(provider, str) else provider[0]
            if name != "CPUExecutionProvider":
                note_once(f"the provider {name} is ignored: everything runs on the CPU")

    def _open(self, source: Any, in_background: bool) -> None:
        from ..backend.bundle.load_bundle import is_bundle, load
        from ..backend.bundle.signature import trusted_keys

        options = self._options
        threads = int(getattr(options, "intra_op_num_threads", 0) or 0) or usable_cores()
        if isinstance(source, str | PathLike):
            source = Path(fspath(source))
            if not source.exists():
                raise errors.make("NoSuchFile", UserError("no such file", where=str(source)))
            if is_bundle(source):
                self._metadata = ModelMetadata()
                self._use(load(source, threads=threads, trusted=trusted_keys()))
                return
        model = _prepared(source, getattr(options, "initializers", {}))
        job = Job.of(model, dict(getattr(options, "sizes", {})), threads)
        if path := getattr(options, "optimized_model_filepath", ""):
            _write_optimized(job, Path(path))
        self._answer(job, in_background)
        self._metadata = read_metadata(model)  # now, since the file may go

    def _answer(self, job: Job, in_background: bool) -> None:
        """Choose what answers first: the program if it is cached, else ONNX Runtime or NumPy, else the program."""
        if (program := job.cached()) is not None:
            self._use(program)
            return
        first = _first(job, self._options) if in_background and not self._records_runs else None
        if first is None:
            self._use(job.compile())
            return
        if isinstance(first, _Peer):
            theirs = first.session
            self._inputs, self._outputs, self._overridable = (
                [NodeArg(port.name, port.type, list(port.shape)) for port in ports]
                for ports in (theirs.get_inputs(), theirs.get_outputs(), theirs.get_overridable_initializers())
            )
        else:
            self._take_ports(first.interpreted)
        self._engine = first
        self._prepare()
        self._compile_in_background(job, first)

    def _compile_in_background(self, job: Job, first: _Peer | _Interpreted) -> None:
        this = weakref.ref(self)
        start = time.monotonic()

        def switch(program: Program) -> None:
            session = this()
            if session is not None:
                session._engine = _Native(program)
                LOG.info("switched to compiled code after %.1f s", time.monotonic() - start)

        self._compilation = Compilation(job, switch, first.answered, first.pace, first.name)
        weakref.finalize(self, self._compilation.cancel)

    def _use(self, program: Program) -> None:
        self._engine = _Native(program)
        self._take_ports(program)
        self._prepare()

    def _take_ports(self, program: Program) -> None:
        defaults = program.plan.defaults
        self._inputs = [NodeArg.of(port) for port in program.inputs if port.name not in defaults]
        self._overridable = [NodeArg.of(port) for port in program.inputs if port.name in defaults]
        self._outputs = [NodeArg.of(port) for port in program.outputs]

    def _prepare(self) -> None:
        ports = (*self._inputs, *self._overridable)
        self._dtypes = {port.name: _TYPES[port.type].numpy for port in ports if port.type in _TYPES}
        self._output_names = [port.name for port in self._outputs]

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the model is compiled, or that has failed; return whether compiled code runs."""
        if self._compilation is not None:
            self._compilation.wait(seconds)
        return self.program is not None

    @property
    def program(self) -> Program | None:
        """The compiled program; None while ONNX Runtime or NumPy runs the model."""
        return self._engine.program if isinstance(self._engine, _Native) else None

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, output_names: Names, input_feed: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        """Return the outputs with these names; all for None or an empty list.

        Lists are converted to the declared type. Raises InvalidArgument for wrong inputs or names, which is a
        ValueError too if an input is missing."""
        if type(self._engine) is _Peer and (results := self._engine.results(output_names, input_feed)) is not None:
            return results
        names = output_names or None
        found = self._run(names, input_feed, None)
        return [found[name] for name in names or self._output_names]

    def _run(self, names: Names, feed: Mapping[str, Any], out: Outputs) -> dict[str, Any]:
        converted = {
            name: value if type(value) is np.ndarray else self._converted(name, value) for name, value in feed.items()
        }
        try:
            if self._records_runs:
                return self._recorded(names, converted, out)
            return self._engine.run(converted, names, out)
        except UserError as error:
            name = "InvalidArgument" if type(error) is UserError else type(error).__name__
            if any(port.name not in feed for port in self._inputs):
                name = errors.MISSING_INPUT
            raise errors.make(name, error) from error
        except RewriteError as error:
            failed = UserError(error.message, where=error.where, hint=error.hint)
            raise errors.make("RuntimeException", failed) from error

    def _converted(self, name: str, value: Any) -> Any:
        value = unwrapped(value)
        if name not in self._dtypes or isinstance(value, np.ndarray):
            return value
        if hasattr(value, "__dlpack__"):  # ONNX Runtime takes arrays only
            try:
                return as_array(value, f"input {name!r}")
            except UserError as error:
                raise errors.make("InvalidArgument", error) from error
        try:
            return np.asarray(value, self._dtypes[name])
        except (TypeError, ValueError, OverflowError) as error:
            problem = f"the value of input {name!r} cannot be converted to {self._dtypes[name]}: {error}"
            raise errors.make("InvalidArgument", UserError(problem)) from error

    def run_async(
        self, output_names: Names, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None], user_data: Any, run_options: Any = None,
    ) -> None:  # fmt: skip
        """Run in a thread, then call `callback` with the outputs, `user_data` and a message, empty on success."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="rewrite.ort")

        def work() -> None:
            try:
                found, message = self.run(output_names, input_feed), ""
            except Exception as error:  # it reaches the caller as a message
                found, message = [], str(error) or type(error).__name__
            callback(found, user_data, message)

        self._pool.submit(work)

    def run_with_ort_values(
        self, output_names: Names, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[OrtValue]:
        """Return the outputs as `OrtValue`s for inputs that are such."""
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values)]

    def io_binding(self) -> IOBinding:
        """Return an empty binding of inputs and outputs."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run on the bound inputs; outputs are written to the memory that they are bound to."""
        names = list(iobinding.outputs)
        out = {name: array for name, array in iobinding.outputs.items() if array is not None}
        found = self._run(names, iobinding.inputs, out or None)
        iobinding.deliver({name: found[name] for name in names})

    # --- profiles -----------------------------------------------------------------------------------------------------

    @property
    def _records_runs(self) -> bool:
        return bool(getattr(self._options, "enable_profiling", False))

    def _recorded(self, names: Names, feed: Mapping[str, Any], out: Outputs) -> dict[str, Any]:
        """Run, and keep a trace of another run on the same inputs for `end_profiling`."""
        program = self.program
        assert program is not None
        found = program.run(feed, names, out=out)
        self._records[:] = [(program, dict(feed))]
        return found

    def end_profiling(self) -> str:
        """Write a Chrome trace of a run on the last inputs; return its path, empty if profiling was not enabled.

        The path is `profile_file_prefix`, the time and `.json`."""
        if not self._records_runs:
            return ""
        events: dict[str, Any] = {"traceEvents": []}
        for program, feed in self._records:
            events = program.profile(feed, seconds=0.1).trace()
        prefix = getattr(self._options, "profile_file_prefix", "onnxruntime_profile_")
        path = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        Path(path).write_text(json.dumps(events))
        return path

    def get_profiling_start_time_ns(self) -> int:
        """Return when the session was made, in nanoseconds since the epoch."""
        return self._started

    # --- descriptions -------------------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs in order, without those that have defaults."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs in order."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have defaults."""
        return self._overridable

    def get_modelmeta(self) -> ModelMetadata:
        """Return the descriptions in the model's file; a bundle has none."""
        return self._metadata

    def get_session_options(self) -> Any:
        """Return the options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the devices on which models run."""
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return no options for the only provider."""
        return {"CPUExecutionProvider": {}}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Do nothing: everything runs on the CPU."""
        self._note_ignored(providers)

    def disable_fallback(self) -> None:
        """Do nothing: providers do not fail."""

    def enable_fallback(self) -> None:
        """Do nothing: providers do not fail."""


def _first(job: Job, options: Any) -> _Peer | _Interpreted | None:
    """Return the model in ONNX Runtime, or run by NumPy where that is not installed or refuses the model.

    None if neither runs it, or if it is too large."""
    if not isinstance(job.model, Path | bytes):
        return None
    if installed_onnxruntime.is_installed():
        try:
            return _peer(job, job.model, options)
        except Exception as error:  # its errors have no common base class
            LOG.info("ONNX Runtime refuses the model: %s", error)
    else:
        note_once("ONNX Runtime is not installed: NumPy answers until a model is compiled")
    from ..backend.interpret_model import interpret_model  # a cached program needs none of it

    try:
        return _Interpreted(interpret_model(job.model, job.options, threads=job.threads))
    except RewriteError as error:
        LOG.info("NumPy does not run the model, so it is compiled first: %s", error)
        return None


def _peer(job: Job, source: Path | bytes, options: Any) -> _Peer:
    """Return a model in ONNX Runtime, with the options of our session. Raises its errors."""
    theirs = installed_onnxruntime.onnxruntime()
    options = passed_on(options, theirs)
    for name, size in job.sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    if saturates_pairs():  # else quantized networks give other results than their programs
        options.add_session_config_entry(*installed_onnxruntime.EXACT)
    model = str(source) if isinstance(source, Path) else source
    return _Peer(theirs.InferenceSession(model, options, providers=["CPUExecutionProvider"]))


def _prepared(source: Any, initializers: Mapping[str, Any]) -> Any:
    """Return a model as a path, bytes or a large `ModelProto`, with some of its initializers replaced by `OrtValue`s.

    Raises InvalidArgument for an initializer that the model does not have."""
    if not initializers and isinstance(source, Path | bytes):
        return source
    import onnx

    if isinstance(source, bytearray | memoryview):
        source = bytes(source)
    if not initializers:
        return source if isinstance(source, bytes) else _serialized(source)
    if isinstance(source, onnx.ModelProto):
        model = source
    else:
        read = partial(onnx.load, load_external_data=False) if isinstance(source, Path) else onnx.load_from_string
        model = read(source)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, value in initializers.items():
        if name not in tensors:
            raise errors.make("InvalidArgument", UserError(f"the model has no initializer {name!r}"))
        tensors[name].CopyFrom(onnx.numpy_helper.from_array(unwrapped(value), name))
    if isinstance(source, Path):
        onnx.load_external_data_for_model(model, str(source.parent))
    return _serialized(model)


def _serialized(model: Any) -> Any:
    """Return the bytes of a `ModelProto`, or itself if it is too large for protobuf's library."""
    return model.SerializeToString() if model.ByteSize() < _LARGEST else model


def _write_optimized(job: Job, path: Path) -> None:
    from ..engine.onnx_io.exporter import save
    from ..engine.optimizer import optimize

    save(optimize(job.model, job.options).model, path)
