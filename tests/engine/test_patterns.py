"""The forms of patterns, by rules that carry their own tests: each form fires where it should and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from rewrite.engine.rule_tests import run_tests

OPERATORS = """
op Add kind elementwise commutative
op Mul kind elementwise commutative
op Sum kind elementwise
op Relu kind elementwise
op Neg kind elementwise
op Cast kind elementwise
op Transpose kind injective
op ReduceMean kind reduction
op ReduceMax kind reduction
op ArgMax kind reduction
"""


@pytest.fixture
def check(tmp_path: Path):
    """Runs the tests beside the rules of a text; all must pass, and there must be that many."""

    def run(text: str, count: int) -> None:
        path = tmp_path / "forms.rules"
        path.write_text(OPERATORS + text)
        found = run_tests([path], std=False)
        assert [(r.rule, r.line, r.message) for r in found if not r.ok] == []
        assert len(found) == count

    return run


def test_an_absent_attribute_has_its_default(check) -> None:
    check(
        """
rule pad_into_conv
  Conv(Pad(x, p, 0.0, mode: "constant"), W, pads: q = repeat(0, 2 * (rank(W) - 2)), strides: t = [1, 1], ..a)
    =>
  Conv(x, W, pads: [q[i] + r[i] for i in 0 .. 3], strides: t, ..a)
  let n = ints(p), r = [n[2], n[3], n[6], n[7]]
  where all([v == 0 for v in [n[0], n[1], n[4], n[5]]])
  class exact signed_zero
  test fires    x: f32[1, 2, 5, 6], p: i64 = [0, 0, 1, 2, 0, 0, 3, 1], W: f32[3, 2, 2, 2]
  test fires    x: f32[1, 2, 5, 6], p: i64 = [0, 0, 1, 2, 0, 0, 3, 1], W: f32[3, 2, 2, 2], q = [1, 0, 2, 1], t = [2, 1]
  test refuses  x: f32[1, 2, 5, 6], p: i64 = [0, 1, 1, 2, 0, 0, 3, 1], W: f32[3, 3, 2, 2], q = [1, 0, 2, 1]

rule twice_turned
  Transpose(Transpose(x, perm: [1, 0] = reverse(range(0, rank(x)))), perm: p = reverse(range(0, rank(x))))  =>  x
  where p == [1, 0]
  class exact
  test fires    x: f32[2, 3], p = [1, 0]
  test fires    x: f32[2, 3]
  test refuses  x: f32[2, 3], p = [0, 1]
""",
        6,
    )


def test_a_conditional_evaluates_one_branch_only(check) -> None:
    check(
        """
rule halves
  x * c  =>  (x if all(c == 1) else x / full(shape(c), 1 / splat(c)))
  given c: const
  class fast
  test fires    x: f32[2], c = [1, 1]  gives x
  test fires    x: f32[2], c = [4, 4]  gives x / full(shape(c), 0.25)
  test refuses  x: f32[2], c = [4, 2]

rule undecided
  Transpose(x, perm: p)  =>  (x if dim(x, 0) == 1 else Identity(x))
  where p == [0, 1]
  class exact
  test fires    x: f32[3, 2], p = [0, 1]
  test refuses  x: f32[N, 2], p = [0, 1]
""",
        5,
    )
