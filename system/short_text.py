"""Short forms of names and texts, for the one-line descriptions of values (`repr`)."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 60
"""Characters of a clipped text."""


def clipped(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters; a longer one loses its middle."""
    if len(text) <= longest:
        return text
    head = (longest - 1) // 2
    return f"{text[:head]}…{text[head + 1 - longest :]}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """Return the first `most` names, each clipped, and how many more there are: `a, b, c, … 4 more`."""
    every = [*names]
    shown = ", ".join(clipped(name, 30) for name in every[:most])
    return f"{shown}, … {len(every) - most} more" if len(every) > most else shown


def plural(count: int, noun: str) -> str:
    """Return a number of things, such as `1 node` or `2 nodes`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """Format a time in the most readable unit."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 10 else f"{seconds:.1f} s"


def memory_size(count: float) -> str:
    """Format a number of bytes in the most readable unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
