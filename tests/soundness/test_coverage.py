"""What a pattern admits, and which of it the instances reached on which a rule fired."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.ir.graph import DType
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.soundness import Budget, check_rule
from rewrite.soundness.checking.coverage import Coverage
from rewrite.soundness.sampling.instance import Instance, Tensor
from rewrite.soundness.sampling.seeds import seeds
from rewrite.soundness.sampling.subject import Subject, subjects

RULES = """
rule sliced_twice                              # one begin is stated, so it cannot be negative
  Slice(Slice(x, [0], [e], [a], [1]), [c], [f], [a], [t])  =>  Slice(x, [c], [f], [a], [t])
  where e > 99, f < 99
  class exact
  test fires    x: f32[4,2], e = 100, a = 0, c = 1, f = 3, t = 1

rule product_of_sum
  x @ y + x @ z  =>  x @ (y + z)
  given x: float
  where shape(y) == shape(z)
  class reassoc
  test fires    x: f32[2,3], y: f32[3,4], z: f32[3,4]

rule scaled_conv
  Conv(x, W, pads: p, ..a) * k  =>  Conv(x, W * k, pads: p, ..a)
  given W: const, k: const scalar
  where rank(k) == 0
  class reassoc
  test fires    x: f32[1,2,5,5], W: const f32[4,2,3,3], p = [0,0,0,0], k: f32 = 2

rule one_shape_only                            # nothing but its own test
  Relu(Relu(x))  =>  Relu(x)
  where shape(x) == [2, 3], dtype(x) == f32
  class exact
  test fires    x: f32[2,3]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    path = tmp_path_factory.mktemp("rules") / "own.rules"
    path.write_text(RULES)
    library = load_rules([path])
    return {r.name: subjects(r, library)[0] for r in library.rules if Path(r.span.file) == path}


def _missing(subject: Subject, *instances: Instance) -> list[str]:
    coverage = Coverage()
    coverage.add(subject, instances)
    return coverage.missing()


def test_only_what_the_pattern_leaves_open_is_asked_for(found: dict[str, Subject]) -> None:
    subject = found["sliced_twice"]
    first = next(seeds(subject))
    missing = _missing(subject, first)
    assert "a Slice that runs backwards" in missing
    assert "a Slice that begins at the end" in missing
    backwards = first.replace(t=-1, c=-1)
    assert "a Slice that runs backwards" not in _missing(subject, first, backwards)
    assert "a Slice that begins at the end" not in _missing(subject, backwards)
    assert "a Slice that takes steps" in _missing(subject, backwards)


def test_vectors_batches_and_emptiness(found: dict[str, Subject]) -> None:
    subject = found["product_of_sum"]
    first = next(seeds(subject))
    assert {"a vector in MatMul", "a batch in MatMul", "an empty tensor"} <= set(_missing(subject, first))
    vector = first.replace(x=Tensor(DType.F32, (3,)))
    batch = first.replace(x=Tensor(DType.F32, (5, 0, 3)))
    missing = _missing(subject, first, vector, batch)
    assert not {"a vector in MatMul", "a batch in MatMul", "an empty tensor"} & set(missing)
    assert missing == ["a dim that is a symbol"]


def test_attributes_that_a_pattern_leaves_open(found: dict[str, Subject]) -> None:
    missing = _missing(found["scaled_conv"], next(seeds(found["scaled_conv"])))
    assert "group of Conv" in missing
    assert "pads of Conv" not in missing  # the pattern names it


def test_a_report_names_what_was_never_reached(found: dict[str, Subject]) -> None:
    subject = found["one_shape_only"]
    rule = dataclasses.replace(subject.rule, where=subject.rule.where[:0])
    library = load_rules([Path(rule.span.file)])
    report = check_rule(rule, library, budget=Budget(instances=120, seconds=60))
    assert report.ok
    assert not any("never fired" in note for note in report.notes)
    values = Tensor.of(np.zeros((2, 3), np.float32))
    assert "an empty tensor" in _missing(subject, next(seeds(subject)).replace(x=values))
    narrow = check_rule(subject.rule, library, budget=Budget(instances=120, seconds=60))
    assert any("an empty tensor" in note for note in narrow.notes) or narrow.verdict == "weak"
