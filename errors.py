"""Errors with a message for people: what is wrong, where, and what to do about it."""

from __future__ import annotations

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


class NotAModel(UserError):
    """A file, or bytes, that are not an ONNX model at all."""


class CheckFailed(RewriteError):
    """A check, test or verification that ran and did not pass."""

    exit_code = 1
