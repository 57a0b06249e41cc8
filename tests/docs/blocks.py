"""The fenced blocks of Markdown pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "rules/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@dataclass(frozen=True)
class Block:
    """One block: its language, its title (a file's name, or `fails`), its text, and where it begins."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    @property
    def where(self) -> str:
        """`language.md:12`."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r'^```(\w*)(?: title="([^"\n]*)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match[1], match[2] or "", match[3]))
    return found
