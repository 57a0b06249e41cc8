"""Trails of models with control flow: bodies have steps of their own, and must be what these lead to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import rewrite
from rewrite.engine.egraph.reasons import Applied
from rewrite.engine.ir.bodies import map_bodies
from rewrite.engine.ir.graph import DType, Graph, TensorType
from rewrite.engine.operators.schemas import declared_operators
from rewrite.engine.optimizer import optimize
from rewrite.engine.options import Options
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
