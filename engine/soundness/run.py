"""Running a rule on many instances at once, and comparing all that it equates.

The instances stand side by side in one e-graph, which the rule alone saturates; making an e-graph and compiling the
queries is most of the cost of one. Then every class in which the rule had a hand is computed in all its forms, for each
style of values that the numerics class is held to.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RewriteError
from ...grammar import ast
from ...grammar.library import Library
from .. import symbolic
from ..egraph import EGraph
from ..evaluate import Evaluator
from ..library import PRECISIONS, RuleSet, compiled, rule_set
from ..patterns import CompiledRule, Unsupported
from ..saturate import Limits, Saturator
from ..schedule import Plan, Repeat, Run
from ..shapes import IllTyped
from ..symbolic import Dim
from ..values import Unprovable
from .compare import same_bits, unequal
from .compute import Computed, Meanings, Undefined, Values
from .instance import Built, Instance, Pattern, build, prepare
from .operand import Tensor
from .valid import invalid
from .values import draw, trials

Array = NDArray[Any]
NOT_BUILT = (
    Unprovable, IllTyped, Unsupported, RewriteError,
    ArithmeticError, LookupError, TypeError, ValueError, AssertionError, AttributeError, RecursionError,
)  # fmt: skip
"""What building an instance may raise: operands that operators do not take, drawn blindly."""
_ALIKE = 20
"""Instances with one constant for their result of which the first is taken that has a value."""
SIZES = (3, 1, 2, 4, 5)
"""What symbolic dims are set to: one size more for each trial."""


@dataclass(frozen=True)
class Subject:
    """A rule in one direction, ready to be run."""

    rule: ast.Rule
    pattern: Pattern
    compiled: tuple[CompiledRule, ...]
    library: RuleSet

    @property
    def declared(self) -> Mapping[str, ast.Op]:
        """The operators that rule files define."""
        return self.library.declared


def subjects(rule: ast.Rule, library: Library) -> list[Subject]:
    """The rule as it is applied: for `<=>` in both directions."""
    rules = _rules(library)
    found = []
    for one in compiled(rule):
        as_left = replace(rule, lhs=one.lhs, rhs=one.rhs, bidirectional=False)
        found.append(Subject(rule, prepare(as_left), (one,), rules))
    return found


_RULES: dict[int, tuple[Library, RuleSet]] = {}


def _rules(library: Library) -> RuleSet:
    """What the library says of operators; made once for a library."""
    held = _RULES.get(id(library))
    if held is None or held[0] is not library:
        _RULES.clear()
        held = _RULES[id(library)] = (library, rule_set(library, "fast", precision=None))
    return held[1]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two forms of one class that have other values, and the inputs on which they do."""

    root: int
    other: int
    inputs: Mapping[str, Array]
    left: Any
    right: Any
    message: str
    style: str


@dataclass(slots=True)
class Outcome:
    """What became of one instance. `bits` says how the results compare bit for bit: `same`, `zeros`, `different`."""

    instance: Instance
    built: bool = False
    fired: bool = False
    difference: Difference | None = None
    bits: str = "same"
    compared: int = 0
    failure: str = ""
    uncomputed: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    """Operators whose result has another shape than was inferred: the instance is not valid after all."""


@dataclass(slots=True)
class Batch:
    """An e-graph with the instances in it, and what became of each."""

    egraph: EGraph
    built: list[Built]
    outcomes: list[Outcome]
    reason: str = ""


def run(
    subject: Subject, instances: Sequence[Instance], *, seed: int = 0, seconds: float = 5.0, repeats: int = 1
) -> Batch:
    """Applies the rule to instances and compares what it equates.

    Each style of values is drawn `repeats` times. If the engine itself fails, the instance that makes it fail is found
    and says so."""
    try:
        return _run(subject, instances, seed, seconds, repeats)
    except _Failed as failure:
        if len(instances) == 1:
            outcome = Outcome(instances[0], built=True, failure=str(failure))
            return Batch(failure.egraph, [], [outcome])
        middle = len(instances) // 2
        first = run(subject, instances[:middle], seed=seed, seconds=seconds, repeats=repeats)
        second = run(subject, instances[middle:], seed=seed, seconds=seconds, repeats=repeats)
        return Batch(first.egraph, [], [*first.outcomes, *second.outcomes], first.reason or second.reason)


class _Failed(Exception):
    """The engine raised what it should not have."""

    def __init__(self, error: Exception, egraph: EGraph) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.egraph = egraph


def _run(subject: Subject, instances: Sequence[Instance], seed: int, seconds: float, repeats: int) -> Batch:
    egraph = EGraph.create(subject.library.commutative)
    evaluator = Evaluator(egraph)
    evaluator.declared = subject.declared
    outcomes = [Outcome(i) for i in instances]
    built: list[Built] = []
    owner: list[Outcome] = []
    for number, outcome in enumerate(outcomes):
        before = len(egraph.nodes)
        try:
            made = build(subject.pattern, outcome.instance, evaluator, f"{number}.")
        except NOT_BUILT:
            continue
        # tensors without elements are one class, of which a root does not tell what it was made of
        own = range(before, len(egraph.nodes))
        if invalid(egraph, dict.fromkeys((*own, *_below(egraph, made.roots)))):
            continue
        outcome.built = True
        built.append(made)
        owner.append(outcome)
    try:
        reason = _saturate(subject, egraph, seconds)
    except NOT_BUILT as error:
        raise _Failed(error, egraph) from error
    batch = Batch(egraph, built, outcomes, reason)
    _compare(subject, batch, owner, seed, repeats)
    return batch


def _below(egraph: EGraph, roots: Sequence[int]) -> list[int]:
    """The nodes of the model that roots are made of."""
    pending, seen = list(roots), dict.fromkeys(roots)
    while pending:
        for child in egraph.nodes[pending.pop()].children:
            if child and child not in seen:
                seen[child] = None
                pending.append(child)
    return list(seen)


def _saturate(subject: Subject, egraph: EGraph, seconds: float) -> str:
    """Applies the rule twice over; why it did not fire where it came nearest.

    Terms over constants only are rewritten as well where both sides promise the same bits. Elsewhere an overflow that
    one side avoids would make the constants inf and 1e30 equal for all that follows; the compiler rewrites none."""
    limits = Limits(seconds=seconds, nodes=40 * len(egraph.nodes) + 10_000)
    rulesets = tuple(dict.fromkeys(rule.ruleset for rule in subject.compiled))
    plan = Plan("check", (Repeat((Run(rulesets),), 2),))
    saturator = Saturator(
        egraph, subject.compiled, subject.library.kinds, limits,
        plan=plan, declared=subject.declared, constants=subject.rule.numerics == "exact",
    )  # fmt: skip
    report = saturator.run()
    return "; ".join(c.reason for c in report.counts.values() if c.reason)


def _compare(subject: Subject, batch: Batch, owner: Sequence[Outcome], seed: int, repeats: int) -> None:
    egraph, rule = batch.egraph, subject.rule
    touched: dict[int, None] = {}
    by_rule: set[int] = set()
    for a, b, by in egraph.unions:
        if by == rule.name:
            touched[egraph.find(a)] = None
            by_rule |= {a, b}
    for root in dict.fromkeys(egraph.find(r) for built in batch.built for r in built.roots):
        # a right side that a declared operator's definition has made equal before the rule could
        if any(egraph.made_by[member] == rule.name for member in egraph.members(root)):
            touched[root] = None
    if not touched:
        return
    owners = _owners(egraph, batch, owner, touched)
    originals: dict[int, list[int]] = {}
    for root in (r for built in batch.built for r in built.roots):
        originals.setdefault(egraph.find(root), []).append(root)
    for outcome in {id(o): o for o in owners.values()}.values():
        outcome.fired = True
    meanings: Meanings = {}
    styles = trials(rule.numerics, signed_zero="signed_zero" in rule.relaxations)
    for number, style in enumerate(styles * repeats):
        inputs, types = _inputs(batch, style, number, seed)
        values = Values(egraph, inputs, subject.declared, meanings)
        for root in touched:
            owned = owners.get(root)
            if owned is None or owned.difference is not None:
                continue
            coarse = "bfloat16" if rule.ruleset in PRECISIONS else types.get(id(owned), "")
            trial = _Trial(inputs, style, number, coarse, by_rule)
            for base in originals.get(root, [root])[:_ALIKE]:  # equal constants are one class, whose first may be odd
                if _compare_class(values, base, rule, owned, trial):
                    break


def _owners(egraph: EGraph, batch: Batch, owner: Sequence[Outcome], touched: Mapping[int, None]) -> dict[int, Outcome]:
    """The instance that each class in question belongs to: the first that has a root in it, else the first that has a
    node in it, for constants belong to many."""
    at: dict[int, Outcome] = {}
    for built, outcome in zip(batch.built, owner, strict=True):
        for root in map(egraph.find, built.roots):
            if root in touched:
                at.setdefault(root, outcome)
    for built, outcome in zip(batch.built, owner, strict=True):
        pending = [egraph.find(r) for r in built.roots]
        seen: set[int] = set()
        while pending:
            handle = pending.pop()
            if handle in seen:
                continue
            seen.add(handle)
            if handle in touched:
                at.setdefault(handle, outcome)
            for member in egraph.members(handle):
                pending.extend(egraph.find(c) for c in egraph.nodes[member].children if c)
    return at


def _inputs(batch: Batch, style: str, number: int, seed: int) -> tuple[dict[str, Array], dict[int, str]]:
    """Values for all inputs of all instances, and the narrowest floating-point type that each instance has."""
    arrays: dict[str, Array] = {}
    narrow: dict[int, str] = {}
    by_instance = {id(o.instance): id(o) for o in batch.outcomes}
    for built in batch.built:
        key = by_instance[id(built.instance)]
        for name, tensor in built.inputs.items():
            plain = name.partition(".")[2]
            shape = tuple(size(d, number) for d in tensor.shape)
            # a single number is on one side of a bound or on the other: it is another one in each instance
            own = built.instance.key() if math.prod(shape) == 1 else ""
            rng = np.random.default_rng(zlib.crc32(f"{seed}:{plain}:{tensor.type}:{style}:{number}{own}".encode()))
            arrays[name] = draw(tensor.dtype, shape, rng, style)
        for tensor in _tensors(built.instance.operands.values()):
            bits = {"": 99, "float16": 16, "bfloat16": 16}.get(narrow.get(key, ""), 32)
            if tensor.dtype.is_float and tensor.dtype.bits < bits:
                narrow[key] = tensor.dtype.numpy.name
    return arrays, narrow


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list):
            found += _tensors(value)
    return found


def size(dim: Dim, number: int) -> int:
    """The size that a dim has in a trial; symbols differ among each other and from trial to trial."""
    if isinstance(dim, int):
        return dim
    sizes = {name: SIZES[(zlib.crc32(name.encode()) + number) % len(SIZES)] for name in symbolic.symbols(dim)}
    return max(symbolic.evaluate(dim, sizes), 0)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One choice of values. `coarse` names the narrowest floating-point type of the instance's operands, `by_rule` are
    the nodes that the rule itself has made equal."""

    inputs: Mapping[str, Array]
    style: str
    number: int
    coarse: str
    by_rule: Set[int]


def _compare_class(values: Values, base: int, rule: ast.Rule, outcome: Outcome, trial: _Trial) -> bool:
    """Holds all nodes of a class against `base`, the model's own; False if that has no value to hold them against."""
    egraph, inputs, style, number = values.egraph, trial.inputs, trial.style, trial.number
    signed_zero = "signed_zero" in rule.relaxations
    try:
        original = values.of_node(base)
        for node in _below(egraph, [base]):
            values.of_node(node)  # the model itself has to have a value
    except Undefined as undefined:
        if not undefined.certain:
            outcome.uncomputed.add(undefined.op)
        return False
    if not _as_inferred(egraph, base, original, number):
        outcome.odd.add(egraph.nodes[base].op)
        return False
    if rule.numerics == "fast" and not original.finite:
        return False
    for member in egraph.members(base):
        folded = egraph.nodes[member].op == "Const" and member not in trial.by_rule
        if member == base or folded:
            continue
        try:
            other = values.of_node(member)
        except Undefined as undefined:
            if undefined.certain and egraph.made_by[member] is not None:  # else it may be another model's
                message = f"the left is defined, on the right {undefined.op} has no value"
                nothing = np.zeros(0)
                outcome.difference = Difference(base, member, inputs, original.arrays[0], nothing, message, style)
                return True
            outcome.uncomputed.add(undefined.op)
            continue
        outcome.compared += 1
        for left, right in zip(original.arrays, other.arrays, strict=False):
            if outcome.bits != "different":
                outcome.bits = max(outcome.bits, same_bits(left, right), key=("same", "zeros", "different").index)
            peak = max(original.peak, other.peak)
            lost = max(original.lost, other.lost)
            message = unequal(
                left, right, rule.numerics, signed_zero=signed_zero, peak=peak, lost=lost, coarse=trial.coarse
            )
            if message:
                outcome.difference = Difference(base, member, inputs, left, right, message, style)
                return True
    return True


def _as_inferred(egraph: EGraph, root: int, value: Computed, number: int) -> bool:
    """Whether a result has the shape that the engine has inferred, as far as that is known."""
    for array, type_ in zip(value.arrays, egraph.types(root), strict=False):
        shape = getattr(type_, "shape", None)
        if not isinstance(array, np.ndarray) or shape is None:
            continue
        if len(shape) != array.ndim:
            return False
        for dim, extent in zip(shape, array.shape, strict=True):
            made_up = any(name.startswith("_") for name in symbolic.symbols(dim))
            if not made_up and size(dim, number) != extent:
                return False
    return True
