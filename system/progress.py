"""The progress callback that the engine, the backend and the command line share.

A call `progress(stage, facts)` says that `stage` has begun, or how far it is: `facts` are numbers by name, such as
`{"iterations": 3, "nodes": 1200}` or `{"done": 2, "total": 7}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Progress = Callable[[str, Mapping[str, Any]], None]


def ignore(stage: str, facts: Mapping[str, Any]) -> None:
    """No-op progress callback."""
