"""Short HTML tables, as notebooks show them for values (`_repr_html_`)."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

SHOWN = 8
"""Maximum number of rows."""


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table of the first rows, with everything escaped; the last line counts the others."""
    every = [*rows]
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in every[:SHOWN])
    more = f"{len(every) - SHOWN} more" if len(every) > SHOWN else ""
    below = ". ".join(filter(None, (more, note)))
    head = "".join(f"<th>{_text(name)}</th>" for name in heads) if every else ""
    foot = f"<p>{_text(below)}</p>" if below else ""
    return f"<p><b>{_text(title)}</b></p><table><tr>{head}</tr>{body}</table>{foot}"


def _text(value: object) -> str:
    text = str(value)
    return html.escape(text if len(text) <= 120 else f"{text[:119]}…")
