"""`--report` and `explain --egraph`: the page, the same data as JSON, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from rewrite.tests.hostile import EVIL, hostile_model
from rewrite.tests.pages.test_page import Parsed

from .command import rewrite
from .test_json import agrees, described


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    onnx.save(hostile_model(), place / "m.onnx")
    return place


def make(folder: Path, *options: str) -> dict[str, Any]:
    """Write a report and return the results as JSON."""
    done = rewrite("m.onnx", "--report", "out.html", "--json", "out.json", *options, cwd=folder, timeout=280)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


@pytest.mark.slow
def test_the_page_has_the_data_of_json(folder: Path) -> None:
    found = make(folder, "--threads", "2")
    text = (folder / "out.html").read_text()
    assert Parsed(text).data() == {**found, "title": "m.onnx"}
    assert len(text) < 800_000
    agrees({**found, "bench": {}}, described() | described("With `--report`"))
    agrees(found["verify"], described("`verify`:"))
    agrees(found["profile"], described("`rewrite bench MODEL"))
    for one in found["graphs"].values():
        agrees(one, described("A graph:"))
    assert {"model", "program"} == set(found["verify"]["outputs"])
    assert all(set(outputs) == {f"z{EVIL}"} for outputs in found["verify"]["outputs"].values())
    rows = found["profile"]["kernels"]
    assert {span["kernel"] for span in found["timeline"]} <= set(range(len(rows)))
    assert min(span["start"] for span in found["timeline"]) == 0
    memory = found["memory"]
    assert all(b["offset"] + b["size"] <= memory["size"] for b in memory["buffers"])
    assert all(0 <= b["first"] <= b["last"] <= len(memory["steps"]) for b in memory["buffers"])


def test_the_page_is_made_again_after_a_run_from_the_cache(folder: Path) -> None:
    """A cached run has no graphs, so a report does not use it."""
    assert rewrite("m.onnx", cwd=folder).returncode == 0
    assert set(make(folder)["graphs"]) == {"model", "optimized", "native"}


def test_without_times_the_page_is_the_same_each_time(folder: Path) -> None:
    pages = []
    for _ in range(2):
        make(folder, "--emit", "onnx", "--no-verify")
        pages.append(re.sub(r'"seconds":(\{[^}]*\}|[^,}]*)', "", (folder / "out.html").read_text()))
    assert pages[0] == pages[1]


def test_the_forms_of_a_value_as_a_page_and_as_json(folder: Path) -> None:
    for name in ("forms.html", "forms.json"):
        done = rewrite("explain", "m.onnx", "--node", f"block/{EVIL}/Div", "--egraph", name, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "by div_const" in done.stdout
    found = json.loads((folder / "forms.json").read_text())
    data = Parsed((folder / "forms.html").read_text()).data()
    assert {**data, "schema": 2, "model": "m.onnx"} == {**found, "title": "m.onnx"}
    agrees(found, described("`rewrite explain MODEL --egraph"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--egraph", "f.html"), "--egraph needs a node or value"),
        (("--egraph", "f.html", "--node", "nothing"), "no node or value is called 'nothing'"),
        (("--egraph", "nowhere/f.html", "--node", "x"), "no such directory"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: tuple[str, ...], message: str, folder: Path) -> None:
    done = rewrite("explain", "m.onnx", *options, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (folder / "f.html").exists()
