"""Rules that match bodies are checked on the models of their tests; operators that only the checker computes."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.operators.folding.float64_kernels import FLOAT64_KERNELS
from rewrite.engine.rewriting.evaluate import Evaluator
from rewrite.engine.rewriting.rule_library import STANDARD, load_rules
from rewrite.engine.verification.compare_forms import Scale, unequal
from rewrite.engine.verification.reference_values import Undefined, apply
from rewrite.errors import UserError
from rewrite.soundness import Budget, RuleReport, check_rule
from rewrite.soundness.checking.run_instances import nodes_below
from rewrite.soundness.sampling.seeds import seeds
from rewrite.soundness.sampling.subject import subjects
from rewrite.soundness.sampling.validity import invalid

WRONG = """
rule branch_whatever                                   # ignores the condition
  If(c, then_branch: a, else_branch: b)  =>  inline(a)[0]
  where node_count(a) == node_count(b)
  class exact
  test fires    model "models/if_same.onnx"

rule scan_of_anything
  Scan(x[*], num_scan_inputs: k, body: b)[i]  =>  inline(b, x[*])[i]
  where len(x[*]) == k
  class exact
  test fires    model "models/scan_pointwise.onnx"

rule loop_twice
  Loop(n, c = none, v[*], body: b)[i]  =>  iterate(b, 2, v[*])[i]
  where scalar(n) >= 1, scalar(n) <= 4
  class exact
  test fires    model "models/loop_3.onnx"

rule loop_once_not_run
  Loop(n, c = none, v[*], body: b)[i]  =>  v[i]
  where scalar(n) <= 1
  class exact
  test fires    model "models/loop_0.onnx"
"""
BUDGET = Budget(instances=240, shrink_seconds=20)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bodies")
    for path in (STANDARD / "models").glob("*.onnx"):
        (folder / "models").mkdir(exist_ok=True)
        (folder / "models" / path.name).write_bytes(path.read_bytes())
    (folder / "mine.rules").write_text(WRONG)
    return folder / "mine.rules"


def _report(path: Path, name: str) -> RuleReport:
    library = load_rules([path])
    return check_rule(next(r for r in library.rules if r.name == name), library, budget=BUDGET)


@pytest.mark.parametrize("name", ["branch_whatever", "scan_of_anything", "loop_twice", "loop_once_not_run"])
def test_a_wrong_rule_on_bodies_is_caught(wrong: Path, name: str) -> None:
    report = _report(wrong, name)
    assert report.verdict == "unsound", report
    assert report.counterexample is not None
    assert "$" not in report.counterexample.model
    assert sum(array.size for array in report.counterexample.inputs.values()) <= 16


@pytest.mark.parametrize("name", ["if_same", "if_to_where", "loop_unroll", "scan_to_vector"])
def test_a_rule_of_the_library_on_bodies_passes(name: str) -> None:
    report = _report(STANDARD / "control.rules", name)
    assert report.ok, report
    assert report.fired >= 40
    assert report.near_misses >= 20


def test_models_are_changed_in_their_operands_and_bodies() -> None:
    library = load_rules([STANDARD / "control.rules"])
    rule = next(r for r in library.rules if r.name == "loop_unchanged")
    (subject,) = subjects(rule, library)
    found = list(seeds(subject))
    own = [i for i in found if i.steps == 0]
    models = [subject.model(i) for i in own]
    assert [m and m.name for m in models] == ["models/loop_unchanged.onnx", "models/loop_9.onnx"]
    assert len(found) > 40
    egraph = EGraph.create(subject.library.commutative)
    evaluator = Evaluator(egraph)
    first = subject.build(own[0], evaluator, "0.")
    assert set(first.inputs) == {"0.x", "0.y"}
    wide = {n: t if t.is_const else type(t)(t.dtype, (5, 1)) for n, t in own[0].operands.items()}
    second = subject.build(own[0].replace(**wide), evaluator, "1.")
    assert [str(egraph.type(r)) for r in second.roots] == ["f32[5, 1]", "f32[5, 1]"]
    assert not set(first.roots) & set(second.roots)
    with pytest.raises(ValueError, match="operands"):
        subject.build(own[0].replace(other=1), evaluator, "2.")


def test_a_body_whose_types_do_not_fit_is_invalid() -> None:
    library = load_rules([STANDARD / "control.rules"])
    rule = next(r for r in library.rules if r.name == "if_same")
    (subject,) = subjects(rule, library)
    instance = next(iter(seeds(subject)))
    egraph = EGraph.create(subject.library.commutative)
    c = instance.operands["c"]
    two = instance.replace(c=type(c)(c.dtype, (2,)))
    roots = subject.build(two, Evaluator(egraph), "0.").roots
    assert invalid(egraph, nodes_below(egraph, roots)) == "If: input 0 is not a scalar"
    roots = subject.build(instance, Evaluator(egraph), "1.").roots
    assert invalid(egraph, nodes_below(egraph, roots)) == ""


def test_a_test_on_a_file_that_is_not_a_model_is_reported(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"\xff\xff nothing")
    text = (
        'rule r\n  If(c, then_branch: a, else_branch: b) => inline(a)[0]\n  class exact\n  test fires model "no.onnx"\n'
    )
    (tmp_path / "mine.rules").write_text(text)
    library = load_rules([tmp_path / "mine.rules"], std=False)
    with pytest.raises(UserError, match="not an ONNX model"):
        check_rule(library.rules[0], library, budget=BUDGET)


# --- what the checker computes with ---


def test_products_in_double_precision_are_rounded_once() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 7)) * 10.0 ** rng.integers(-8, 9, (4, 7)), rng.standard_normal((7, 5))
    (found,) = FLOAT64_KERNELS["MatMul"]({}, [a, b]) or []
    exact = [[float(sum(map(Fraction.__mul__, map(Fraction, row), map(Fraction, column)))) for column in b.T]
             for row in a]  # fmt: skip
    assert found.tolist() == exact
    (turned,) = FLOAT64_KERNELS["Gemm"]({"transB": 1}, [a, np.ascontiguousarray(b.T)]) or []
    assert turned.tolist() == exact


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_have_the_shapes_of_matmul_and_its_infinities(dtype: type) -> None:
    rng = np.random.default_rng(4)
    for left, right in [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)),
                        ((4,), (4,)), ((0, 3), (3, 2)), ((2, 0), (0, 2))]:  # fmt: skip
        a, b = rng.standard_normal(left).astype(dtype), rng.standard_normal(right).astype(dtype)
        (found,) = FLOAT64_KERNELS["MatMul"]({}, [a, b]) or []
        wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
        assert found.shape == wanted.shape
        assert found.dtype == dtype
        assert np.allclose(found, wanted, rtol=4 * float(np.finfo(dtype).eps), atol=4 * float(np.finfo(dtype).eps))
    a = np.array([[0, 1], [np.inf, 2]], dtype)
    (found,) = FLOAT64_KERNELS["MatMul"]({}, [a, np.array([[0, 1], [3, 4]], dtype)]) or []
    assert found[0].tolist() == [3, 4]
    assert math.isnan(found[1, 0])
    assert found[1, 1] == np.inf


def test_windows_of_bfloat16_with_uneven_pads() -> None:
    x = np.array([[[[1, -2], [3, 4]]]], ml_dtypes.bfloat16)
    attrs = {"kernel_shape": (2, 2), "pads": (1, 1, 0, 1)}
    (found,) = apply("MaxPool", attrs, [x], 1)
    assert found.dtype == x.dtype
    assert found.astype(np.float32).tolist() == [[[[1, 1, -2], [3, 4, 4]]]]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_split_whose_sizes_do_not_add_up_has_no_value(dtype: type) -> None:
    sizes = np.array([0, 0], np.int64)
    with pytest.raises(Undefined) as caught:
        apply("Split", {"axis": 0}, [np.zeros(3, dtype), sizes], 2)
    assert caught.value.certain


def test_cancellation_in_a_sum_excuses_lost_digits() -> None:
    left, right = np.zeros((), np.float32), np.ones((), np.float32)
    large = float(np.float32(3.4e38))
    assert unequal(left, right, "reassoc", signed_zero=False, scale=Scale(large))
    assert not unequal(left, right, "reassoc", signed_zero=False, scale=Scale(large, lost=large))
    assert unequal(left, right, "reassoc", signed_zero=False, scale=Scale(large, lost=100.0))
    assert unequal(left, right, "exact", signed_zero=False, scale=Scale(large, lost=large))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("attention", "shared_heads"), ("algebra", "add_const_add_const"), ("cse", "gemm_untransposed_weight"),
        ("pool", "pad_max_pool"), ("slice", "split_unary"),
    ],
)  # fmt: skip
def test_rules_that_depend_on_it_pass(file: str, name: str) -> None:
    report = _report(STANDARD / f"{file}.rules", name)
    assert report.ok, report


def test_rounding_is_relative_to_the_largest_result_even_if_that_overflows() -> None:
    large = float(np.float32(3.4e38))
    left = np.array([-np.inf, np.inf, 8e30], np.float32)
    right = np.array([-np.inf, np.inf, 0], np.float32)
    assert not unequal(left, right, "reassoc", signed_zero=False, scale=Scale(large))
    assert unequal(left, right, "exact", signed_zero=False, scale=Scale(large))
    far = np.array([-np.inf, np.inf, 1e38], np.float32)
    assert unequal(far, right, "reassoc", signed_zero=False, scale=Scale(large))
    assert unequal(
        left, right, "reassoc", signed_zero=False, scale=Scale(100.0)
    )  # infinite operands, nothing overflows


def test_a_large_constant_on_the_right_excuses_no_infinity_of_the_left() -> None:
    left, right = np.array([np.inf], np.float32), np.array([3e38], np.float32)
    assert unequal(left, right, "reassoc", signed_zero=False, scale=Scale(3e38, left=1.0))
    assert not unequal(left, right, "reassoc", signed_zero=False, scale=Scale(3e38, left=3e38))  # it has overflowed
