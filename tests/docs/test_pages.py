"""What the pages show is true: rules pass their tests, consoles print what they show, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rewrite.engine.rule_tests.run_tests import run_tests
from rewrite.grammar.printing.format import format_text

from .blocks import PAGES, ROOT, Block, blocks

RULES = [
    b
    for page in PAGES
    for b in blocks(page)
    if b.language == "rules" and b.title != "wrong.rules" and re.search(r"^  test ", b.text, re.MULTILINE)
]


@pytest.mark.parametrize("block", RULES, ids=lambda b: b.where)
def test_rules_pass_their_tests(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "shown.rules"
    text = re.sub(r"^rule ", "rule shown_", block.text, flags=re.MULTILINE)  # the library may have one of that name
    file.write_text(text, encoding="utf-8")
    results = run_tests([file])
    assert results
    assert [r.message for r in results if not r.ok] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_rules_are_laid_out_as_the_library(page: Path) -> None:
    for block in blocks(page):
        if block.language == "rules":
            assert format_text(block.text) == block.text, block.where


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text):
        assert (page.parent / target).is_file(), target  # a folder is no page of the site


def test_every_logger_is_documented() -> None:
    rooms = ("engine", "backend", "ort", "torch_backend", "cli", "frontends", "tuning", "soundness")
    texts = [file.read_text(encoding="utf-8") for room in rooms for file in (ROOT / room).rglob("*.py")]
    loggers = {name for text in texts for name in re.findall(r'getLogger\("(rewrite\.\w+)"\)', text)}
    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    assert loggers == set(re.findall(r"^\| `(rewrite\.\w+)` \|", page, re.MULTILINE))
    assert len(loggers) > 4


def test_there_is_something_to_run() -> None:
    assert len(RULES) > 9
    kinds = {b.language for b in blocks(ROOT / "docs" / "first-rule.md")}
    assert kinds == {"rules", "console", "python"}


def test_the_first_rule_as_a_newcomer(tmp_path: Path) -> None:
    """Files are written, commands typed and Python run, in order, in one directory."""
    shutil.copy(ROOT / "examples" / "make_model.py", tmp_path)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "REWRITE_CACHE_DIR": str(tmp_path / "cache"),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    for block in blocks(ROOT / "docs" / "first-rule.md"):
        if block.language == "rules":
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
            continue
        commands = (
            [([sys.executable, "-c", block.text], "")]
            if block.language == "python"
            else [(shlex.split(first), rest) for first, _, rest in _commands(block.text)]
        )
        for arguments, shown in commands:
            done = subprocess.run(
                arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=200
            )
            printed = _plain(done.stdout + done.stderr)
            assert done.returncode == (block.title == "fails"), (
                f"{block.where}: {arguments}\n{done.stdout}{done.stderr}"
            )
            for line in shown.splitlines():
                assert _plain(line) in printed, f"{block.where}: {arguments}\n{done.stdout}"


def _commands(text: str) -> list[tuple[str, str, str]]:
    """Each command with the output shown below it."""
    return [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE) if part]


def _plain(text: str) -> str:
    return " ".join(text.split())
