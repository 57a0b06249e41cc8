"""Structure of the source tree: no import circles, folders and files of readable size, unique names in each room."""

from __future__ import annotations

import graphlib
from collections import Counter
from pathlib import Path

import grimp
import pytest
import rewrite

ROOT = Path(rewrite.__file__).parent
FLOORS = (
    "system",
    "pages",
    "grammar",
    "engine",
    "soundness",
    "backend",
    "tuning",
    "frontends",
    "cli",
    "ort",
    "torch_backend",
)
FILES = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
MOST_FILES, MOST_LINES = 22, 500


def room(path: Path) -> str:
    """Room of a file: a floor, or a folder of the engine or the backend; each kind of kernel is a room."""
    parts = path.relative_to(ROOT).parts[:-1]
    depth = {"engine": 2, "backend": 3 if parts[1:2] == ("kernels",) else 2, "grammar": 2}.get(parts[0], 1)
    return "/".join(parts[:depth])


def test_there_is_no_import_circle() -> None:
    graph = grimp.build_graph("rewrite", cache_dir=None)
    arrows = {
        module: graph.find_modules_directly_imported_by(module) - {module}
        for module in graph.modules
        if not module.startswith(("rewrite.tests", "rewrite.benchmarks"))
    }
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_folders_are_not_drawers() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in FILES if path.name != "__init__.py")
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_a_long_file_states_its_reason() -> None:
    """The docstring of a file past the limit has a line that begins with `Length:`."""
    long = [path for path in FILES if path.read_text(encoding="utf-8").count("\n") > MOST_LINES]
    assert [path.relative_to(ROOT).as_posix() for path in long if "\nLength: " not in path.read_text("utf-8")] == []


def test_names_of_files_are_unique_within_a_room() -> None:
    names = Counter((room(path), path.name) for path in FILES if path.name != "__init__.py")
    assert [key for key, n in names.items() if n > 1] == []


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=lambda p: p.parent.name)
def test_each_folder_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert len(text.split('"""')[1].split()) > 8, "what is its job, what goes in, what comes out?"
