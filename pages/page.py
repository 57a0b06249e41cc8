"""A page: data and scripts in one HTML file, which opens without a network.

Names in models are not trusted. Data is JSON in a script element that is not executed, with `<`, `>` and `&` escaped;
scripts set text, never HTML. A content security policy names the hash of every script, so that no other one runs, and
forbids all requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..system import scoped
from ..system.short_text import clipped

HERE = Path(__file__).parent
LIBRARIES = ("d3.min.js", "dagre.min.js")
KINDS: Mapping[str, Sequence[str]] = {
    "report": ("base.js", "graph_view.js", "graph_tab.js", "charts.js", "report.js"),
    "egraph": ("base.js", "egraph.js"),
}
"""Scripts of each kind of page, in order, after the libraries."""
_HEIGHT = 760
"""Pixels of a page inside a notebook."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, as the text of an HTML file. A notebook shows it as the last value of a cell."""

    title: str
    text: str

    def __repr__(self) -> str:
        return f"<Page {clipped(self.title)}: {len(self.text) / 1e6:.1f} MB; .save(path), .open()>"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, which has no access to the notebook."""
        source = html.escape(self.text, quote=True)
        frame = f'sandbox="allow-scripts" style="width:100%;height:{_HEIGHT}px;border:1px solid #8884"'
        return f'<iframe srcdoc="{source}" {frame}></iframe>'

    def save(self, path: Path | str) -> Path:
        """Write the page to a file, replacing it at once; return its path. Raises UserError if that fails."""
        target = Path(path)
        try:
            with scoped.replacing(target) as file:
                file.write(self.text.encode())
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror or error}", where=str(target)) from error
        return target

    def show(self) -> None:
        """Show the page below the cell of a notebook, or elsewhere in the browser."""
        if "ipykernel" in sys.modules:
            from IPython.display import display

            display(self)
        else:
            self.open()

    def open(self) -> Path:
        """Write the page to a new temporary file, open it in the browser, and return its path."""
        import webbrowser  # slow to import

        target = self.save(Path(tempfile.mkdtemp(prefix="rewrite-")) / "report.html")
        webbrowser.open(target.as_uri())
        return target


def make_page(kind: str, title: str, data: Mapping[str, Any]) -> Page:
    """Return a page of one of the `KINDS`. Equal data gives equal bytes; numbers that JSON lacks become null.

    Raises UserError if the installation lacks a script or a library."""
    import jinja2  # slow to import

    names = [*(f"vendor/{name}" for name in LIBRARIES), *KINDS[kind]]
    scripts = [f"\n{_read(name).strip()}\n" for name in names]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    text = environment.from_string(_read("page.html")).render(
        title=f"{title} - rewrite", policy=policy, style=_read("style.css"), scripts=scripts,
        data=embedded({"title": title, **data}),
    )  # fmt: skip
    return Page(title, text)


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON that no HTML parser takes for markup."""
    text = json.dumps(finite(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()


def finite(value: Any) -> Any:
    """Return a value with NaN, infinities and paths, which JSON lacks, replaced by null and text."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def _read(name: str) -> str:
    try:
        return (HERE / name).read_text(encoding="utf-8")
    except OSError as error:
        what = "library" if name.startswith("vendor/") else "file"
        hint = "Install rewrite again; packages must contain the folder pages/ as it is."
        raise UserError(
            f"the {what} {Path(name).name} that reports need is missing", where=str(HERE / name), hint=hint
        ) from error
