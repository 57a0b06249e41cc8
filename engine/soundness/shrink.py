"""Making a counterexample small: fewer dims, smaller extents, simpler constants and values, until no step helps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import symbolic
from ..graph import Constant, DType
from ..values import OpRef, RestRef
from .compare import unequal
from .compute import Undefined, Values
from .instance import Instance, operands_text
from .operand import Tensor, Term
from .perturb import resize, retype, tensors
from .report import Budget, Counterexample
from .run import Batch, Difference, Outcome, Subject, run
from .show import bytes_of, graph_of, text_of

Array = NDArray[Any]
_AT_ONCE = 32
_REPEATS = 4
"""How often values of each style are drawn: of a smaller tensor fewer are special."""


def shrink(subject: Subject, outcome: Outcome, budget: Budget) -> Counterexample:
    """The counterexample that an outcome shows, as small as can be found in the time that the budget gives."""
    until = time.process_time() + (budget.shrink_seconds if budget.shrink else 0.0)
    rng = np.random.default_rng(budget.seed)
    best = outcome
    while time.process_time() < until:
        smaller = _step(subject, best, budget, rng)
        if smaller is None:
            break
        best = smaller
    batch = run(subject, [best.instance], seed=budget.seed, repeats=_REPEATS)
    found = batch.outcomes[0].difference
    if found is None:  # it takes the other instances of its batch, which share its constants
        assert outcome.difference is not None
        return Counterexample(
            operands_text(subject.pattern, outcome.instance), "", "", {}, np.asarray(outcome.difference.left),
            np.asarray(outcome.difference.right), outcome.difference.message,
        )  # fmt: skip
    if budget.shrink:
        found = _simpler_values(subject, batch, found, until + 0.5)
    return _describe(subject, batch, best.instance, found)


def _step(subject: Subject, best: Outcome, budget: Budget, rng: np.random.Generator) -> Outcome | None:
    """A smaller instance that still shows a difference; None if none of those tried does."""
    limit = cost(best.instance)
    candidates: dict[str, Instance] = {}
    for candidate in _smaller(best.instance, rng):
        if cost(candidate) < limit:
            candidates.setdefault(candidate.key(), candidate)
    ordered = sorted(candidates.values(), key=cost)
    for start in range(0, len(ordered), _AT_ONCE):
        batch = run(subject, ordered[start : start + _AT_ONCE], seed=budget.seed, repeats=_REPEATS)
        found = [o for o in batch.outcomes if o.difference is not None]
        for shown in sorted(found, key=lambda o: cost(o.instance))[:3]:
            # by itself: the instances of a batch share their constants
            alone = run(subject, [shown.instance], seed=budget.seed, repeats=_REPEATS).outcomes[0]
            if alone.difference is not None:
                return alone
    return None


def cost(instance: Instance) -> float:
    """How much there is to read in an instance."""
    return sum(_cost(v) for v in instance.operands.values())


def _cost(value: Any) -> float:
    if isinstance(value, Tensor):
        sizes = [d if isinstance(d, int) else 6 for d in value.shape]
        found = 2.0 + 2 * len(sizes) + sum(sizes) + 0.2 * math.prod(sizes) + 5 * sum(d == 0 for d in sizes)
        found += {DType.F32: 0.0, DType.I64: 0.2, DType.BOOL: 0.2}.get(value.dtype, 1.0)
        if value.array is not None:
            numbers = value.array.astype(np.float64).reshape(-1)
            found += 0.5 + float(sum(_number_cost(v) for v in numbers[:200]))
        return found
    if isinstance(value, Term):
        return 4.0 + 2 * sum(1 for _ in value.expr.walk())
    if isinstance(value, list):
        return 1.0 + sum(_cost(v) for v in value)
    if isinstance(value, RestRef | OpRef):
        extra = 0.0 if not isinstance(value, OpRef) else {"Relu": 0, "Neg": 0, "Add": 0}.get(value.op, 1)
        return extra + sum(1.0 + _cost(v if not isinstance(v, tuple) else list(v)) for v in value.attrs.values())
    if isinstance(value, int | float):
        return _number_cost(value)
    return 0.5


def _number_cost(value: float) -> float:
    if value in (0, 1):
        return 0.1 + 0.05 * (value == 1)
    if not math.isfinite(value):
        return 0.6
    return (0.3 if value == int(value) else 1.0) + 0.05 * min(abs(value), 10) + 0.1 * (value < 0)


def _smaller(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    """Instances that may be smaller."""
    operands = instance.operands
    for name, value in operands.items():
        without = {k: v for k, v in operands.items() if k != name}
        yield Instance(instance.way, without, instance.origin)
        if isinstance(value, RestRef):
            for key in value.attrs:
                left = RestRef({k: v for k, v in value.attrs.items() if k != key})
                yield instance.replace(instance.origin, **{name: left})
        if isinstance(value, Term) and f"{name}_in" in operands:
            inner = {k: v for k, v in operands.items() if k not in (name, f"{name}_in")}
            yield Instance(instance.way, {**inner, name: operands[f"{name}_in"]}, instance.origin)
        if isinstance(value, list) and len(value) > 1:
            related = [n for n, v in operands.items() if isinstance(v, list) and len(v) == len(value)]
            for chosen in ([name], related):
                for i in range(len(value)):
                    dropped = {n: [v for j, v in enumerate(operands[n]) if j != i] for n in chosen}
                    yield instance.replace(instance.origin, **dropped)
        if isinstance(value, int) and not isinstance(value, bool):
            for number in (0, 1, -1, value - 1 if value > 0 else value + 1):
                yield instance.replace(instance.origin, **{name: number})
        if isinstance(value, float):
            for real in (0.0, 1.0, 2.0, float(np.round(value)) if math.isfinite(value) else 1.0):
                yield instance.replace(instance.origin, **{name: real})
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            for i, v in enumerate(value):
                for number in {0, 1, v - 1}:
                    yield instance.replace(instance.origin, **{name: [*value[:i], number, *value[i + 1 :]]})
    yield from _smaller_shapes(instance, rng)
    yield from _simpler_tensors(instance)


def _smaller_shapes(instance: Instance, rng: np.random.Generator) -> Iterator[Instance]:
    found = tensors(instance)
    extents = sorted({d for _, t in found for d in t.shape if isinstance(d, int)}, reverse=True)
    names = sorted({n for _, t in found for d in t.shape for n in symbolic.symbols(d)})
    for old in extents:
        for new in {1, 2, old - 1}:
            if not 0 <= new < max(old, 1):
                continue
            for numbers in (False, True):
                yield _mapped(instance, old, new, rng, numbers=numbers)
    for symbol in names:
        for size in (1, 2, 3):
            operands = {k: _substituted(v, {symbol: size}) for k, v in instance.operands.items()}
            yield instance.replace(instance.origin, **operands)
    for drop in (slice(1, None), slice(None, -1)):
        operands = dict(instance.operands)
        for (name, index), tensor in found:
            if not tensor.shape:
                continue
            smaller = resize(tensor, tensor.shape[drop], rng)
            yield _put(instance, name, index, smaller)
            if index is None:
                operands[name] = smaller
            else:
                operands[name] = [smaller if i == index else v for i, v in enumerate(operands[name])]
        yield Instance(instance.way, operands, instance.origin)
    for (name, index), tensor in found:
        for axis, dim in enumerate(tensor.shape):
            if isinstance(dim, int) and dim > 1:
                shape = (*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :])
                yield _put(instance, name, index, resize(tensor, shape, rng))


def _simpler_tensors(instance: Instance) -> Iterator[Instance]:
    found = tensors(instance)
    for old in sorted({t.dtype for _, t in found}):
        new = DType.F32 if old.is_float else DType.I64 if old.is_integer else old
        operands = {k: _retyped(v, old, new) for k, v in instance.operands.items()}
        if new is not old:
            yield instance.replace(instance.origin, **operands)
    for (name, index), tensor in found:
        array = tensor.array
        if array is None or not array.size:
            continue
        kind = array.dtype
        with np.errstate(all="ignore"):
            simple = [np.zeros_like(array), np.ones_like(array)]
            if kind.kind == "f":
                simple.append(np.round(array))
                simple.append(np.where(np.isfinite(array), 1, array).astype(kind))
            simple.append(np.full_like(array, array.reshape(-1)[0]))
            flat = array.reshape(-1)
            for i in range(min(array.size, 24)):
                for number in (0, 1):
                    if flat[i] != number:
                        changed = flat.copy()
                        changed[i] = number
                        simple.append(changed.reshape(array.shape))
        for contents in simple:
            yield _put(instance, name, index, Tensor.of(contents))


def _put(instance: Instance, name: str, index: int | None, value: Tensor) -> Instance:
    if index is None:
        return instance.replace(instance.origin, **{name: value})
    members = [value if i == index else v for i, v in enumerate(instance.operands[name])]
    return instance.replace(instance.origin, **{name: members})


def _mapped(instance: Instance, old: int, new: int, rng: np.random.Generator, *, numbers: bool) -> Instance:
    def convert(value: Any) -> Any:
        if isinstance(value, Tensor):
            found = resize(value, tuple(new if d == old else d for d in value.shape), rng)
            if numbers and found.array is not None and found.dtype.is_integer:
                return Tensor.of(np.where(found.array == old, found.dtype.numpy.type(new), found.array))
            return found
        if isinstance(value, list):
            return [convert(v) for v in value]
        return new if numbers and type(value) is int and value == old else value

    return instance.replace(instance.origin, **{k: convert(v) for k, v in instance.operands.items()})


def _substituted(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Tensor) and value.array is None:
        return Tensor(value.dtype, tuple(symbolic.substitute(d, sizes) for d in value.shape))
    return [_substituted(v, sizes) for v in value] if isinstance(value, list) else value


def _retyped(value: Any, old: DType, new: DType) -> Any:
    if isinstance(value, Tensor):
        return retype(value, new) if value.dtype is old else value
    return [_retyped(v, old, new) for v in value] if isinstance(value, list) else value


# --- values of inputs ---


def _simpler_values(subject: Subject, batch: Batch, found: Difference, until: float) -> Difference:
    """The same difference on simpler inputs."""
    names = [name for built in batch.built for name in built.inputs]
    best = found

    def attempt(inputs: dict[str, Array]) -> bool:
        nonlocal best
        message = _differs(subject, batch, best, inputs)
        if message is None:
            return False
        best = message
        return True

    for name in names:
        array = best.inputs[name]
        if not array.size:
            continue
        for value in (0, 1, 2):
            with np.errstate(all="ignore"):
                simple = np.full_like(array, value)
            if attempt({**best.inputs, name: simple}):
                break
        array = best.inputs[name]
        if array.dtype.kind == "f":
            attempt({**best.inputs, name: np.round(array)})
        for i in range(min(array.size, 64)):
            if time.process_time() > until:
                return best
            flat = best.inputs[name].reshape(-1)
            for value in (0, 1, 2):
                if flat[i] == value and not (value == 0 and flat.dtype.kind == "f" and np.signbit(flat[i])):
                    break
                changed = flat.copy()
                changed[i] = value
                if attempt({**best.inputs, name: changed.reshape(array.shape)}):
                    break
    return best


def _differs(subject: Subject, batch: Batch, before: Difference, inputs: Mapping[str, Array]) -> Difference | None:
    values = Values(batch.egraph, inputs, subject.declared)
    rule = subject.rule
    try:
        left = values.of_node(before.root)
    except Undefined:
        return None
    if rule.numerics == "fast" and not left.finite:
        return None
    try:
        right = values.of_node(before.other)
    except Undefined as undefined:
        if undefined.certain and before.message.endswith("has no value"):
            return Difference(
                before.root, before.other, inputs, left.arrays[0], before.right, before.message, before.style
            )
        return None
    peak = max(left.peak, right.peak)
    signed_zero = "signed_zero" in rule.relaxations
    for a, b in zip(left.arrays, right.arrays, strict=False):
        lost = max(left.lost, right.lost)
        message = unequal(a, b, rule.numerics, signed_zero=signed_zero, peak=peak, lost=lost)
        if message:
            return Difference(before.root, before.other, inputs, a, b, message, before.style)
    return None


def _describe(subject: Subject, batch: Batch, instance: Instance, found: Difference) -> Counterexample:
    egraph = batch.egraph
    names = {Constant(t.array).digest: f"{n}" if i is None else f"{n}{i}"
             for (n, i), t in tensors(instance) if t.array is not None}  # fmt: skip
    model = graph_of(egraph, found.root, names)
    rewritten = graph_of(egraph, found.other, names)
    wanted = {*model.inputs, *rewritten.inputs}
    inputs = {name.partition(".")[2]: array for name, array in found.inputs.items()}
    return Counterexample(
        operands_text(subject.pattern, instance),
        text_of(model),
        text_of(rewritten),
        {name: array for name, array in sorted(inputs.items()) if name in wanted},
        np.asarray(found.left),
        np.asarray(found.right),
        found.message,
        (bytes_of(model), bytes_of(rewritten)),
    )
