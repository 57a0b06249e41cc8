"""Enumerated edits: the subjects of conditions are changed systematically rather than by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.ir.symbolic import symbol
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.soundness.checking.check_rule import EMPTY, groups
from rewrite.soundness.sampling.edit import Editing, weight_bounds, weighted
from rewrite.soundness.sampling.edits import enumerate_edits
from rewrite.soundness.sampling.instance import Instance, Tensor
from rewrite.soundness.sampling.seeds import seeds
from rewrite.soundness.sampling.subject import subjects
from rewrite.soundness.sampling.values import choose

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
        first = next(iter(seeds(subject)))
        every[rule.name] = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 400)
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


@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_floats_take_one_infinity(found: dict[str, list[Instance]], number: float) -> None:
    constants = [[t.array for t in _tensors(one) if t.array is not None] for one in found["positive_part"]]
    assert any(len(arrays) == 2 and all((a == number).all() for a in arrays) for arrays in constants)


def test_conditions_ask_constants_for_numbers(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule masked                                    # beside these numbers others may be large
  Where(p, Add(x, c), m)  =>  Where(p, x, m)
  given c, m: const scalar
  where all(c == 0), scalar(m) == -inf or scalar(m) == 3 and rank(x) > 1
  class reassoc
  test fires    p: bool[2,3], x: f32[2,3], c = 0, m = -inf
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    assert subject.asked == {"c": {0.0}, "m": {-np.inf, 3.0}}


def test_images_are_as_many_as_columns_and_indices_lie_in_small_squares(tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text("""
rule rows_of_image
  Gather(Conv(x, W), i, axis: 3)  =>  Conv(Gather(x, i, axis: 3), W)
  given W: const
  class reassoc
  test fires    x: f32[1,2,5,5], W: f32[3,2,3,3], i: i64 = [0,2]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject)))
    every = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 400)
    assert {(5, 2, 5, 5), (3, 2, 5, 5)} <= {one.operands["x"].shape for one in every}
    assert any(one.operands["x"].shape == (2,) * 4 and one.operands["i"].array.tolist() == [0, 0] for one in every)


def test_no_edit_makes_an_enormous_tensor(found: dict[str, list[Instance]]) -> None:
    editing, one = Editing(None, RNG), found["positive_part"][0]  # type: ignore[arg-type]
    slot = next(slot for slot, _ in one.tensors)
    assert editing.resized(one, {slot: (3000, 3000)}) is one
    assert dict(editing.resized(one, {slot: (30, 30)}).tensors)[slot].shape == (30, 30)


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
    first = next(iter(seeds(subject)))
    found = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 400)
    wanted = {"x": (2, 2), "W": (2,), "k": (2,)}
    assert any({name: t.shape for name, t in one.operands.items()} == wanted for one in found)


def test_an_empty_tensor_may_have_an_unknown_extent(tmp_path: Path) -> None:
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
    first = next(iter(seeds(subject)))
    shapes = [
        {name: t.shape for name, t in one.operands.items()}
        for one in enumerate_edits(Editing(subject, RNG), first, 400)
    ]
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
    first = next(iter(seeds(subject)))
    found = [dict(one.operands["a"].attrs) for one in enumerate_edits(Editing(subject, RNG), first, 440)]
    assert {"pads": (1, 1, 1, 1), "dilations": (2, 2)} in found
    assert {"pads": (1, 1, 1, 1), "strides": (2, 2)} in found


def test_all_values_are_tried_even_if_shapes_are_limited(tmp_path: Path) -> None:
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
    first = next(iter(seeds(subject)))
    few = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 10)
    many = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 400)
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
rule bias_of_ones                              # the number in the condition must occur
  QLinearConv(q, s, y, w, t, z, u, o, b, ..a)  =>  QLinearConv(q, s, y, w, t, z, u, o, ..a)
  where all(b == -7)
  class exact
  test fires    q: u8[1,2,5,5], s: f32 = 0.5, y: u8 = 3, w: u8[3,2,3,3], t: f32 = 0.25, z: u8 = 1, u: f32 = 0.5,
                o: u8 = 2, b: i32 = [0,0,0]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject)))
    biases = [one.operands["b"].array for one in enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 0)]
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
    first = next(iter(seeds(subject)))
    found = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 0)
    assert any(str(one.operands["x"].type) == "i64[1]" and not one.operands["x"].is_const for one in found)
    assert any(one.operands["s"].array is not None and one.operands["s"].array.tolist() == [9] for one in found)


EDITED = {
    "an axis in front": (
        """rule from_behind
  Slice(x, b, e, a, s)  =>  Slice(x, b, e, a, s)
  test fires    x: f32[1,5], b: i64 = [-1], e: i64 = [-9], a: i64 = [0], s: i64 = [-1]
""",
        lambda x, a, **_: x.shape == (2, 1, 5) and a.array.tolist() == [1],
    ),
    "attributes of 1": (
        """rule of_blocks
  Relu(DepthToSpace(x, ..a))  =>  DepthToSpace(Relu(x), ..a)
  test fires    x: f32[1,12,2,3], blocksize = 2
""",
        lambda x, a, **_: x.shape == (2, 2, 2, 2) and a.attrs["blocksize"] == 1,
    ),
    "an optional scalar": (
        """rule of_padding
  Pad(x, w, v = none)  =>  Pad(x, w)
  test fires    x: f32[2,3], w: i64 = [1,0,0,1]
""",
        lambda v=None, **_: isinstance(v, Tensor) and v.shape == () and v.is_const,
    ),
    "a product of zeros": (
        """rule of_table
  elementwise f(c, Gather(T, i, axis: 0))  =>  Gather(f(c, T), i, axis: 0)
  given T, c: const
  where rank(c) == 0
  test fires    T: const f32[4,5], i: i64 = [3,0], c: const f32[], f = Sub
""",
        lambda f, T, **_: f.op == "Mul" and np.signbit(T.array[T.array == 0]).any(),
    ),
    "long steps": (
        """rule of_range
  Range(s, l, d) + c  =>  Range(s + c, l + c, d)
  test fires    s: i64 = 0, l: i64 = 7, d: i64 = 1, c: i64 = 3
""",
        lambda d, **_: d.shape == () and d.array == 99,
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_an_edit_shows_a_mistake_that_mutants_had(name: str, tmp_path: Path) -> None:
    rule, shows = EDITED[name]
    (tmp_path / "some.rules").write_text(rule)
    library = load_rules([tmp_path / "some.rules"], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject)))
    found = enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 400)
    assert any(shows(**one.operands) for one in found)


def test_few_instances_with_empty_tensors_share_an_e_graph(found: dict[str, list[Instance]]) -> None:
    instances = found["positive_part"]
    empty = [i for i in instances if any(0 in t.shape for _, t in i.tensors)]
    assert len(empty) > 2 * EMPTY
    found_groups = groups(instances)
    assert sorted(i.key for g in found_groups for i in g) == sorted(i.key for i in instances)
    assert all(sum(i in empty for i in group) <= EMPTY for group in found_groups)


@pytest.mark.parametrize("last", [2**63 - 1, -(2**63), 7])
def test_one_element_of_integers_near_the_end_of_their_type_changes(last: int, tmp_path: Path) -> None:
    path = tmp_path / "some.rules"
    path.write_text(f"""
rule some
  x + c  =>  c + x
  given x: i64, c: const
  test fires    x: i64[1,2], c: i64 = [[1, {last}]]
""")
    library = load_rules([path], std=False)
    (subject,) = subjects(library.rules[0], library)
    first = next(iter(seeds(subject)))
    contents = [
        t.array.tolist()
        for one in enumerate_edits(Editing(subject, np.random.default_rng(0)), first, 2000)
        if (t := one.operands.get("c")) is not None and getattr(t, "array", None) is not None
    ]
    assert [[1, last - 2 if last > 100 else last + 2]] in contents


def test_a_weighted_index_is_that_of_numpy() -> None:
    ours, numpy = np.random.default_rng(3), np.random.default_rng(3)
    weights = np.random.default_rng(4).random(17)
    for _ in range(50):
        assert weighted(ours, weight_bounds(weights)) == numpy.choice(17, p=weights / weights.sum())


@pytest.mark.parametrize("shape", [None, (), 5, (2, 3)])
def test_elements_are_those_of_numpy(shape: int | tuple[int, ...] | None) -> None:
    """A seed draws the same instances whether NumPy's checks are skipped or not."""
    values, first, second = np.array([0.5, -0.0, np.inf]), np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(5):
        np.testing.assert_array_equal(choose(first, values, shape), second.choice(values, shape))
    assert first.bit_generator.state == second.bit_generator.state
