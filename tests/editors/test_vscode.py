"""The VS Code extension: its files fit together, and its grammar covers the language."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rewrite
from rewrite.grammar.builtins import CLASSES, DIRECTIONS, DTYPE_CLASSES, DTYPES, KINDS, RELAXATIONS, WORDS
from rewrite.grammar.printing.format import format_text
from rewrite.grammar.syntax.tokens import tokens

from .package_contents import CLIENT, NEEDED, missing
from .words import reserved_words

ROOT = Path(rewrite.__file__).parent
FOLDER = ROOT / "editors" / "vscode"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a checkout")


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def patterns(node: Any) -> Iterator[str]:
    """Return all regular expressions of a TextMate grammar."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("match", "begin", "end", "while"):
                yield value
            else:
                yield from patterns(value)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value)


def test_every_file_that_the_manifest_names_is_there() -> None:
    manifest = load("package.json")
    named = [manifest["main"]]
    for kind in ("languages", "grammars", "snippets"):
        named += [
            entry[key] for entry in manifest["contributes"][kind] for key in ("path", "configuration") if key in entry
        ]
    assert len(named) == 5
    assert all((FOLDER / name).is_file() for name in named)
    load("language-configuration.json")


def test_regular_expressions_compile() -> None:
    for name in ("syntaxes/rules.tmLanguage.json", "syntaxes/codeblock.json"):
        found = list(patterns(load(name)))
        assert found
        for pattern in found:
            if "\\G" not in pattern:  # Oniguruma's own; Python has no word for it
                re.compile(pattern.replace("(?<=[(,]|\\s)", "(?<=[(,\\s])"))


def test_the_grammar_knows_every_word_of_the_language() -> None:
    words = reserved_words() | {*DTYPES, *DTYPE_CLASSES, *KINDS, *CLASSES, *RELAXATIONS}
    words |= {*DIRECTIONS, *WORDS}
    grammar = re.sub(r"\\[a-zA-Z]", " ", " ".join(patterns(load("syntaxes/rules.tmLanguage.json"))))
    known = set(re.findall(r"[a-z_][a-z0-9_]*", grammar))
    assert sorted(words - known) == []


def test_snippets_are_rules_in_the_projects_layout() -> None:
    for name, snippet in load("snippets/rules.json").items():
        text = "\n".join(snippet["body"]) if isinstance(snippet["body"], list) else snippet["body"]
        while "${" in text:  # innermost first: what stands in the place of a choice or a default
            text = re.sub(r"\$\{\d+\|([^,|]*)[^}]*\}", r"\1", text)
            text = re.sub(r"\$\{\d+:([^${}]*)\}", r"\1", text)
        text = re.sub(r"\$\d", "", text).rstrip() + "\n"
        if text.startswith("test"):
            text = f"rule r\n  Relu(x)  =>  x\n  {text}"
        formatted = format_text(text, name)
        assert [t.text for t in tokens(formatted)] == [t.text for t in tokens(text)], name


def tokenised(file: Path) -> list[tuple[int, str, str]]:
    node = shutil.which("node")
    if node is None or not (FOLDER / "node_modules" / "vscode-textmate").exists():
        pytest.skip("needs node, and `npm install` in editors/vscode")
    done = subprocess.run([node, FOLDER / "tokenize.js", file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [(line, text, scope) for line, text, scope in json.loads(done.stdout)]


def test_scopes() -> None:
    """Comments, strings, numbers and item keywords get their scopes in all rule files."""
    for file in [ROOT / "tests" / "grammar" / "sample.rules", *sorted((ROOT / "rules").glob("*.rules"))]:
        found = tokenised(file)
        text = file.read_text()
        starts = [0, *(m.end() for m in re.finditer("\n", text))]
        scopes: dict[int, str] = {}
        at = {}
        for line, part, scope in found:
            offset = at.get(line, starts[line - 1])
            for i in range(offset, offset + len(part)):
                scopes[i] = scope
            at[line] = offset + len(part)
        wanted = {"comment": "comment.", "string": "string.", "number": "constant.numeric.", "doc": "comment.block."}
        for token in tokens(text):
            if token.kind in wanted:
                assert scopes[token.start].startswith(wanted[token.kind]), (file.name, token)
            if token.text in ("where", "given", "let", "=>", "and", "not"):
                assert scopes[token.start].startswith("keyword."), (file.name, token)


def test_the_script_is_valid() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    for name in ("extension.js", "tokenize.js"):
        done = subprocess.run([node, "--check", FOLDER / name], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_a_package_without_its_grammar_is_refused(tmp_path: Path) -> None:
    names = ("extension.js", CLIENT, *NEEDED, "snippets/rules.json", "syntaxes/codeblock.json")
    package = tmp_path / "small.vsix"
    with zipfile.ZipFile(package, "w") as archive:
        for name in (*names, "syntaxes/rules.tmLanguage.json"):
            is_ours = name not in (CLIENT, "readme.md", "LICENSE.txt")
            archive.writestr(f"extension/{name}", (FOLDER / name).read_bytes() if is_ours else b"text")
    assert missing(package) == []
    with zipfile.ZipFile(package, "w") as archive:
        for name in names:
            archive.writestr(f"extension/{name}", (FOLDER / "package.json").read_bytes())
    assert missing(package) == ["syntaxes/rules.tmLanguage.json"]
