"""Both sides of a rule compared: what rounding excuses, and what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.engine.verification.compare_forms import compare_forms
from rewrite.engine.verification.reference_values import Computed


def test_what_the_right_loses_excuses_little_beside_what_the_left_has(tmp_path: Path) -> None:
    """A quotient of nearly nothing loses any magnitude; a difference of squares that of the squares."""
    path = tmp_path / "some.rules"
    path.write_text("rule any\n  x + y  =>  y + x\n  class reassoc\n  test fires    x: f32[1], y: f32[1]\n")
    [rule] = load_rules([path], std=False).rules
    zero = Computed((np.zeros(1, np.float32),), peak=4.5)
    huge = Computed((np.full(1, 4.5e9, np.float32),), peak=4.5e9, lost=4.5e18)
    assert compare_forms(rule, zero, huge, "float32") is not None
    near = Computed((np.full(1, 0.01, np.float32),), peak=1e4, lost=1e4)
    assert compare_forms(rule, zero, near, "float32") is None
