"""Pages in a real browser: they draw their data, and names of a model stay text."""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path

import pytest
import rewrite
from rewrite.engine.options import Options
from rewrite.engine.pictures import egraph_data
from rewrite.pages.page import KINDS, LIBRARIES, Page, make_page
from rewrite.tests.hostile import EVIL, hostile_model

from .test_page import Parsed

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=8000", "--window-size=1400,900",
)  # fmt: skip
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def drawn(kind: str, page: Page, folder: Path, tab: str = "") -> Parsed:
    """Return the document that a browser makes of a page; no name became an element or a handler."""
    assert CHROMIUM is not None
    file = page.save(folder / "page.html")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"{file.as_uri()}#{tab}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = Parsed(done.stdout)
    tags = [tag for tag, _ in found.tags]
    assert "img" not in tags
    assert tags.count("script") == 1 + len(LIBRARIES) + len(KINDS[kind])
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert found.text("title") != "broken"
    return found


def classes(document: Parsed, name: str) -> int:
    """The number of elements with a class."""
    return sum(name in (attributes.get("class") or "").split() for _, attributes in document.tags)


@pytest.fixture(scope="module")
def result() -> rewrite.engine.optimizer.Optimized:
    return rewrite.optimize(hostile_model())


@pytest.mark.slow
def test_the_graphs_are_drawn_with_their_rules(result: rewrite.engine.optimizer.Optimized, tmp_path: Path) -> None:
    document = drawn("report", result.page(), tmp_path)
    assert classes(document, "node") == 4 + len(result.portable.nodes)
    assert {"matmul_mul", "4 nodes", "MatMul", f"4 → {len(result.portable.nodes)}"} <= set(document.texts.values())


@pytest.mark.slow
def test_a_graph_with_fewer_nodes_than_the_file_says_so(data: dict[str, object], tmp_path: Path) -> None:
    document = drawn("report", make_page("report", EVIL, {**data, "nodes_before": 9}), tmp_path)
    assert "4 nodes, 9 in the file" in document.texts.values()


@pytest.mark.slow
def test_kernels_that_did_not_run_have_no_rates(data: dict[str, object], tmp_path: Path) -> None:
    changed = copy.deepcopy(data)
    for kernel in changed["profile"]["kernels"]:  # type: ignore[index]
        kernel["seconds"] = 0.0
    text = drawn("report", make_page("report", EVIL, changed), tmp_path, "timeline").text()
    assert "first node" in text
    assert "Infinity" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tab", "text"),
    [("cost", "By kernel"), ("timeline", "thread 0"), ("roofline", "flop/s"), ("memory", "Weights take"),
     ("rules", "in the result (1)"), ("run", "e-nodes")],
)  # fmt: skip
def test_each_tab_is_drawn(
    tab: str, text: str, result: rewrite.engine.optimizer.Optimized, data: dict[str, object], tmp_path: Path
) -> None:
    document = drawn("report", make_page("report", EVIL, data), tmp_path, tab)
    assert ("section", {"id": tab, "class": "prose open"}) in document.tags
    assert text in document.text()


@pytest.fixture(scope="module")
def data(result: rewrite.engine.optimizer.Optimized) -> dict[str, object]:
    import numpy as np

    program = rewrite.compile(hostile_model(), threads=1)
    profile = program.profile({f"x{EVIL}": np.ones((2, 8), np.float32)}, seconds=0.05)
    return {**result.report.as_json(), **result.pictures(), **program.pictures(profile)}


@pytest.mark.slow
def test_the_forms_of_a_value_are_drawn(tmp_path: Path) -> None:
    found = egraph_data.explore(hostile_model(), Options(), "portable")
    data = egraph_data.egraph_data(found, f"z{EVIL}", 2)
    document = drawn("egraph", make_page("egraph", EVIL, data), tmp_path)
    assert classes(document, "eclass") == sum(not c["constant"] for c in data["classes"])
    assert "was chosen" in document.text() or "only form" in document.text()


@pytest.mark.slow
def test_the_types_of_several_outputs_are_told_apart(tmp_path: Path) -> None:
    data = egraph_data.egraph_data(egraph_data.explore(hostile_model(), Options(), "portable"), f"z{EVIL}", 2)
    [asked_for] = [c for c in data["classes"] if c["id"] == data["root"]]
    asked_for["type"] = "f32[2, min(512,n)], i64[3]"
    document = drawn("egraph", make_page("egraph", EVIL, data), tmp_path)
    assert "2×min(512,n), 3 i64" in document.texts.values()
