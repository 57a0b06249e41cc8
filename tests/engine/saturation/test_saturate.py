"""Saturation: revision, conditions, rulesets, limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import Constant, DType, TensorType
from rewrite.engine.ir.symbolic import symbol
from rewrite.engine.operators.inference import IllTyped
from rewrite.engine.operators.schemas import normalize_attrs
from rewrite.engine.rewriting.evaluate import Evaluator
from rewrite.engine.rewriting.matching.compiled_patterns import CompiledRule
from rewrite.engine.rewriting.matching.match_binding import bind_match
from rewrite.engine.rewriting.rule_library import RuleSet, load_rules, rule_set
from rewrite.engine.saturation.saturate import ExhaustedBudget, Limits, Saturation, Saturator
from rewrite.errors import UserError

OPS = "op Add commutative kind elementwise\nop Mul commutative kind elementwise\nop Relu kind elementwise\n"


@pytest.fixture
def egraph() -> EGraph:
    made = EGraph.create(["Add", "Mul"])
    assert made.matcher is not None
    return made


@pytest.fixture
def rules(tmp_path: Path):
    def load(text: str, numerics: str = "reassoc", **settings: str) -> RuleSet:
        path = tmp_path / "test.rules"
        path.write_text(OPS + text)
        return rule_set(load_rules([path], std=False), numerics, **settings)

    return load


def f32(*shape: object) -> TensorType:
    return TensorType(DType.F32, shape)  # type: ignore[arg-type]


def node(egraph: EGraph, op: str, *children: int, **attrs: object) -> int:
    return egraph.add(op, normalize_attrs(op, attrs), children)  # type: ignore[arg-type]


def constant(egraph: EGraph, value: object, dtype: type = np.float32) -> int:
    return egraph.add_constant(Constant(np.array(value, dtype)))


def saturate(egraph: EGraph, rules: RuleSet, **limits: float) -> Saturation:
    limited = Limits(**limits)  # type: ignore[arg-type]
    context = Evaluator(egraph, rules.declared, rules.kinds)
    return Saturator(context, rules.rules, limited, plan=rules.plan).run()


def test_equal_nodes_are_one_and_commutative_operands_have_no_order(egraph: EGraph) -> None:
    x, y = egraph.add_input("x", f32(2)), egraph.add_input("y", f32(2))
    assert node(egraph, "Add", x, y) == node(egraph, "Add", y, x)
    assert node(egraph, "Sub", x, y) != node(egraph, "Sub", y, x)


def test_a_node_that_fails_when_run_may_be_in_the_model_but_in_no_rule(egraph: EGraph) -> None:
    x, y = egraph.add_input("x", f32(2, 3)), egraph.add_input("y", f32(4, 5))
    with pytest.raises(IllTyped):
        egraph.add("MatMul", {}, (x, y))
    assert egraph.type(egraph.add("MatMul", {}, (x, y), given=True)) == TensorType()


def test_random_operators_are_never_merged(egraph: EGraph) -> None:
    x = egraph.add_input("x", f32(2))
    assert node(egraph, "RandomNormalLike", x) != node(egraph, "RandomNormalLike", x)


def test_small_constant_terms_are_known(egraph: EGraph) -> None:
    total = node(egraph, "Add", constant(egraph, [1.0, 2.0]), constant(egraph, [3.0, 4.0]))
    info = egraph.constant(total)
    assert info is not None
    assert info.elements is not None
    assert info.elements.tolist() == [4.0, 6.0]
    assert egraph.find(total) == egraph.find(constant(egraph, [4.0, 6.0]))


def test_shape_arithmetic_is_followed_through_symbols(egraph: EGraph) -> None:
    x = egraph.add_input("x", f32(symbol("N"), 6))
    shape = node(egraph, "Shape", x)
    batch = node(egraph, "Gather", shape, constant(egraph, 0, np.int64))
    value = egraph.value(batch)
    assert value is not None
    assert value.dims == (symbol("N"),)
    width = node(egraph, "Gather", shape, constant(egraph, 1, np.int64))
    assert egraph.find(width) == egraph.find(constant(egraph, 6, np.int64))


def test_a_dim_is_described_by_what_the_model_knows(egraph: EGraph) -> None:
    n = symbol("N")
    vague = egraph.add_input("a", TensorType(DType.F32, (egraph.fresh(), egraph.fresh(), 2)))
    exact = egraph.add_input("b", TensorType(DType.F32, (2 * n, egraph.fresh(), 2)))
    relu = egraph.add("Relu", {}, (vague,))
    egraph.union(vague, exact)
    assert egraph.type(relu).shape == (2 * n, egraph.type(vague).shape[1], 2)  # type: ignore[index]


def test_a_rule_with_different_types_on_its_sides_does_not_fire(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    wide = node(egraph, "Mul", x, constant(egraph, np.ones((2, 3))))
    found = saturate(egraph, rules("rule unsound x * 1 => x class exact"))
    assert egraph.find(wide) != egraph.find(x)
    assert "f32[3]" in found.counts["unsound"].reason


def test_an_unknown_fact_does_not_fire_under_not_either(egraph: EGraph, rules) -> None:
    x, y = egraph.add_input("x", f32(3)), egraph.add_input("y", f32(3))
    node(egraph, "Mul", x, y)
    text = "rule r x * y => x where {} class exact"
    assert saturate(egraph, rules(text.format("all(y == 1)"))).counts["r"].applied == 0
    assert saturate(egraph, rules(text.format("not all(y == 1)"))).counts["r"].applied == 0


def test_a_failed_condition_is_tried_again_when_more_is_known(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    z = node(egraph, "Sub", x, x)
    product = node(egraph, "Add", x, node(egraph, "Relu", z))
    text = """
      rule add_zero x + c => x where all(c == 0) class exact signed_zero
      rule sub_self x - x => zeros(shape(x)) class fast
    """
    saturate(egraph, rules(text, "fast"))
    assert egraph.find(product) == egraph.find(x)


@pytest.mark.parametrize(
    ("rule", "operand", "once"),
    [
        ("rule r LeakyRelu(x, alpha: 2.0) => x class exact", None, True),
        ("rule r Relu(x) * c => x given c: i32 class exact", [3.0], True),
        ("rule r Relu(x) * 2 => x class exact", [3.0], True),
        ("rule r Relu(x) * c => x where same(x, c) class exact", [3.0], False),
    ],
)
def test_a_match_that_its_attributes_types_or_contents_refute_is_tried_once(
    egraph: EGraph, rules, monkeypatch: pytest.MonkeyPatch, rule: str, operand: object, once: bool
) -> None:
    tried: list[str] = []

    def counted(context: Evaluator, rule: CompiledRule, *more: Any) -> Any:
        tried.append(rule.name)
        return bind_match(context, rule, *more)

    monkeypatch.setattr("rewrite.engine.saturation.saturate.bind_match", counted)
    monkeypatch.setattr("rewrite.engine.saturation.saturate.memo_key", lambda *_: None)
    x = egraph.add_input("x", f32(3))
    if operand is None:
        node(egraph, "LeakyRelu", x, alpha=1.0)
    else:
        node(egraph, "Mul", node(egraph, "Relu", x), constant(egraph, operand))
    later = "rule grow Abs(Abs(x)) => Abs(x) class exact"  # more becomes known of x in each iteration
    y = node(egraph, "Abs", x)
    for _ in range(3):
        y = node(egraph, "Abs", y)
    egraph.union(y, x)
    saturate(egraph, rules(f"{rule}\n{later}"))
    assert (tried.count("r") == 1) is once


def test_rules_above_the_numerics_class_are_left_out(rules) -> None:
    text = "rule a x + 0 => x class exact signed_zero\nrule b x - x => zeros(shape(x)) class fast"
    assert [r.name for r in rules(text, "exact").rules] == ["a"]
    assert [r.name for r in rules(text, "fast").rules] == ["a", "b"]


def test_a_group_rule_is_applied_once_for_the_whole_group(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3, 4))
    weights = [constant(egraph, np.random.default_rng(i).standard_normal((4, 2 + i))) for i in range(3)]
    products = [node(egraph, "MatMul", x, w) for w in weights]
    text = """
      rule merge
        { y[i] = x @ W[i] } => { y[*] = Split(x @ Concat(W[*], axis: -1), [dim(W[i], -1)], axis: -1) }
        given W[i]: const [K, _]
        class reassoc
        direction explore
    """
    found = saturate(egraph, rules(text))
    assert found.counts["merge"].applied == 1
    splits = [n for n in egraph.nodes if n.op == "Split"]
    assert [n.outputs for n in splits] == [3]
    kinds = [{egraph.nodes[h].op for h in egraph.members(p)} for p in products]
    assert kinds == [{"MatMul", "Proj"}] * 3


def test_a_rule_set_that_never_saturates_is_stopped(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    node(egraph, "Relu", x)
    grow = rules("rule grow Relu(x) => Relu(x + 1) class exact")
    assert saturate(egraph, grow, nodes=200).stop_reason in ("node_limit", "iteration_limit")


def test_rules_do_not_rearrange_constants_without_end(egraph: EGraph, rules) -> None:
    x, a = egraph.add_input("x", f32(9000)), constant(egraph, np.linspace(1, 2, 9000))
    one = constant(egraph, 1.0)
    node(egraph, "Mul", node(egraph, "Add", x, a), one)
    found = saturate(
        egraph,
        rules("""
rule mul_one           x * c  =>  x  where all(c == 1)  class exact
rule shift_then_scale  (x + a) * b  =>  x * b + a * b  given a, b: const  class reassoc
"""),
    )
    assert found.stop_reason == "saturated"
    assert found.nodes < 12


def test_time_runs_out_between_matches(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    node(egraph, "Relu", x)
    grow = rules("rule grow Relu(x) => Relu(x + 1) class exact")
    assert saturate(egraph, grow, seconds=0.0).stop_reason == "time_limit"


def test_empty_parts_of_a_concat_come_to_an_end(egraph: EGraph) -> None:
    x, empty = egraph.add_input("x", TensorType(DType.I64, (3,))), egraph.add_input("e", TensorType(DType.I64, (0,)))
    both = node(egraph, "Concat", empty, empty, axis=0)  # which is `empty` again, and so a part of itself
    root = node(egraph, "Concat", x, both, axis=0)
    egraph.roots = {"y": root}
    before = len(egraph.nodes)
    found = saturate(egraph, rule_set(load_rules()))
    assert found.stop_reason == "saturated"
    assert egraph.find(root) == egraph.find(x)
    assert len(egraph.nodes) < before + 20


def test_a_term_that_contains_itself_is_not_rewritten_without_end(egraph: EGraph) -> None:
    """Min(m, m) is m, and m a reshaped number. Pairs of its forms were moved through Min: n forms gave n² more."""
    m = node(egraph, "ReduceMin", egraph.add_input("x", f32(4)), 0, keepdims=0)
    root = node(egraph, "Min", m, m)
    egraph.roots = {"y": root}
    found = saturate(egraph, rule_set(load_rules()), nodes=500)
    assert found.stop_reason == "saturated"
    assert egraph.find(root) == egraph.find(m)
    assert found.counts["reduce_keepdims"].applied
    assert len(egraph.nodes) < 20


def test_zeros_that_were_added_are_not_joined(egraph: EGraph) -> None:
    """m + z is m for each of them. Joined, (m + z) + w = m + (z + w), each pair of n would be another one."""
    m = node(egraph, "Relu", egraph.add_input("x", f32(1, 2, 3)))
    for shape in [(3,), (1, 3), (2, 3)]:
        egraph.union(m, node(egraph, "Add", m, constant(egraph, np.zeros(shape))), "add_zero")
    egraph.roots = {"y": m}
    egraph.rebuild()
    found = saturate(egraph, rule_set(load_rules()))
    assert found.stop_reason == "saturated"
    assert found.counts["add_const_add_const"].matches == 0


def test_a_chain_of_concats_gets_one_flat_form_each(egraph: EGraph) -> None:
    chain = [egraph.add_input("x", f32(2, 4))]
    parts = list(chain)
    for i in range(60):
        parts.append(egraph.add_input(f"y{i}", f32(2, 3)))
        chain.append(node(egraph, "Concat", chain[-1], parts[-1], axis=1))
    egraph.roots = {f"z{i}": handle for i, handle in enumerate(chain)}
    before = len(egraph.nodes)
    found = saturate(egraph, rule_set(load_rules()))
    assert found.stop_reason == "saturated"
    assert found.counts["concat_concat"].applied == len(egraph.nodes) - before == 59
    assert found.counts["concat_concat"].matches < 4 * 60
    for i, handle in enumerate(chain[1:], 2):
        forms = [egraph.nodes[member].children for member in egraph.members(handle)]
        assert tuple(parts[:i]) in forms


def test_several_nested_concats_are_one(egraph: EGraph) -> None:
    parts = [egraph.add_input(f"x{i}", f32(2, 3 + i)) for i in range(9)]
    threes = [node(egraph, "Concat", *parts[i : i + 3], axis=1) for i in (0, 3, 6)]
    root = node(egraph, "Concat", *threes, axis=1)
    egraph.roots = {"y": root}
    found = saturate(egraph, rule_set(load_rules()))
    assert found.stop_reason == "saturated"
    assert tuple(parts) in [egraph.nodes[member].children for member in egraph.members(root)]
    assert found.counts["concat_concat"].applied == 3


def test_a_rule_is_tried_once_at_nodes_of_many_inputs_that_became_equal(egraph: EGraph, rules) -> None:
    x, y, z, t = (egraph.add_input(name, f32(3)) for name in "xyzt")
    parts = [node(egraph, "Relu", y), node(egraph, "Relu", z)]
    first, second, third = (node(egraph, "Concat", x, part, axis=0) for part in (*parts, node(egraph, "Relu", t)))
    egraph.union(y, z)
    text = "rule r Concat(xs[*], Relu(y), axis: a) => Concat(xs[*], Abs(y), axis: a) where {} class exact"
    assert saturate(egraph, rules(text.format("dim(y, 0) == 4"))).counts["r"].matches == 2
    found = saturate(egraph, rules(text.format("dim(y, 0) == 3")))
    assert (found.counts["r"].matches, found.counts["r"].applied) == (2, 2)
    for concat in (first, second, third):
        last = [egraph.nodes[egraph.nodes[member].children[1]].op for member in egraph.members(concat)]
        assert "Abs" in last


def test_an_exploring_rule_that_matches_too_often_sits_out(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    for i in range(20):
        node(egraph, "Relu", node(egraph, "Add", x, constant(egraph, [i, i, i])))
    text = "rule move Relu(x + c) => Relu(c + x + 0) class exact joins few  ruleset few matches 5 joins explore"
    found = saturate(egraph, rules(text))
    assert found.limited == ["move"]
    assert found.limits == [ExhaustedBudget("few", "matches", "move")]
    assert found.counts["move"].matches >= 20  # in the end all came to be applied


GROW = "rule grow Relu(x) => Relu(x + 1) class exact joins growth "


@pytest.mark.parametrize(
    ("limit", "nodes"), [("nodes 10", range(10, 16)), ("iterations 3", range(6, 11)), ("seconds 1e-9", range(3, 7))]
)
def test_a_ruleset_stops_at_its_limits(egraph: EGraph, rules, limit: str, nodes: range) -> None:
    node(egraph, "Relu", egraph.add_input("x", f32(3)))
    text = f"{GROW} ruleset growth {limit} schedule grow = saturate(growth)"
    found = saturate(egraph, rules(text, schedule="grow"))
    assert found.limits == [ExhaustedBudget("growth", limit.split()[0])]
    assert found.nodes in nodes
    assert found.stop_reason == ("iteration_limit" if limit == "iterations 3" else "saturated")


def test_a_schedule_decides_which_rulesets_run_and_how_often(rules) -> None:
    def nodes(schedule: str) -> int:
        egraph = EGraph.create()
        assert egraph.matcher is not None
        node(egraph, "Relu", egraph.add_input("x", f32(3)))
        found = saturate(egraph, rules(f"{GROW} ruleset growth schedule mine = {schedule}", schedule="mine"))
        return found.nodes

    none, once, three = nodes("saturate(simplify)"), nodes("growth"), nodes("repeat 3 (growth ; simplify)")
    assert none < once < three
    assert nodes("growth ; growth ; growth") == three
    assert nodes("repeat 3 (saturate(simplify) ; growth)") == three


def test_a_schedule_that_there_is_none_of_is_refused(rules) -> None:
    with pytest.raises(UserError, match="unknown schedule 'quik'") as caught:
        rules("schedule quick = simplify", schedule="quik")
    assert "quick" in caught.value.hint


def test_rules_of_a_file_for_other_versions_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "new.rules"
    path.write_text("use onnx(20 ..)  rule twice Relu(Relu(x)) => Relu(x) class exact")
    library = load_rules([path], std=False)
    names = [[r.name for r in rule_set(library, opsets=opsets).rules] for opsets in ({"": 19}, {"": 20}, {"ml": 1}, {})]
    assert names == [[], ["twice"], ["twice"], ["twice"]]


def test_the_same_run_gives_the_same_e_graph(rules) -> None:
    def run() -> tuple[object, ...]:
        egraph = EGraph.create(["Add", "Mul"])
        assert egraph.matcher is not None
        x = egraph.add_input("x", f32(4, 4))
        value = x
        for i in range(6):
            value = node(
                egraph, "Mul", node(egraph, "Add", value, constant(egraph, float(i))), constant(egraph, 2.0 + i)
            )
        text = "rule distribute (a + b) * c => a * c + b * c class reassoc direction explore"
        saturate(egraph, rules(text))
        return tuple((n.op, n.children, egraph.find(h)) for h, n in enumerate(egraph.nodes))

    assert run() == run()


def test_declared_operators_equal_their_definition(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    gate = node(egraph, "Sigmoid", node(egraph, "Mul", x, constant(egraph, 1.702)))
    root = node(egraph, "Mul", x, gate)
    saturate(egraph, rules("op QuickGelu(x, alpha: 1.702) = x * Sigmoid(alpha * x) kind elementwise class reassoc"))
    attrs: list[Mapping[str, object]] = [
        egraph.nodes[h].attrs for h in egraph.members(root) if "QuickGelu" in egraph.nodes[h].op
    ]
    assert attrs == [{"alpha": pytest.approx(1.702)}]


def test_a_pattern_of_a_declared_operator_means_its_default_attributes(egraph: EGraph, rules) -> None:
    x = egraph.add_input("x", f32(3))
    declared = "op QuickGelu(x, alpha: 1.702) = x * Sigmoid(alpha * x) kind elementwise class reassoc\n"
    found = rules(declared + "rule mark QuickGelu(x) => Swish(x, alpha: 1.702) class reassoc")
    node(egraph, "Mul", x, node(egraph, "Sigmoid", node(egraph, "Mul", x, constant(egraph, 1.702))))
    node(egraph, "Mul", x, node(egraph, "Sigmoid", node(egraph, "Mul", x, constant(egraph, 1.5))))
    assert saturate(egraph, found).counts["mark"].applied == 1


def test_an_input_of_a_declared_operator_that_is_left_out_is_matched_as_absent(rules) -> None:
    text = """
op Grown(x, m = none, s: 1.0) = (Exp(x) * s if m is none else Exp(x + m) * s)  kind elementwise  class exact
rule plain  Sqrt(Exp(x)) => Grown(x)  class fast
rule shifted  Sqrt(Exp(x + y)) => Grown(x, y)  class fast
rule seen  Grown(x, m = none, s: z) => Abs(x)  class fast
"""
    for build in (lambda e, x, y: x, lambda e, x, y: node(e, "Add", x, y)):
        egraph = EGraph.create(["Add", "Mul"])
        x, y = egraph.add_input("x", f32(3)), egraph.add_input("y", f32(3))
        root = node(egraph, "Sqrt", node(egraph, "Exp", build(egraph, x, y)))
        saturate(egraph, rules(text, "fast"))
        assert egraph.find(root) == egraph.find(node(egraph, "Abs", x))


def test_a_rewrite_may_move_along_the_whole_graph(egraph: EGraph, rules) -> None:
    """A Neg moves through one addition in each iteration."""
    text = "rule sink Neg(x) + c => Neg(x - c) class exact joins moves "
    text += "ruleset moves iterations 3 schedule move = saturate(moves)"
    x = node(egraph, "Neg", egraph.add_input("x", f32(2)))
    for i in range(30):
        x = node(egraph, "Add", x, egraph.add_input(f"c{i}", f32(2)))
    egraph.roots = {"y": x}
    assert saturate(egraph, rules(text, schedule="move")).stop_reason == "saturated"
    assert any(egraph.nodes[h].op == "Neg" for h in egraph.members(x))
