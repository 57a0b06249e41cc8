"""Trails: the steps from a model to its result, as values and as JSON.

A trail has a list of stages for the main graph and for each body that was optimized for itself, one stage for each
e-graph that the result went through. A stage has terms, each an operator over earlier terms, and steps, each the
application of a rule to some of them. All numbers are positions in the list of terms. Trail files are untrusted: every
number is checked, and nothing in a file is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...errors import UserError
from ...system import scoped
from ...system.short_text import clipped, plural
from ..egraph.reasons import Applied, Defined
from .coding import Encoder, array_from_json, array_to_json, decode_attribute, decode_value

FORMAT = "rewrite-trail-1"
"""First value of a trail file; another format is refused."""
MOST_BYTES = 256 << 20
"""Maximum size of a trail file."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term: an operator over earlier terms, an input of the model (`op` is "Input"), or a constant ("Const").

    `outputs` is the number of outputs. `origin` is the name of the model's node where that draws random numbers, which
    no other node may stand for. A small constant has its `elements`; a large one is a constant of the model."""

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: int = 1
    origin: str = ""
    elements: np.ndarray[Any, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Named:
    """No rewrite: the numbers of terms that later steps lead through, so that a replay finds what they are equal to."""

    terms: tuple[int, ...]


Step = Applied | Defined | Named
"""A step, with the numbers of terms where the reasons of an e-graph have its classes."""


@dataclass(frozen=True, slots=True)
class StageTrail:
    """The part of a trail in one e-graph.

    `evaluated` are terms over constants with the digest of the constant that each is in the result. The next stage
    begins with the terms in `chosen`, of which those in `folded` are evaluated in the end, and with the outputs
    `roots`; the last stage has none. `names` are those of the model's values, for the text."""

    terms: Sequence[Term]
    steps: Sequence[Step]
    evaluated: Sequence[tuple[int, str]] = ()
    chosen: Sequence[int] = ()
    folded: Sequence[int] = ()
    roots: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inner:
    """A body of If, Loop or Scan in a result: the graph with number `graph` in the trail leads to it.

    `body` is the digest of the body in the e-graph, from which the steps of that graph start; `captures` has the names
    in the result of what it captures under other names, `names` of what the start of that graph does."""

    graph: int
    body: str
    captures: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphTrail:
    """The part of a trail for one graph, and the bodies in its result, in order.

    A body starts as the one with digest `body`, with captured values renamed as `names` says; it is the model's, or a
    step built it. `body` of the main graph is empty. `outputs` are the body's, for the text."""

    stages: Sequence[StageTrail]
    inner: Sequence[Inner] = ()
    body: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Trail:
    """The steps from a model to its result, and the rules that may stand in them; the first graph is the main one.

    `settings` are the options of the optimization that decide which rules run."""

    model: str
    settings: Mapping[str, Any]
    graphs: Sequence[GraphTrail]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trail to a file, from which `read` makes it again. Raises `OSError`."""
        with scoped.replacing(Path(path)) as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """Write the trail as JSON."""
        file.write(json.dumps(to_json(self), separators=(",", ":")).encode() + b"\n")

    def __repr__(self) -> str:
        stages = sum(len(graph.stages) for graph in self.graphs)
        return f"<Trail of {clipped(self.model, 40)}: {plural(self.count, 'step')} in {plural(stages, 'stage')}>"

    @property
    def count(self) -> int:
        """Number of applications of rules and definitions."""
        return sum(graph_count(graph) for graph in self.graphs)


def graph_count(graph: GraphTrail) -> int:
    """Return the number of applications of rules and definitions for one graph."""
    return sum(not isinstance(step, Named) for stage in graph.stages for step in stage.steps)


# --- writing ---


def to_json(trail: Trail) -> dict[str, Any]:
    """Return a trail as plain JSON values; docs/json.md describes them."""

    def stage(part: StageTrail) -> dict[str, Any]:
        code = Encoder()
        return {
            "terms": [_term(term, code) for term in part.terms],
            "names": {str(number): name for number, name in part.names.items()},
            "steps": [_step(step, code) for step in part.steps],
            "evaluated": [list(pair) for pair in part.evaluated],
            "chosen": list(part.chosen),
            "folded": list(part.folded),
            "roots": dict(part.roots),
        }

    def graph(part: GraphTrail) -> dict[str, Any]:
        start = {"body": part.body, "names": dict(part.names), "outputs": list(part.outputs)} if part.body else {}
        return {**start, "stages": [stage(each) for each in part.stages], "inner": [inner(each) for each in part.inner]}

    def inner(body: Inner) -> dict[str, Any]:
        return {"graph": body.graph, "body": body.body, "captures": dict(body.captures), "names": dict(body.names)}

    return {
        "format": FORMAT,
        "model": trail.model,
        "settings": dict(trail.settings),
        "graphs": [graph(part) for part in trail.graphs],
    }


def _term(term: Term, code: Encoder) -> dict[str, Any]:
    found: dict[str, Any] = {"op": term.op}
    if term.attrs:
        found["attrs"] = {name: code.attribute(value) for name, value in term.attrs.items()}
    if term.inputs:
        found["inputs"] = list(term.inputs)
    if term.outputs != 1:
        found["outputs"] = term.outputs
    if term.origin:
        found["origin"] = term.origin
    if term.elements is not None:
        found["elements"] = array_to_json(term.elements)
    return found


def _step(step: Step, code: Encoder) -> dict[str, Any]:
    if isinstance(step, Defined):
        return {"define": step.node}
    if isinstance(step, Named):
        return {"terms": list(step.terms)}
    found = {
        "rule": step.rule,
        "roots": list(step.roots),
        "builds": list(step.values),
        "bindings": {name: code.value(value) for name, value in step.env.items()},
    }
    return {**found, "backward": True} if step.backward else found


# --- reading ---


def read(path: Path) -> Trail:
    """Read a trail file. Raises `UserError` for a file that is not one."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"the trail is larger than {MOST_BYTES >> 20} MB", where=str(path))
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        hint = "`rewrite explain MODEL --trail --output FILE` writes one."
        raise UserError(f"this is not a trail: {error}", where=str(path), hint=hint) from error
    try:
        return from_json(data)
    except Malformed as error:
        raise UserError(f"the trail is damaged: {error}", where=str(path), hint="Write it again.") from error


class Malformed(Exception):
    """A value of a trail file that is not what stands there; the message says which."""


def from_json(data: Any) -> Trail:
    """Return the trail that JSON values describe. Raises `Malformed`."""
    top = _dict(data, "the file")
    if top.get("format") != FORMAT:
        raise Malformed(f"its format is {top.get('format')!r}, not {FORMAT!r}")
    parts = _list(top.get("graphs"), "graphs")
    graphs = [_graph(part, f"graph {i}", len(parts)) for i, part in enumerate(parts)]
    if not graphs:
        raise Malformed("it has no graph")
    return Trail(_str(top.get("model"), "model"), _dict(top.get("settings"), "settings"), graphs)


def _graph(data: Any, where: str, count: int) -> GraphTrail:
    part = _dict(data, where)
    stages = [_stage(each, f"{where}, stage {i}") for i, each in enumerate(_list(part.get("stages"), where))]
    if not stages:
        raise Malformed(f"{where} has no stage")
    inner = [
        Inner(
            _number(body.get("graph"), count, where),
            _str(body.get("body"), where),
            _names(body.get("captures", {}), where),
            _names(body.get("names", {}), where),
        )
        for body in (_dict(each, where) for each in _list(part.get("inner", []), where))
    ]
    outputs = [_str(name, where) for name in _list(part.get("outputs", []), where)]
    body, names = _str(part.get("body", ""), where), _names(part.get("names", {}), where)
    return GraphTrail(stages, inner, body, names, outputs)


def _names(data: Any, where: str) -> dict[str, str]:
    return {name: _str(value, where) for name, value in _dict(data, where).items()}


def _stage(data: Any, where: str) -> StageTrail:
    part = _dict(data, where)
    terms: list[Term] = []
    for i, item in enumerate(_list(part.get("terms"), f"{where}: terms")):
        at = f"{where}, term {i}"
        fields = _dict(item, at)
        attrs = {name: _guarded(decode_attribute, v, at) for name, v in _dict(fields.get("attrs", {}), at).items()}
        elements = fields.get("elements")
        terms.append(
            Term(
                _str(fields.get("op"), at),
                attrs,
                _numbers(fields.get("inputs", []), i, at),
                _number(fields.get("outputs", 1), 1 << 16, at),
                _str(fields.get("origin", ""), at),
                None if elements is None else _guarded(array_from_json, elements, at),
            )
        )
    count = len(terms)
    steps: list[Step] = []
    for i, item in enumerate(_list(part.get("steps"), f"{where}: steps")):
        at = f"{where}, step {i}"
        fields = _dict(item, at)
        if "define" in fields:
            steps.append(Defined(_number(fields["define"], count, at)))
            continue
        if "terms" in fields:
            steps.append(Named(_numbers(fields["terms"], count, at)))
            continue
        bindings = _dict(fields.get("bindings", {}), at)
        steps.append(
            Applied(
                _str(fields.get("rule"), at),
                fields.get("backward", False) is True,
                _numbers(fields.get("roots"), count, at),
                _numbers(fields.get("builds"), count, at),
                {name: _guarded(lambda v: decode_value(v, count), value, at) for name, value in bindings.items()},
            )
        )
    evaluated = []
    for pair in _list(part.get("evaluated", []), where):
        if not isinstance(pair, list) or len(pair) != 2:
            raise Malformed(f"{where}: an evaluated term is not a pair")
        evaluated.append((_number(pair[0], count, where), _str(pair[1], where)))
    roots = {name: _number(v, count, where) for name, v in _dict(part.get("roots", {}), where).items()}
    names = {
        _number(int(k) if k.isdecimal() and len(k) < 10 else -1, count, where): _str(v, where)
        for k, v in _dict(part.get("names", {}), where).items()
    }
    chosen, folded = (_numbers(part.get(name, []), count, where) for name in ("chosen", "folded"))
    return StageTrail(terms, steps, evaluated, chosen, folded, roots, names)


def _guarded(decode: Any, value: Any, where: str) -> Any:
    try:
        return decode(value)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise Malformed(f"{where}: {error}") from error


def _dict(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{where} is not an object")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"{where} is not a list")
    return value


def _str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{where}: {value!r} is not a text")
    return value


def _number(value: Any, below: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise Malformed(f"{where}: {value!r} is not a number below {below}")
    return value


def _numbers(value: Any, below: int, where: str) -> tuple[int, ...]:
    return tuple(_number(item, below, where) for item in _list(value, where))
