"""Check that every link between pages of the built site leads to a file: `python docs/check_site.py build/site`.

The generator checks links to pages and their anchors; this also finds links to folders and to files that are not pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]+)"')


def broken(site: Path) -> list[str]:
    """Return the links of a site that lead nowhere, each with its page."""
    found = []
    for page in sorted(site.rglob("*.html")):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            base = site if parts.path.startswith("/") else page.parent
            target = base / unquote(parts.path).lstrip("/")
            if not (target / "index.html" if target.is_dir() else target).is_file():
                found.append(f"{page.relative_to(site)}: {link}")
    return found


if __name__ == "__main__":
    lost = broken(Path(sys.argv[1]))
    sys.exit("links that lead nowhere:\n" + "\n".join(lost) if lost else 0)
