"""Memoization of refused matches: by types and contents, for rules that read nothing else."""

import pytest
from rewrite.engine.egraph.egraph import EGraph
from rewrite.engine.ir.graph import DType, TensorType
from rewrite.engine.rewriting.matching.compile_rules import Compiler
from rewrite.engine.rewriting.matching.compiled_patterns import compiled, memo_key
from rewrite.grammar.syntax.parse import parse_text


def found(text):
    (rule,) = compiled(parse_text(text).items[0])
    ops = {name: number for number, name in enumerate(("Add", "Mul", "Relu", "Concat", "Reshape", "Proj"))}
    (variant,) = list(Compiler(ops, frozenset(), "m", {}).variants(rule, set()))
    result = memo_key(rule, variant)
    return (
        None
        if result is None
        else {v for v, (_, contents) in zip(variant.query.classes, result, strict=True) if contents}
    )


@pytest.mark.parametrize(
    ("rule", "contents"),
    [
        ("rule a\n  Relu(x) => x\n  where rank(x) == 2 \n  class exact", set()),
        ("rule a\n  x * c => x\n  where all(c == 1), not is_const(x) \n  class exact", {"v_c"}),
        ("rule a\n  Reshape(x, t) => x\n  where shape(Reshape(x, t)) == shape(x) \n  class exact", set()),
        ("rule a\n  Reshape(x, t) => x\n  let k = dims(t)\n  where k == shape(x) \n  class exact", {"v_t"}),
        ("rule a\n  Relu(x) => x\n  where nonnegative(x) \n  class exact", None),
        ("rule a\n  x + y => x\n  where same(x, y) \n  class exact", None),
        ("rule a\n  x + y => x\n  where shape(Mul(x, y)) == shape(x) \n  class exact", None),
        ("rule a\n  Concat(xs[*], axis: a) => xs[0]\n  where len(xs) == 1 \n  class exact", None),
    ],
)
def test_only_rules_that_ask_for_types_and_contents(rule, contents):
    assert found(rule) == contents


def test_classes_of_which_the_same_is_known_have_one_number():
    egraph = EGraph.create()
    assert egraph.matcher is not None
    two, three = TensorType(DType.F32, (2,)), TensorType(DType.F32, (3,))
    x, y, z = (egraph.add_input(name, t) for name, t in (("x", two), ("y", two), ("z", three)))
    assert egraph.number(x, contents=True) == egraph.number(y, contents=True)
    assert egraph.number(x, contents=False) != egraph.number(z, contents=False)
    unknown = egraph.add_input("u", TensorType())
    assert egraph.number(0, contents=False) != egraph.number(unknown, contents=False)


def test_inputs_before_a_list_have_known_positions():
    (rule,) = compiled(parse_text("rule a\n  Loop(n, c, v[*], body: b)[i] => v[i]\n  class exact").items[0])
    variants = list(Compiler({"Loop": 0, "Proj": 1}, frozenset(), "m", {}).variants(rule, set()))
    assert variants
    for variant in variants:  # else there would be a row for each pair of inputs and captured values
        (atom,) = (atom for atom in variant.query.atoms if atom.node)
        assert atom.positions == (0, 1)
        assert not {"i_1", "i_2"} & {*variant.query.integers}
