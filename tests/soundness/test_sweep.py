"""Instances one change away from another: what conditions are about is changed on purpose, not met by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.library import load_rules
from rewrite.engine.soundness.instance import Instance, seeds
from rewrite.engine.soundness.operand import Tensor
from rewrite.engine.soundness.perturb import tensors
from rewrite.engine.soundness.run import subjects
from rewrite.engine.soundness.search import EMPTY, together
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


def test_other_numbers_are_tried_all_where_shapes_are_many(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule guarded                                   # wrong where c is infinite and all else as it was
  Where(p, Where(q, x + a, x - b), c)  =>  Where(And(p, q), x + a, Where(p, x - b, c))
  given a, b, c: const, p, q: bool
  class exact
  test fires    x: f32[2,3,4,5], a: f32[4,5], b: f32[3,1,1], c: f32[5], p: bool[2,1,1,1], q: bool[3,4,5]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    few = swept(subject, first, np.random.default_rng(0), 10)
    many = swept(subject, first, np.random.default_rng(0), 400)
    assert len(few) < len(many)
    for name in ("a", "b", "c"):
        filled = [one.operands[name].array for one in few]
        filled = [array for array in filled if array is not None and array.size > 1]
        for number in (0.0, -0.0, 1.0, np.inf):
            wanted = np.float32(number).tobytes()
            assert any(array.tobytes() == wanted * array.size for array in filled)


def test_short_lists_are_filled_with_the_numbers_of_a_rule(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule bias_of_ones                              # what the condition asks for has to come up
  QLinearConv(q, s, y, w, t, z, u, o, b, ..a)  =>  QLinearConv(q, s, y, w, t, z, u, o, ..a)
  where all(b == -7)
  class exact
  test fires    q: u8[1,2,5,5], s: f32 = 0.5, y: u8 = 3, w: u8[3,2,3,3], t: f32 = 0.25, z: u8 = 1, u: f32 = 0.5,
                o: u8 = 2, b: i32 = [0,0,0]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    biases = [one.operands["b"].array for one in swept(subject, first, np.random.default_rng(0), 0)]
    assert any(b is not None and b.shape == (3,) and np.all(b == -7) for b in biases)


def test_a_tensor_takes_the_type_of_another_and_steps_leave_one_element(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule part_of_the_wrong                         # b may be taken for x if it has its type
  Slice(x, b, e, a, s)  =>  Slice(b, b, e, a, s)
  where len(ints(a)) == 1
  class exact
  test fires    x: f32[4,5], b: i64 = [0], e: i64 = [4], a: i64 = [0], s: i64 = [1]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject.pattern, subject.declared)))
    found = swept(subject, first, np.random.default_rng(0), 0)
    assert any(str(one.operands["x"].type) == "i64[1]" and not one.operands["x"].is_const for one in found)
    assert any(one.operands["s"].array is not None and one.operands["s"].array.tolist() == [9] for one in found)


def test_few_instances_with_empty_tensors_share_an_e_graph(found: dict[str, list[Instance]]) -> None:
    instances = found["positive_part"]
    empty = [i for i in instances if any(0 in t.shape for _, t in tensors(i))]
    assert len(empty) > 2 * EMPTY
    groups = together(instances)
    assert sorted(i.key() for g in groups for i in g) == sorted(i.key() for i in instances)
    assert all(sum(i in empty for i in group) <= EMPTY for group in groups)
