"""Dataflow of a plan: which values items read and write, which extents they need, and which items are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...engine.ir.graph import DType, TensorType, ValueType
from ...engine.ir.symbolic import Dim, symbol, symbol_name, symbols
from .kernel_graph import Control, Fallback, Item, Join, Loop, Measure, ModelPlan, Shape, Step, View, bodies, is_host


def is_single(kind: ValueType | None, dtype: DType) -> bool:
    """Return whether a value is one element of this type, of known rank."""
    return isinstance(kind, TensorType) and kind.dtype is dtype and kind.shape == (1,) * len(kind.shape or ())


def same_type(a: ValueType | None, b: ValueType | None) -> bool:
    """Return whether two values are tensors of types known and equal."""
    return isinstance(a, TensorType) and a == b and a.shape is not None and a.dtype is not None


def is_dense(kind: ValueType | None) -> bool:
    """Return whether a value is a tensor of known type that memory can hold: of whole bytes."""
    if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
        return False
    return kind.dtype is not DType.STRING and kind.dtype.bits >= 8


def kinds_of(values: Iterable[str], types: Mapping[str, ValueType]) -> tuple[ValueType | None, ...]:
    """Return the types of values, None for absent ones."""
    return tuple(types.get(v, TensorType()) if v else None for v in values)


def plain_symbols(kind: ValueType | None) -> set[str]:
    """Return the symbols whose numbers follow from a value of this type."""
    shape = kind.shape if isinstance(kind, TensorType) else None
    return {name for d in shape or () if (name := symbol_name(d)) is not None}


def reads(item: Item) -> tuple[str, ...]:
    """Return the values that an item reads, without absent inputs."""
    match item:
        case Step():
            return (*item.inputs, *(v for v, _ in item.when)) if item.when else item.inputs
        case View():
            return (item.input,)
        case Join():
            return item.parts
        case Shape():
            return ()
        case Measure():
            return (item.count,)
        case Fallback():
            return tuple(filter(None, item.node.inputs))
        case Loop():
            operands: Iterable[str] = (*item.states, *item.scanned, *item.captures, item.count, item.going)
        case Control():
            operands = (*item.inputs, *itertools.chain(*item.captures))
    return tuple(dict.fromkeys(v for v in (*operands, *(v for v, _ in item.when)) if v))


def writes(item: Item) -> tuple[str, ...]:
    """Return the values that an item writes."""
    match item:
        case Step() | Control() | Loop():
            return tuple(filter(None, item.outputs))
        case Fallback():
            return tuple(filter(None, item.node.outputs))
        case Measure():
            return ()
    return (item.output,)


def extents_of(item: Item, types: Mapping[str, ValueType]) -> list[Dim]:
    """Return all dims whose values are needed to run an item."""

    def shapes(values: Iterable[str]) -> list[Dim]:
        kinds = [types.get(v) for v in values]
        return [d for kind in kinds if isinstance(kind, TensorType) for d in kind.shape or ()]

    inner: list[Dim] = [symbol(name) for body in bodies(item) for name in body.symbols]
    match item:
        case Step():
            own = (*item.dims, item.scratch, item.threads, *itertools.chain(*item.only))
            return [*shapes((*item.inputs, *item.outputs)), *own]
        case Join():
            return [*shapes((*item.parts, item.output)), *item.offsets]
        case View():
            return [*shapes((item.input, item.output)), item.offset]
        case Shape():
            return list(item.dims)
        case Measure():
            return [item.most]
        case Loop():
            own = () if item.iterations is None else (item.iterations,)
            known = shapes((*item.states, *item.scanned, *item.captures, *item.outputs[: len(item.states)]))
            made = [d for v in item.made for d in shapes((v,))[1 if item.is_open else 0 :]]
            return [*known, *made, *own, *inner]
    return inner  # none for a fallback, which takes any operands


def determined(item: Item, types: Mapping[str, ValueType]) -> set[str]:
    """Return the extents that are known after an item, because Python sees its results."""
    if isinstance(item, Measure):
        return {item.extent}
    return {s for v in writes(item) for s in plain_symbols(types.get(v))} if is_host(item) else set()


def needed(items: Sequence[Item], outputs: Iterable[str], types: Mapping[str, ValueType]) -> list[Item]:
    """Return the items without those whose results are unused and determine no extent that others need."""
    wanted, extents = set(outputs), set[str]()
    found = []
    for item in reversed(items):
        if wanted & set(writes(item)) or determined(item, types) & extents:
            found.append(item)
            wanted.update(reads(item))
            extents.update(s for d in extents_of(item, types) for s in symbols(d))
    return found[::-1]


def pruned(plan: ModelPlan) -> ModelPlan:
    """Return a plan without the constants and types of values that it does not mention."""
    used = mentioned(plan.items, (*plan.inputs, *plan.outputs))
    constants, types = ({v: x for v, x in known.items() if v in used} for known in (plan.constants, plan.types))
    return replace(plan, constants=constants, types=types)  # type: ignore[arg-type]


def mentioned(items: Iterable[Item], values: Iterable[str]) -> set[str]:
    """Return these values, and all that items read or write."""
    return {*values, *(v for item in items for v in (*reads(item), *writes(item)))}
