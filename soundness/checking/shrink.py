"""Shrinking a counterexample: fewer dims, smaller extents, simpler constants and values, until no step helps.

The result is shown with its operands as a test writes them, and with both sides as ONNX models."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...engine.egraph.egraph import EGraph
from ...engine.ir import symbolic
from ...engine.ir.bodies import rename_captures
from ...engine.ir.graph import AttrValue, Constant, DType, Graph, Node
from ...engine.ir.names import ABSENT, CAPTURES, unique_name
from ...engine.ir.values import OpRef, RestRef
from ...engine.onnx_io.exporter import write
from ...engine.operators.schemas import WORKING_OPSET, attributes_of, find_declared
from ...engine.verification.compare_forms import OVERFLOWS
from ...engine.verification.reference_values import Undefined, Values
from ...errors import RewriteError
from ...grammar.printing.printer import print_expr
from ..sampling.edit import extents, with_dim, with_extent, with_number
from ..sampling.instance import Instance, Tensor, Term, resize, retype
from ..sampling.subject import LITERAL, Subject
from ..sampling.values import Array
from .report import Budget, Counterexample
from .run_instances import Batch, Difference, Outcome, difference, run

_BATCH = 32
"""Smaller instances that are tried in one e-graph."""
_REPEATS = 4
"""Draws of each style of values: a smaller tensor contains fewer special values."""
_SEARCHED_ELEMENTS = 64
"""Maximum number of elements of an input that are simplified one by one."""


def shrink(subject: Subject, outcome: Outcome, budget: Budget) -> Counterexample:
    """Return the counterexample that an outcome shows, as small as the budget's time allows."""
    until = time.process_time() + (budget.shrink_seconds if budget.shrink else 0.0)
    rng = np.random.default_rng(budget.seed)
    best = outcome
    while time.process_time() < until and (smaller := _step(subject, best, budget, rng)) is not None:
        best = smaller
    batch = run(subject, [best.instance], seed=budget.seed, repeats=_REPEATS)
    found = batch.outcomes[0].difference
    if found is None:  # it depends on the other instances of its batch, which share its constants
        assert outcome.difference is not None
        return Counterexample(
            operands_text(subject, outcome.instance), "", "", {}, np.asarray(outcome.difference.left),
            np.asarray(outcome.difference.right), outcome.difference.message,
        )  # fmt: skip
    if budget.shrink:
        found = _simpler_values(subject, batch, found, until + 0.5)
    return _describe(subject, batch, best.instance, found)


def _step(subject: Subject, best: Outcome, budget: Budget, rng: np.random.Generator) -> Outcome | None:
    """Return a smaller instance that still shows a difference; None if none of the candidates does."""
    limit = _cost_of(best.instance)
    candidates: dict[str, Instance] = {}
    for candidate in _smaller(best.instance, rng):
        if _cost_of(candidate) < limit:
            candidates.setdefault(candidate.key, candidate)
    ordered = sorted(candidates.values(), key=_cost_of)
    for start in range(0, len(ordered), _BATCH):
        batch = run(subject, ordered[start : start + _BATCH], seed=budget.seed, repeats=_REPEATS)
        found = [o for o in batch.outcomes if o.difference is not None]
        for shown in sorted(found, key=lambda o: _cost_of(o.instance))[:3]:
            # run it alone, because the instances of a batch share their constants
            alone = run(subject, [shown.instance], seed=budget.seed, repeats=_REPEATS).outcomes[0]
            if alone.difference is not None:
                return alone
    return None


# --- size ---


def _cost_of(instance: Instance) -> float:
    return sum(map(_cost, instance.operands.values()))


def _cost(value: Any) -> float:
    match value:
        case Tensor():
            sizes = [d if isinstance(d, int) else 6 for d in value.shape]
            found = 2.0 + 2 * len(sizes) + sum(sizes) + 0.2 * math.prod(sizes) + 5 * sum(d == 0 for d in sizes)
            found += {DType.F32: 0.0, DType.I64: 0.2, DType.BOOL: 0.2}.get(value.dtype, 1.0)
            if value.array is not None:
                numbers = value.array.astype(np.float64).reshape(-1)
                found += 0.5 + float(sum(map(_number_cost, numbers[:200])))
            return found
        case Term():
            return 4.0 + 2 * sum(1 for _ in value.expr.walk())
        case list() | tuple():
            return 1.0 + sum(map(_cost, value))
        case RestRef() | OpRef():
            extra = 1.0 if isinstance(value, OpRef) and value.op not in ("Relu", "Neg", "Add") else 0.0
            return extra + sum(1.0 + _cost(v) for v in value.attrs.values())
        case int() | float():
            return _number_cost(value)
    return 0.5


def _number_cost(value: float) -> float:
    if value in (0, 1):
        return 0.1 + 0.05 * (value == 1)
    if not math.isfinite(value):
        return 0.6
    return (0.3 if value == int(value) else 1.0) + 0.05 * min(abs(value), 10) + 0.1 * (value < 0)


# --- smaller instances ---


def _smaller(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    for name, value in instance.operands.items():
        yield instance.without(name)
        if isinstance(value, Term) and f"{name}_in" in instance.operands:
            yield instance.without(name, f"{name}_in").replace(**{name: instance.operands[f"{name}_in"]})
        if isinstance(value, list) and len(value) > 1:
            lists = {n: v for n, v in instance.operands.items() if isinstance(v, list) and len(v) == len(value)}
            for chosen in ({name: value}, lists):
                for i in range(len(value)):
                    yield instance.replace(**{n: [*v[:i], *v[i + 1 :]] for n, v in chosen.items()})
        for simpler in _simpler(value):
            yield instance.replace(**{name: simpler})
    yield from _smaller_extents(instance, rng)
    yield from _smaller_shapes(instance, rng)
    yield from _simpler_tensors(instance)


def _simpler(value: Any) -> Iterator[Any]:
    if isinstance(value, RestRef):
        for key in value.attrs:
            yield RestRef({k: v for k, v in value.attrs.items() if k != key})
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (0, 1, -1, value - 1 if value > 0 else value + 1)
    elif isinstance(value, float):
        yield from (0.0, 1.0, 2.0, float(np.round(value)) if math.isfinite(value) else 1.0)
    elif isinstance(value, list) and all(isinstance(v, int) for v in value):
        for i, v in enumerate(value):
            for number in {0, 1, v - 1}:
                yield [*value[:i], number, *value[i + 1 :]]


def _smaller_extents(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    for old in reversed(extents(instance.tensors)):
        for new in {1, 2, old - 1}:
            if 0 <= new < max(old, 1):
                yield instance.replace_tensors(
                    {s: resize(t, with_extent(t, old, new), rng) for s, t in instance.tensors}
                )
                yield instance.replace(**{n: with_number(v, old, new, rng) for n, v in instance.operands.items()})
    for old, more in itertools.permutations(extents(instance.tensors), 2):
        if 1 < old < more and more % old == 0:  # such as the channels of a group and of all groups
            for new in {1, 2, old - 1} - {old}:
                sizes: dict[symbolic.Dim, symbolic.Dim] = {old: new, more: new * (more // old)}
                resized = {s: resize(t, tuple(sizes.get(d, d) for d in t.shape), rng) for s, t in instance.tensors}
                yield instance.replace_tensors(resized)
    inputs = [(s, t) for s, t in instance.tensors if not t.is_const]
    for name in sorted({n for _, t in instance.tensors for d in t.shape for n in symbolic.symbols(d)}):
        for size in (1, 2, 3):
            shapes = {s: tuple(symbolic.substitute(d, {name: size}) for d in t.shape) for s, t in inputs}
            yield instance.replace_tensors({s: Tensor(t.dtype, shapes[s]) for s, t in inputs})


def _smaller_shapes(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    for part in (slice(1, None), slice(None, -1)):
        smaller = {slot: resize(t, t.shape[part], rng) for slot, t in instance.tensors if t.shape}
        yield instance.replace_tensors(smaller)
        for slot, tensor in smaller.items():
            yield instance.replace_tensors({slot: tensor})
    for slot, tensor in instance.tensors:
        for axis, dim in enumerate(tensor.shape):
            if isinstance(dim, int) and dim > 1:
                yield instance.replace_tensors({slot: resize(tensor, with_dim(tensor, axis, 1), rng)})


def _simpler_tensors(instance: Instance) -> Iterator[Instance]:
    for old in sorted({t.dtype for _, t in instance.tensors}):
        new = DType.F32 if old.is_float else DType.I64 if old.is_integer else old
        if new is not old:
            yield instance.replace_tensors({s: retype(t, new) for s, t in instance.tensors if t.dtype is old})
    for slot, tensor in instance.tensors:
        if tensor.array is not None and tensor.array.size:
            for contents in _simpler_contents(tensor.array):
                yield instance.replace_tensors({slot: Tensor.of(contents)})


def _simpler_contents(array: Array) -> Iterator[Array]:
    with np.errstate(all="ignore"):
        yield from (np.zeros_like(array), np.ones_like(array))
        if array.dtype.kind == "f":
            yield from (np.round(array), np.where(np.isfinite(array), 1, array).astype(array.dtype))
        flat = array.reshape(-1)
        yield np.full_like(array, flat[0])
        for i in range(min(array.size, 24)):
            for number in (0, 1):
                if flat[i] != number:
                    yield _with_element(array, i, number)


def _with_element(array: Array, index: int, number: float) -> Array:
    changed = array.reshape(-1).copy()
    changed[index] = number
    return changed.reshape(array.shape)


# --- values of inputs ---


def _simpler_values(subject: Subject, batch: Batch, found: Difference, until: float) -> Difference:
    best = found

    def attempt(name: str, values: Iterable[Array]) -> None:
        nonlocal best
        for value in values:
            message = _differs(subject, batch, best, {**best.inputs, name: value})
            if message is not None:
                best = message
                return

    for name in (name for built, _ in batch.built for name in built.inputs):
        array = best.inputs[name]
        if not array.size:
            continue
        with np.errstate(all="ignore"):
            attempt(name, [np.full_like(array, value) for value in (0, 1, 2)])
        if array.dtype.kind == "f":
            attempt(name, [np.round(best.inputs[name])])
        for i in range(min(array.size, _SEARCHED_ELEMENTS)):
            if time.process_time() > until:
                return best
            now = best.inputs[name]
            attempt(name, [_with_element(now, i, value) for value in _below(now.reshape(-1)[i])])
    return best


def _below(value: Any) -> tuple[int, ...]:
    """Return the simpler values of an element, of 0, 1 and 2; -0 is not simple."""
    if value == 0:
        return (0, 1, 2) if isinstance(value, np.floating) and np.signbit(value) else ()
    return (0,) if value == 1 else (0, 1) if value == 2 else (0, 1, 2)


def _differs(subject: Subject, batch: Batch, before: Difference, inputs: Mapping[str, Array]) -> Difference | None:
    """Return the difference of the same two nodes on other inputs; None if they agree or the left has no value."""
    values = Values(batch.egraph, inputs, subject.declared)
    try:
        left = values.of_node(before.root)
    except Undefined:
        return None
    if subject.rule.numerics == "fast" and not left.finite:
        return None
    try:
        right = values.of_node(before.other)
    except Undefined as undefined:
        if undefined.certain and before.message.endswith("has no value"):
            return Difference(before.root, before.other, inputs, left.arrays[0], before.right, before.message)
        return None
    return difference(
        subject.rule, values, (before.root, left), (before.other, right), wide=before.message == OVERFLOWS
    )


def _describe(subject: Subject, batch: Batch, instance: Instance, found: Difference) -> Counterexample:
    names = {
        Constant(t.array).digest: name if index is None else f"{name}{index}"
        for (name, index), t in instance.tensors
        if t.array is not None
    }
    model = graph_of(batch.egraph, found.root, names)
    rewritten = graph_of(batch.egraph, found.other, names)
    wanted = {*model.inputs, *rewritten.inputs}
    inputs = {name.partition(".")[2]: array for name, array in found.inputs.items()}
    return Counterexample(
        operands_text(subject, instance),
        text_of(model),
        text_of(rewritten),
        {name: array for name, array in sorted(inputs.items()) if name in wanted},
        np.asarray(found.left),
        np.asarray(found.right),
        found.message,
        (bytes_of(model), bytes_of(rewritten)),
    )


# --- operands as text, terms as models ---


def operands_text(subject: Subject, instance: Instance) -> str:
    """Return an instance in the notation of a test's operands."""
    model = subject.model(instance)
    parts = [] if model is None else [f"model {model.name}"]
    for name, value in instance.operands.items():
        if isinstance(value, RestRef):
            parts += [f"{key} = {_plain(v)}" for key, v in value.attrs.items() if not isinstance(v, Constant)]
        elif isinstance(value, list) and any(isinstance(v, Tensor | Term) for v in value):
            parts += [_operand(f"{name}[{i}]", v) for i, v in enumerate(value)]
        elif isinstance(value, symbolic.Expr) or (value is None and name in subject.optional):
            continue
        elif name.startswith(LITERAL):
            parts.append(_operand(f"the {print_expr(subject.literals[name])} of the pattern", value))
        else:
            parts.append(_operand(name, value))
    return ", ".join(parts)


def _operand(name: str, value: Any) -> str:
    if isinstance(value, Tensor):
        dims = ", ".join(map(str, value.shape))
        if value.array is None:
            return f"{name}: {value.dtype}[{dims}]"
        array = value.array.astype(np.float32) if value.array.dtype.name == "bfloat16" else value.array
        text = _plain(array.tolist())
        plain = value.dtype is DType.F32 and 0 not in value.shape
        return f"{name} = {text}" if plain else f"{name}: {value.dtype}[{dims}] = {text}"
    if isinstance(value, Term):
        return f"{name} = {print_expr(value.expr)}"
    return f"{name} = {_plain(value)}"


def _plain(value: Any) -> str:
    match value:
        case list() | tuple():
            return "[" + ", ".join(map(_plain, value)) + "]"
        case OpRef(op=op):
            formal = attributes_of(op)
            attrs = {k: v for k, v in value.attrs.items() if k not in formal or formal[k].default != v}
            inner = ", ".join(f"{k}: {_plain(v)}" for k, v in attrs.items())
            return f"{op}({inner})" if inner else op
        case bool() | np.bool_():
            return "true" if value else "false"
        case str() if not isinstance(value, DType):
            return f'"{value}"'
        case float() | np.floating():
            return f"{value:.9g}"
    return str(value)


def graph_of(egraph: EGraph, root: int, names: Mapping[str, str]) -> Graph:
    """Return the graph that computes node `root`, with every class below it by its oldest node.

    `names` maps digests of constants to names. The names of inputs lose the number before the dot."""
    builder = _Builder(egraph, names)
    outputs, graph = builder.node(root), builder.graph
    graph.types.update(zip(outputs, egraph.types(root), strict=False))
    graph.inputs, graph.outputs = tuple(dict.fromkeys(builder.inputs)), outputs
    return graph


def bytes_of(graph: Graph) -> bytes:
    """Return the graph as a serialized model; empty if it cannot be written."""
    try:
        return bytes(write(graph, own_operators=True).SerializeToString(deterministic=True))
    except RewriteError:
        return b""


def text_of(graph: Graph) -> str:
    """Return the graph in ONNX's text format."""
    import onnx

    try:
        model = write(graph, own_operators=True)
    except RewriteError as error:
        return f"(it cannot be written: {error})"
    for node in model.graph.node:
        del node.metadata_props[:]
    text = str(onnx.printer.to_text(model.graph)).strip()
    return text.replace('[""] ', "")


class _Builder:
    def __init__(self, egraph: EGraph, names: Mapping[str, str]) -> None:
        self.egraph = egraph
        self.names = names
        self.graph = Graph(name="counterexample", opset={"": WORKING_OPSET}, ir_version=10)
        self.inputs: list[str] = []
        self.taken: set[str] = set()
        self.memo: dict[int, tuple[str, ...]] = {}

    def of_class(self, handle: int) -> tuple[str, ...]:
        """Return the names of a class's outputs."""
        if handle == ABSENT:
            return ("",)
        handle = self.egraph.find(handle)
        if handle not in self.memo:
            self.memo[handle] = self.node(handle)
        return self.memo[handle]

    def node(self, handle: int) -> tuple[str, ...]:
        """Add a node and everything that it reads; return the names of its outputs."""
        node = self.egraph.nodes[handle]
        if node.op == "Input":
            name = unique_name(str(node.attrs["name"]).partition(".")[2] or str(node.attrs["name"]), self.taken)
            self.inputs.append(name)
            self.graph.types[name] = self.egraph.type(handle)
            return (name,)
        if node.op == "Const":
            digest = str(node.attrs["digest"])
            contents = self.egraph.constants[digest].contents()
            assert contents is not None
            name = unique_name(self.names.get(digest, f"c{len(self.graph.constants) + 1}"), self.taken)
            self.graph.constants[name] = Constant(contents)
            self.graph.types[name] = self.graph.constants[name].type
            return (name,)
        if node.op == "Proj":
            index = node.attrs["index"]
            assert isinstance(index, int)
            return (self.of_class(node.children[0])[index],)
        given, captured = node.split(node.children)
        around = {name: self.of_class(c)[0] for name, c in captured.items()}
        attrs = {name: self._body(value, around) for name, value in node.attrs.items() if name != CAPTURES}
        inputs = [self.of_class(c)[0] for c in given]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = tuple(unique_name(f"t{len(self.taken) + 1}", self.taken) for _ in range(node.outputs))
        self.graph.types.update(zip(outputs, self.egraph.types(handle), strict=False))
        self.graph.nodes.append(Node(node.op, tuple(inputs), outputs, attrs))
        if find_declared(node.op) is not None:
            self.graph.opset.setdefault(self.graph.nodes[-1].domain, 1)
        return outputs

    def _body(self, value: AttrValue, around: Mapping[str, str]) -> AttrValue:
        """Return an attribute; a body captures values by their new names, and its own names become reserved."""
        if not isinstance(value, Graph):
            return value
        self.taken |= {*value.inputs, *value.constants, *(name for node in value.nodes for name in node.outputs)}
        return rename_captures(value, around)
