"""Running a rule on many instances in one e-graph, and comparing what it equated.

Instances share an e-graph because creating one and compiling its queries is most of the cost of an instance. The rule
alone saturates it. Then the values of all nodes of each class in which the rule had a part are compared, in each style
on which the numerics class must hold.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...engine.egraph.egraph import EGraph
from ...engine.ir import symbolic
from ...engine.ir.symbolic import Dim
from ...engine.rewriting.evaluate import Evaluator
from ...engine.rewriting.rule_library import PRECISIONS
from ...engine.rewriting.schedule import Plan, Repeat, Run
from ...engine.saturation.saturate import Limits, Saturator
from ...grammar.syntax import ast
from ..sampling.instance import Instance
from ..sampling.subject import NOT_BUILT, Built, Subject
from ..sampling.validity import invalid
from ..sampling.values import Array, draw, trials
from .reference_values import Computed, Definitions, Undefined, Values

_ORIGINALS = 20
"""Maximum number of instances with the same constant for their result that are computed until one has a value."""
_SIZES = (3, 1, 2, 4, 5)
"""Extents that symbolic dims take in turn, another one in each trial."""
_BITS = ("same", "zeros", "different")


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
    subject: Subject, instances: Sequence[Instance], *, seed: int = 0, seconds: float = 5.0, repeats: int = 1
) -> Batch:
    """Apply the rule to instances and compare what it equates.

    Each style of values is drawn `repeats` times. If the engine itself fails, bisection finds the instance."""
    batch = _built(subject, instances)
    try:
        batch.reason = _saturate(subject, batch.egraph, seconds)
    except NOT_BUILT as error:
        if len(instances) == 1:
            failure = f"{type(error).__name__}: {error}"
            return Batch(batch.egraph, [], [Outcome(instances[0], built=True, failure=failure)])
        middle = len(instances) // 2
        halves = (instances[:middle], instances[middle:])
        first, second = (run(subject, half, seed=seed, seconds=seconds, repeats=repeats) for half in halves)
        return Batch(first.egraph, [], [*first.outcomes, *second.outcomes], first.reason or second.reason)
    _compare_classes(subject, batch, seed, repeats)
    return batch


def _built(subject: Subject, instances: Sequence[Instance]) -> Batch:
    egraph = EGraph.create(subject.library.commutative)
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
    saturator = Saturator(
        egraph, [subject.compiled], subject.library.kinds, limits,
        plan=plan, declared=subject.declared, constants=subject.rule.numerics == "exact",
    )  # fmt: skip
    report = saturator.run()
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


def _compare_classes(subject: Subject, batch: Batch, seed: int, repeats: int) -> None:
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
    definitions: Definitions = {}
    styles = trials(rule.numerics, signed_zero="signed_zero" in rule.relaxations)
    for number, style in enumerate(styles * repeats):
        values = Values(egraph, _inputs(batch, style, number, seed), subject.declared, definitions)
        for root in changed:
            owner = owners.get(root)
            if owner is not None and owner.difference is None:
                for base in originals.get(root, [root])[:_ORIGINALS]:  # equal constants are one class
                    if _compare_class(rule, values, number, by_rule, base, owner):
                        break


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


def _inputs(batch: Batch, style: str, number: int, seed: int) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for built, outcome in batch.built:
        for name, tensor in built.inputs.items():
            plain = name.partition(".")[2]
            shape = tuple(_size(d, number) for d in tensor.shape)
            # a single number lies on one side of a bound only, so each instance draws another one
            own = outcome.instance.key if math.prod(shape) == 1 else ""
            rng = np.random.default_rng(zlib.crc32(f"{seed}:{plain}:{tensor.type}:{style}:{number}{own}".encode()))
            arrays[name] = draw(tensor.dtype, shape, rng, style)
    return arrays


def _lowest_precision(outcome: Outcome) -> str:
    """Return the name of the lowest-precision floating-point type among the operands; empty if there is none."""
    found = [t.dtype for _, t in outcome.instance.tensors if t.dtype.is_float]
    return min(found, key=lambda t: t.bits > 16).numpy.name if found else ""


def _size(dim: Dim, number: int) -> int:
    """Return the extent of a dim in a trial; symbols differ from each other and from trial to trial."""
    if isinstance(dim, int):
        return dim
    sizes = {name: _SIZES[(zlib.crc32(name.encode()) + number) % len(_SIZES)] for name in symbolic.symbols(dim)}
    return max(symbolic.evaluate(dim, sizes), 0)


def _compare_class(rule: ast.Rule, values: Values, number: int, by_rule: Set[int], base: int, outcome: Outcome) -> bool:
    """Compare all nodes of a class with `base`, the model's own; False if that has no value to compare with.

    `number` is that of the trial, `by_rule` are the nodes that the rule itself has equated."""
    egraph = values.egraph
    try:
        original = values.of_node(base)
        for node in nodes_below(egraph, [base]):
            values.of_node(node)  # the whole model must have a value
    except Undefined as undefined:
        if not undefined.certain:
            outcome.uncomputed.add(undefined.op)
        return False
    if not _as_inferred(egraph, base, original, number) or (rule.numerics == "fast" and not original.finite):
        return False
    coarse = "bfloat16" if rule.ruleset in PRECISIONS else _lowest_precision(outcome)
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
        outcome.difference = difference(rule, values, (base, original), (member, other), coarse)
        if outcome.difference is not None:
            return True
    return True


def difference(
    rule: ast.Rule, values: Values, one: tuple[int, Computed], two: tuple[int, Computed], coarse: str = ""
) -> Difference | None:
    """Return how the values of two nodes differ beyond what the rule's class allows; None if they do not.

    `coarse` names the lowest-precision type among the operands where the result has a higher one."""
    (base, original), (member, other) = one, two
    scale = Scale(max(original.peak, other.peak), max(original.lost, other.lost), coarse)
    for left, right in zip(original.arrays, other.arrays, strict=False):
        signed_zero = "signed_zero" in rule.relaxations
        if message := unequal(left, right, rule.numerics, signed_zero=signed_zero, scale=scale):
            return Difference(base, member, values.inputs, left, right, message)
    return None


def _as_inferred(egraph: EGraph, root: int, value: Computed, number: int) -> bool:
    """Whether a result has the shape that the engine inferred, as far as that is known."""
    for array, type_ in zip(value.arrays, egraph.types(root), strict=False):
        shape = getattr(type_, "shape", None)
        if not isinstance(array, np.ndarray) or shape is None:
            continue
        if len(shape) != array.ndim:
            return False
        for dim, extent in zip(shape, array.shape, strict=True):
            invented = any(name.startswith("_") for name in symbolic.symbols(dim))
            if not invented and _size(dim, number) != extent:
                return False
    return True


# --- results ---

_MARGIN = {
    "reassoc": {"float64": (3e-7, 1e-8), "float32": (2e-4, 4e-6), "float16": (2e-2, 6e-3), "bfloat16": (1e-1, 4e-2)},
    "fast": {"float64": (2e-3, 1e-11), "float32": (2e-3, 1e-5), "float16": (4e-2, 1e-2), "bfloat16": (2e-1, 8e-2)},
}
"""Margin by class and element type, relative to the result and to the largest intermediate magnitude. In double
precision it is that of single precision, which attributes have."""

_OVERFLOW = {"float64": (500.0, 1e100), "float32": (60.0, 1e12), "bfloat16": (60.0, 1e12), "float16": (8.0, 100.0)}
"""Magnitudes by element type from which an exponential, and from which a product, may overflow on one side only."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Magnitudes that bound the rounding error of a result.

    `peak` is the largest magnitude of an intermediate value, `lost` the largest that a sum cancelled. `coarse` names
    the lowest-precision type among the operands where the result has a higher one."""

    peak: float = 0.0
    lost: float = 0.0
    coarse: str = ""


def unequal(left: Any, right: Any, numerics: str, *, signed_zero: bool, scale: Scale) -> str:
    """Describe how two results differ beyond what a numerics class allows; empty if they do not.

    `exact`: the same bits, NaN payloads aside (with `signed_zero`, the sign of zeros too). `reassoc`: equal up to
    rounding where the original is finite, and not finite where it is not; in double precision the margin is so small
    that a changed constant shows. `fast`: the same with a wide margin where both are finite, and quantized 8-bit
    integers may be one off. All other integers, truth values and strings must be identical."""
    if isinstance(left, list) or isinstance(right, list):
        if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
            return "one is a sequence of another length"
        pairs = (
            unequal(a, b, numerics, signed_zero=signed_zero, scale=scale) for a, b in zip(left, right, strict=True)
        )
        return next((message for message in pairs if message), "")
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"the left is {left.dtype}{list(left.shape)}, the right {right.dtype}{list(right.shape)}"
    if left.dtype.kind == "O":
        return "" if bool(np.all(left == right)) else "strings differ"
    if left.dtype.kind == "c":
        ok = (left == right) | (np.isnan(left) & np.isnan(right))
    elif left.dtype.kind in "iu" and left.dtype.itemsize == 1 and numerics == "fast":
        ok = np.abs(left.astype(np.int32) - right.astype(np.int32)) <= 1  # a quantized tie rounds either way
    elif left.dtype.kind in "biu" or (left.dtype.kind == "V" and left.dtype.name.startswith(("int", "uint"))):
        ok = np.asarray(left == right)
    else:
        x, y = left.astype(np.float64), right.astype(np.float64)
        if numerics == "exact":
            ok = (x == y) | (np.isnan(x) & np.isnan(y))
            ok = ok if signed_zero else ok & (np.isnan(x) | (np.signbit(x) == np.signbit(y)))
        else:
            ok = _close(x, y, numerics, left.dtype.name, scale)
    if bool(ok.all()):
        return ""
    at = tuple(int(i) for i in np.argwhere(~ok)[0])
    place = f" at {list(at)}" if at else ""
    return f"the left is {_show(left[at])}, the right {_show(right[at])}{place}"


def _close(x: Array, y: Array, numerics: str, dtype: str, scale: Scale) -> Array:
    finite, both = np.isfinite(x), np.isfinite(x) & np.isfinite(y)
    coarse = scale.coarse or dtype
    early, late = _OVERFLOW.get(coarse, _OVERFLOW["float32"])
    largest = float(np.max(np.abs(x[finite]), initial=0.0))
    if scale.peak > late and bool(np.isinf(x).any()):  # the largest result has overflowed: it was larger than the peak
        largest = max(largest, scale.peak)
    margins = _MARGIN[numerics]
    relative, absolute = max(margins.get(t, margins["float32"]) for t in (dtype, coarse))
    with np.errstate(all="ignore"):
        magnitude = max(min(scale.peak, 1e3 * max(largest, 1.0)), scale.lost)
        near = np.abs(x - y) <= relative * largest + absolute * magnitude
    if numerics == "fast" or scale.peak > late:
        return np.asarray(near | ~both)
    return np.asarray(np.where(both, near, (finite == np.isfinite(y)) | (~finite & (scale.peak > early))))


def same_bits(left: Any, right: Any) -> str:
    """Return `same`, `zeros` if only signs of zeros differ, or `different`."""
    if unequal(left, right, "exact", signed_zero=True, scale=Scale()):
        return "different"
    return "zeros" if unequal(left, right, "exact", signed_zero=False, scale=Scale()) else "same"


def _show(value: Any) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(bool(value)).lower()
    if np.asarray(value).dtype.kind in "iu":
        return str(int(value))
    number = float(np.asarray(value).astype(np.float64))
    return "-0.0" if number == 0 and np.signbit(number) else f"{number:.10g}"
