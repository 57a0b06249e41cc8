"""The errors that people see: one clear message each, that says what, where and what to do."""

from __future__ import annotations


class RewriteError(Exception):
    """The base of all errors that `rewrite` raises on purpose. `exit_code` is what the command line ends with."""

    exit_code = 3

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(message, where, hint)

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n{self.hint}" if self.hint else head


class UserError(RewriteError):
    """Bad input: a model, rule file, flag, cache or bundle that cannot be used. `where` names the file or node."""

    exit_code = 2


class CheckFailed(RewriteError):
    """A check, test or verification that ran and did not pass."""

    exit_code = 1
