"""`check_rule` refutes the wrong rules of the gallery with small counterexamples, and passes the others."""

from __future__ import annotations

import dataclasses
import gc
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.rewriting.rule_library import load_rules, recognitions
from rewrite.grammar.library.load import Library
from rewrite.grammar.syntax import ast
from rewrite.grammar.syntax.parse import parse_text
from rewrite.soundness import Budget, RuleReport, check, check_rule
from rewrite.soundness.checking import check_rule as checker
from rewrite.soundness.checking.report import write_reproducer
from rewrite.soundness.checking.run_instances import Difference, Outcome, run
from rewrite.soundness.prover import Proof
from rewrite.soundness.sampling.instance import Instance
from rewrite.soundness.sampling.seeds import sample_pattern, seeds
from rewrite.soundness.sampling.subject import Subject, subjects

from .gallery import SOUND, UNSOUND


def _names(text: str) -> list[str]:
    return [item.name for item in parse_text(text, "gallery.rules").items if isinstance(item, ast.Rule)]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("gallery")
    for name, text in (("sound.rules", SOUND), ("unsound.rules", UNSOUND)):
        (folder / name).write_text(text)
    return load_rules([folder])


def _rule(library: Library, name: str) -> ast.Rule:
    return next(rule for rule in library.rules if rule.name == name and "gallery" in rule.span.file)


@cache
def _report(library: Library, name: str) -> RuleReport:
    return check_rule(_rule(library, name), library, budget=Budget(instances=200, seconds=60, shrink_seconds=20))


@pytest.mark.parametrize("name", [n for n in _names(UNSOUND) if n != "never_fires"])
def test_an_unsound_rule_is_caught_and_its_counterexample_small(library: Library, name: str) -> None:
    report = _report(library, name)
    found = report.counterexample
    assert report.verdict == "unsound", report
    assert not report.ok
    assert found is not None
    assert sum(array.size for array in found.inputs.values()) <= 24, found.operands
    assert found.message
    assert found.operands
    assert "=>" in found.model
    assert "=>" in found.rewritten
    different = found.left.shape != found.right.shape or not np.array_equal(found.left, found.right)
    assert different or np.signbit(found.left).tolist() != np.signbit(found.right).tolist()


@pytest.mark.parametrize("name", _names(SOUND))
def test_a_sound_rule_passes(library: Library, name: str) -> None:
    report = _report(library, name)
    assert report.ok, report
    assert report.layer == 2
    assert report.fired >= 10
    assert report.instances > report.fired or report.near_misses == 0


@pytest.mark.parametrize("name", ["global_lp_pool", "write_rms_norm"])
def test_powers_inside_an_operator_may_leave_the_range(name: str) -> None:
    """Cubes overflow before squares do, and squares of small numbers underflow; neither shows in a result."""
    standard = load_rules()
    rule = next(rule for rule in standard.rules if rule.name == name)
    report = check_rule(rule, standard, budget=Budget(instances=500, seconds=60))
    assert report.verdict == "sound", report


def test_a_rule_that_never_fires_fails(library: Library) -> None:
    report = _report(library, "never_fires")
    assert report.verdict == "vacuous"
    assert not report.ok
    assert report.layer == 1


@pytest.mark.parametrize(("fired", "instances", "verdict"), [(3, 300, "weak"), (3, 40, "sound"), (9, 300, "sound")])
def test_a_rule_that_hardly_ever_fires_is_not_sound(fired: int, instances: int, verdict: str) -> None:
    tally = checker._Tally(instances=instances, fired=fired, compared=fired)
    problems = tuple(tally.problems())
    report = RuleReport("rare", "a.rules", 1, "exact", 1 if problems else 2, instances, fired, 0, 0.0, None, problems)
    assert report.verdict == verdict
    assert report.ok == (verdict == "sound")


def test_a_wrong_rule_without_tests_is_caught(library: Library) -> None:
    for name in ("transposes_backwards", "choice_is_min", "relu_past_neg", "casts_joined", "quotient_undone"):
        rule = dataclasses.replace(_rule(library, name), tests=())
        assert check_rule(rule, library, budget=Budget(instances=200, seconds=60)).verdict == "unsound", name


def _proved(rule: ast.Rule, library: Library) -> checker.Answer:
    answer = checker.Answer(rule, library)
    answer.__dict__["found"] = Proof(rule.name, None, (), 1)
    return answer


def test_a_proof_spares_edits(library: Library) -> None:
    rule = _rule(library, "my_transposes")
    budget = Budget(instances=200, seconds=60)
    full, spared = (check_rule(rule, library, budget=budget, answer=a) for a in (None, _proved(rule, library)))
    assert spared.ok
    assert spared.instances < 0.7 * full.instances
    assert spared.fired >= checker.LEAST_FIRED


def test_random_edits_end_where_none_makes_a_new_instance(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def same(search: Any) -> Instance:
        tried.append(search)
        found: Instance = search.fired[0]
        return found

    monkeypatch.setattr(checker._Search, "_edited", same)
    report = check_rule(_rule(library, "my_transposes"), library, budget=Budget(instances=200, seconds=60))
    assert len(tried) == checker.TRIES * max(200 - report.instances, checker.SAMPLED)


def test_a_proof_does_not_hide_a_counterexample(library: Library) -> None:
    for name in ("transposes_backwards", "choice_is_min", "relu_past_neg", "casts_joined", "quotient_undone"):
        rule = _rule(library, name)
        report = check_rule(rule, library, budget=Budget(instances=200, seconds=60), answer=_proved(rule, library))
        assert report.verdict == "unsound", name
        assert not report.proof


def test_a_definition_is_proved_whatever_the_check_declares() -> None:
    pytest.importorskip("z3")
    library = load_rules()
    rule = next(r for r in recognitions(library) if r.name == "recognize_com.microsoft.Gelu")
    (report,) = check(library, [rule], budget=Budget(instances=40, seconds=60), workers=1)
    assert report.layer == 3, report.proof


def test_edited_instances_are_computed_on_half_of_the_values(library: Library) -> None:
    subject = subjects(_rule(library, "my_transposes"), library)[0]
    own = next(seeds(subject))
    others = list(permutations(range(3)))[1:]
    edited = [dataclasses.replace(own, operands={**own.operands, "p": list(p)}, steps=1) for p in others]
    all_values, half = (
        [o.compared for o in run(subject, [own, *edited], alternating=a).outcomes] for a in (False, True)
    )
    assert half[0] == all_values[0]  # tests are computed on all values
    assert all(some < every for some, every in zip(half[1:], all_values[1:], strict=True))


def test_an_e_graph_of_instances_is_freed_without_the_garbage_collector(library: Library) -> None:
    standard = {rule.name: rule for rule in load_rules().rules}
    for rule in (_rule(library, "my_transposes"), standard["conv_transpose_add"]):  # the latter has undefined values
        subject = subjects(rule, library)[0]
        instances = [*seeds(subject), *sample_pattern(subject, np.random.default_rng(0), 24)]
        gc.collect()
        before = {id(found) for found in gc.get_objects() if isinstance(found, EGraph)}
        gc.disable()
        try:
            assert any(outcome.fired for outcome in run(subject, instances).outcomes)
            after = {id(found) for found in gc.get_objects() if isinstance(found, EGraph)}
            assert after <= before, rule.name
        finally:
            gc.enable()


def test_the_same_seed_gives_the_same_report(library: Library) -> None:
    rule = _rule(library, "quotient_undone")
    budget = Budget(instances=60, seconds=60, shrink_seconds=60)
    one, other = (check_rule(rule, library, budget=budget) for _ in range(2))
    assert one.counterexample is not None
    assert other.counterexample is not None
    assert (one.counterexample.operands, one.counterexample.model) == (
        other.counterexample.operands, other.counterexample.model,
    )  # fmt: skip
    assert (one.instances, one.fired, one.near_misses) == (other.instances, other.fired, other.near_misses)


def test_a_claim_that_is_too_weak_is_noted(library: Library) -> None:
    rule = dataclasses.replace(_rule(library, "my_transposes"), numerics="reassoc")
    report = check_rule(rule, library, budget=Budget(instances=200, seconds=60))
    assert report.ok
    assert any("exact" in note for note in report.notes)


def test_operators_with_a_definition_are_checked_as_rules(library: Library) -> None:
    rules = {rule.name: rule for rule in recognitions(library)}
    report = check_rule(rules["recognize_Gelu"], library, budget=Budget(instances=200, seconds=60))
    assert report.fired


def test_reports_are_cached_until_something_changes(library: Library, tmp_path: Path) -> None:
    rule = _rule(library, "my_untested")
    budget = Budget(instances=40, seconds=60)
    first = check(library, [rule], budget=budget, workers=1, prove=False, cache=tmp_path)
    again = check(library, [rule], budget=budget, workers=1, prove=False, cache=tmp_path)
    assert first == again  # the time it took, too
    changed = dataclasses.replace(rule, numerics="reassoc")
    other = check(library, [changed], budget=budget, workers=1, prove=False, cache=tmp_path)
    assert other[0].numerics == "reassoc"
    for path in (tmp_path / "soundness").iterdir():
        path.write_text("damaged")
    assert check(library, [rule], budget=budget, workers=1, prove=False, cache=tmp_path)[0].ok


def test_several_processes_give_the_same_reports(library: Library) -> None:
    rules = [_rule(library, name) for name in ("my_untested", "my_either", "not_of_less")]
    budget = Budget(instances=40, seconds=60, shrink_seconds=60)
    seen: list[str] = []
    reports = check(library, rules, budget=budget, workers=2, prove=False, progress=lambda r: seen.append(r.name))
    assert [r.name for r in reports] == ["my_untested", "my_either", "not_of_less"] == seen
    assert [r.ok for r in reports] == [True, True, False]


def test_a_reproducer_holds_both_models_and_their_outputs(library: Library, tmp_path: Path) -> None:
    report = _report(library, "transposes_backwards")
    assert report.counterexample is not None
    paths = write_reproducer(tmp_path, report)
    assert [p.name for p in paths] == [f"transposes_backwards.{s}" for s in ("left.onnx", "right.onnx", "npz")]
    arrays = np.load(tmp_path / "transposes_backwards.npz")
    feeds = {name: arrays[f"input_{name}"] for name in report.counterexample.inputs}
    for side in ("left", "right"):
        model = onnx.load(tmp_path / f"transposes_backwards.{side}.onnx")
        onnx.checker.check_model(model)
        computed = onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]
        np.testing.assert_array_equal(computed, arrays[side])


def test_the_operands_of_a_counterexample_are_a_test(library: Library, tmp_path: Path) -> None:
    found = _report(library, "quotient_undone").counterexample
    assert found is not None
    text = f"rule again\n  (x / c) * c => x\n  given x: integer\n  class exact\n  test refuses {found.operands}\n"
    path = tmp_path / "again.rules"
    path.write_text(text)
    assert load_rules([path]).rules[-1].tests[0].operands


def test_a_difference_that_depends_on_other_instances_is_not_a_counterexample(library: Library) -> None:
    def outcome_of(name: str) -> tuple[Subject, Outcome]:
        subject = subjects(_rule(library, name), library)[0]
        return subject, run(subject, [next(seeds(subject))]).outcomes[0]

    nothing = np.zeros(0, np.float32)
    blamed = Difference(0, 0, {}, nothing, nothing, "of another's empty tensor")
    subject, outcome = outcome_of("my_transposes")
    assert checker.confirmed(subject, [dataclasses.replace(outcome, difference=blamed)], Budget()) is None
    subject, outcome = outcome_of("products_in_wrong_order")
    found = checker.confirmed(subject, [dataclasses.replace(outcome, difference=blamed)], Budget())
    assert found is not None
    assert found.difference is not None
    assert found.difference.message != blamed.message
