"""Mutation testing of the checker: the mutants, the oracle's verdicts, and that layer 2 agrees on a sample."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.errors import UserError
from rewrite.grammar.library.load import Library
from rewrite.grammar.printing.printer import print_rule
from rewrite.grammar.syntax import ast
from rewrite.soundness import Budget, check_rule
from rewrite.tests.mutation import Mutant, mutants, neighbors, oracle, oracles, search
from rewrite.tests.mutation import score as scoring
from rewrite.tests.mutation.edges import WRAPPERS
from rewrite.tests.mutation.markdown import page
from rewrite.tests.mutation.score import BUDGET, Outcome, RuleScore, line, refusal, score, score_rule
from rewrite.tests.mutation.store import RuleResults

TRANSPOSED = """
rule twice
  Transpose(Transpose(x, perm: p), perm: q)  =>  Transpose(x, perm: [p[i] for i in q])
  class exact
  test fires    x: f32[2, 3, 4], p = [1, 2, 0], q = [0, 2, 1]
"""
SCALED = """
rule scaled
  (x @ W) * k  =>  x @ (W * reshape(k, [size(k)]))
  given W: const [_, _], k: const
  where size(k) == 1 or dim(k, -1) == size(k), rank(x) >= 2
  class reassoc
  test fires    x: f32[2,3], W: const f32[3,4], k: const f32[4]
  test refuses  x: f32[2,3], W: const f32[3,4], k: const f32[2,1]
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_rules()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fewer graphs than a full run has, and an empty cache."""
    monkeypatch.setattr(search, "MOST_GRAPHS", 240)
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path))


def rule(text: str, path: Path) -> ast.Rule:
    file = path / "mine.rules"
    file.write_text(text)
    return next(r for r in load_rules([file]).rules if r.span.file == str(file))


def described(found: list[Mutant]) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for mutant in found:
        kinds.setdefault(mutant.kind, set()).add(mutant.description.rpartition(": ")[2])
    return kinds


def test_mutants_of_a_rule_with_conditions(tmp_path: Path) -> None:
    found = mutants(rule(SCALED, tmp_path))
    kinds = described(found)
    assert {"without const", "any shape"} <= kinds["type weakened"]
    assert "exact for reassoc" in kinds["class strengthened"]
    assert {"of @", "1 and 2 of reshape"} <= kinds["operands swapped"]
    assert "> for >=" in kinds["comparison changed"]
    assert any(d.startswith("without condition 2") for d in kinds["condition dropped"])
    assert {"condition dropped", "variable mistaken", "constant changed", "application dropped"} <= set(kinds)


def test_mutants_at_the_edges(tmp_path: Path) -> None:
    text = """
rule grouped
  Conv(Reshape(x, t), W, ..a)
    =>
  Conv(reshape(x, [dim(x, 0), dim(x, 1), dim(x, 2) * dim(x, 3)]), Slice(W, [0], [2], [0], [1]), ..a)
  class reassoc
"""
    kinds = described(mutants(rule(text, tmp_path)))
    assert set(WRAPPERS) <= kinds.keys()
    assert {"group ignored", "slice reversed", "sizes merged", "sizes reversed", "dim mistaken"} <= kinds.keys()


WITNESSED = ("magnitude raised", "NaN replaced", "axes exchanged", "order reversed", "slightly larger", "sign lost")


def test_the_oracle_and_the_checker_see_the_edges(tmp_path: Path, library: Library, few: None) -> None:
    text = "rule halves\n  x / 2 + y / 2  =>  (x + y) / 2\n  given x: float\n  class reassoc\n"
    original = rule(text + "  test fires    x: f32[3, 3], y: f32[3, 3]\n", tmp_path)
    chosen = [m for m in mutants(original) if m.kind in WITNESSED]
    assert len(chosen) == len(WITNESSED)
    outcomes = score_rule(original, library, chosen=chosen).outcomes
    assert {o.kind: o.caught for o in outcomes} == dict.fromkeys(WITNESSED, "tested")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("attention_guarded", "magnitude raised"),  # beside a constant that the rule wants to be 0
        ("elu_of_parts", "magnitude raised"),  # an intermediate number of the left is infinite
        ("einsum_any_pair", "magnitude lowered"),  # in f16, sums of ordinary numbers are large
        ("abs_mul_abs", "integers narrowed"),  # squares of the limits of a type are small
        ("thresholded_relu", "magnitude raised"),  # beside a constant all of whose numbers are to be 0
        ("attention_choice", "magnitude raised"),  # beside a constant that is to be infinite
        ("leaky_relu_max", "condition dropped"),  # an infinite constant times 0
        ("min_min", "infinity clipped"),  # all constants are infinite
        ("cast_cast", "double rounded"),  # the largest integer of its type
    ],
)
def test_rules_of_unusual_numbers_are_refuted(library: Library, name: str, kind: str) -> None:
    original = next(r for r in library.rules if r.name == name)
    wrong = next(m.rule for m in mutants(original) if m.kind == kind)
    assert check_rule(wrong, library, budget=BUDGET).verdict == "unsound"


def test_attributes_are_altered_in_single_precision() -> None:
    found = list(neighbors._values("epsilon", float(np.float32(0.001))))
    assert found == [float(np.float32(v)) for v in found]


def test_a_score_of_some_mutants_has_other_ones_of_each_rule(tmp_path: Path, few: None) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(TRANSPOSED)
    (whole,) = score([file], std=False)
    (part,) = score([file], std=False, each=3)
    texts = [o.text for o in whole.outcomes]
    at = [texts.index(o.text) for o in part.outcomes]
    assert at == list(range(at[0], len(texts), 3))
    assert at[0] < 3


def test_mutants_are_different_and_always_the_same(tmp_path: Path) -> None:
    original = rule(SCALED, tmp_path)
    texts = [print_rule(m.rule) for m in mutants(original)]
    assert len(set(texts)) == len(texts)
    assert print_rule(original) not in texts
    assert texts == [print_rule(m.rule) for m in mutants(original)]


def test_exchanging_commuting_operands_is_not_a_mutant(tmp_path: Path) -> None:
    found = mutants(
        rule("rule sums\n  x + y + 1  =>  x + (y + 1)\n  class reassoc\n  test fires x: f32[2], y: f32[2]", tmp_path)
    )
    assert "of +" not in described(found).get("operands swapped", set())


def test_the_oracle_finds_the_wrong_order_of_two_permutations(tmp_path: Path, library: Library, few: None) -> None:
    original = rule(TRANSPOSED, tmp_path)
    wrong = rule(TRANSPOSED.replace("[p[i] for i in q]", "[q[i] for i in p]"), tmp_path)
    sound, unsound = oracles(original, [original, wrong], library)
    assert sound.witness is None
    assert sound.compared > 100
    assert unsound.witness is not None
    assert "Transpose(Transpose(" in unsound.witness.graph


def test_the_oracle_finds_a_dropped_condition(tmp_path: Path, library: Library, few: None) -> None:
    original = rule(SCALED, tmp_path)
    assert oracle(original, library) is None
    loose = dataclasses.replace(original, where=original.where[1:])
    assert oracle(loose, library) is not None


def test_the_oracle_sees_lost_bits(tmp_path: Path, library: Library, few: None) -> None:
    text = "rule add_nought\n  x + c  =>  x\n  where all(c == 0)\n  class exact\n  test fires x: f32[2, 3], c = [0]"
    found = oracle(rule(text, tmp_path), library)
    assert found is not None
    assert "-0.0 instead of 0.0" in found.message
    assert oracle(rule(text.replace("exact", "exact signed_zero"), tmp_path), library) is None


def test_static_checks_refuse_what_is_not_bound(tmp_path: Path, library: Library) -> None:
    original = rule(SCALED, tmp_path)
    assert refusal(original, library) == ""
    nonsense = dataclasses.replace(original, rhs=ast.Name(span=original.span, id="nobody"))
    assert refusal(nonsense, library).startswith("unbound-variable")


def test_static_checks_accept_the_rulesets_of_the_library(library: Library) -> None:
    one = next(r for r in library.rules if r.name == "channels_last_conv")
    assert one.joins == "kernels"
    assert refusal(one, library) == ""


def test_results_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(search, "MOST_GRAPHS", 60)
    original = rule(TRANSPOSED, tmp_path)
    chosen = mutants(original)[:3]
    first = score_rule(original, library, chosen=chosen)

    def never(*_: object) -> None:
        raise AssertionError("the result was computed again")

    monkeypatch.setattr("rewrite.tests.mutation.score.oracles", never)
    monkeypatch.setattr("rewrite.tests.mutation.score.checked", never)
    assert score_rule(original, library, chosen=chosen) == first


def test_a_damaged_store_is_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_CACHE_DIR", str(tmp_path))
    store = RuleResults("rule")
    store.put("entry", ["value"])
    store.write(["entry"])
    assert RuleResults("rule").get("entry") == ["value"]
    (file,) = tmp_path.rglob("rule")
    file.write_text("[nonsense")
    assert RuleResults("rule").get("entry") is None


def test_the_score_counts_unsound_mutants(tmp_path: Path) -> None:
    def outcome(caught: str) -> Outcome:
        return Outcome("a.rules", "r", 1, "kind", "what", "text", caught, "evidence")

    found = [outcome(c) for c in ("static", "tested", "tested", "reseeded", "sound", "sound")]
    whole = line("all", found)
    assert (whole.mutants, whole.static, whole.tested, whole.reseeded, whole.sound) == (6, 1, 2, 1, 2)
    assert whole.score == 0.75
    assert line("all", [*found, outcome("missed")]).score == 0.6
    assert line("none", []).score == 1.0
    text = page([RuleScore("r", "a.rules", tuple(found))], 100)
    assert "3 of 4 unsound mutants caught (75.00%)" in text
    assert "refute 1 more: 4 of 4 in all" in text
    assert "kind, what. evidence" in text
    assert "one in" not in text
    assert "one in 5 was scored" in page([RuleScore("r", "a.rules", tuple(found))], 100, 5)


def test_a_mutant_that_one_check_misses_is_checked_with_other_seeds(
    library: Library, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = library.rules[[r.name for r in library.rules].index("add_zero")]
    (mutant,) = (m for m in mutants(rule) if m.kind == "condition dropped")
    asked: list[int] = []

    def checked(rule: ast.Rule, library: Library, budget: Budget = BUDGET) -> tuple[str, str, str]:
        asked.append(budget.seed)
        return ("tested", "x", "") if budget.seed == 2 else ("", "", "")

    monkeypatch.setattr(scoring, "checked", checked)
    (outcome,) = score_rule(rule, library, chosen=[mutant]).outcomes
    assert (outcome.caught, asked) == ("reseeded", [0, 1, 2])
    monkeypatch.setattr(scoring, "SEEDS", (1,))
    assert score_rule(rule, library, chosen=[mutant]).outcomes[0].caught == "missed"


def test_a_masked_score_is_no_reason_to_judge_nothing(library: Library) -> None:
    """It is infinite inside the definition of attention; rules of class fast are judged on it nevertheless."""
    rule = library.rules[[r.name for r in library.rules].index("attention_bf16")]
    (mutant,) = (m for m in mutants(rule) if m.description.endswith("nan_to_zero of AttentionBf16"))
    assert scoring.checked(mutant.rule, library)[0] == "tested"


SAMPLED = 15
"""Rules of which mutants are sampled, four each."""


def sampled(library: Library) -> list[tuple[ast.Rule, list[Mutant]]]:
    rng = random.Random(1)
    rules = rng.sample([r for r in library.rules if r.tests], SAMPLED)
    return [(r, rng.sample(found, min(4, len(found)))) for r in rules if (found := mutants(r))]


def test_every_unsound_mutant_of_a_sample_is_caught(library: Library, few: None) -> None:
    outcomes = [outcome for r, chosen in sampled(library) for outcome in score_rule(r, library, chosen=chosen).outcomes]
    caught = [o for o in outcomes if o.caught in ("static", "tested")]
    missed = [
        f"{o.rule}: {o.kind}, {o.description}: {o.evidence}"
        for o in outcomes
        if o.caught not in ("static", "tested", "sound")
    ]
    assert missed == []
    assert len(caught) > 10


def test_the_command_prints_the_table_and_writes_the_page(
    tmp_path: Path, few: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewrite.cli import console
    from rewrite.tests.mutation import __main__ as mutation

    file = tmp_path / "mine.rules"
    file.write_text(TRANSPOSED)
    report = tmp_path / "page.md"
    monkeypatch.setenv("COLUMNS", "120")  # a narrower table breaks the names of the kinds
    console.out.cache_clear()
    console.err.cache_clear()
    assert mutation.run([f"{file}::twice"], std=False, jobs=1, thorough=False, report=report)
    shown = capsys.readouterr().out
    assert "operands swapped" in shown or "off by one" in shown
    text = report.read_text()
    assert "## Missed\n\nNone." in text
    assert "| all |" in text
    with pytest.raises(UserError, match="has no rule"):
        mutation.run([f"{file}::thrice"], std=False, jobs=1, thorough=False, report=None)


ALLOWED = {
    "one_grid_per_axis": """
rule one_grid_per_axis                         # scale and zero point have one shape: to ask for one rank is enough
  QuantizeLinear(Transpose(x, perm: p), s, z, ..a)  =>  Transpose(QuantizeLinear(x, s, z, ..a), perm: p)
  where rank(s) == 0
  class exact
  test fires    x: f32[2, 3], s: f32 = 0.1, z: u8 = 3, p = [1, 0]
  test refuses  x: f32[2, 3], s: f32 = [0.1, 0.2], z: u8 = [3, 4], p = [1, 0]
""",
    "precision_dropped": """
rule precision_dropped                         # to divide in integers is not allowed
  QuantizeLinear(Clip(x, a, b), s, z, precision: p, ..r)  =>  QuantizeLinear(Clip(x, a, b), s, z, ..r)
  where not p in [10, 16]
  class fast
  test fires    x: f32[2, 3], a: f32 = -1, b: f32 = 26, s: f32 = 0.1, z: u8 = 0, p = 1
""",
    "exponential_undone": """
rule exponential_undone                        # equal in real arithmetic, as log(1 + e^x) is softplus
  Log(Exp(x))  =>  x
  where not is_const(x)
  class reassoc
  test fires    x: f32[2, 3]
""",
    "nothing_in_between": """
rule nothing_in_between                        # a product that is empty is a constant, which the compiler leaves alone
  x @ V @ W  =>  x @ (V @ W)
  given V, W: const [_, _]
  where not is_const(x)
  class reassoc
  test fires    x: f32[2, 3], V: f32[3, 4], W: f32[4, 5]
  test refuses  V: f32[3, 0], x: f32[2, 3] = 1, W: f32[0, 5]
""",
    "as_many_elements": """
rule as_many_elements                          # what has N elements is reshaped to three where N is three, nowhere else
  Size(Reshape(x, t, ..))  =>  Size(x)
  class exact
  test fires    x: f32[N, 3], t: i64 = [-1]
  test refuses in Size(Expand(x, t)) for x: f32[N, 1], t: i64 = [1, 3]
""",
    "scales_multiplied": """
rule scales_multiplied                         # a tie may round the other way
  QuantizeLinear(DequantizeLinear(x, s, y, output_dtype: 0, ..p), u, o, precision: 0, ..q)
    =>
  QuantizeLinear(DequantizeLinear(x, s / u, y, output_dtype: 0, ..p), 1, o, precision: 0, ..q)
  given x: u8, s, u: const f32, o: const u8
  where rank(s) == 0, rank(u) == 0, positive(u)
  class fast
  test fires    x: u8[8, 9], s: f32 = 0.9, y: u8 = 0, u: f32 = 0.2, o: u8 = 2, axis = 1
""",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_the_oracle_accepts_what_the_standard_and_the_class_allow(name: str, library: Library, tmp_path: Path) -> None:
    assert oracle(rule(ALLOWED[name], tmp_path), library) is None


def test_the_oracle_refutes_the_logarithm_of_a_negative_number(library: Library, tmp_path: Path) -> None:
    text = "rule undone\n  Exp(Log(x))  =>  x\n  class reassoc\n  test fires    x: f32[2, 3]\n"
    found = oracle(rule(text, tmp_path), library)
    assert found is not None
    assert "instead of nan" in found.message


LOSS = """
rule mean_loss
  NegativeLogLikelihoodLoss(x, t, reduction: "mean", ignore_index: i)
    =>
  MEAN(NegativeLogLikelihoodLoss(x, t, reduction: "none", ignore_index: i))
  where rank(x) == 2
  class reassoc
  test fires    x: f32[3, 5], t: i64 = [1, 0, 4], i = -1
  test fires    x: f32[3, 5], t: i64 = [1, -1, 4], i = -1
"""


def test_a_target_of_a_loss_is_a_class_or_ignored(library: Library, few: None) -> None:
    assert oracle(next(r for r in library.rules if r.name == "negative_log_likelihood"), library) is None


def test_a_mean_of_losses_is_that_of_those_that_are_counted(tmp_path: Path, library: Library, few: None) -> None:
    losses = 'NegativeLogLikelihoodLoss(x, t, reduction: "none", ignore_index: i)'
    total, number = f"ReduceSum({losses}, [0], keepdims: 0)", "Cast(Not(Equal(t, const(i, dtype(t)))), to: dtype(x))"
    counted = LOSS.replace(f"MEAN({losses})", f"{total} / ReduceSum({number}, [0], keepdims: 0)")
    everything = LOSS.replace(f"MEAN({losses})", f"ReduceMean({losses}, [0], keepdims: 0)")
    assert oracle(rule(counted, tmp_path), library) is None
    assert oracle(rule(everything, tmp_path), library) is not None
