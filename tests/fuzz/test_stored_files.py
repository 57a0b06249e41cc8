"""A few damaged bundles and caches; `python -m tests.fuzz.stored_files` runs many."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from . import stored_files
from .stored_files import Originals


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    found = Originals(tmp_path_factory.mktemp("originals"))
    found.make()
    return found


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_damaged_bundles(originals: Originals, first: int) -> None:
    for seed in range(first, first + 20):
        done, problem = stored_files.case(originals, seed, "bundles")
        assert not problem, f"{seed}: {done}\n{problem}"


@pytest.mark.parametrize("name", ["counted", "layers", "loop"])
def test_numbers_changed_on_purpose(originals: Originals, name: str) -> None:
    """A manifest whose checksum was computed again is refused or runs; no kernel leaves its buffers for it."""
    for done, text in list(stored_files.number_cases(originals, name))[:: 11 if name == "layers" else 17]:
        problem = stored_files.number_case(originals, name, text)
        assert not problem, f"{done}\n{problem}"


@pytest.mark.parametrize("seed", range(2))
def test_damaged_caches(originals: Originals, seed: int) -> None:
    done, problem = stored_files.case(originals, seed, "caches")
    assert not problem, f"{done}\n{problem}"


def test_wrong_results_are_noticed(originals: Originals, tmp_path: Path) -> None:
    changed = Originals(tmp_path)
    results = {name: array + 1 for name, array in originals.results("layers").items()}
    np.savez(tmp_path / "layers.npz", **results)
    bundle = originals.bundle("layers")
    assert "AssertionError" in stored_files.in_child(lambda: stored_files.bundle_case(changed, "layers", bundle))
    assert "ended with -9" in stored_files.in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_damage_is_reproducible(originals: Originals, tmp_path: Path) -> None:
    texts = []
    for number in range(2):
        copy = tmp_path / str(number)
        shutil.copytree(originals.bundle("loop"), copy)
        rng = random.Random(5)
        texts.append([stored_files.damage(rng, copy) for _ in range(30)])
    assert texts[0] == texts[1]
    assert len({text.partition(": ")[2] for text in texts[0]}) > 5
