"""Trails of models with control flow: bodies have steps of their own, and must be what these lead to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from rewrite.engine import pipeline
from rewrite.engine.egraph.reasons import Applied
from rewrite.engine.ir.bodies import all_bodies, map_bodies, mark_bodies
from rewrite.engine.ir.graph import DType, Graph, TensorType
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.optimizer import optimize
from rewrite.engine.options import Options
from rewrite.engine.rewriting.rule_library import load_rules
from rewrite.engine.trails import bodies, check, make, text, trail
from rewrite.engine.trails.coding import body_digest
from rewrite.engine.trails.replay import Gap

MODELS = Path(rewrite.__file__).parent / "rules" / "models"
NESTED = """
<ir_version: 8, opset_import: ["": 17]>
nested (float[64] x, float[64] y, float[64,64] m, bool c, int64 n) => (float[64] z)
{
  a = Exp (x)
  b = Tanh (y)
  z = Loop (n, , x) <body = body (int64 i, bool on, float[64] s) => (bool go, float[64] t) {
    go = Identity (on)
    d = Sub (a, b)
    k = Neg (d)
    e = Neg (k)
    u = If (c) <
      then_branch = yes () => (float[64] p) { f = MatMul (m, e) q = Sub (s, f) r = Relu (q) p = Relu (r) },
      else_branch = no () => (float[64] w) { g = Sub (a, s) w = MatMul (m, g) }
    >
    t = Mul (u, b)
  }>
}
"""
"""A Loop with an If inside; both capture values, and each body has something to simplify."""


def nested() -> bytes:
    return onnx.parser.parse_model(NESTED).SerializeToString()


def repeat(data: Any, run: make.Run, after: Graph | None = None) -> int:
    """Check a trail as JSON."""
    with declared_operators(run.source.operators):
        return check.check(trail.from_json(data), run.before, after or run.after, run.rules)


def as_json(steps: trail.Trail) -> Any:
    return json.loads(json.dumps(trail.to_json(steps)))


@pytest.mark.parametrize("path", sorted(MODELS.glob("[ils][foc]*.onnx")), ids=lambda path: path.stem)
def test_trails_of_models_with_bodies(path: Path) -> None:
    for target in ("portable", "native"):
        run = make.run(path, Options(), target)
        found = make.trail_of(run, Options())
        assert repeat(as_json(found), run) == found.count
        if target == "portable":
            written = optimize(path).model.SerializeToString()
            assert check.check_files(found, path, written, Options()) == found.count


def test_each_body_has_its_own_steps() -> None:
    run = make.run(nested(), Options())
    found = make.trail_of(run, Options())
    rules = [[s.rule for stage in g.stages for s in stage.steps if isinstance(s, Applied)] for g in found.graphs]
    assert any("idempotent" in names for names in rules[1:])
    assert "idempotent" not in rules[0]
    shown = "\n".join(text.lines(found, run.source))
    assert "in the body that computes p\n" in shown
    part = make.trail_of(run, Options(), "p")
    assert 0 < part.count < found.count
    written = optimize(nested()).model.SerializeToString()
    assert check.check_files(found, nested(), written, Options()) == found.count


def swapped(body: Graph) -> Graph:
    """Return a body with the operands of each difference exchanged, in its bodies, too."""
    nodes = [replace(n, inputs=n.inputs[::-1]) if n.op == "Sub" else n for n in map_bodies(body, swapped).nodes]
    return replace(body, nodes=nodes)


def test_a_captured_value_that_is_an_input() -> None:
    """The result has an Identity of the name that the body captures, and a Loop of that when all steps are done."""
    loop = """<ir_version: 8, opset_import: ["": 17]> g (float[4,4] x, float[4,4] s, int64 n) => (float[4,4] y)
      <float zero = {0}> {
      a = Add (x, zero)
      y = Loop (n, , s) <body = body (int64 i, bool on, float[4,4] t) => (bool go, float[4,4] u) {
        go = Identity (on)
        u = MatMul (t, a)
      }> }"""
    run = make.run(onnx.parser.parse_model(loop), Options())
    assert [node.op for node in run.after.nodes] == ["Identity", "Loop"]
    found = make.trail_of(run, Options())
    assert repeat(as_json(found), run) == found.count == 1


def test_a_body_that_is_another_is_refused() -> None:
    run = make.run(nested(), Options())
    data = as_json(make.trail_of(run, Options()))
    changed = [
        map_bodies(run.after, swapped),
        map_bodies(run.after, lambda loop: map_bodies(loop, swapped)),
        map_bodies(run.after, lambda loop: replace(loop, outputs=loop.outputs[::-1])),
        map_bodies(run.after, lambda loop: replace(loop, inputs=loop.inputs[::-1])),
    ]
    for after in changed:
        with pytest.raises(check.Broken) as broken:
            repeat(data, run, after)
        assert broken.value.graph > 0


def other_names(entry: Any) -> None:
    """Exchange what the captured values are called."""
    entry["names"] = {"a": "b", "b": "a"}


CHANGES: list[Callable[[Any], None]] = [
    other_names,
    lambda entry: entry.update(captures={"a": "b", "b": "a"}),
    lambda entry: entry.update(captures={"a": "x"}, names={"a": "x"}),
    lambda entry: entry.update(captures={"b": "s"}, names={"b": "s"}),
    lambda entry: entry.update(graph=0),
    lambda entry: entry.update(body="0" * 32),
]


@pytest.mark.parametrize("change", CHANGES)
def test_an_entry_that_names_something_else_is_refused(change: Callable[[Any], None]) -> None:
    run = make.run(nested(), Options())
    found = as_json(make.trail_of(run, Options()))
    assert found["graphs"][0]["inner"]
    data = json.loads(json.dumps(found))
    change(data["graphs"][0]["inner"][0])
    with pytest.raises(check.Broken):
        repeat(data, run)


def test_the_steps_of_another_body_are_refused() -> None:
    run = make.run(nested(), Options())
    data = as_json(make.trail_of(run, Options()))
    loop = next(graph for graph in data["graphs"] if len(graph["inner"]) == 2)
    first, second = loop["inner"]
    first["graph"], second["graph"] = second["graph"], first["graph"]
    with pytest.raises(check.Broken):
        repeat(data, run)
    data = as_json(make.trail_of(run, Options()))
    data["graphs"][1]["inner"] = data["graphs"][1]["inner"][:1]
    with pytest.raises(check.Broken, match="2 bodies here, the trail 1"):
        repeat(data, run)


def test_a_body_of_other_types_is_another() -> None:
    """Steps rest on the types of what a body captures, which another place of the model may have otherwise."""
    run = make.run(nested(), Options())
    found = make.trail_of(run, Options())
    loop = run.graphs[1].start
    other = replace(loop, types={**loop.types, "a": TensorType(DType.F32, (0,))})
    entry = trail.Inner(1, body_digest(loop))
    here = bodies.Occurrence(0, run.graphs[0].start, run.after, {})
    for start, fits in ((loop, True), (other, False)):
        part = trail.GraphTrail([trail.StageTrail([], [])], body=body_digest(start))
        tried = replace(found, graphs=[replace(found.graphs[0], inner=[entry]), part])
        known = {body_digest(body): body for body in (loop, other)}
        if fits:
            assert bodies.occurrences(tried, tried.graphs[0], here, known)[1][0].start is loop
            continue
        with pytest.raises(Gap, match="another one than that from which its steps start"):
            bodies.occurrences(tried, tried.graphs[0], here, known)


def test_a_captured_name_that_stands_for_two_values_is_refused() -> None:
    run = make.run(nested(), Options())
    found = make.trail_of(run, Options())
    loop = run.graphs[1].start
    entry = trail.Inner(1, body_digest(loop), {"a": "d"}, {"a": "d"})  # the body has a `d` of its own
    part = trail.GraphTrail([trail.StageTrail([], [])], body=body_digest(loop))
    tried = replace(found, graphs=[replace(found.graphs[0], inner=[entry]), part])
    here = bodies.Occurrence(0, run.graphs[0].start, run.after, {})
    with pytest.raises(Gap, match="two values"):
        bodies.occurrences(tried, tried.graphs[0], here, {body_digest(loop): loop})


# --- trails that are made to mislead: each once led to a wrong result ---

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def parsed(body: str) -> bytes:
    return onnx.parser.parse_model(f"{HEADER}{body}").SerializeToString()


def if_of(kind: str, then: str, otherwise: str) -> str:
    """Return an If on `c` of one node in each branch."""
    names = [(name, text, text.split(" ")[0]) for name, text in (("then", then), ("else", otherwise))]
    bodies = [f"{name}_branch = {name}_{out} () => ({kind} {out}) {{ {text} }}" for name, text, out in names]
    return f"If (c) <{', '.join(bodies)}>"


def honest(model: bytes) -> Any:
    """Return the trail of a model as JSON."""
    return as_json(make.trail_of(make.run(model, Options()), Options()))


def refusal(data: Any, before: bytes, after: bytes) -> str:
    with pytest.raises(check.Broken) as broken:
        check.check_files(trail.from_json(data), before, after, Options())
    return str(broken.value)


def test_a_bound_body_captures_what_it_captures_there() -> None:
    form = "m (float[4] a, float[4] b, bool c) => (float[4] z) { %s }"
    branches = (
        "then_branch = t () => (float[4] p) { p = Sub (a, b) }, else_branch = e () => (float[4] q) { q = Sub (a, b) }"
    )
    before, after = parsed(form % f"z = If (c) <{branches}>"), parsed(form % "z = Sub (b, a)")
    data = honest(before)
    data["graphs"] = [{**data["graphs"][0], "inner": []}]
    (stage,) = data["graphs"][0]["stages"]
    bound = [v for step in stage["steps"] for v in step.get("bindings", {}).values() if isinstance(v, dict)]
    for value in (v["captures"] for v in bound if "captures" in v):
        value["a"], value["b"] = value["b"], value["a"]
    for term in stage["terms"]:
        if term["op"] == "Sub":
            term["inputs"].reverse()
    assert "captures something else" in refusal(data, before, after)


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("m (float[4] {0}, float[4] {1}) => (float[4] z) {{ z = Sub ({0}, {1}) }}", "ab"),
        ("m (float[4] a, float[4] b) => (float[4] {0}, float[4] {1}) {{ {0} = Sub (a, b) {1} = Sub (b, a) }}", "zw"),
    ],
)
def test_the_main_graph_is_no_body(form: str, order: str) -> None:
    """Inputs and outputs of bodies are compared by position, those of models by name."""
    before, after = parsed(form.format(*order)), parsed(form.format(*order[::-1]))
    data = honest(before)
    data["graphs"][0]["body"] = "x"
    assert "other inputs or outputs" in refusal(data, before, after)


def test_other_defaults_of_inputs_are_refused() -> None:
    def with_default(value: float) -> bytes:
        found = onnx.load_from_string(parsed("m (float[2] a, float[2] k) => (float[2] z) { z = Sub (a, k) }"))
        found.graph.initializer.append(onnx.numpy_helper.from_array(np.full(2, value, np.float32), "k"))
        return found.SerializeToString()

    before = with_default(0)
    data = honest(before)
    assert check.check_files(trail.from_json(data), before, with_default(0), Options()) == 0
    assert "defaults" in refusal(data, before, with_default(5))


EMPTY = {"terms": [{"op": "Absent"}], "steps": []}


def marked(model: bytes) -> list[tuple[str, Any]]:
    """Return the bodies of a model with their digests."""
    graph = pipeline.read(model, Options(), load_rules((), std=True)).graph
    return [(body_digest(body), body) for body in all_bodies(mark_bodies(graph))]


def test_a_body_stands_only_where_it_stood() -> None:
    """Its values have sizes of their place: an empty `z` would make the size of `x` 0."""
    form = "m (float[N] x, float[0] z, bool c) => (int64 o1, int64 o2) { o1 = %s %s }"
    first, nothing = if_of("int64", "p = Size (z)", "q = Size (z)"), "Constant<value_int=0>()"
    before = parsed(form % (first, "o2 = Size (x)"))
    after = parsed(form % (first, f"o2 = {if_of('int64', f'p2 = {nothing}', f'q2 = {nothing}')}"))
    (then, body), (otherwise, _) = marked(before)
    if body.nodes[0].outputs != ("p",):
        then, otherwise = otherwise, then
    bound = {d: {"of": "If", "body": d, "captures": {"z": 1}, "read": [0]} for d in (then, otherwise)}
    branches = {"then_branch": {"body": then}, "else_branch": {"body": otherwise}}
    size = next(n for n in pipeline.read(before, Options(), load_rules((), std=True)).graph.nodes if n.op == "Size")
    terms = [
        {"op": "Absent"}, {"op": "Input", "attrs": {"name": "x"}}, {"op": "Input", "attrs": {"name": "c"}},
        {"op": "Size", "attrs": dict(size.attrs), "inputs": [1]},
        {"op": "If", "attrs": {"$captures": ["z"], **branches}, "inputs": [2, 1]},
    ]  # fmt: skip
    bindings = {"c": {"term": 2}, "a": bound[then], "b": bound[otherwise], "i": 0}
    step = {"rule": "if_same", "roots": [4], "builds": [3], "bindings": bindings}
    order = [digest for digest, _ in marked(before)]
    here = [{"graph": 1 + i, "body": digest} for i, digest in enumerate(order)]
    moved = [{**entry, "captures": {"z": "x"}, "names": {"z": "x"}} for entry in here]
    graphs = [
        {"stages": [{"terms": terms, "steps": [step]}], "inner": [*here, *moved]},
        *({"body": digest, "stages": [EMPTY]} for digest in order),
    ]
    assert "neither the model's nor built by a step" in refusal({**honest(before), "graphs": graphs}, before, after)


def test_a_result_has_bodies_only_where_steps_lead_to_them() -> None:
    form = "m (float[N] x, float[0] z, bool c) => (float[K] o1, float[M] o2) { o1 = %s o2 = %s }"
    first = if_of("float[0]", "p = Relu (z)", "q = Neg (z)")
    before = parsed(form % (first, "Abs (z)"))
    after = parsed(form % (first, if_of("float[P]", "p2 = Relu (x)", "q2 = Neg (x)")))
    order = [digest for digest, _ in marked(before)]
    here = [{"graph": 1 + i, "body": digest} for i, digest in enumerate(order)]
    moved = [{**entry, "captures": {"z": "x"}, "names": {"z": "x"}} for entry in here]
    graphs = [{"stages": [EMPTY], "inner": [*here, *moved]}, *({"body": d, "stages": [EMPTY]} for d in order)]
    assert "that the steps do not lead to" in refusal({**honest(before), "graphs": graphs}, before, after)


def test_names_of_two_captured_values_of_different_types_are_not_made_one() -> None:
    run = make.run(nested(), Options())
    loop = run.graphs[1].start
    other = replace(loop, types={**loop.types, "a": TensorType(DType.F32, (1,))})
    found = make.trail_of(run, Options())
    names = {"a": "v", "b": "v"}
    part = trail.GraphTrail([trail.StageTrail([], [])], body=body_digest(other))
    tried = replace(
        found, graphs=[replace(found.graphs[0], inner=[trail.Inner(1, body_digest(loop), names, names)]), part]
    )
    here = bodies.Occurrence(0, run.graphs[0].start, run.after, {}, is_body=False)
    with pytest.raises(Gap, match="two types"):
        bodies.occurrences(tried, tried.graphs[0], here, {body_digest(body): body for body in (loop, other)})


@pytest.mark.parametrize(
    "change",
    [
        lambda stage: next(s for s in stage["steps"] if "rule" in s)["bindings"].update(x=nested_list(900)),
        lambda stage: next(s for s in stage["steps"] if "rule" in s)["bindings"].update(
            x={"of": "If", "body": "", "captures": {}, "read": [1e999]}
        ),
        lambda stage: stage["names"].update({"9" * 5000: "x"}),
    ],
)
def test_numbers_and_lists_without_measure_are_refused(change: Callable[[Any], Any]) -> None:
    data = honest(nested())
    change(next(s for g in data["graphs"] for s in g["stages"] if any("rule" in step for step in s["steps"])))
    with pytest.raises(trail.Malformed):
        trail.from_json(data)


def nested_list(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found
