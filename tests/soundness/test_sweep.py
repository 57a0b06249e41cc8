"""Instances one change away from another: what conditions are about is changed on purpose, not met by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.library import load_rules
from rewrite.engine.soundness.instance import Instance, seeds
from rewrite.engine.soundness.operand import Tensor
from rewrite.engine.soundness.run import subjects
from rewrite.engine.soundness.sweep import swept
from rewrite.engine.symbolic import symbol

RNG = np.random.default_rng(0)

RULES = """
rule positive_part                             # operands of three ranks
  Where(Less(a, x), x, c)  =>  Max(a, x)
  given x: f32, a: const scalar
  where all(c == 0)
  test fires    x: f32[2,3], a = [0.5], c = 0

rule remainder_of_sum                          # two constants that are integers
  (x + c) % k  =>  x % k
  given x: integer, c, k: const
  where all(c % k == 0)
  test fires    x: i64[2,3], c: i64 = [8], k: i64 = [4]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Instance]]:
    path: Path = tmp_path_factory.mktemp("rules") / "some.rules"
    path.write_text(RULES)
    library = load_rules([path], std=False)
    every = {}
    for rule in library.rules:
        (subject,) = subjects(rule, library)
        first = next(iter(seeds(subject.pattern, subject.declared)))
        every[rule.name] = swept(subject, first, np.random.default_rng(0), 400)
    return every


def _tensors(instance: Instance) -> list[Tensor]:
    return [value for value in instance.operands.values() if isinstance(value, Tensor)]


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_all_operands_take_one_shape(found: dict[str, list[Instance]], shape: tuple[int, ...]) -> None:
    assert any(all(t.shape == shape for t in _tensors(one)) for one in found["positive_part"])


@pytest.mark.parametrize("number", [1, 6, 12])
def test_integers_take_one_number(found: dict[str, list[Instance]], number: int) -> None:
    constants = [[t.array for t in _tensors(one) if t.array is not None] for one in found["remainder_of_sum"]]
    assert any(len(arrays) == 2 and all((a == number).all() for a in arrays) for arrays in constants)


def test_a_vector_takes_the_place_of_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule scaled_product                            # W may be a vector
  x @ W * k  =>  x @ (W * k)
  given W, k: const
  class reassoc
  test fires    x: f32[2,3], W: f32[3,4], k: f32[4]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    found = swept(subject, first, np.random.default_rng(0), 400)
    wanted = {"x": (2, 2), "W": (2,), "k": (2,)}
    assert any({name: t.shape for name, t in one.operands.items()} == wanted for one in found)


def test_what_is_empty_may_be_of_unknown_size(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule products_in_another_order                 # over nothing the left is zero, the right may be NaN
  x @ V @ W  =>  x @ (V @ W)
  given V, W: const
  where not is_const(x)
  class reassoc
  test fires    x: f32[2,3], V: f32[3,4], W: f32[4,5]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    shapes = [{name: t.shape for name, t in one.operands.items()} for one in swept(subject, first, RNG, 400)]
    assert any(s["x"] == (symbol("N"), 3) and s["V"] == (3, 0) and s["W"] == (0, 5) for s in shapes)


def test_windows_are_padded_along_with_gaps(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule scaled_image                              # padding and gaps are forgotten together
  Conv(x * k, W, ..a)  =>  Conv(x, W * k, ..a)
  given W, k: const
  class reassoc
  test fires    x: f32[1,2,5,5], W: f32[3,2,3,3], k: f32[1]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    found = [dict(one.operands["a"].attrs) for one in swept(subject, first, RNG, 440)]
    assert {"pads": (1, 1, 1, 1), "dilations": (2, 2)} in found
    assert {"pads": (1, 1, 1, 1), "strides": (2, 2)} in found
