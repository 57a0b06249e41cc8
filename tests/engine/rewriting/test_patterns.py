"""Forms of patterns, as rules with tests beside them: each form fires where it should and nowhere else.

Length: all forms of patterns, over one set of operators and helpers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Constant, DType, TensorType
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.rewriting.evaluate import Evaluator
from rewrite.engine.rewriting.rule_library import load_rules, rule_set
from rewrite.engine.rule_tests.run_tests import run_tests
from rewrite.engine.saturation.saturate import Limits, Saturator

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
    """Run the tests beside the rules of a text; all must pass, and their number must be this."""

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


def test_class_heads_have_attributes(check) -> None:
    check(
        """
rule keep_reduced
  reduction f(x, axes, keepdims: 0, ..a)  =>  Squeeze(f(x, axes, keepdims: 1, ..a), axes)
  class exact
  test fires    x: f32[2, 3], axes: i64 = [1], f = ReduceMax(keepdims: 0)
  test refuses  x: f32[2, 3], axes: i64 = [1], f = ReduceMax(keepdims: 1)

rule last_index
  reduction f(x, select_last_index: s = 0, axis: k, ..)  =>  Squeeze(f(x, keepdims: 1), [k])
  where s == 0, op_name(f) == "ArgMax"
  class exact
  test fires    x: f32[2, 3], k = 1, f = ArgMax(axis: 1, keepdims: 0)
  test refuses  x: f32[2, 3], k = 1, f = ArgMax(axis: 1, keepdims: 0, select_last_index: 1)
""",
        4,
    )


@pytest.mark.parametrize(("slope", "fires"), [(0.25, True), (0.5, False)])
def test_an_operator_that_stands_twice_has_equal_attributes(tmp_path: Path, slope: float, fires: bool) -> None:
    path = tmp_path / "choice.rules"
    path.write_text(
        "op LeakyRelu kind elementwise\n"
        "rule choose Where(p, elementwise f(x), elementwise f(y)) => f(Where(p, x, y)) class exact"
    )
    rules = rule_set(load_rules([path], std=False))
    egraph = EGraph.create()
    x, y = (egraph.add_input(name, TensorType(DType.F32, (2, 3))) for name in "xy")
    p = egraph.add_input("p", TensorType(DType.BOOL, (2, 3)))
    left = egraph.add("LeakyRelu", normalize_attrs("LeakyRelu", {"alpha": 0.25}), [x])
    right = egraph.add("LeakyRelu", normalize_attrs("LeakyRelu", {"alpha": slope}), [y])
    egraph.roots = {"out": egraph.add("Where", {}, [p, left, right])}
    report = Saturator(Evaluator(egraph, {}, rules.kinds), rules.rules, Limits(), plan=rules.plan).run()
    assert egraph.matcher is not None
    assert report.counts["choose"].applied == fires
    assert report.counts["choose"].reason == ("" if fires else "alpha of LeakyRelu differs from its other occurrence")


def test_a_root_has_a_name(check) -> None:
    check(
        """
rule empty_sum
  { y = ReduceMean(x + c, axes, ..a) }  =>  { y = zeros(shape(y), dtype(y)) }
  given c: const, y: float[N, ..]
  let n = rank(y)
  where all(c == 0), N == 2, n == 2, dim(x, 0) == 0
  class exact
  test refuses  x: f32[2, 3], c = 0, axes: i64 = [1]

rule add_zeros
  { y = x + c }  =>  { y = (x if shape(y) == shape(x) else Expand(x, shape(y))) }
  where all(c == 0), size(y) == size(c)
  class exact signed_zero
  test fires    x: f32[3], c = zeros(2, 3)  gives Expand(x, shape(c))
  test fires    x: f32[2, 3], c = zeros(2, 3)  gives x
  test refuses  x: f32[2, 3], c = zeros(1, 3)
""",
        4,
    )


def test_attributes_that_hold_tensors_are_constants(check) -> None:
    check(
        """
rule filled
  ConstantOfShape(s, value: v) + c  =>  ConstantOfShape(s, value: const([scalar(v) + scalar(c)], dtype(v)))
  given c: const scalar, v: integer
  where scalar(v) != 2
  class exact
  test fires    s: i64 = [2, 3], v: i64 = [3], c: i64 = 4
  test refuses  s: i64 = [2, 3], v: f32[1] = [3], c: f32 = 4
  test refuses  s: i64 = [2, 3], v: i64 = [2], c: i64 = 4

rule ones_times
  ConstantOfShape(s, value: 1) * x  =>  x
  where shape(x) == dims(s)
  class exact
  test fires    s: i64 = [2, 3], x: f32[2, 3]
""",
        4,
    )


def test_members_of_a_group_have_an_order(check) -> None:
    check(
        """
rule slices_are_a_split
  { y[i] = Slice(x, starts[i], ends[i], axes, none) }
    =>
  { y[*] = Split(x, [scalar(ends[i]) - scalar(starts[i])], axis: scalar(axes)) }
  given starts[i], ends[i], axes: const i64[1]
  where scalar(starts[i]) == (0 if i == 0 else scalar(ends[i - 1])),
        scalar(ends[len(y[*]) - 1]) == dim(x, scalar(axes))
  class exact
  order scalar(starts[i])
  direction explore
  test fires    x: f32[2, 6], starts[0]: i64 = [4], starts[1]: i64 = [1], starts[2]: i64 = [0], ends[0]: i64 = [6],
                ends[1]: i64 = [4], ends[2]: i64 = [1], axes: i64 = [1]
  test refuses  x: f32[2, 6], starts[0]: i64 = [3], starts[1]: i64 = [0], ends[0]: i64 = [6], ends[1]: i64 = [4],
                axes: i64 = [1]
""",
        2,
    )


def test_attributes_of_members_may_differ(check) -> None:
    check(
        """
rule casts_of_one
  { y[i] = Cast(x[i], to: t[i]) }  =>  { y[i] = Relu(Cast(x[i], to: t[i])) }
  given x[i]: bool
  where t[i] in [1, 10], len(unique(t[*])) == 2
  class exact
  direction explore
  test fires    x[0]: bool[2], x[1]: bool[3], t[0] = 1, t[1] = 10
  test refuses  x[0]: bool[2], x[1]: bool[3], t[0] = 1, t[1] = 1
  test refuses  x[0]: bool[2], x[1]: bool[3], t[0] = 1, t[1] = 7
""",
        3,
    )


def test_outputs_are_a_group(check) -> None:
    check(
        """
rule relu_before_split
  { y[i] = Relu(Split(x, s, axis: a)[i]) }  =>  { y[*] = Split(Relu(x), s, axis: a) }
  class exact
  test fires    x: f32[2, 6], s: i64 = [1, 2, 3], a = 1

rule scale_before_split
  { y[i] = Split(x, s, axis: 0)[i] * c[i] }  =>  { y[i] = Split(x * Concat(c[*], axis: 0), s, axis: 0)[i] }
  given c[i]: const f32[1]
  where dim(Split(x, s, axis: 0)[i], 0) == 1, rank(x) == 1, i < 3
  class exact
  test fires    x: f32[3], s: i64 = [1, 1, 1], c[0] = [2], c[1] = [3], c[2] = [4]
  test refuses  x: f32[4], s: i64 = [2, 1, 1], c[0] = [2], c[1] = [3], c[2] = [4]

rule any_output
  Relu(Split(x, s, axis: 1)[i])  =>  Slice(Relu(x), [2 * i], [2 * i + 2], [1])
  where dims(s) == [2, 2, 2]
  class exact
  test fires    x: f32[2, 6], s: i64 = [2, 2, 2], i = 2
  test refuses  x: f32[2, 6], s: i64 = [2, 1, 3], i = 1
""",
        5,
    )


def test_a_group_of_forty_is_rewritten_once(tmp_path: Path) -> None:
    path = tmp_path / "merge.rules"
    path.write_text(
        """
rule side_by_side
  { y[i] = x @ W[i] }  =>  { y[*] = Split(x @ Concat(W[*], axis: 1), [dim(W[i], 1)], axis: 1) }
  given W[i]: [K, _]
  class reassoc
"""
    )
    rules = rule_set(load_rules([path], std=False))
    egraph = EGraph.create()
    x = egraph.add_input("x", TensorType(DType.F32, (2, 3)))
    for i in range(40):
        w = egraph.add_input(f"w{i}", TensorType(DType.F32, (3, i + 1)))
        egraph.roots[f"y{i}"] = egraph.add("MatMul", {}, [x, w])
    before = len(egraph.nodes)
    report = Saturator(Evaluator(egraph, {}, rules.kinds), rules.rules, Limits(), plan=rules.plan).run()
    assert egraph.matcher is not None
    assert report.counts["side_by_side"].applied == 1
    assert len(egraph.nodes) == before + 44  # Concat, MatMul, the sizes, Split and its 40 outputs


def test_each_input_has_a_form(check) -> None:
    check(
        """
rule concat_of_transposed
  Concat(Transpose(x[i], perm: p) ..., axis: a)  =>  Transpose(Concat(x[*], axis: p[axis(a, len(p))]), perm: p)
  class exact
  test fires    x[0]: f32[2, 3], x[1]: f32[2, 4], x[2]: f32[2, 1], p = [1, 0], a = 0
  test fires    x[0]: f32[2, 3], p = [1, 0], a = 0

rule sum_of_products
  Sum(Mul(x[i], c) ..., ys[*])  =>  Mul(Sum(x[*]), c) + Sum(ys[*])
  given c: const
  where len(ys[*]) > 0, len(x[*]) >= 2
  class reassoc
  test fires    x[0]: f32[2], x[1]: f32[2], c = 3, ys[0]: f32[2], ys[1]: f32[1]
  test refuses  x[0]: f32[2], c = 3, ys[0]: f32[2], ys[1]: f32[1]

rule relu_of_each
  Concat(a, Relu(x[i]) ..., b, axis: k)  =>  Concat(a, Relu(Concat(x[*], axis: k)), b, axis: k)
  where len(x[*]) > 1, [dim(x[i], 0) ...] == [1, 2], rank(x[i]) == 1
  class exact
  test fires    x[0]: f32[1], x[1]: f32[2], a: f32[4], b: f32[5], k = 0
  test refuses  x[0]: f32[2], x[1]: f32[2], a: f32[4], b: f32[5], k = 0

rule absolute_values
  Concat(Relu(x[i]) ..., axis: k)  =>  Concat(Relu(Abs(x[i])) ..., axis: k)
  where nonnegative(x[i])
  class exact
  direction explore
  test fires    z: f32[2], x[0] = Sigmoid(z), x[1] = Exp(z), k = 0
  test refuses  z: f32[2], x[0] = Sigmoid(z), x[1] = Neg(z), k = 0

rule casts_of_each
  Concat(Cast(x[i], to: t[i]) ..., axis: k)  =>  Cast(Concat(x[*], axis: k), to: t[0])
  where all([v == t[0] for v in t[*]])
  class exact
  test fires    x[0]: i64[2], x[1]: i64[2], t[0] = 1, t[1] = 1, k = 0
""",
        9,
    )


@pytest.mark.parametrize(("left", "right"), [((1, 0), True), ((0, 1), False)])
def test_each_input_agrees_in_what_has_no_index(tmp_path: Path, left: tuple[int, ...], right: bool) -> None:
    path = tmp_path / "each.rules"
    path.write_text(
        "rule turned Concat(Transpose(x[i], perm: p) ..., axis: 0) => Transpose(Concat(x[*], axis: p[0]), perm: p)"
    )
    rules = rule_set(load_rules([path], std=False))
    egraph = EGraph.create()
    parts = []
    for i in range(40):
        x = egraph.add_input(f"x{i}", TensorType(DType.F32, (3, 3)))
        parts.append(egraph.add("Transpose", {"perm": left if i == 30 else (1, 0)}, [x]))
    egraph.roots = {"out": egraph.add("Concat", {"axis": 0}, parts)}
    report = Saturator(Evaluator(egraph, {}, rules.kinds), rules.rules, Limits(), plan=rules.plan).run()
    assert egraph.matcher is not None
    assert report.counts["turned"].applied == right


def test_sums_and_products_of_many_terms(check) -> None:
    check(
        """
rule gather_constants
  Add(c[i] ..., xs[*])  =>  Add(xs[*], Add(c[*]))
  given c[i]: const
  where len(c[*]) >= 2, len(xs[*]) >= 1
  class reassoc
  test fires    c[0] = [1, 2], c[1] = [3, 4], c[2] = 5, xs[0]: f32[2], xs[1]: f32[2]
  test fires    z: f32[2], c[0] = [1, 2], c[1] = 5, xs[0]: f32[2], xs[1] = z - [3, 4]
  test refuses  c[0] = [1, 2], c[1]: f32[2], c[2]: f32[2], xs[0]: f32[2]

rule cancel
  { y = Add(x, -x, zs[*]) }  =>  { y = Add(zs[*], zeros(shape(y), dtype(y))) }
  class fast
  test fires    x: f32[2, 3], zs[0]: f32[3], zs[1]: f32[2, 3]
  test refuses  x: f32[2, N], zs[0]: f32[1], zs[1]: f32[1]

rule common_factor
  Add(x * t[i] ..., zs[*])  =>  Add(x * Add(t[*]), zs[*])
  where len(t[*]) >= 2
  class reassoc
  direction explore
  test fires    x: f32[2, 3], t[0]: f32[3], t[1]: f32[3], t[2]: f32[2, 3], zs[0]: f32[2, 3]
  test refuses  x: f32[2, 3], t[0]: f32[2, 3], zs[0]: f32[2, 3]

rule gather_factors
  Relu(Mul(c[i] ..., xs[*]))  =>  Relu(Mul(xs[*], Mul(c[*])))
  given c[i]: const
  where len(c[*]) >= 2, len(xs[*]) >= 1
  class reassoc
  test fires    c[0] = [1, 2], c[1] = [3, 4], xs[0]: f32[2], xs[1]: f32[2], xs[2]: f32[2]

rule three_of_a_kind
  Add(x, x, x)  =>  x * 3
  class reassoc
  test fires    x: f32[2]
""",
        9,
    )


def test_a_sum_of_forty_terms_is_rewritten_once(tmp_path: Path) -> None:
    path = tmp_path / "sums.rules"
    path.write_text(
        """
op Add kind elementwise commutative
op Mul kind elementwise commutative
rule common_factor
  Add(x * t[i] ..., zs[*])  =>  Add(x * Add(t[*]), zs[*])
  where len(t[*]) >= 2
  class reassoc
rule gather_constants
  Add(c[i] ..., xs[*])  =>  Add(xs[*], Add(c[*]))
  given c[i]: const
  where len(c[*]) >= 2, len(xs[*]) >= 1
  class reassoc
"""
    )
    rules = rule_set(load_rules([path], std=False))
    egraph = EGraph.create(rules.commutative)
    type_ = TensorType(DType.F32, (8,))
    x = egraph.add_input("x", type_)
    total = egraph.add_input("y", type_)
    for i in range(40):
        other = egraph.add_input(f"t{i}", type_)
        term = egraph.add("Mul", {}, [x, other]) if i % 2 else egraph.add_constant(Constant(np.full(8, i, np.float32)))
        total = egraph.add("Add", {}, [total, term])
    egraph.roots = {"out": total}
    before = len(egraph.nodes)
    report = Saturator(Evaluator(egraph, {}, rules.kinds), rules.rules, Limits(), plan=rules.plan).run()
    assert egraph.matcher is not None
    assert report.stop_reason == "saturated"
    assert 1 <= report.counts["common_factor"].applied <= 4
    assert 1 <= report.counts["gather_constants"].applied <= 4
    assert len(egraph.nodes) < before + 250


def test_conditions_ask_for_the_form_of_a_tensor(check) -> None:
    check(
        """
rule form
  Neg(x)  =>  Identity(Neg(x))
  where x is not Transpose(..), x is not Relu(..)
  class exact
  test fires    x: f32[2, 3]
  test refuses  z: f32[2, 3], x = Transpose(z, perm: [1, 0])
  test refuses  z: f32[2, 3], x = Relu(z)

rule of_the_same
  Add(x, y)  =>  Add(y, x) * 1
  where y is Relu(x)
  class reassoc
  test fires    x: f32[2], y = Relu(x)
  test refuses  x: f32[2], z: f32[2], y = Relu(z)
""",
        5,
    )


@pytest.mark.parametrize("kind", ["exact", "reassoc"])
def test_numbers_are_what_their_type_rounds_them_to(check, kind: str) -> None:
    check(
        f"""
rule half
  x + 1e-6  =>  Identity(x) + 1e-6
  class {kind}
  direction explore
  test fires    x: f16[2]
""",
        1,
    )


def test_attributes_of_declared_operators_have_defaults_in_tests(check) -> None:
    check(
        """
op MyGelu(x, alpha: 1.702) = x * Sigmoid(alpha * x)
  class fast
  test fires  x: f32[2, 3]
  test fires  x: f32[2, 3], alpha = 2
""",
        2,
    )


def test_operands_may_be_missing_where_there_is_a_neutral_element(check) -> None:
    check(
        """
rule scaled_sum
  Relu(x * (s = 1) + (b = none))  =>  (Relu(x * scalar(s)) if b is none else Relu(b + x * scalar(s)))
  given s: const scalar
  where x is not Mul(..), x is not Add(..), x is Sigmoid(..)
  class exact
  test fires    z: f32[2, 3], x = Sigmoid(z), s = [2]
  test fires    z: f32[2, 3], x = Sigmoid(z), s = [2], b: f32[3]
  test fires    z: f32[2, 3], x = Sigmoid(z), b: f32[3]
  test refuses  z: f32[2, 3], x = Sigmoid(z), s: const f32[3]
  test refuses  z: f32[2, 3], x = Sigmoid(z), s: f32[1], b: f32[3]
""",
        5,
    )


def test_an_optional_operand_that_stands_twice_is_there_twice_or_not_at_all(check) -> None:
    check(
        """
rule guarded
  Where(IsNaN(Exp(x * (s = 1))), c, Exp(x * (s = 1)))  =>  Exp(x * s)
  given c: const
  where x is Sigmoid(..)
  class fast
  test fires    z: f32[2, 3], x = Sigmoid(z), s: f32[3], c = [0]
  test fires    z: f32[2, 3], x = Sigmoid(z), c = [0]
  test refuses in Where(IsNaN(Exp(x)), c, Exp(x * s)) for z: f32[2, 3], x = Sigmoid(z), s: f32[3], c = [0]
  test refuses in Where(IsNaN(Exp(x * s)), c, Exp(x)) for z: f32[2, 3], x = Sigmoid(z), s: f32[3], c = [0]
""",
        4,
    )


def test_the_right_operand_of_a_quotient_may_be_missing(check) -> None:
    check(
        """
rule root_of_squares
  Sqrt(x ** (p = 1) / (s = 1) - (c = 0))  =>  Sqrt(x ** p / s - c)
  where x is Sigmoid(..)
  class fast
  test fires    z: f32[2, 3], x = Sigmoid(z)
  test fires    z: f32[2, 3], x = Sigmoid(z), s = [2], c = [0.1]
  test refuses in Sqrt(x ** p / s + c) for x: f32[2, 3], p: f32[1], s: f32[1], c: f32[1]
""",
        3,
    )


def test_what_a_tensor_broadcasts_to_is_a_type(check) -> None:
    check(
        """
rule product_into_product
  Relu(x * (m = none))  =>  Relu(Identity(x))
  given x: f32[N, K], m: const f32[.., _, _] broadcasts to [N, K]
  where m is none or all(m == 1), x is Sigmoid(..)
  class exact
  test fires    z: f32[2, 3], x = Sigmoid(z), m = [[1, 1, 1]]
  test fires    z: f32[2, 3], x = Sigmoid(z), m = [[1], [1]]
  test fires    z: f32[2, 3], x = Sigmoid(z)
  test refuses  z: f32[1, 3], x = Sigmoid(z), m = [[1], [1]]
  test refuses  z: f32[2, 3], x = Sigmoid(z), m = [1, 1, 1]

rule sum_of_members
  { y[i] = x + b[i] }  =>  { y[i] = Identity(x) + b[i] }
  given b[i]: broadcasts to shape(x)
  class exact
  direction explore
  test fires    x: f32[2, 3], b[0]: f32[3], b[1]: f32[2, 3]
  test refuses  x: f32[3], b[0]: f32[3], b[1]: f32[2, 3]
""",
        7,
    )


def test_lists_bind_their_items(check) -> None:
    check(
        """
rule swapped_middle
  Transpose(x, perm: [0, i, j, 3])  =>  Transpose(Identity(x), perm: [0, i, j, 3])
  where i == j + 1
  class exact
  test fires    x: f32[2, 3, 4, 5], i = 2, j = 1
  test refuses  x: f32[2, 3, 4, 5], i = 1, j = 2
  test refuses in Transpose(x, perm: [0, 3, 1, 2]) for x: f32[2, 3, 4, 5]
  test refuses in Transpose(x, perm: [0, 2, 1]) for x: f32[2, 3, 4]

rule upper_half
  Slice(x, [h], [e], [3], [1]) + f  =>  Slice(Identity(x), [h], [2 * h], [3], [1]) + f
  given x: f32[.., D], f: f32[_, h]
  where e >= D, D == 2 * h
  class exact
  test fires    x: f32[1, 2, 3, 8], f: f32[3, 4], h = 4, e = 9
  test refuses  x: f32[1, 2, 3, 8], f: f32[3, 1], h = 4, e = 9
  test refuses in Slice(x, [4, 0], [9, 9], [3, 0], [1, 1]) + f for x: f32[1, 2, 3, 8], f: f32[3, 4]

rule twice_the_same
  Transpose(x, perm: [i, i])  =>  x
  class exact
  test refuses in Transpose(x, perm: [0, 1]) for x: f32[2, 3]

rule each_slice
  Concat(Slice(x[i], [b], [e], [0], [1]) ..., axis: 1)  =>  Slice(Concat(x[*], axis: 1), [b], [e], [0], [1])
  class exact
  direction explore
  test fires    x[0]: f32[4, 3], x[1]: f32[4, 2], b = 1, e = 3
  test refuses in Concat(Slice(x, [0], [1], [0], [1]), Slice(x, [1], [2], [0], [1]), axis: 1) for x: f32[4, 3]
""",
        10,
    )


def test_axes_are_bound_counted_from_the_front(check) -> None:
    check(
        """
rule softmax_of_last
  Softmax(x, axis: a in rank(x))  =>  Softmax(Identity(x), axis: a)
  where a == 2
  class exact
  test fires    x: f32[2, 3, 4], a = -1
  test fires    x: f32[2, 3, 4], a = 2
  test refuses  x: f32[2, 3, 4], a = -2

rule joined_axes
  Concat(Softmax(x, axis: a in rank(x)), y, axis: a)  =>  Concat(Softmax(Identity(x), axis: a), y, axis: a)
  class exact
  test fires    x: f32[2, 3], y: f32[2, 3], a = -1
  test fires in Concat(Softmax(x, axis: 1), y, axis: -1) for x: f32[2, 3], y: f32[2, 3]
  test refuses in Concat(Softmax(x, axis: 0), y, axis: -1) for x: f32[2, 3], y: f32[2, 3]

rule reduced_axis
  ReduceMax(x, [a in rank(x)], keepdims: 1)  =>  ReduceMax(Identity(x), [a], keepdims: 1)
  where a > 0
  class exact
  test fires    x: f32[2, 3, 4], a = -1
  test refuses  x: f32[2, 3, 4], a = -3
  test refuses in ReduceMax(x, [1, 2], keepdims: 1) for x: f32[2, 3, 4]
""",
        9,
    )
