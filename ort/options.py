"""Options of sessions and of runs, with ONNX Runtime's names and defaults.

What an option cannot mean to compiled code is accepted, and logged once when a session is made with it. ONNX Runtime
gets it where that answers first."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UserError
from ..system.short_text import clipped, listed
from . import errors

LOG = logging.getLogger("rewrite.ort")
_SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_noted: set[str] = set()


def note_once(message: str) -> None:
    """Log a message at level INFO if it was not logged before in this process."""
    if message not in _noted:
        _noted.add(message)
        LOG.info(message)


def set_severity(level: int) -> None:
    """Set the level of the logger `rewrite.ort`: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    if not 0 <= level < len(_SEVERITIES):
        raise errors.make("InvalidArgument", UserError(f"{level} is not a severity", hint="Severities are 0 to 4."))
    LOG.setLevel(_SEVERITIES[level])


class GraphOptimizationLevel(enum.IntEnum):
    """Level of graph optimizations. Compiled code ignores it: rules are always applied."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether operators run beside each other. Compiled code ignores it: each operator runs on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Order of operators. Compiled code ignores it: the compiler chooses the order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """Configuration entries by name."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def __repr__(self) -> str:
        """The options that were set, each as it is assigned, and the entries."""
        defaults = vars(type(self)())
        changed = {name: value for name, value in vars(self).items() if value != defaults.get(name)}
        entries = changed.pop("_entries", {})
        initializers = changed.pop("initializers", {})
        parts = [f"{name}={clipped(str(value), 40)}" for name, value in (changed | entries).items()]
        parts += [f"initializers {listed(initializers)}"] if initializers else []
        return (
            f"<{type(self).__name__}: {clipped(', '.join(parts), 200)}>"
            if parts
            else f"<{type(self).__name__}: defaults>"
        )

    def _get(self, name: str, what: str) -> str:
        if name not in self._entries:
            raise errors.make("InvalidArgument", UserError(f"the {what} options have no entry {name!r}"))
        return self._entries[name]


class RunOptions(_Entries):
    """Options of one run; none of them has an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False

    def add_run_config_entry(self, name: str, value: str) -> None:
        """Set a configuration entry."""
        self._entries[name] = value

    def get_run_config_entry(self, name: str) -> str:
        """Return a configuration entry. Raises InvalidArgument if it is not set."""
        return self._get(name, "run")


IGNORED: Mapping[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "execution_order": ExecutionOrder.DEFAULT,
    "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "inter_op_num_threads": 0,
    "log_verbosity_level": 0,
    "logid": "",
    "use_per_session_threads": True,
}
"""Options without an effect on compiled code, and their defaults."""
_PASSED = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads",
)  # fmt: skip
"""Options that ONNX Runtime gets where it answers first. Pools of the whole process are made before a session is."""
_ENTRIES = (
    "session.disable_prepacking", "session.disable_quant_qdq", "session.force_spinning_stop",
    "session.inter_op.allow_spinning", "session.intra_op.allow_spinning", "session.intra_op_thread_affinities",
    "session.set_denormal_as_zero", "session.use_env_allocators",
)  # fmt: skip
"""Configuration entries that are looked for in ONNX Runtime's options, which do not list those that were set."""


class SessionOptions(_Entries):
    """Options of a session.

    These have an effect on compiled code: `intra_op_num_threads` (0: all cores), `enable_profiling` with
    `profile_file_prefix`, `optimized_model_filepath`, `log_severity_level`, sizes of free dims by name, initializers,
    and the entry `rewrite.compile_in_background`. Its results are always deterministic. The others hold for ONNX
    Runtime, where that answers first."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in IGNORED.items():
            setattr(self, name, value)
        self.enable_profiling = False
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.sizes: dict[str, int] = {}
        self.initializers: dict[str, Any] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a symbolic dim of the inputs to a size."""
        self.sizes[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Do nothing: dims are known by their names only."""
        note_once(f"the size {size} for dims of denotation {denotation!r} is ignored: only names of dims are known")

    def add_initializer(self, name: str, value: Any) -> None:
        """Replace an initializer of the model by an `OrtValue`."""
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Replace initializers of the model by `OrtValue`s."""
        self.initializers |= dict(zip(names, values, strict=True))

    def add_session_config_entry(self, name: str, value: str) -> None:
        """Set a configuration entry; only `rewrite.compile_in_background` has an effect on compiled code."""
        self._entries[name] = str(value)

    def get_session_config_entry(self, name: str) -> str:
        """Return a configuration entry. Raises InvalidArgument if it is not set."""
        return self._get(name, "session")

    def has_providers(self) -> bool:
        """Return False: providers are arguments of the session."""
        return False

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Do nothing: everything runs on the CPU."""
        note_once(f"the provider {name} is ignored: everything runs on the CPU")

    def register_custom_ops_library(self, path: str) -> None:
        """Raise NotImplemented: custom operators are declared in rule files."""
        raise errors.make(
            "NotImplemented",
            UserError(
                "libraries of custom operators cannot be loaded",
                where=str(path),
                hint="Define the operator in a rule file, and compile the model with it.",
            ),
        )


def ignored(options: Any) -> Iterator[str]:
    """Iterate over the names of options that were set and have no effect."""
    for name, default in IGNORED.items():
        if getattr(options, name, default) != default:
            yield name


def entry(options: Any, name: str) -> str | None:
    """Return a configuration entry of options, ours or ONNX Runtime's; None if it is not set."""
    try:
        return str(options.get_session_config_entry(name))
    except Exception:  # ONNX Runtime raises an error of its own, and other objects have no entries
        return None


def passed_on(options: Any, theirs: Any) -> Any:
    """Return ONNX Runtime's `SessionOptions`, from its package `theirs`, for options that are ours or its own.

    They have the threads, levels and entries that were set, and neither files to write nor messages to print.
    Raises its errors for values that it refuses."""
    found = theirs.SessionOptions()
    for name in _PASSED:
        value = getattr(options, name, None) if hasattr(found, name) else None  # earlier versions lack some
        if isinstance(value, enum.IntEnum):  # ours
            value = getattr(theirs, type(value).__name__)(int(value))
        if value is not None:
            setattr(found, name, value)
    entries = getattr(options, "_entries", None) or {name: entry(options, name) for name in _ENTRIES}
    for name, value in entries.items():
        if value is not None and not name.startswith("rewrite."):
            found.add_session_config_entry(name, value)
    found.log_severity_level = 4
    return found
