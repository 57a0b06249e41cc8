"""Tuning models: what is recorded, who uses it, and how a search ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import parser
from rewrite.backend.ir.schedule import Point
from rewrite.backend.ir.target import detect
from rewrite.backend.planning.group import standard_policy
from rewrite.backend.runtime.program import Program
from rewrite.backend.schedules.records import Machine, Record, RecordFile, template_version
from rewrite.engine.optimizer import optimize
from rewrite.engine.options import Options
from rewrite.errors import UserError
from rewrite.tuning import tune
from rewrite.tuning.kernels_of_graph import tunable_kernels
from rewrite.tuning.measuring_process import Steps, places
from rewrite.tuning.race import Comparison
from rewrite.tuning.strategies.learned import Ranking

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[60, 48] x) => (float[60, 64] y) { h = MatMul(x, w1)  r = Relu(h)  y = MatMul(r, w2) }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "cache"))


def model(path: Path, text: str = MODEL) -> Path:
    made = parser.parse_model(text)
    random = np.random.default_rng(1)
    for name, shape in (("w1", (48, 56)), ("w2", (56, 64))):
        weights = np.asarray(random.standard_normal(shape) / 8, np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save(made, path)
    return path


def compiled(path: Path) -> Program:
    return rewrite.compile(path, threads=1)


def record_for(path: Path, point: Point) -> None:
    """Record a point for the first kernel of a model."""
    graph = optimize(path, Options()).native
    kernel = tunable_kernels(graph, standard_policy(), detect(), 1, True)[0]
    version = template_version(kernel.space.templates)
    RecordFile().append([Record(Machine.of(detect()), 1, kernel.label, kernel.key, version, point, 9.0, 8.0, 0.0, 0.0)])


def tiles(program: Program) -> list[tuple[int, int]]:
    return [(k.params["tiles"]["mr"], k.params["tiles"]["nv"]) for k in program.plan.kernels if k.template == "gemm"]


def test_later_compiles_use_the_records_and_results_stay(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    x = {"x": np.asarray(np.random.default_rng(2).standard_normal((60, 48)), np.float32)}
    plain = compiled(path)
    assert (5, 2) not in tiles(plain)
    record_for(path, {"tile": "5x2"})
    tuned = compiled(path)  # not the cached program: records are part of its key
    assert tiles(tuned)[0] == (5, 2)
    assert tiles(tuned)[1:] == tiles(plain)[1:]
    np.testing.assert_allclose(tuned.run(x)["y"], plain.run(x)["y"], rtol=1e-5, atol=1e-5)
    record_for(path, {})
    assert tiles(compiled(path)) == tiles(plain)


def test_records_hold_for_their_number_of_threads(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    record_for(path, {"tile": "5x2"})
    assert (5, 2) not in tiles(rewrite.compile(path, threads=2))


def test_a_search_records_what_it_tried_and_goes_on_from_there(tmp_path: Path) -> None:
    path, stages = model(tmp_path / "m.onnx"), []
    found = rewrite.tune(path, seconds=8, threads=1, progress=lambda stage, facts: stages.append(stage))
    assert {row.kernel for row in found.kernels} == {"gemm 60x48x56", "gemm 60x56x64"}
    assert "search" in stages
    assert found.untuned > 0
    assert found.tuned > 0
    assert not found.interrupted
    records = RecordFile().read().latest.values()
    tried = {record.kernel: len(record.tried) for record in records}
    assert max(tried.values()) >= 1
    assert all(record.point in ({}, *(point for point, _ in record.tried)) for record in records)
    again = rewrite.tune(path, seconds=8, threads=1)
    assert sum(row.measured for row in again.kernels) > sum(tried.values())
    for record in RecordFile().read().latest.values():
        points = [str(sorted(point.items())) for point, _ in record.tried]
        assert len(points) == len(set(points)), "a point was measured twice"


def test_a_faster_point_is_recorded_and_counts_for_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison that everything wins stands for one that a point wins, which depends on the machine."""
    path = model(tmp_path / "m.onnx")
    monkeypatch.setattr(tune.Race, "compare", lambda race, point: (Comparison(1e-5, 5e-6, 0.5, 0.0, 0.0), 0.0))
    monkeypatch.setattr(tune.MeasuringProcess, "compare", lambda process, *given: (2e-5, 1e-5, {}, {}))
    monkeypatch.setattr(tune.Race, "run", lambda race, batch, stopped: [tune.Measured(p, 0.5) for p in batch.points])
    found = rewrite.tune(path, seconds=8, threads=1)
    tuned = [row for row in found.kernels if row.point]
    assert tuned
    assert all(row.gain == pytest.approx(2.0) for row in tuned)
    records = RecordFile().read().latest.values()
    assert sorted(r.kernel for r in records if r.point and r.tuned_us == 5.0) == sorted(row.kernel for row in tuned)


def test_a_search_goes_on_where_no_kernel_becomes_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model(tmp_path / "m.onnx")
    monkeypatch.setattr(tune, "PATIENCE", 1)
    monkeypatch.setattr(tune.Race, "run", lambda race, batch, stopped: [tune.Measured(p, 1.0) for p in batch.points])
    found = rewrite.tune(path, seconds=4, threads=1, search="random")
    assert all(row.measured > 4 * tune.BATCH for row in found.kernels)


def test_a_schedule_that_is_slower_inside_the_model_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model(tmp_path / "m.onnx")
    monkeypatch.setattr(tune.Race, "compare", lambda race, point: (Comparison(1e-5, 5e-6, 0.5, 0.0, 0.0), 0.0))
    monkeypatch.setattr(tune.Race, "run", lambda race, batch, stopped: [tune.Measured(p, 0.5) for p in batch.points])
    monkeypatch.setattr(tune, "_SLOWER_INSIDE", 0.0)  # everything is
    found = rewrite.tune(path, seconds=8, threads=1)
    assert all(row.point == {} and row.gain == 1.0 for row in found.kernels)
    assert all(record.point == {} for record in RecordFile().read().latest.values())


def test_schedules_of_a_slower_program_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, compared = model(tmp_path / "m.onnx"), []
    monkeypatch.setattr(tune.Race, "compare", lambda race, point: (Comparison(1e-5, 5e-6, 0.5, 0.0, 0.0), 0.0))
    monkeypatch.setattr(tune.Race, "run", lambda race, batch, stopped: [tune.Measured(p, 0.5) for p in batch.points])

    def slower(process: object, untuned: range, tuned: range, *given: float) -> tuple[float, float, Steps, Steps]:
        compared.append((list(untuned), list(tuned)))
        return 1e-5, 1.001e-5, {}, {}

    monkeypatch.setattr(tune.MeasuringProcess, "compare", slower)
    found = rewrite.tune(path, seconds=8, threads=1)
    assert compared == [([0, 2, 4], [1, 3, 5])]
    assert found.gain == 1.0
    assert all(row.point == {} for row in found.kernels)
    assert all(record.point == {} for record in RecordFile().read().latest.values())


def test_kernels_that_are_slower_inside_are_taken_back_one_comparison_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is compared again."""
    path, inside = model(tmp_path / "m.onnx"), []
    monkeypatch.setattr(tune.Race, "compare", lambda race, point: (Comparison(1e-5, 5e-6, 0.5, 0.0, 0.0), 0.0))
    monkeypatch.setattr(tune.Race, "run", lambda race, batch, stopped: [tune.Measured(p, 0.5) for p in batch.points])
    profile = tune.MeasuringProcess.profile

    def profiled(process: tune.MeasuringProcess, *given: int) -> tuple[float, Steps]:
        whole, steps = profile(process, *given)
        inside.append(steps)
        return whole, steps

    def compared(process: object, *given: object) -> tuple[float, float, Steps, Steps]:
        before = dict.fromkeys(inside[0], 1e-5)
        slow = min(before) if len(inside) == 1 else None  # one group, at the first comparison only
        inside.append({})
        return 3e-5, 2e-5, before, {names: 2e-5 if names == slow else 1e-5 for names in before}

    monkeypatch.setattr(tune.MeasuringProcess, "profile", profiled)
    monkeypatch.setattr(tune.MeasuringProcess, "compare", compared)
    found = rewrite.tune(path, seconds=8, threads=1)
    assert len(inside) == 3  # the profile, and two comparisons
    assert sorted(bool(row.point) for row in found.kernels) == [False, True]
    assert found.gain == pytest.approx(1.5)


def test_large_models_are_compared_in_fewer_copies(tmp_path: Path) -> None:
    weights = tmp_path / "kernels" / "weights.bin"
    weights.parent.mkdir()
    for megabytes, copies in ((1, 3), (150, 2), (300, 1), (3000, 1)):
        with weights.open("wb") as file:
            file.truncate(megabytes << 20)
        assert list(map(len, places(tmp_path))) == [copies, copies]


def test_records_of_other_kernels_teach_the_learned_model(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    path = model(tmp_path / "m.onnx")
    first = rewrite.tune(path, seconds=8, threads=1, search="guided")
    assert first.search == "guided"
    assert first.history[-1][1] == sum(row.measured for row in first.kernels)
    other = optimize(model(tmp_path / "other.onnx", MODEL.replace("60", "35")), Options()).native
    kernels = tunable_kernels(other, standard_policy(), detect(), 1, True)
    ranking, file = Ranking(), RecordFile().read()
    tune._learn(ranking, kernels, file)
    assert ranking.count == sum(len(record.tried) for record in file.latest.values()) > 0
    own = tunable_kernels(optimize(path, Options()).native, standard_policy(), detect(), 1, True)
    again = Ranking()
    tune._learn(again, own, file)  # its own measurements come from the searches
    assert again.count == 0


def test_an_unknown_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no search 'magic'"):
        rewrite.tune(model(tmp_path / "m.onnx"), seconds=1, search="magic")


def test_an_interrupt_keeps_what_was_found(tmp_path: Path) -> None:
    path, searches = model(tmp_path / "m.onnx"), 0

    def interrupt(stage: str, facts: Mapping[str, Any]) -> None:
        nonlocal searches
        searches += stage == "search"
        if searches == 3:
            raise KeyboardInterrupt

    found = rewrite.tune(path, seconds=60, threads=1, progress=interrupt)
    assert found.interrupted
    assert found.seconds < 50
    assert sum(len(record.tried) for record in RecordFile().read().latest.values()) >= 12


def test_a_model_of_free_sizes_asks_for_them(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", MODEL.replace("60", "N"))
    with pytest.raises(UserError, match="no kernel of this model") as raised:
        rewrite.tune(path, seconds=1, threads=1)
    assert "--shape" in raised.value.hint
    assert rewrite.tune(path, seconds=1, threads=1, shapes={"N": 60}).kernels


def test_a_target_that_does_not_run_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot run kernels for 'neon'"):
        rewrite.tune(model(tmp_path / "m.onnx"), seconds=1, target="neon")


def test_the_hint_is_about_free_sizes_only_where_fixing_them_helps(tmp_path: Path) -> None:
    elementwise = "net (float[N, 48] x) => (float[N, 48] y) { y = Relu(x) }"
    product = "net (float[N, 48] x) => (float[N, 56] y) { y = MatMul(x, w1) }"
    for body, hint in ((elementwise, "follow formulas, whatever the sizes"), (product, "Fix free ones")):
        path = model(tmp_path / "m.onnx", f'<ir_version: 10, opset_import: ["" : 21]> {body}')
        with pytest.raises(UserError, match="no kernel of this model has a schedule") as error:
            rewrite.tune(path, seconds=1)
        assert hint in str(error.value)
