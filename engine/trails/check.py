"""Check of a trail: its steps are repeated from the model, and must end at the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import UserError
from .. import pipeline
from ..egraph.analysis import ENode, agree
from ..egraph.reasons import Applied, Defined
from ..extraction.extract import Extraction
from ..extraction.priced_egraph import dependencies, post_order
from ..extraction.restrict import restricted_egraph
from ..ir.bodies import mark_bodies
from ..ir.constants import summarize
from ..ir.graph import AttrValue, Constant, Graph, TensorType, content_text, graphs_in
from ..ir.names import ABSENT, CAPTURES
from ..ir.values import BodyRef, OpRef, RestRef, TensorRef, Value
from ..operators.folding import evaluate
from ..operators.schemas import declared_operators, signature
from ..options import NUMERICS, Options
from ..rewriting.rule_library import RuleSet, load_rules
from .bodies import Bodies, Occurrence, Result, occurrences, with_inner
from .coding import BodyDigest, body_digest
from .replay import MEANINGLESS, Gap, Replay, Tables, paired
from .trail import GraphTrail, Named, StageTrail, Step, Term, Trail, graph_count

ROUNDING = 1e-5
"""Largest allowed difference, relative to the largest element, between a constant of the result and the term that it
is, unless only exact rules run: another machine may add in another order. For narrower floats, four of their steps."""

_NO_AXES = "noop_with_empty_axes"


class Broken(Exception):
    """A trail that does not lead from the model to the result.

    `graph`, `stage` and `step` are the place of the first step that does not hold; `step` is None where all of a
    stage's steps hold and its end does not follow."""

    def __init__(self, message: str, stage: int, step: int | None, graph: int = 0) -> None:
        super().__init__(message)
        self.graph = graph
        self.stage = stage
        self.step = step


@dataclass(slots=True)
class Stage:
    """One stage of a trail in a replay: `classes` are those of the terms that were needed so far."""

    trail: StageTrail
    replay: Replay
    contents: Contents
    classes: dict[int, int] = field(default_factory=dict)

    def term(self, number: int) -> int:
        """Return the class of a term, which is added to the e-graph if nothing equal is there. Raises `Gap`."""
        terms = self.trail.terms
        for at in post_order([number], lambda n: () if n in self.classes else terms[n].inputs):
            if at not in self.classes:
                self.classes[at] = self._add(terms[at])
        return self.classes[number]

    def _add(self, term: Term) -> int:
        egraph = self.replay.egraph
        if term.op == "Absent":
            return ABSENT
        if term.op == "Input":
            return self._leaf("Input", lambda attrs: attrs["name"] == term.attrs.get("name"))
        if term.op == "Const":
            digest = str(term.attrs.get("digest"))
            if term.elements is not None:
                constant = Constant(term.elements)
                if constant.digest != digest:
                    raise Gap(f"the elements of constant {digest} are those of another one")
                return egraph.add_constant(constant)
            return self._leaf("Const", lambda attrs: attrs["digest"] == digest)
        if term.origin:
            found = [h for h, node in enumerate(egraph.nodes) if node.serial and term.origin in egraph.origins[h]]
            if not found:
                raise Gap(f"the model has no node {term.origin!r} that draws random numbers")
            return found[0]
        attrs = {name: self.attribute(value) for name, value in term.attrs.items()}
        count = len(egraph.nodes)
        handle = self.replay.add(term.op, attrs, [self.classes[i] for i in term.inputs], term.outputs)
        if any(True for _ in graphs_in(attrs)) and handle >= count:
            raise Gap(f"{term.op} of these operands with this body is neither the model's nor built by a step")
        return handle

    def _leaf(self, op: str, fits: Callable[[Mapping[str, AttrValue]], bool]) -> int:
        egraph = self.replay.egraph
        found = next((h for h, node in enumerate(egraph.nodes) if node.op == op and fits(node.attrs)), None)
        if found is None:
            raise Gap(f"the model has no such {'input' if op == 'Input' else 'constant'}")
        return found

    def attribute(self, value: Any) -> Any:
        """Return an attribute with the graphs that digests stand for. Raises `Gap`."""
        if isinstance(value, tuple):
            return type(value)(map(self.attribute, value)) if any(isinstance(v, BodyDigest) for v in value) else value
        return self.body(value) if isinstance(value, BodyDigest) else value

    def body(self, digest: Graph | BodyDigest) -> Graph:
        """Return a body of the model, or one that a step built. Raises `Gap`."""
        if isinstance(digest, Graph):
            return digest
        self.collect()
        if digest not in self.contents.bodies:
            raise Gap("a body is neither the model's nor built by a step")
        return self.contents.bodies[digest]

    def collect(self) -> None:
        """Add the bodies that steps built to those known."""
        for body in self.replay.context.bodies.values():
            self.contents.bodies[body_digest(body)] = body
            with_inner(self.contents.bodies, body)

    def value(self, value: Value) -> Value:
        """Return the value of a variable, with classes for terms. Raises `Gap`."""
        match value:
            case TensorRef(handle=number):
                return TensorRef(self.replay.egraph.find(self.term(number)))
            case list():
                return [self.value(item) for item in value]
            case OpRef():
                return replace(value, attrs={k: self.attribute(v) for k, v in value.attrs.items()})
            case RestRef():
                return RestRef({k: self.attribute(v) for k, v in value.attrs.items()})
            case BodyRef():
                captures = {name: self.value(tensor) for name, tensor in value.captures.items()}
                return BodyRef(self.body(value.graph), captures, value.op, value.read)
        return value

    def repeat(self, step: Step) -> None:
        """Repeat a step. Raises `Gap`."""
        match step:
            case Named(terms=numbers):
                for number in numbers:
                    self.term(number)
            case Defined(node=number):
                self.replay.define(self.term(number))
            case Applied():
                find = self.replay.egraph.find
                env = {name: self.value(value) for name, value in step.env.items()}
                roots = tuple(find(self.term(n)) for n in step.roots)
                repeated = Applied(step.rule, step.backward, roots, (), env)
                self.replay.apply(repeated, lambda: [self.term(n) for n in step.values])

    def evaluate(self, number: int) -> Constant:
        """Return the value of a term over constants. Raises `Gap`."""
        terms, known = self.trail.terms, self.contents.evaluated
        values: dict[int, tuple[Any, ...] | None] = {}
        for at in post_order([number], lambda n: terms[n].inputs):
            term = terms[at]
            if term.op == "Const":
                values[at] = (self.contents.elements(term),)
                continue
            if term.op == "Absent":
                values[at] = None
                continue
            operands = [values[i] for i in term.inputs]
            named = tuple((k, type(v).__name__, content_text(v)) for k, v in sorted(term.attrs.items()))
            key = (term.op, term.outputs, named, tuple(map(id, (v and v[0] for v in operands))))
            if term.op == "Proj":
                index = term.attrs.get("index")
                whole = operands[0] if len(operands) == 1 else None
                if whole is None or not isinstance(index, int) or not 0 <= index < len(whole):
                    raise Gap("a term has no such output")
                values[at] = (whole[index],)
                continue
            if key not in known:
                attrs = {name: self.attribute(value) for name, value in term.attrs.items()}
                arrays = [None if v is None else v[0] for v in operands]
                found = evaluate(term.op, attrs, arrays, term.outputs)
                if found is None:
                    raise Gap(f"{term.op} of constants cannot be evaluated")
                known[key] = (tuple(found), arrays)  # which keeps the operands, whose identities are in the key
            values[at] = known[key][0]
        result = values[number]
        if result is None or len(result) != 1:
            raise Gap("a constant is not one tensor")
        return Constant(np.ascontiguousarray(result[0]).reshape(result[0].shape))


@dataclass(slots=True)
class Contents:
    """Contents of the constants of a graph, and of its result, by digest, and the bodies that are known."""

    constants: dict[str, Constant]
    results: dict[str, Constant]
    bodies: Bodies
    evaluated: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, before: Graph, after: Graph, bodies: Bodies) -> Contents:
        """Collect the constants of both graphs and the bodies of the first."""
        given, made = ({c.digest: c for c in graph.constants.values()} for graph in (before, after))
        with_inner(bodies, before)
        return cls(given, made, bodies)

    def elements(self, term: Term) -> Any:
        """Return the elements of a constant. Raises `Gap`."""
        if term.elements is not None:
            return term.elements
        digest = str(term.attrs.get("digest"))
        if digest not in self.constants:
            raise Gap(f"the model has no constant {digest}")
        return self.constants[digest].array


def check(trail: Trail, before: Graph, after: Graph, rules: RuleSet) -> int:
    """Repeat the steps of a trail on graph `before` and return their number. Raises `Broken` unless they hold and end
    at graph `after`."""
    bodies: Bodies = {}
    used: set[int] = set()
    pending = [Occurrence(0, mark_bodies(before), after, {}, is_body=False)]
    while pending:
        here = pending.pop()
        pending += _check_graph(trail, here, rules, bodies)
        used.add(here.number)
    return sum(graph_count(trail.graphs[number]) for number in used)


def _check_graph(trail: Trail, here: Occurrence, rules: RuleSet, bodies: Bodies) -> list[Occurrence]:
    """Repeat the steps of a graph, and return the bodies of its result, which have to follow, too. Raises `Broken`."""
    part, contents = trail.graphs[here.number], Contents.of(here.start, here.end, bodies)
    found: list[Occurrence] = []
    for number, (stage, last) in enumerate(stages(part, here, rules, contents)):
        for at, step in enumerate(stage.trail.steps):
            try:
                stage.repeat(step)
            except Gap as gap:
                raise Broken(str(gap), number, at, here.number) from gap
        stage.collect()
        try:
            if last:
                standing, found = occurrences(trail, part, here, bodies)
                result = Result(here.end, standing, here.captured, is_body=here.is_body)
                reaches(stage, here.start, result, exact=trail.settings.get("numerics") == "exact")
            else:
                follows(stage)
        except Gap as gap:
            raise Broken(str(gap), number, None, here.number) from gap
    return found


def stages(part: GraphTrail, here: Occurrence, rules: RuleSet, contents: Contents) -> Iterator[tuple[Stage, bool]]:
    """Yield the stages of a graph, each ready for its steps, and whether it is the last one."""
    replay, _ = Replay.of(rules, here.start)
    for number, each in enumerate(part.stages):
        stage, last = Stage(each, replay, contents), number == len(part.stages) - 1
        yield stage, last
        if not last:
            try:
                replay = next_replay(stage)
            except Gap as gap:
                raise Broken(str(gap), number, None, here.number) from gap


def follows(stage: Stage) -> None:
    """Check that the terms with which the next stage begins are equal to the outputs of this one. Raises `Gap`."""
    egraph = stage.replay.egraph
    for name, root in egraph.roots.items():
        if name not in stage.trail.roots or egraph.find(stage.term(stage.trail.roots[name])) != egraph.find(root):
            raise Gap(f"output {name!r} with which the next stage begins does not follow")


def next_replay(stage: Stage) -> Replay:
    """Return the replay of the next stage, whose e-graph has the chosen terms only. Raises `Gap`."""
    replay, part = stage.replay, stage.trail
    egraph = replay.egraph
    choice = {egraph.find(stage.term(number)): stage.term(number) for number in part.chosen}
    folded = frozenset(egraph.find(stage.term(number)) for number in part.folded)
    _check_closed(egraph, choice)
    extraction = Extraction(choice, folded, 0.0, "a trail")
    into = Tables(replay.rules.commutative)
    try:
        restricted_egraph(egraph, extraction, replay.rules.commutative, into)
    except MEANINGLESS as why:
        raise Gap(f"the chosen terms are no graph: {why}") from why
    into.close()
    if set(into.roots) != set(egraph.roots):
        raise Gap("the next stage begins without an output")
    return Replay(replay.rules, into)


def _check_closed(egraph: Tables, choice: Mapping[int, int]) -> None:
    """Check that the operands of chosen nodes are chosen, and that none is computed from itself. Raises `Gap`."""
    state: dict[int, bool] = {}
    for start in choice:
        stack = [start]
        while stack:
            c = stack[-1]
            if c not in choice:
                raise Gap("a chosen term has an operand that is not chosen")
            if c in state:
                state[c] = True
                stack.pop()
                continue
            state[c] = False
            for child in dependencies(egraph, choice[c]):
                if state.get(child) is False:
                    raise Gap("a chosen term is computed from itself")
                if child not in state:
                    stack.append(child)


def reaches(
    stage: Stage, before: Graph, result: Result, *, exact: bool
) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Check that the outputs of the result are equal to those of graph `before`; return the pairs of their nodes, and
    the node of each value of the result.

    Raises `Gap`."""
    egraph, after = stage.replay.egraph, result.graph
    for number, digest in stage.trail.evaluated:
        if digest not in stage.contents.results:
            raise Gap(f"the result has no constant {digest}")
        wanted = stage.contents.results[digest]
        try:
            found = stage.evaluate(number)
        except MEANINGLESS as why:
            raise Gap(f"a term over constants cannot be evaluated: {why}") from why
        if not _equal(wanted, found, exact=exact or stage.trail.terms[number].op == "Const"):
            raise Gap(f"a constant of the result is not the value of its term: {_names(after, digest)}")
        egraph.union(stage.term(number), egraph.add_constant(summarize(wanted)))
    egraph.close()
    _check_interface(before, after, is_body=result.is_body)
    roots, given = dict(egraph.roots), len(egraph.nodes)
    ends = result.encode(egraph, before)
    egraph.roots = roots
    egraph.close()
    _merge_spellings(egraph)
    _merge_shortened(egraph)
    _pair_random(egraph, given)
    _check_bodies(egraph, given)
    for name, end in zip(before.outputs, after.outputs, strict=True):
        if name not in roots or end not in ends or egraph.find(ends[end]) != egraph.find(roots[name]):
            raise Gap(f"output {name!r} of the result does not follow from the steps")
    _check_constants(egraph, stage.contents)
    return [(roots[name], ends[end]) for name, end in zip(before.outputs, after.outputs, strict=True)], ends


def _check_interface(before: Graph, after: Graph, *, is_body: bool) -> None:
    """Check that the result has the inputs and outputs of graph `before`, of types that do not contradict; only those
    of bodies may have other names. Raises `Gap`."""
    ports = [(*graph.inputs, "", *graph.outputs) for graph in (before, after)]
    if len(before.inputs) != len(after.inputs) or len(before.outputs) != len(after.outputs):
        raise Gap("the result has other inputs or outputs than the model")
    if before.defaults != after.defaults and not is_body:
        raise Gap("the result has other defaults of inputs than the model")
    for name, other in zip(*ports, strict=True):
        if name != other and not is_body:
            raise Gap("the result has other inputs or outputs than the model")
        types = [graph.types.get(v, TensorType()) for graph, v in ((before, name), (after, other))]
        if name and not agree((types[0],), (types[1],), loose=True):
            raise Gap(f"{name!r} is {types[1]} in the result, {types[0]} in the model")


def _check_constants(egraph: Tables, contents: Contents) -> None:
    """Check that constants in one class differ by no more than rounding: a small error may be made once, not again and
    again. Raises `Gap`."""
    known = {**contents.results, **contents.constants}
    first: dict[int, Constant] = {}
    for handle, node in enumerate(egraph.nodes):
        if node.op != "Const":
            continue
        info = egraph.constants[str(node.attrs["digest"])]
        constant = known.get(info.digest) or (Constant(info.elements) if info.elements is not None else None)
        c = egraph.find(handle)
        if constant is not None and not _equal(first.setdefault(c, constant), constant, exact=False):
            raise Gap("two constants that differ by more than rounding are said to be equal")


def _merge_spellings(egraph: Tables) -> None:
    """Merge what files do not keep apart: an Identity that gives an output its name, and whether a reduction over
    stated axes would do nothing if there were none, which older operator sets cannot say."""
    for handle, node in enumerate(list(egraph.nodes)):
        other = handle
        if node.op == "Identity":
            other = node.children[0]
        elif node.attrs.get(_NO_AXES) and len(node.children) > 1 and node.children[1] != ABSENT:
            axes = egraph.constant(node.children[1])
            if axes is not None and axes.size:
                other = egraph.add(node.op, {**node.attrs, _NO_AXES: 0}, node.children)
        if node.op == "Identity" or egraph.can_union(handle, other):
            egraph.union(handle, other)
    egraph.close()


def _are_optional(op: str, outputs: Iterable[int]) -> bool:
    """Whether the schema of an operator makes these outputs optional."""
    found = signature(op)
    if found is None or any(formal.variadic for formal in found.outputs):
        return False
    return all(i < len(found.outputs) and found.outputs[i].optional for i in outputs)


def _same_operator(one: ENode, other: ENode) -> bool:
    """Whether two nodes have one operator and attributes of the same values and types: 1 is not 1.0."""
    return one.op == other.op and content_text(sorted(one.attrs.items())) == content_text(sorted(other.attrs.items()))


def _merge_shortened(egraph: Tables) -> None:
    """Merge the outputs of each node that leaves out optional outputs at its end with those of the node that has
    them: files do not name outputs that nothing reads."""
    longer = [(h, node) for h, node in enumerate(egraph.nodes) if node.outputs > 1 and not node.serial]
    for handle, node in enumerate(list(egraph.nodes)):
        for other, whole in longer:
            if (
                _same_operator(whole, node)
                and node.outputs < whole.outputs
                and _are_optional(node.op, range(node.outputs, whole.outputs))
                and [*map(egraph.find, whole.children)] == [*map(egraph.find, node.children)]
            ):
                egraph.looked_up += paired(egraph, node.children, whole.children)
                for i in range(node.outputs):
                    one = egraph.add("Proj", {"index": i}, (handle,)) if node.outputs > 1 else handle
                    egraph.union(one, egraph.add("Proj", {"index": i}, (other,)))
    egraph.close()


def _pair_random(egraph: Tables, given: int) -> None:
    """Merge each node of the result that draws random numbers with the one of the model that it is: of the same name,
    on the same operands."""
    left = {h: node for h, node in enumerate(egraph.nodes[:given]) if node.serial}
    for handle in range(given, len(egraph.nodes)):
        node, origins = egraph.nodes[handle], egraph.origins[handle]
        if not node.serial:
            continue
        operands = list(map(egraph.find, node.children))
        for original, other in left.items():
            same = _same_operator(other, node) and egraph.origins[original] == origins
            if same and list(map(egraph.find, other.children)) == operands:
                del left[original]
                egraph.union(original, handle)
                egraph.close()
                break


def _check_bodies(egraph: Tables, given: int) -> None:
    """Check that each node of the result with bodies is one of the model or one that a step built: what a body states
    of its values holds only there. Raises `Gap`."""

    def key(handle: int) -> tuple[int, ...]:
        return egraph.attrs_id(handle), *map(egraph.find, egraph.nodes[handle].children)

    having = [h for h, node in enumerate(egraph.nodes) if CAPTURES in node.attrs]
    known = {key(h) for h in having if h < given}
    for h in having[sum(h < given for h in having) :]:
        node = egraph.nodes[h]
        drawn = node.serial and any(m < given and egraph.nodes[m].serial for m in egraph.members(h))
        if not drawn and key(h) not in known:
            raise Gap(f"{node.op} of the result has bodies that the steps do not lead to")


def _names(graph: Graph, digest: str) -> str:
    return ", ".join(name for name, constant in graph.constants.items() if constant.digest == digest)


def _equal(wanted: Constant, found: Constant, *, exact: bool) -> bool:
    if wanted.type != found.type or wanted.digest == found.digest:
        return wanted.type == found.type
    if exact or not wanted.type.dtype or not wanted.type.dtype.is_float:
        return False
    step = float(ml_dtypes.finfo(wanted.array.dtype).eps)
    a, b = (constant.array.astype(np.float64) for constant in (wanted, found))
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    largest = float(np.max(np.abs(a[finite]), initial=0.0))
    return bool(np.allclose(a[finite], b[finite], rtol=0.0, atol=max(ROUNDING, 4 * step) * largest))


def check_files(trail: Trail, before: Any, after: Any, options: Options) -> int:
    """Check a trail between two models, each as `pipeline.read` takes it, and return the number of its steps.

    Only rules that the options admit may stand in it; sizes that they fix hold for both models. Raises `Broken`, and
    `UserError` for models, rules or a trail that cannot be used."""
    allowed, settings = NUMERICS.index(options.numerics), trail.settings
    numerics, shapes = settings.get("numerics"), settings.get("shapes", {})
    if numerics not in NUMERICS or not isinstance(shapes, dict):
        raise UserError("the trail does not say which rules it admits")
    if NUMERICS.index(numerics) > allowed:
        raise UserError(f"the trail has rules of class {numerics}", hint=f"Allow them: --numerics {numerics}")
    if shapes != dict(options.shapes):
        wanted = " ".join(f"--shape {name}={size}" for name, size in shapes.items())
        raise UserError("the trail is for other sizes", hint=f"Say that these are meant: {wanted}" if wanted else "")
    library = load_rules(options.rules, std=options.std_rules)
    source = pipeline.read(before, options, library)
    result = pipeline.read(after, options, library)
    setup = pipeline.prepare(library, source.graph.opset, replace(options, numerics=numerics), ())
    with declared_operators(source.operators):
        return check(trail, source.graph, result.graph, setup.rules)
