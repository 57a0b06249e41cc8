"""Measuring: candidates that crash, hang or compute something else are data, and the others are measured on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.backend.bundle.manifest import sealed
from rewrite.backend.bundle.save_bundle import save
from rewrite.backend.compile_graph import compile_graph
from rewrite.backend.ir.schedule import DEFAULT, Point
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.benchmarks import harness
from rewrite.engine.ir.graph import Node
from rewrite.engine.verification.random_inputs import make_inputs
from rewrite.errors import RewriteError
from rewrite.system.compiler import c_compilers
from rewrite.system.file_contents import size_and_crc
from rewrite.tuning.kernels_of_graph import TunableKernel, tunable_kernels
from rewrite.tuning.measuring_process import CandidateDied, MeasuringProcess
from rewrite.tuning.race import Race

BODIES = {"crash": "*(volatile int *)0 = 1;", "timeout": 'for (;;) __asm__ volatile("");', "wrong": ""}
"""What a kernel does in the place of its work."""


def kernel() -> TunableKernel:
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    random = np.random.default_rng(3)
    x, w = (np.asarray(random.standard_normal(shape), np.float32) for shape in ((90, 64), (64, 80)))
    graph = harness.make_graph([node], {"x": x}, constants={"w": w})
    [found] = tunable_kernels(graph, standard_policy(), detect(), 1, True)
    return found


def bundle(folder: Path, name: str, body: str | None = None) -> Path:
    """Save the product as a bundle; with a `body` its kernels do that."""
    program = compile_graph(kernel().graph, threads=1, cache_dir=folder / "cache")
    made = save(program.variants, folder / name, threads=1, cache_dir=folder / "cache")
    return made if body is None else spoil(made, body)


def spoil(made: Path, body: str) -> Path:
    """Give the kernels of a bundle another body."""
    manifest = json.loads((made / "manifest.json").read_text())
    [variant] = manifest["variants"]
    [module] = variant["modules"]
    names = list(variant["kernels"])
    functions = "".join(f"void {name}(void **b, const long *d, int t, int n) {{ {body} }}\n" for name in names)
    rows = ", ".join(f'{{"{name}", {name}}}' for name in names)
    entry = "typedef struct { const char *name; void (*run)(void **, const long *, int, int); } k_entry;\n"
    source = made / "spoiled.c"
    source.write_text(
        f"{entry}{functions}const k_entry k_table[] = {{ {rows} }};\nconst long k_count = {len(names)};\n"
    )
    (made / f"kernels/{module}.so").unlink()
    other = f"spoiled{abs(hash(body)) % 10**9}"
    path = made / f"kernels/{other}.so"
    subprocess.run([*c_compilers()[0], "-O1", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    source.unlink()
    variant["modules"] = [other]
    del manifest["files"][f"kernels/{module}.so"]
    manifest["files"][f"kernels/{other}.so"] = size_and_crc(path)
    (made / "manifest.json").write_bytes(sealed(manifest))
    return made


@pytest.fixture
def process() -> Iterator[MeasuringProcess]:
    with MeasuringProcess([], 1 << 20) as found:
        yield found


def test_candidates_run_in_turn(process: MeasuringProcess, tmp_path: Path) -> None:
    feeds = make_inputs(kernel().graph, {})
    assert process.load(0, bundle(tmp_path, "default"), feeds, 60) == 0.0
    assert process.load(1, bundle(tmp_path, "other"), feeds, 60) == 0.0
    times = process.time([0, 1], 6, 60)
    assert [len(times[number]) for number in (0, 1)] == [6, 6]
    assert all(seconds > 0 for own in times.values() for seconds in own)
    process.drop(1)
    with pytest.raises(RewriteError, match="KeyError"):
        process.time([1], 1, 60)


@pytest.mark.parametrize("end", ["crash", "timeout"])
def test_a_candidate_that_ends_the_process_is_named(process: MeasuringProcess, tmp_path: Path, end: str) -> None:
    feeds = make_inputs(kernel().graph, {})
    good = bundle(tmp_path, "default")
    process.load(0, good, feeds, 60)
    with pytest.raises(CandidateDied) as died:
        process.load(1, bundle(tmp_path, end, BODIES[end]), feeds, 3)
    assert died.value.reason == end
    assert not process.is_running
    assert process.load(0, good, feeds, 60) == 0.0  # in a new process


def test_other_results_are_seen(process: MeasuringProcess, tmp_path: Path) -> None:
    feeds = make_inputs(kernel().graph, {})
    process.load(0, bundle(tmp_path, "default"), feeds, 60)
    assert process.load(1, bundle(tmp_path, "wrong", BODIES["wrong"]), feeds, 60) > 0.5


class Spoiled(Race):
    """A race in which the candidates of some steps of `near` are spoiled."""

    def _build(self, point: Point, number: int) -> Path:
        made = super()._build(point, number)
        end = {8: "crash", 16: "timeout", 32: "wrong"}.get(int(point.get("near", 0))) if "tile" not in point else None
        return made if end is None else spoil(made, BODIES[end])


def outcomes(race: Race, points: Sequence[Point]) -> dict[str, Any]:
    return {str(sorted(found.point.items())): found for found in race.run(points)}


def test_a_race_goes_on_without_those_that_fail(
    process: MeasuringProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewrite.tuning.race._LOADING", 10.0)
    folder = tmp_path / "race"
    folder.mkdir()
    feeds = make_inputs(kernel().graph, {})
    settings = {"threads": 1, "target": "native", "reassociate": True, "library": None}
    race = Spoiled(kernel(), process, folder, feeds, **settings)  # type: ignore[arg-type]
    points: list[Point] = [{"tile": "4x2"}, {"near": 8}, {"tile": "5x2"}, {"near": 16}, {"near": 32}, {"tile": "6x2"}]
    found = race.run(points)
    assert len(found) == 6
    named = {str(measured.point): measured.outcome for measured in found}
    assert named == dict(zip(map(str, points), ["", "crash", "", "timeout", "wrong", ""], strict=True))
    assert all((measured.ratio < 100) == (measured.outcome == "") for measured in found)
    assert [path.name for path in folder.iterdir()] == ["0.rewrite"]  # the others are removed
    assert race.compare({"near": 8}) is None
    compared = race.compare(DEFAULT)
    assert compared is not None
    assert compared[1] == 0.0


def test_a_candidate_that_dies_late_is_noted(
    process: MeasuringProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "race").mkdir()
    feeds = make_inputs(kernel().graph, {})
    settings = {"threads": 1, "target": "native", "reassociate": True, "library": None}
    race = Race(kernel(), process, tmp_path / "race", feeds, **settings)  # type: ignore[arg-type]
    timed = process.time

    def dies(numbers: Sequence[int], rounds: int, seconds: float) -> dict[int, list[float]]:
        if len(numbers) > 1:
            process.stop()
            raise CandidateDied("crash")
        return timed(numbers, rounds, seconds)

    monkeypatch.setattr(process, "time", dies)
    assert [found.outcome for found in race.run([{"tile": "4x2"}, {"tile": "5x2"}])] == ["crash", "crash"]
    assert race.compare({"tile": "4x2"}) is None
    monkeypatch.setattr(process, "time", timed)
    assert [found.outcome for found in race.run([{"tile": "6x2"}])] == [""]


def test_a_race_stops_when_asked(process: MeasuringProcess, tmp_path: Path) -> None:
    (tmp_path / "race").mkdir()
    feeds = make_inputs(kernel().graph, {})
    settings = {"threads": 1, "target": "native", "reassociate": True, "library": None}
    race = Race(kernel(), process, tmp_path / "race", feeds, **settings)  # type: ignore[arg-type]
    assert race.run([{"tile": "4x2"}], stopped=lambda: True) == []
