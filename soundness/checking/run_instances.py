"""Running a rule on many instances in one e-graph, and comparing what it equated.

Instances share an e-graph because creating one and compiling its queries is most of the cost of an instance. The rule
alone saturates it. Then the values of all nodes of each class that the rule changed are compared, in each style
on which the numerics class must hold.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...engine.egraph.egraph import EGraph
from ...engine.egraph.encode import input_symbols
from ...engine.ir import symbolic
from ...engine.ir.graph import DType
from ...engine.ir.names import WITH_BODIES
from ...engine.ir.symbolic import Dim
from ...engine.operators.folding.signed_extrema import swapped_zeros
from ...engine.rewriting.evaluate import Evaluator
from ...engine.rewriting.schedule import Plan, Repeat, Run
from ...engine.saturation.saturate import Limits, Saturator
from ...engine.verification.compare_forms import (
    compare_forms,
    find_overflow,
    lowest_precision,
    power_overflows,
    power_underflows,
    same_bits,
)
from ...engine.verification.reference_values import Computed, Shared, Undefined, Values
from ...grammar.syntax import ast
from ..sampling.edit import is_list
from ..sampling.instance import Instance, Tensor, static
from ..sampling.subject import NOT_BUILT, Built, Subject
from ..sampling.validity import invalid
from ..sampling.values import NEAR, SMALL, SWAPPED, WIDE, Array, draw, trials

_ORIGINALS = 20
"""Maximum number of instances with the same constant for their result that are computed until one has a value."""
_SIZES = (3, 1, 2, 4, 5)
"""Extents that symbolic dims take in turn, another one in each trial."""
_EMPTY_TRIALS = (-1, -2)
"""Numbers of two trials of instances with symbolic dims: all of these are 0 in the first, some in the second."""
_BITS = ("same", "zeros", "different")
_EXTREMA = ("Max", "Min", "Relu", "Clip", "MaxPool")
"""Ends of names of operators that may return either one of two zeros."""
_ANCHORS = 8
"""Maximum number of constants, and of their products, around which numbers are drawn."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two nodes of one class that have different values, and the inputs on which they do."""

    root: int
    other: int
    inputs: Mapping[str, Array]
    left: Any
    right: Any
    message: str


@dataclass(slots=True)
class Outcome:
    """Result of one instance. `bits` says how both sides compare bit for bit: `same`, `zeros`, `different`.

    `compared` counts comparisons, and `uncomputed` names operators without a value on the instance."""

    instance: Instance
    built: bool = False
    fired: bool = False
    difference: Difference | None = None
    bits: str = "same"
    compared: int = 0
    failure: str = ""
    uncomputed: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Batch:
    """E-graph with the instances that could be built, and the outcome of every instance.

    `reason` says why the rule did not fire where it came closest."""

    egraph: EGraph
    built: list[tuple[Built, Outcome]]
    outcomes: list[Outcome]
    reason: str = ""


def run(
    subject: Subject, instances: Sequence[Instance], *, seed: int = 0, seconds: float = 5.0, repeats: int = 1,
    alternating: bool = False,
) -> Batch:  # fmt: skip
    """Apply the rule to instances and compare what it equates.

    Each style of values is drawn `repeats` times. With `alternating`, edited instances are computed on the first style,
    and each on half of the others. If the engine itself fails, bisection finds the instance."""
    batch = _built(subject, instances)
    try:
        batch.reason = _saturate(subject, batch.egraph, seconds)
    except NOT_BUILT as error:
        if len(instances) == 1:
            failure = f"{type(error).__name__}: {error}"
            return Batch(batch.egraph, [], [Outcome(instances[0], built=True, failure=failure)])
        middle = len(instances) // 2
        halves = (instances[:middle], instances[middle:])
        first, second = (
            run(subject, half, seed=seed, seconds=seconds, repeats=repeats, alternating=alternating) for half in halves
        )
        return Batch(first.egraph, [], [*first.outcomes, *second.outcomes], first.reason or second.reason)
    finally:
        batch.egraph.close_matcher()
    _compare_classes(subject, batch, seed, repeats, alternating=alternating)
    return batch


def _built(subject: Subject, instances: Sequence[Instance]) -> Batch:
    egraph = EGraph.create(subject.library.commutative, subject.tables)
    evaluator = Evaluator(egraph, subject.declared)
    batch = Batch(egraph, [], [Outcome(i) for i in instances])
    for number, outcome in enumerate(batch.outcomes):
        before = len(egraph.nodes)
        try:
            built = subject.build(outcome.instance, evaluator, f"{number}.")
        except NOT_BUILT:
            continue
        # empty tensors of a type are one class, whose root does not show what the instance itself consists of
        own = range(before, len(egraph.nodes))
        if not invalid(egraph, dict.fromkeys((*own, *nodes_below(egraph, built.roots)))):
            outcome.built = True
            batch.built.append((built, outcome))
    return batch


def _saturate(subject: Subject, egraph: EGraph, seconds: float) -> str:
    """Apply the rule in two rounds; return why it did not fire where it came closest.

    Terms over constants only are rewritten where both sides promise the same bits. In other classes an overflow that
    one side avoids would make the constants inf and 1e30 equal everywhere; the compiler does not rewrite such terms."""
    limits = Limits(seconds=seconds, nodes=40 * len(egraph.nodes) + 10_000)
    plan = Plan("check", (Repeat((Run((subject.compiled.ruleset,)),), 2),))
    context = Evaluator(egraph, subject.declared, subject.library.kinds)
    if subject.library.runs_for_kernels(subject.compiled.ruleset):
        egraph.extents = input_symbols(egraph)
    constants = subject.rule.numerics == "exact"
    report = Saturator(context, [subject.compiled], limits, plan=plan, constants=constants).run()
    return "; ".join(c.reason for c in report.counts.values() if c.reason)


def nodes_below(egraph: EGraph, roots: Iterable[int]) -> list[int]:
    """Return the nodes of the models with these roots."""
    return _below(roots, lambda handle: filter(None, egraph.nodes[handle].children))


def _below(roots: Iterable[int], children: Callable[[int], Iterable[int]]) -> list[int]:
    seen = dict.fromkeys(roots)
    pending = list(seen)
    while pending:
        for child in children(pending.pop()):
            if child not in seen:
                seen[child] = None
                pending.append(child)
    return list(seen)


# --- comparison ---


def _compare_classes(subject: Subject, batch: Batch, seed: int, repeats: int, *, alternating: bool) -> None:
    """Compare all classes that the rule has changed, and record the results in the batch's outcomes."""
    egraph, rule = batch.egraph, subject.rule
    changed, by_rule = _changed_classes(batch, rule.name)
    if not changed:
        return
    owners = _owners(batch, changed)
    for outcome in owners.values():
        outcome.fired = True
    originals: dict[int, list[int]] = {}
    for root in (r for built, _ in batch.built for r in built.roots):
        originals.setdefault(egraph.find(root), []).append(root)
    below = _Below(egraph)
    shared = Shared(meanings=subject.meanings)
    styles = trials(rule.numerics, signed_zero="signed_zero" in rule.relaxations)
    open_ended = {id(o) for o in owners.values() if any(static(t.shape) is None for _, t in o.instance.tensors)}
    turns = {id(o): _turn(o.instance) for o in owners.values()} if alternating else {}
    empty = [(number, SMALL) for number in _EMPTY_TRIALS if open_ended]  # small numbers, zeros among them
    ops = {node.op for node in egraph.nodes}
    swaps = any(op.endswith(_EXTREMA) for op in ops) and ops.isdisjoint(WITH_BODIES)  # bodies have the usual extrema
    sources = {name: (t, outcome.instance) for built, outcome in batch.built for name, t in built.inputs.items()}
    for number, style in (*enumerate(styles * repeats), *empty):
        if style == SWAPPED and not swaps:
            continue
        # where extrema return the other zero, constants have other values
        own = Shared(shared.definitions, varying=shared.varying) if style == SWAPPED else shared
        inputs, exact = _Inputs(sources, style, number, seed), rule.numerics == "exact"
        values = Values(egraph, inputs, subject.declared, own, magnitudes=not exact, losses=style != WIDE)
        with swapped_zeros(style == SWAPPED):
            for root in changed:
                owner = owners.get(root)
                if owner is None or owner.difference is not None or (number < 0 and id(owner) not in open_ended):
                    continue
                if number > 0 and turns.get(id(owner)) == 1 - number % 2:
                    continue
                if style == SWAPPED and _may_fold_zeros(owner.instance):
                    continue
                if style != WIDE or _has_ordinary_numbers(owner.instance, subject.asked):
                    for base in originals.get(root, [root])[:_ORIGINALS]:  # equal constants are one class
                        if _compare_class(rule, values, below, number, by_rule, base, owner, wide=style == WIDE):
                            break


def _turn(instance: Instance) -> int | None:
    """Return 0 or 1 for instances that are computed on the even or the odd trials, None for all trials: of instances
    with an infinite constant there are few."""
    floats = [t.array for _, t in instance.tensors if t.array is not None and t.dtype.is_float]
    if not instance.steps or any(not np.isfinite(array.astype(np.float64)).all() for array in floats):
        return None
    return zlib.crc32(instance.key.encode()) % 2


def _may_fold_zeros(instance: Instance) -> bool:
    """Whether an extremum of constants may have been folded, which took the usual one of two zeros."""
    constants = [t.array for _, t in instance.tensors if t.array is not None]
    return len(constants) == len(instance.tensors) or any((array == 0).any() for array in constants)


def _changed_classes(batch: Batch, rule: str) -> tuple[dict[int, None], set[int]]:
    """Return the classes in which the rule had a part, and the nodes that it equated."""
    egraph = batch.egraph
    pairs = [(a, b) for a, b, by in egraph.unions if by == rule]
    changed = dict.fromkeys(egraph.find(a) for a, _ in pairs)
    for root in dict.fromkeys(egraph.find(r) for built, _ in batch.built for r in built.roots):
        # the definition of a declared operator may equate the sides before the rule does
        if any(egraph.made_by[member] == rule for member in egraph.members(root)):
            changed[root] = None
    return changed, {handle for pair in pairs for handle in pair}


def _owners(batch: Batch, changed: Mapping[int, None]) -> dict[int, Outcome]:
    """Return the instance that each changed class belongs to: the first with a root in it, else the first with a node
    in it, because constants belong to many."""
    egraph = batch.egraph
    owners: dict[int, Outcome] = {}

    def children(handle: int) -> list[int]:
        return [egraph.find(c) for member in egraph.members(handle) for c in egraph.nodes[member].children if c]

    roots = [(list(map(egraph.find, built.roots)), outcome) for built, outcome in batch.built]
    for handles, outcome in (*roots, *((_below(found, children), outcome) for found, outcome in roots)):
        for handle in handles:
            if handle in changed:
                owners.setdefault(handle, outcome)
    return owners


class _Below:
    """Nodes below those of an e-graph that is not changed any more, each list made once."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._below: dict[int, list[int]] = {}
        self._squaring: dict[int, list[int]] = {}

    def of(self, handle: int) -> list[int]:
        """Return the nodes of the model with this root."""
        if handle not in self._below:
            self._below[handle] = nodes_below(self._egraph, [handle])
        return self._below[handle]

    def squaring(self, handle: int) -> list[int]:
        """Return the nodes below any node of a class whose operators square their operands."""
        root = self._egraph.find(handle)
        if root not in self._squaring:
            nodes = nodes_below(self._egraph, self._egraph.members(root))
            self._squaring[root] = [h for h in nodes if self._egraph.nodes[h].op.endswith(_SQUARING)]
        return self._squaring[root]


class _Inputs(Mapping[str, Array]):
    """Inputs of all instances of a batch in one trial, drawn when they are read: most instances are near misses."""

    def __init__(self, sources: Mapping[str, tuple[Tensor, Instance]], style: str, number: int, seed: int) -> None:
        self._style, self._number, self._seed = style, number, seed
        self._sources = sources
        self._drawn: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._drawn:
            self._drawn[name] = self._draw(name, *self._sources[name])
        return self._drawn[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def _draw(self, name: str, tensor: Tensor, instance: Instance) -> Array:
        style, number = self._style, self._number
        plain = name.partition(".")[2]
        shape = tuple(_size(d, number) for d in tensor.shape)
        text = f"{self._seed}:{plain}:{tensor.type_text}:{style}:{number}"
        # a single number lies on one side of a bound only, so each instance draws another one
        if math.prod(shape) == 1 or style in (WIDE, NEAR):
            anchors = _anchors(instance) if style == NEAR else ()
            return draw(tensor.dtype, shape, _generator(text + instance.key), style, anchors)
        return _shared_draw(text, tensor.dtype, shape, style)


@lru_cache(maxsize=4096)
def _shared_draw(text: str, dtype: DType, shape: tuple[int, ...], style: str) -> Array:
    """Draw an array that all instances with such an input share, in all batches."""
    array = draw(dtype, shape, _generator(text), style)
    array.flags.writeable = False
    return array


def _generator(text: str) -> np.random.Generator:
    """Return the generator of `np.random.default_rng` for a seed made of a text."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(text.encode())))


def _anchors(instance: Instance) -> list[float]:
    """Return some numbers that the constants and attributes of an instance contain, and products of two of them.

    A scale times a zero point is where a quantized tensor saturates."""
    arrays = [t.array.reshape(-1)[:_ANCHORS] for _, t in instance.tensors if t.array is not None and not is_list(t)]
    numbers = [float(v) for a in arrays if a.dtype.kind in "iufV" for v in a.astype(np.float64)]
    numbers += [v for v in instance.operands.values() if isinstance(v, float)]
    found = [v for v in dict.fromkeys(numbers) if math.isfinite(v) and v][:_ANCHORS]
    products = [a * b for i, a in enumerate(found) for b in found[:i] if 1e-30 < abs(a * b) < 1e30]
    return [*found, *products[:_ANCHORS]]


def _size(dim: Dim, number: int) -> int:
    """Return the extent of a dim in a trial; symbols differ from each other and from trial to trial."""
    if isinstance(dim, int):
        return dim
    turns = {name: zlib.crc32(name.encode()) + number for name in symbolic.symbols(dim)}
    sizes = {name: _SIZES[turn % len(_SIZES)] for name, turn in turns.items()}
    if number in _EMPTY_TRIALS:
        sizes = {name: 0 if number == _EMPTY_TRIALS[0] or turn % 2 else sizes[name] for name, turn in turns.items()}
    return max(symbolic.evaluate(dim, sizes), 0)


def _compare_class(
    rule: ast.Rule, values: Values, below: _Below, number: int, by_rule: Set[int], base: int, outcome: Outcome, *,
    wide: bool,
) -> bool:  # fmt: skip
    """Compare all nodes of a class with `base`, the model's own; False if that has no value to compare with.

    `number` is that of the trial, `by_rule` are the nodes that the rule itself has equated."""
    egraph = values.egraph
    try:
        original = values.of_node(base)
        model = [original, *map(values.of_node, below.of(base))]  # the whole model must have a value
    except Undefined as undefined:
        if not undefined.certain:
            outcome.uncomputed.add(undefined.op)
        return False
    if not _as_inferred(egraph, base, original, number):
        return False
    if rule.numerics == "fast" and not original.finite and not all(map(_is_finite, model)):
        return False  # infinite only inside an operator's definition, such as a masked score, does not count
    coarse = lowest_precision(rule, (tensor.dtype for _, tensor in outcome.instance.tensors))
    if rule.numerics == "reassoc" and _powers_leave_range(values, below.squaring(base), original, coarse, wide=wide):
        return True
    for member in egraph.members(base):
        folded = egraph.nodes[member].op == "Const" and member not in by_rule
        if member == base or folded:
            continue
        try:
            other = values.of_node(member)
        except Undefined as undefined:
            if undefined.certain and egraph.made_by[member] is not None:  # else it may belong to another model
                message = f"the left is defined, on the right {undefined.op} has no value"
                nothing = np.zeros(0)
                outcome.difference = Difference(base, member, values.inputs, original.arrays[0], nothing, message)
                return True
            outcome.uncomputed.add(undefined.op)
            continue
        outcome.compared += 1
        if outcome.bits != "different":
            bits = [same_bits(*pair) for pair in zip(original.arrays, other.arrays, strict=False)]
            outcome.bits = max((outcome.bits, *bits), key=_BITS.index)
        outcome.difference = difference(rule, values, (base, original), (member, other), coarse, wide=wide)
        if outcome.difference is not None:
            return True
    return True


def _is_finite(value: Computed) -> bool:
    """Whether all floats of a value are finite."""
    floats = (a for a in value.arrays if isinstance(a, np.ndarray) and a.dtype.kind in "fV")
    return all(bool(np.isfinite(a.astype(np.float64)).all()) for a in floats)


def _powers_leave_range(
    values: Values, squaring: Sequence[int], original: Computed, coarse: str, *, wide: bool
) -> bool:
    """Whether squares inside operators may overflow, or underflow on `wide` operands: results do not show it."""
    for handle in squaring:
        node = values.egraph.nodes[handle]
        exponent = float(node.attrs.get("p", 2))  # type: ignore[arg-type]
        if power_overflows(original.peak, exponent, coarse):
            return True
        if wide and node.children and node.children[0]:
            with suppress(Undefined):
                [operand, *_] = values.of_class(node.children[0]).arrays
                if power_underflows(float(np.abs(operand).max(initial=0.0)), exponent, coarse):
                    return True
    return False


def difference(
    rule: ast.Rule,
    values: Values,
    one: tuple[int, Computed],
    two: tuple[int, Computed],
    coarse: str = "",
    *,
    wide: bool = False,
) -> Difference | None:
    """Return how the values of two nodes differ beyond what the rule's class allows; None if they do not.

    On `wide` operands only overflow counts."""
    (base, original), (member, other) = one, two
    found = (find_overflow if wide else compare_forms)(rule, original, other, coarse)
    return None if found is None else Difference(base, member, values.inputs, *found)


_SQUARING = ("Normalization", "ReduceL2", "ReduceSumSquare", "LpPool")
"""Ends of names of operators that square their operands: what they compute overflows earlier than the values show."""
_ORDINARY = 8.0
"""Largest magnitude of numbers that do not make a product of two of them overflow by themselves; the smallest is its
inverse."""


def _has_ordinary_numbers(instance: Instance, asked: Mapping[str, Set[float]]) -> bool:
    """Whether the constants and attributes of an instance are of ordinary magnitude, or what conditions ask them to
    be."""
    arrays = [(name, t.array) for (name, _), t in instance.tensors if t.array is not None and t.dtype.is_float]
    numbers = [v for v in instance.operands.values() if isinstance(v, float)]
    return all(_is_ordinary(a, asked.get(name, ())) for name, a in arrays) and all(abs(v) <= _ORDINARY for v in numbers)


def _is_ordinary(array: Array, asked: Collection[float]) -> bool:
    numbers = array.astype(np.float64)
    sizes = np.abs(numbers)
    return bool((((sizes <= _ORDINARY) & (sizes >= 1 / _ORDINARY)) | np.isin(numbers, [*asked])).all())


def _as_inferred(egraph: EGraph, root: int, value: Computed, number: int) -> bool:
    """Whether a result has the shape that the engine inferred, as far as that is known."""
    for array, type_ in zip(value.arrays, egraph.types(root), strict=False):
        shape = getattr(type_, "shape", None)
        if not isinstance(array, np.ndarray) or shape is None:
            continue
        if len(shape) != array.ndim:
            return False
        for dim, extent in zip(shape, array.shape, strict=True):
            if dim == extent:
                continue
            if isinstance(dim, int):
                return False
            invented = any(name.startswith("_") for name in symbolic.symbols(dim))
            if not invented and _size(dim, number) != extent:
                return False
    return True
