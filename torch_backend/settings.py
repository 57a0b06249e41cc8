"""Settings of the backend: what `torch.compile` passes as `options`."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..engine.options import Options
from ..errors import UserError

LOG = logging.getLogger("rewrite.torch")

_OF_COMPILER = ("numerics", "precision", "rules", "std_rules", "time_limit", "node_limit", "memory_limit", "disabled")
_OWN = ("threads", "verify")


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of the compiler, threads of a run, and whether the first result is compared with eager mode."""

    options: Options
    threads: int
    verify: bool

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None) -> Settings:
        """Return the settings for the arguments of `torch.compile`. Raises `UserError` for unknown ones.

        `threads` is by default what `torch.get_num_threads()` returns now."""
        if mode not in (None, "default"):
            raise UserError(f"the backend 'rewrite' has no mode {mode!r}", hint="Pass `options` instead of `mode`.")
        given = dict(options or {})
        for name in given:
            if name not in _OF_COMPILER + _OWN:
                close = difflib.get_close_matches(name, _OF_COMPILER + _OWN, 1)
                hint = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(_OWN + _OF_COMPILER)}."
                raise UserError(f"the backend 'rewrite' has no option {name!r}", hint=hint)
        threads = given.pop("threads", None)
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise UserError(f"`threads` is a positive number, not {threads!r}")
        verify = bool(given.pop("verify", True))
        return cls(Options.of(**given), threads or torch.get_num_threads(), verify)


_noted: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning, unless the same one was logged before: PyTorch compiles a graph again for other sizes."""
    if message not in _noted:
        _noted.add(message)
        LOG.warning(message)
