"""Pages: one file without a network, data that no parser takes for markup, equal bytes for equal data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rewrite.errors import UserError
from rewrite.pages import page as pages
from rewrite.pages import short_tables
from rewrite.pages.page import KINDS, LIBRARIES, Page, make_page
from rewrite.tests.hostile import EVIL

VENDOR = pages.HERE / "vendor"
DATA: dict[str, Any] = {"graphs": {}, EVIL: [EVIL, 1.5, math.nan], "path": Path("a/b")}


class Parsed(HTMLParser):
    """Elements of a page as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.texts.setdefault(len(self.tags) - 1, "")

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.setdefault(len(self.tags) - 1, data)  # not what follows its end

    def text(self, *tags: str) -> str:
        """The texts at the begin of elements: of all that are shown, or of some kinds."""
        kinds = {n: tag for n, (tag, _) in enumerate(self.tags)}
        shown = (
            t for n, t in self.texts.items() if (kinds[n] in tags if tags else kinds[n] not in ("script", "style"))
        )
        return "\n".join(shown)

    def scripts(self) -> list[str]:
        """The scripts that run."""
        return [self.texts[n] for n, (tag, attrs) in enumerate(self.tags) if tag == "script" and "type" not in attrs]

    def data(self) -> Any:
        """The embedded data."""
        [found] = [self.texts[n] for n, (_, attrs) in enumerate(self.tags) if attrs.get("id") == "data"]
        return json.loads(found)


@pytest.mark.parametrize("kind", KINDS)
def test_data_is_text_whatever_it_says(kind: str) -> None:
    parsed = Parsed(make_page(kind, EVIL, DATA).text)
    expected = ["html", "head", "meta", "meta", "meta", "title", "style", "body", "header", "nav", "main", "noscript"]
    scripts = ["script"] * (1 + len(LIBRARIES) + len(KINDS[kind]))
    assert [tag for tag, _ in parsed.tags] == [*expected, *scripts]
    assert parsed.data() == {"title": EVIL, "graphs": {}, EVIL: [EVIL, 1.5, None], "path": "a/b"}


@pytest.mark.parametrize("kind", KINDS)
def test_only_its_own_scripts_run_and_nothing_is_loaded(kind: str) -> None:
    text = make_page(kind, "m", DATA).text
    parsed = Parsed(text)
    [policy] = [attrs["content"] or "" for tag, attrs in parsed.tags if attrs.get("http-equiv")]
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in parsed.scripts()}
    assert {found.removeprefix("sha256-") for found in re.findall("'(sha256-[^']+)'", policy)} == hashes
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    assert not [attrs for _, attrs in parsed.tags if {"src", "href"} & set(attrs)]
    own = "".join((pages.HERE / name).read_text() for name in KINDS[kind])
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\.html\(|fetch\(|eval\(", own)


def test_equal_data_gives_equal_bytes() -> None:
    assert make_page("report", "m", DATA) == make_page("report", "m", dict(DATA))


def test_a_page_without_data_is_small() -> None:
    assert all(len(make_page(kind, "m", {}).text) < 500_000 for kind in KINDS)


def test_libraries_are_those_that_are_documented() -> None:
    stated = dict(re.findall(r"^\| `(\S+)` .* `([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE))
    assert {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in LIBRARIES} == stated
    assert all((VENDOR / name.replace(".min.js", ".LICENSE")).read_text().startswith("Copyright") for name in LIBRARIES)
    assert not [name for name in LIBRARIES if "</script" in (VENDOR / name).read_text()]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "HERE", tmp_path)
    with pytest.raises(UserError, match=r"the library d3\.min\.js that reports need is missing"):
        make_page("report", "m", {})


def test_a_notebook_shows_a_page_in_a_frame(tmp_path: Path) -> None:
    page = Page(EVIL, '<p title="a">it\'s</p>')
    frame = Parsed(page._repr_html_())
    assert [tag for tag, _ in frame.tags] == ["iframe"]
    assert frame.tags[0][1]["srcdoc"] == page.text
    assert frame.tags[0][1]["sandbox"] == "allow-scripts"
    assert page.save(tmp_path / "p.html").read_text() == page.text
    assert len(repr(page)) < 150
    with pytest.raises(UserError, match="cannot be written"):
        page.save(tmp_path / "nowhere" / "p.html")


def test_short_tables_escape_and_clip() -> None:
    text = short_tables.table(EVIL, ("a", "b"), [(EVIL, n) for n in range(20)], "a note")
    assert {tag for tag, _ in Parsed(text).tags} == {"p", "b", "table", "tr", "th", "td"}
    assert text.count("<tr>") == 1 + short_tables.SHOWN
    assert html.escape(EVIL[:20]) in text
    assert "12 more. a note" in text
