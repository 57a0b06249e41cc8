"""Choice of a graph by measurement: what is proposed, kept, refused and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from onnx import parser
from rewrite.backend import compile_model
from rewrite.backend.schedules.plan_records import PlanFile, PlanRecord
from rewrite.engine.extraction.plans import PLANS, preference
from rewrite.engine.optimizer import optimize_native
from rewrite.engine.options import PLANS as NAMES
from rewrite.engine.options import Options
from rewrite.errors import UserError
from rewrite.tuning import plan_choice
from rewrite.tuning.measuring_process import CandidateDied, MeasuringProcess

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w1)
    r = Relu(c)
    d = Conv<pads = [1, 1, 1, 1]>(r, w2)
    y = Add(d, x)
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(plan_choice, "PLANS", ("channels-last", "channels-first"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = parser.parse_model(MODEL)
    random = np.random.default_rng(1)
    for name in ("w1", "w2"):
        weights = np.asarray(random.standard_normal((16, 16, 3, 3)) / 8, np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def layouts(path: Path, plan: str) -> set[str]:
    return {node.op for node in optimize_native(path, Options(plan=plan)).native.nodes if "Conv" in node.op}


def timed(monkeypatch: pytest.MonkeyPatch, ratio: float, difference: float = 0.0) -> None:
    """Let measured times be `ratio` for all plans but that of the cost model."""

    def load(self: MeasuringProcess, number: int, bundle: Path, feeds: Mapping[str, Any], seconds: float) -> float:
        assert (bundle / "manifest.json").is_file()
        return difference if number else 0.0

    monkeypatch.setattr(MeasuringProcess, "load", load)
    monkeypatch.setattr(MeasuringProcess, "is_running", True)
    monkeypatch.setattr(MeasuringProcess, "drop", lambda self, number: None)
    monkeypatch.setattr(MeasuringProcess, "compare", lambda *_: (1.0, ratio, {}, {}))


def test_options_name_the_plans_that_extraction_knows() -> None:
    assert tuple(PLANS) == NAMES
    with pytest.raises(UserError, match="unknown plan 'fast'"):
        Options(plan="fast")


def test_a_plan_prices_its_family_otherwise_and_nothing_else() -> None:
    last, none = preference("channels-first"), preference("")
    assert last("rewrite.ChannelsLastConv") > 1
    assert last("Conv") == last("Transpose") == last("MatMul") == 1
    assert {none(op) for op in ("rewrite.ChannelsLastConv", "Conv", "Transpose", "Add")} == {1}


def test_plans_give_other_layouts_and_the_same_results(model: Path) -> None:
    assert layouts(model, "channels-last") == {"rewrite.ChannelsLastConv"}
    assert layouts(model, "channels-first") == {"Conv"}
    x = np.random.default_rng(0).standard_normal((1, 16, 20, 20)).astype(np.float32)
    results = [
        compile_model.compile_optimized(optimize_native(model, Options(plan=plan)), threads=1).run({"x": x})["y"]
        for plan in ("channels-last", "channels-first")
    ]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


def test_the_fastest_plan_is_recorded_and_used_by_later_compiles(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 0.5)
    rewrite.compile(model, threads=1, measure=True)
    [record] = PlanFile().read().values()
    assert record.plan in PLANS
    assert record.ratios[record.plan] == 0.5
    assert record.ratios["model"] == 1.0
    asked: list[str] = []
    original = compile_model.ProgramIdentity.of

    def noted(found: Any, options: Options, *rest: Any) -> Any:
        asked.append(options.plan)
        return original(found, options, *rest)

    monkeypatch.setattr(compile_model.ProgramIdentity, "of", noted)
    rewrite.compile(model, threads=1)
    assert asked[-1] == record.plan
    rewrite.compile(model, threads=1, numerics="exact")  # nothing is recorded for these options
    assert asked[-1] == ""


def test_a_plan_that_is_as_fast_is_not_taken(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 0.99)
    choice = plan_choice.choose_plan(model, Options(), threads=1)
    assert choice.plan == ""
    assert len(choice.plans) > 1
    assert choice.gain == 1.0


def test_wrong_results_and_crashes_are_noted_and_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 0.1, difference=0.5)
    choice = plan_choice.choose_plan(model, Options(), threads=1)
    assert {found.problem for found in choice.plans[1:]} == {"wrong"}
    assert choice.plan == ""

    def crash(*_: object) -> None:
        raise CandidateDied("crash")

    timed(monkeypatch, 0.1)
    monkeypatch.setattr(MeasuringProcess, "compare", crash)
    choice = plan_choice.choose_plan(model, Options(), threads=1)
    assert {found.problem for found in choice.plans[1:]} == {"crash"}
    assert choice.plan == ""


def test_plans_really_run(model: Path) -> None:
    choice = plan_choice.choose_plan(model, Options(), threads=1, most=2)
    assert len(choice.plans) == 2
    assert all(found.measured > 0 and not found.problem for found in choice.plans)
    assert choice.as_json()["measured"][0]["plan"] == ""


def test_damaged_records_are_skipped_with_a_warning() -> None:
    file = PlanFile()
    file.append(PlanRecord("k", "few-moves", {"few-moves": 0.9}))
    with file.path.open("a") as opened:
        opened.write('{"format": 1, "key": "k", "plan": "no such plan", "ratios": {}}\n{"form')
    file.append(PlanRecord("l", "", {}))
    with pytest.warns(UserWarning, match="a damaged record is skipped"):
        found = file.read()
    assert found["k"].plan == "few-moves"
    assert found["l"].plan == ""
