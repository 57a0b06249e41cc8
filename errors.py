"""Errors with a message for people: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class RewriteError(Exception):
    """Base class of all errors that `rewrite` raises on purpose.

    `exit_code` is the exit code of the command line. Subclasses may have any constructor: pickling, which carries
    errors out of child processes, restores the attributes without calling it."""

    exit_code = 3

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(message, where, hint)

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n{self.hint}" if self.hint else head

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.args, self.__dict__)


def _unpickle(kind: type[RewriteError], args: tuple[Any, ...], attributes: dict[str, Any]) -> RewriteError:
    """Restore an error without its constructor, whose parameters `args` does not mirror."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class UserError(RewriteError):
    """Invalid input: a model, rule file, option, cache or bundle that cannot be used; `where` names it."""

    exit_code = 2


PACKAGES: Mapping[str, str] = {
    "rewrite": "onnx-rewrite", "egglog": "onnx-rewrite", "jinja2": "onnx-rewrite", "lark": "onnx-rewrite",
    "cryptography": "cryptography", "onnx": "onnx", "platformdirs": "onnx-rewrite",
    "ml_dtypes": "ml_dtypes", "onnxruntime": "onnxruntime",
}  # fmt: skip
"""Packages that only some tasks need, and what brings them: `rewrite` stands for the parts that compile."""


class NotInstalled(UserError):
    """A task that needs a package which is not installed."""

    @classmethod
    def of(cls, task: str, package: str = "rewrite") -> NotInstalled:
        """Return the error about a task, such as `compiling a model`, and one of `PACKAGES`."""
        needs = "more than the runtime" if package == "rewrite" else f"the package {package}"
        return cls(f"{task} needs {needs}: pip install {PACKAGES[package]}")


@contextmanager
def naming_packages(task: str) -> Iterator[None]:
    """Raise NotInstalled, which says what to install, where the block fails to import one of `PACKAGES`.

    Where a package is installed but one of its modules is missing, the error says so itself."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        entire = f"{__package__}.grammar.syntax"  # a part that the runtime's distribution lacks
        if package not in PACKAGES or _is_importable(entire if package == "rewrite" else package):
            raise
        raise NotInstalled.of(task, package) from error


def _is_importable(name: str) -> bool:
    from importlib.util import find_spec  # needed by errors only

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class NotAModel(UserError):
    """A file, or bytes, that are not an ONNX model at all."""


class CheckFailed(RewriteError):
    """A check, test or verification that ran and did not pass."""

    exit_code = 1
