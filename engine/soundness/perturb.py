"""Changing instances, one thing at a time.

From an instance on which a rule fires, most changes lead to another one, or to a near miss: an instance on which a
condition that should hold does not. The rule decides by itself whether it fires; what it then equates must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...grammar import ast
from .. import symbolic
from ..graph import DType
from ..operators import normalise_attrs, signature
from ..symbolic import Dim
from ..values import OpRef, RestRef
from . import values
from .attributes import change_list, change_number, draw_attribute, draw_attributes, operators_of, other_mode
from .instance import Instance
from .operand import Tensor, Term
from .run import Subject

Array = NDArray[Any]
Slot = tuple[str, int | None]
DIMS = (0, 1, 2, 3, 4, 5, 7)
FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
INTEGERS = (DType.I64, DType.I32, DType.I8, DType.U8, DType.I16, DType.U32)
_WRAPPERS = (
    "Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Sign", "Reciprocal", "Softplus", "Identity",
)  # fmt: skip
_LARGEST = 4096


class Changer:
    """Changes instances of one rule, deterministically by its random generator."""

    def __init__(self, subject: Subject, rng: np.random.Generator) -> None:
        self.subject = subject
        self.rng = rng
        styles = {"exact": values.EXTREME, "reassoc": values.SPECIAL}
        self._style = styles.get(subject.rule.numerics, values.SMALL)
        self.pool = numbers_of(subject.rule)
        """Numbers that the rule speaks of."""
        moves = {
            self.dims: 4, self.dim: 4, self.rank: 3, self.square: 4, self.across: 3, self.single: 2, self.symbols: 1,
            self.dtypes: 3, self.dtype: 1, self.constness: 2, self.contents: 6, self.constant_shape: 3,
            self.literal: 3, self.attribute: 6, self.rest: 3, self.optional: 2, self.head: 3, self.count: 2,
            self.alias: 1, self.wrap: 2, self.way: 1,
        }  # fmt: skip
        self._moves: tuple[Callable[[Instance], Instance | None], ...] = tuple(moves)
        self._base = np.array(list(moves.values()), dtype=np.float64)

    def change(self, instance: Instance, *, tries: int = 12) -> Instance | None:
        """The instance with one thing changed; None if no change was found."""
        weights = self._base.copy()
        # the more constants and attributes there are, the more there is to change in them
        constants = sum(t.is_const for _, t in tensors(instance))
        weights[self._moves.index(self.contents)] = 2 + 3 * constants
        weights[self._moves.index(self.attribute)] = 1 + 3 * sum(map(_is_plain, instance.operands.values()))
        weights /= weights.sum()
        for _ in range(tries):
            move = self._moves[int(self.rng.choice(len(self._moves), p=weights))]
            changed = move(instance)
            if changed is not None and changed.key() != instance.key() and self._reasonable(changed):
                return changed
        return None

    def _reasonable(self, instance: Instance) -> bool:
        return all(math.prod(d if isinstance(d, int) else 3 for d in t.shape) <= _LARGEST for _, t in tensors(instance))

    def _pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))] if items else None

    def _put(self, instance: Instance, slot: Slot, value: Any, what: str) -> Instance:
        name, index = slot
        if index is not None:
            members = list(instance.operands[name])
            members[index] = value
            value = members
        return instance.replace(what, **{name: value})

    # --- dims and ranks ---

    def dims(self, instance: Instance) -> Instance | None:
        """One extent, wherever it stands, is another."""
        present = sorted({d for _, t in tensors(instance) for d in t.shape if isinstance(d, int)})
        old = self._pick(present)
        if old is None:
            return None
        new = int(self._pick([d for d in DIMS if d != old]))
        numbers = bool(self.rng.random() < 0.5) and old != 1

        def convert(value: Any) -> Any:
            if isinstance(value, Tensor):
                shape = tuple(new if d == old else d for d in value.shape)
                found = resize(value, shape, self.rng)
                if numbers and found.array is not None and found.dtype.is_integer:
                    return Tensor.of(np.where(found.array == old, found.dtype.numpy.type(new), found.array))
                return found
            if isinstance(value, list):
                return [convert(v) for v in value]
            if numbers and type(value) is int and value == old:
                return new
            return value

        operands = {name: convert(v) for name, v in instance.operands.items()}
        return instance.replace(f"extent {old} becomes {new}", **operands)

    def dim(self, instance: Instance) -> Instance | None:
        """One dim of one tensor is another."""
        chosen = self._pick(tensors(instance))
        if chosen is None:
            return None
        slot, tensor = chosen
        if not tensor.shape:
            return None
        axis = int(self.rng.integers(len(tensor.shape)))
        others = [d for _, t in tensors(instance) for d in t.shape]
        new = self._pick([1, 1, *DIMS, *others])
        if tensor.is_const and not isinstance(new, int):
            return None
        shape = (*tensor.shape[:axis], new, *tensor.shape[axis + 1 :])
        return self._put(instance, slot, resize(tensor, shape, self.rng), f"dim {axis} of {slot[0]} becomes {new}")

    def square(self, instance: Instance) -> Instance | None:
        """All extents but those of 1 are the same, so that types no longer tell axes apart."""
        found = tensors(instance)
        if not found:
            return None
        new = int(self._pick([2, 2, 3]))
        every = bool(self.rng.random() < 0.3)
        chosen = found if self.rng.random() < 0.8 else [self._pick(found)]
        for slot, tensor in chosen:
            if tensor.array is not None and tensor.dtype.is_integer and tensor.array.size <= 8:
                continue  # more likely a shape or a list of axes
            shape = tuple(new if every or d != 1 else 1 for d in tensor.shape)
            instance = self._put(instance, slot, resize(tensor, shape, self.rng), f"all extents are {new}")
        return instance

    def single(self, instance: Instance) -> Instance | None:
        """Tensors have one element: all of them, the inputs, or one."""
        found = tensors(instance)
        inputs = [(slot, t) for slot, t in found if not t.is_const]
        chosen = self._pick([found, inputs, inputs, [self._pick(found)] if found else []])
        rank = self._pick([0, 0, 1, None])
        for slot, tensor in chosen:
            if tensor.array is not None and tensor.dtype.is_integer:
                continue
            shape: tuple[Dim, ...] = (1,) * (len(tensor.shape) if rank is None else rank)
            instance = self._put(instance, slot, resize(tensor, shape, self.rng), "one element")
        return instance

    def across(self, instance: Instance) -> Instance | None:
        """One tensor has extent 1 where another, of its shape otherwise, has more."""
        found = tensors(instance)
        if len(found) < 2:
            return None
        (slot, tensor), (other_slot, other) = (found[int(i)] for i in self.rng.permutation(len(found))[:2])
        if not tensor.shape:
            return None
        axis = int(self.rng.integers(len(tensor.shape)))
        before, after = tensor.shape[:axis], tensor.shape[axis + 1 :]
        size = int(self._pick([2, 3]))
        wide: tuple[Dim, ...] = (*before, size, *after) if self.rng.random() < 0.5 else (size, *[1] * len(after))
        if other.is_const and not all(isinstance(d, int) for d in wide):
            return None
        changed = self._put(instance, slot, resize(tensor, (*before, 1, *after), self.rng), "")
        return self._put(changed, other_slot, resize(other, wide, self.rng), f"{other_slot[0]} widens {slot[0]}")

    def symbols(self, instance: Instance) -> Instance | None:
        """An extent of the inputs is not known."""
        present = sorted({d for _, t in tensors(instance) for d in t.shape if isinstance(d, int) and not t.is_const})
        old = self._pick(present)
        if old is None:
            return None
        dim = symbolic.symbol(f"D{old}")

        def convert(value: Any) -> Any:
            if isinstance(value, Tensor) and not value.is_const:
                return Tensor(value.dtype, tuple(dim if d == old else d for d in value.shape))
            return [convert(v) for v in value] if isinstance(value, list) else value

        operands = {name: convert(v) for name, v in instance.operands.items()}
        return instance.replace(f"extent {old} is not known", **operands)

    def rank(self, instance: Instance) -> Instance | None:
        """One tensor or all of them get a dim more or lose one."""
        found = tensors(instance)
        if not found:
            return None
        together = self.rng.random() < 0.4
        chosen = found if together else [self._pick(found)]
        kind = int(self.rng.integers(4))
        new = int(self._pick([1, 2, 3]))
        for slot, tensor in chosen:
            shape = tensor.shape
            if kind == 0:
                shape = (new, *shape)
            elif kind == 1:
                shape = (*shape, new)
            elif kind == 2:
                shape = shape[1:]
            else:
                shape = shape[:-1]
            if len(shape) > 5 or shape == tensor.shape:
                continue
            instance = self._put(instance, slot, resize(tensor, shape, self.rng), "another rank")
        return instance

    # --- element types ---

    def dtypes(self, instance: Instance) -> Instance | None:
        """All tensors of one element type have another."""
        old = self._pick(sorted({t.dtype for _, t in tensors(instance)}))
        return None if old is None else self._all_retyped(instance, old, self._other_dtype(old))

    def every_dtype(self, instance: Instance) -> list[Instance]:
        """The instance with its tensors in each other element type, those of one type together."""
        found = []
        for old in sorted({t.dtype for _, t in tensors(instance)}):
            known = (*FLOATS, *INTEGERS, DType.BOOL)
            found += [self._all_retyped(instance, old, new) for new in known if new is not old]
        return found

    def _all_retyped(self, instance: Instance, old: DType, new: DType) -> Instance:
        operands: dict[str, Any] = {}
        for (name, index), tensor in tensors(instance):
            if tensor.dtype is not old:
                continue
            changed = self._retype(name, tensor, new)
            if index is None:
                operands[name] = changed
            else:
                members = list(operands.get(name, instance.operands[name]))
                members[index] = changed
                operands[name] = members
        return instance.replace(f"{old} becomes {new}", **operands)

    def dtype(self, instance: Instance) -> Instance | None:
        """One tensor has another element type."""
        chosen = self._pick(tensors(instance))
        if chosen is None:
            return None
        slot, tensor = chosen
        new = self._other_dtype(tensor.dtype)
        return self._put(instance, slot, self._retype(slot[0], tensor, new), f"{slot[0]} becomes {new}")

    def _retype(self, name: str, tensor: Tensor, dtype: DType) -> Tensor:
        """The tensor with another element type; a literal's value is rounded anew."""
        number = literal_value(self.subject.pattern.literals.get(name))
        if number is not None and tensor.array is not None:
            return Tensor.of(_cast(np.full(tensor.array.shape, number), dtype.numpy))
        return retype(tensor, dtype)

    def _other_dtype(self, old: DType) -> DType:
        near = FLOATS if old.is_float else INTEGERS
        far = (*INTEGERS[:4], DType.BOOL) if old.is_float else (DType.F32, DType.BOOL, DType.F64)
        choices = [d for d in (near if self.rng.random() < 0.75 else far) if d is not old]
        return choices[int(self.rng.integers(len(choices)))]

    # --- constants ---

    def constness(self, instance: Instance) -> Instance | None:
        """A constant becomes an input, or an input a constant."""
        chosen = self._pick(tensors(instance))
        if chosen is None:
            return None
        slot, tensor = chosen
        if tensor.is_const:
            return self._put(instance, slot, Tensor(tensor.dtype, tensor.shape), f"{slot[0]} is no constant")
        if not all(isinstance(d, int) for d in tensor.shape):
            return None
        shape = tensor.shape if self.rng.random() < 0.6 else self._pick([(), (1,), (1,) * len(tensor.shape)])
        array = values.draw(tensor.dtype, shape, self.rng, str(self._pick([values.PLAIN, values.SMALL])))
        return self._put(instance, slot, Tensor.of(array), f"{slot[0]} is a constant")

    def contents(self, instance: Instance) -> Instance | None:
        """A constant has other contents."""
        chosen = self._pick([(s, t) for s, t in tensors(instance) if t.is_const])
        if chosen is None:
            return None
        slot, tensor = chosen
        array = self._contents(tensor.array, instance)
        return None if array is None else self._put(instance, slot, Tensor.of(array), f"other contents of {slot[0]}")

    def _contents(self, array: Array, instance: Instance) -> Array | None:
        rng, dtype = self.rng, DType.from_numpy(array.dtype)
        kind = int(rng.integers(11))
        if dtype.is_integer and array.ndim <= 1 and kind < 8:
            ranks = [len(t.shape) for _, t in tensors(instance)]
            changed = change_list([int(v) for v in array.reshape(-1)], ranks, self.pool, rng)
            if array.ndim == 0:
                changed = changed[:1]
            with np.errstate(all="ignore"):
                found = np.array(changed).astype(array.dtype)
            return found.reshape(()) if array.ndim == 0 and found.size == 1 else found
        if not array.size:
            return None
        if kind == 0:
            return values.draw(dtype, array.shape, rng, values.PLAIN)
        if kind == 1:
            return values.draw(dtype, array.shape, rng, self._style)
        if kind >= 9:
            others = [t.array for _, t in tensors(instance) if t.array is not None and t.array.size]
            source = np.resize(self._pick(others).astype(np.float64), array.shape)
            with np.errstate(all="ignore"):
                return _cast(source * float(self._pick([1, 1, 2, -1])), array.dtype)
        if kind in (2, 3, 8):
            return _cast(np.full(array.shape, self._number(dtype)), array.dtype)
        found = array.copy()
        if kind == 4 and array.size > 1:
            found = rng.permutation(found.reshape(-1)).reshape(array.shape)
        elif kind == 5:
            found = _cast(-found.astype(np.float64), array.dtype) if array.dtype.kind != "b" else ~found
        elif kind == 6 and dtype.is_float:
            found = _cast(np.abs(found.astype(np.float64)) + 0.25, array.dtype)
        else:
            found.reshape(-1)[int(rng.integers(array.size))] = _cast(np.asarray(self._number(dtype)), array.dtype)
        return np.asarray(found)

    def _number(self, dtype: DType) -> float:
        general = [0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-3]
        numerics = self.subject.rule.numerics
        if dtype.is_float and numerics != "fast":
            general += [np.nan, np.inf, -np.inf, -0.0, 0.5 + 2.0**-20]
        if dtype in (DType.F32, DType.F64) and numerics != "fast":
            limits = np.finfo(np.dtype(dtype.numpy.name))
            general += [float(limits.max), float(limits.min), 1e30] + ([1e-42] if numerics == "exact" else [])
        elif dtype.is_integer:
            general += [
                5.0,
                -2.0,
                float(np.iinfo(np.dtype(dtype.numpy.name)).max),
                float(np.iinfo(np.dtype(dtype.numpy.name)).min),
            ]
        return float(self._pick(self.pool)) if self.pool and self.rng.random() < 0.5 else float(self._pick(general))

    def constant_shape(self, instance: Instance) -> Instance | None:
        """A constant broadcasts in another way."""
        chosen = self._pick([(s, t) for s, t in tensors(instance) if t.is_const])
        if chosen is None:
            return None
        slot, tensor = chosen
        shape = tuple(int(d) for d in tensor.shape)
        targets: list[tuple[Dim, ...]] = [(), (1,), (1, 1), (1, *shape), (*shape, 1), tuple(d for d in shape if d != 1)]
        targets += [tuple(d for d in t.shape) for _, t in tensors(instance)]
        for _, other in tensors(instance):
            mask = tuple(d if self.rng.random() < 0.5 else 1 for d in other.shape)
            targets += [mask, mask[int(self.rng.integers(len(mask) + 1)) :]]
        targets += [(2, *shape), tuple(d if i == len(shape) - 1 else 1 for i, d in enumerate(shape))]
        found = [t for t in targets if all(isinstance(d, int) for d in t) and t != shape and len(t) <= 5]
        target = self._pick(found)
        if target is None:
            return None
        found_shape = resize(tensor, target, self.rng)
        if self.rng.random() < 0.4 and not tensor.dtype.is_integer:
            sizes = tuple(int(d) for d in target)
            found_shape = Tensor.of(values.draw(tensor.dtype, sizes, self.rng, values.PLAIN))
        return self._put(instance, slot, found_shape, f"another shape of {slot[0]}")

    def literal(self, instance: Instance) -> Instance | None:
        """A literal of the pattern stands for a tensor of some shape, all of whose elements have its value."""
        name = self._pick(sorted(self.subject.pattern.literals))
        expr = self.subject.pattern.literals.get(name) if name else None
        number = literal_value(expr)
        if name is None or number is None:
            return None
        found = [t for _, t in tensors(instance)]
        like = next((t.dtype for t in found if t.dtype.is_float), found[0].dtype if found else DType.F32)
        shapes: list[tuple[Dim, ...]] = [(1,), (1, 1), (1, 1, 1, 1), (2, 1, 1)]
        shapes += [t.shape for t in found] + [(2, *t.shape) for t in found] + [t.shape[1:] for t in found]
        shape = self._pick([s for s in shapes if all(isinstance(d, int) for d in s) and len(s) <= 5])
        array = _cast(np.full(tuple(int(d) for d in shape), number), like.numpy)
        return instance.replace(f"the literal {number:g} has shape {list(shape)}", **{name: Tensor.of(array)})

    # --- attributes, operators, lists ---

    def attribute(self, instance: Instance) -> Instance | None:
        """An attribute has another value."""
        plain = [(name, v) for name, v in instance.operands.items() if _is_plain(v)]
        chosen = self._pick(plain)
        if chosen is None:
            return None
        name, value = chosen
        ranks = [len(t.shape) for _, t in tensors(instance)]
        new: Any
        if isinstance(value, DType):
            new = self._other_dtype(value)
        elif isinstance(value, str):
            new = other_mode(value, self.rng)
        elif isinstance(value, list):
            new = change_list(value, ranks, self.pool, self.rng)
        elif isinstance(value, bool):
            new = not value
        else:
            new = change_number(value, ranks, self.pool, self.rng)
        return None if new is None else instance.replace(f"another {name}", **{name: new})

    def rest(self, instance: Instance) -> Instance | None:
        """One of the attributes that the pattern leaves open is set."""
        name = self._pick(sorted(self.subject.pattern.rests))
        if name is None:
            return None
        op = str(self._pick(self.subject.pattern.rests[name]))
        known = signature(op)
        rank = max((len(t.shape) for _, t in tensors(instance)), default=2)
        before = instance.operands.get(name)
        attrs = dict(before.attrs) if isinstance(before, RestRef) else {}
        changed: list[str] = []
        for _ in range(int(self._pick([1, 1, 2, 3]))):
            attribute = self._pick(sorted(known.attributes)) if known is not None else None
            value = None if attribute is None else draw_attribute(op, attribute, rank, self.rng)
            if attribute is not None and value is not None:
                attrs[attribute] = value
                changed.append(attribute)
        if not changed:
            return None
        return instance.replace(f"{' and '.join(changed)} of {op}", **{name: RestRef(attrs)})

    def optional(self, instance: Instance) -> Instance | None:
        """An optional input is left out, or given."""
        name = self._pick(sorted(self.subject.pattern.optional))
        if name is None:
            return None
        if instance.operands.get(name) is not None:
            operands = {k: v for k, v in instance.operands.items() if k != name}
            return Instance(instance.way, operands, f"{name} is absent", instance.steps + 1)
        found = [t for _, t in tensors(instance)]
        if not found:
            return None
        dims = [d for t in found for d in t.shape if isinstance(d, int)] or [1]
        like = self._pick(found)
        shape = tuple(int(self._pick(dims)) for _ in range(int(self._pick([0, 1, 1, 1, 2, len(like.shape)]))))
        dtype = self._pick([like.dtype, like.dtype, DType.I64])
        if self.rng.random() < 0.7:
            style = values.SMALL if dtype is DType.I64 else values.PLAIN
            return instance.replace(f"{name} is given", **{name: Tensor.of(values.draw(dtype, shape, self.rng, style))})
        return instance.replace(f"{name} is given", **{name: Tensor(dtype, shape)})

    def head(self, instance: Instance) -> Instance | None:
        """Another operator of the kind takes the place of a class head's."""
        name = self._pick(sorted(self.subject.pattern.heads))
        if name is None:
            return None
        kind, inputs = self.subject.pattern.heads[name]
        before = instance.operands.get(name)
        rank = max((len(t.shape) for _, t in tensors(instance)), default=2)
        if isinstance(before, OpRef) and self.rng.random() < 0.3:
            attrs = {**before.attrs, **draw_attributes(before.op, rank, self.rng)}
            return instance.replace(f"other attributes of {before.op}", **{name: OpRef(before.op, attrs)})
        op = self._pick(operators_of(kind, inputs, self.subject.library.kinds))
        if op is None:
            return None
        attrs = normalise_attrs(op, draw_attributes(op, rank, self.rng))
        return instance.replace(f"{name} is {op}", **{name: OpRef(op, attrs)})

    def count(self, instance: Instance) -> Instance | None:
        """A list of tensors has a member more, one less, or others."""
        name = self._pick([n for n, v in instance.operands.items() if _is_tensor_list(v)])
        if name is None:
            return None
        operands = dict(instance.operands)
        members = list(operands[name])
        related = [n for n, v in operands.items() if isinstance(v, list) and len(v) == len(members)]
        kind = int(self.rng.integers(4))
        at = int(self.rng.integers(len(members))) if members else 0
        order = list(range(len(members)))
        if kind == 0 and len(members) > 1:
            del order[at]
        elif kind == 1:
            order = [int(i) for i in self.rng.permutation(len(members))]
        elif members and len(members) < 5:
            order.append(at)
        chosen = related if self.rng.random() < 0.7 else [name]
        for n in chosen:
            if _is_tensor_list(operands[n]):
                operands[n] = [operands[n][i] for i in order]
        return Instance(instance.way, operands, f"other members of {name}", instance.steps + 1)

    def alias(self, instance: Instance) -> Instance | None:
        """Two variables are one tensor."""
        found = [name for name, v in instance.operands.items() if isinstance(v, Tensor)]
        if len(found) < 2:
            return None
        one, other = (str(n) for n in self.rng.permutation(np.array(found))[:2])
        if one.startswith("_") or other.startswith("_"):
            return None
        operands = {n: v for n, v in instance.operands.items() if n != other}
        operands[other] = Term(ast.Name(span=self.subject.rule.span, id=one))
        return Instance(instance.way, operands, f"{other} is {one}", instance.steps + 1)

    def wrap(self, instance: Instance) -> Instance | None:
        """A tensor is the result of some operator."""
        name = self._pick([n for n, v in instance.operands.items() if isinstance(v, Tensor | Term)])
        if name is None or name.startswith("_"):
            return None
        value = instance.operands[name]
        span = self.subject.rule.span
        op = str(self._pick(_WRAPPERS))
        if isinstance(value, Term):
            if not isinstance(value.expr, ast.Call) or len(value.expr.args) != 1 or value.expr.attributes:
                return None
            call = ast.Call(span=span, head=op, args=value.expr.args)
            return instance.replace(f"{name} is a {op}", **{name: Term(call)})
        inner = f"{name}_in"
        operands = {n: v for n, v in instance.operands.items() if n != name}
        operands[inner] = value
        operands[name] = Term(ast.Call(span=span, head=op, args=(ast.Name(span=span, id=inner),)))
        return Instance(instance.way, operands, f"{name} is a {op}", instance.steps + 1)

    def way(self, instance: Instance) -> Instance | None:
        """Another alternative of the pattern."""
        if self.subject.pattern.alternatives < 2 or instance.way >= self.subject.pattern.alternatives:
            return None
        way = int(self.rng.integers(self.subject.pattern.alternatives))
        return Instance(way, instance.operands, "another alternative", instance.steps + 1)


def tensors(instance: Instance) -> list[tuple[Slot, Tensor]]:
    """The tensor operands with where they stand."""
    found: list[tuple[Slot, Tensor]] = []
    for name, value in instance.operands.items():
        if isinstance(value, Tensor):
            found.append(((name, None), value))
        elif isinstance(value, list):
            found += [((name, i), v) for i, v in enumerate(value) if isinstance(v, Tensor)]
    return found


def resize(tensor: Tensor, shape: tuple[Dim, ...], rng: np.random.Generator) -> Tensor:
    """The tensor in another shape; a constant is cut off or repeated, so that what all its elements have in common
    stays."""
    if tensor.array is None or shape == tensor.shape:
        return Tensor(tensor.dtype, shape, tensor.array)
    sizes = tuple(int(d) if isinstance(d, int) else 2 for d in shape)
    if not tensor.array.size:
        return Tensor.of(values.draw(tensor.dtype, sizes, rng))
    return Tensor.of(np.resize(tensor.array, sizes))


def retype(tensor: Tensor, dtype: DType) -> Tensor:
    """The tensor with another element type."""
    if tensor.array is None:
        return Tensor(dtype, tensor.shape)
    return Tensor.of(_cast(tensor.array, dtype.numpy))


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and array.dtype.kind not in "iub":
            limits = np.iinfo(dtype)
            wide = np.nan_to_num(array.astype(np.float64), nan=0, posinf=3, neginf=-3)
            return np.asarray(np.clip(wide, max(limits.min, -(2**62)), min(limits.max, 2**62)).astype(dtype))
        return np.asarray(array.astype(dtype))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, int | float) for v in value)
    return isinstance(value, int | float | str)


def _is_tensor_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(v is None or isinstance(v, Tensor | Term) for v in value)


def literal_value(expr: ast.Expr | None) -> float | None:
    """The number that a literal of a pattern is, if it is one that can be told without the engine."""
    sign = 1.0
    if isinstance(expr, ast.Unary) and expr.operator == "-":
        sign, expr = -1.0, expr.operand
    if isinstance(expr, ast.Number):
        return sign * float(expr.value)
    if isinstance(expr, ast.Call) and expr.head == "sqrt" and len(expr.args) == 1:
        inner = literal_value(expr.args[0])
        return None if inner is None or inner < 0 else sign * math.sqrt(inner)
    if isinstance(expr, ast.Name):
        named: Mapping[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
        return sign * named[expr.id] if expr.id in named else None
    return None


def numbers_of(rule: ast.Rule) -> list[float]:
    """The numbers that a rule's conditions and sides mention, and their negatives."""
    found: dict[float, None] = {}
    parts: list[ast.Syntax] = [rule.lhs, rule.rhs, *rule.where, *(b.value for b in rule.let)]
    for node in (n for part in parts for n in part.walk()):
        if isinstance(node, ast.Number):
            found[float(node.value)] = found[-float(node.value)] = None
    return list(found)
