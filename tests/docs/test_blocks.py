"""The code on the pages runs: Python as it stands, commands as far as their options, rules through the checker."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rewrite.cli.application import app
from rewrite.engine.rewriting.rule_library import load_rules, recognitions
from rewrite.soundness import Budget, check
from typer.main import get_command

from .blocks import PAGES, ROOT, Block, blocks

PYTHON = [page for page in PAGES if page.name != "first-rule.md" and any(b.language == "python" for b in blocks(page))]
"""Pages with Python; the first rule's runs among its commands, in test_pages.py."""
NOT_RUN = {"torch": "is not installed for the tests", ".show(": "opens a browser", ".tune(": "measures for minutes"}
"""Python that is not run, by what it contains, and the reason."""
UNCHECKED = {
    "wrong.rules": "the mistake that the page is about",
    "bodies.rules": "needs models with bodies, which the tests of rules/control.rules name",
}
CORRECTED = ("rule wrong_order", "Relu(x) + Relu(-x)  =>  Abs(x)\n  class exact")
"""Of the rules that a page shows wrong first, and then corrects."""
# What the pages assume: a model, arrays, and the variables that a reader has.
PRELUDE = '''
import numpy as np
import onnx, onnx.parser

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 4] x) => (float[N, 4] y) { z = Abs (x)  y = Relu (z) }"""
onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
array = x = np.ones((2, 4), np.float32)
y = np.zeros((2, 4), np.float32)
'''
DECODER = '''
import rewrite

text = """<ir_version: 10, opset_import: ["" : 21]>
g (int64[1, S] ids, int64[1, P] mask, float[1, 2, P, 4] old) => (float[1, 1, 5] logits, float[1, 2, P, 4] new)
  <int64[3] shape = {1, 1, 5}> {
  kept = Cast <to = 1> (mask)
  one = ReduceSum <keepdims = 0> (kept)
  logits = Expand (one, shape)
  new = Relu (old)
}"""
decoder = onnx.parser.parse_model(text)
names = {"ids": "input_ids", "mask": "attention_mask", "old": "past.key", "new": "present.key"}
for value in (*decoder.graph.input, *decoder.graph.output):
    value.name = names.get(value.name, value.name)
for node in decoder.graph.node:
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
program = rewrite.compile(decoder)
positions, vocabulary, cache_shapes = 6, 5, {"key": (1, 2, 6, 4)}
prompt = np.ones((1, 3), np.int64)
'''


def source(page: Path) -> str:
    """The Python of a page in order, behind what it assumes; blocks that are included run where they come from."""
    text = page.read_text(encoding="utf-8").split("\n")
    parts = [PRELUDE]
    for block in blocks(page):
        is_included = text[block.line - 2].startswith("<!-- include")
        if block.language == "python" and not is_included and not any(word in block.text for word in NOT_RUN):
            if "past." in block.text:
                parts.append(DECODER)
            elif "program." in block.text and "program =" not in block.text:
                parts.append('import rewrite\nprogram = rewrite.compile("model.onnx")\n')
            parts.append(block.text)
    return "\n".join(parts)


@pytest.mark.parametrize("page", PYTHON, ids=lambda p: p.name)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "my.rules").write_text((ROOT / "examples" / "my.rules").read_text(encoding="utf-8"), encoding="utf-8")
    for block in blocks(page):
        if block.language == "rules" and block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text(source(page), encoding="utf-8")
    environment = os.environ | {"REWRITE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> list[str]:
    """The commands of a page: lines of its blocks, and code within sentences."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line.removeprefix("$ ") for b in blocks(page) if b.language in ("", "console") for line in b.text.split("\n")
    ]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [line for line in lines if re.match(r"(rewrite|make|pip install) \S", line)]


def parse(words: list[str]) -> None:
    """Let the command line read the options. Raises click's error for one that it does not have."""
    command: Any = get_command(app)
    main = command.commands["optimize"]
    kind = type(command.make_context("rewrite", [], resilient_parsing=True))
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands") and words and words[0] != "help" and not words[0].startswith("-"):
        command = main
    context = kind(command)
    command.make_parser(context).parse_args(args=words)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_have_these_options(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands(page):
        words = shlex.split(line.replace("…", ""), comments=True)
        if words[0] == "rewrite":
            parse(words[1:])
        elif words[0] == "make":
            wanted = [word for word in words[1:] if "=" not in word and "/" not in word]
            assert set(wanted) <= set(targets), line
        else:
            for extra in re.findall(r"onnx-rewrite\[([\w,]+)\]", line):
                assert set(extra.split(",")) <= set(extras), line


def test_a_command_with_another_option_is_found() -> None:
    with pytest.raises(Exception, match="--no-such"):
        parse(["warm", "model.onnx", "--no-such"])
    with pytest.raises(Exception, match="--no-such"):
        parse(["model.onnx", "--no-such"])
    assert commands(ROOT / "README.md")


CHECKED: list[Block] = [
    b
    for page in PAGES
    for b in blocks(page)
    if b.language == "rules" and b.title not in UNCHECKED and not any(text in b.text for text in CORRECTED)
]


@pytest.mark.slow
@pytest.mark.parametrize("block", CHECKED, ids=lambda b: b.where)
def test_no_counterexample_of_a_rule(block: Block, tmp_path: Path) -> None:
    """A short check of each rule and definition: too short to fire on each, long enough to refute a wrong one."""
    file = tmp_path / "shown.rules"
    file.write_text(re.sub(r"^rule ", "rule shown_", block.text, flags=re.MULTILINE), encoding="utf-8")
    library = load_rules([file])
    own = [rule for rule in (*library.rules, *recognitions(library)) if rule.span.file == str(file)]
    for report in check(library, own, budget=Budget(instances=60, seconds=2), workers=1, prove=False):
        assert report.counterexample is None, str(report)
