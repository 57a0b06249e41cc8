"""The e-graph as rules see it: typed e-nodes in classes, each class with what is known of its value.

Structure lives twice: in egglog (`matcher`), which matches and closes under congruence, and here as plain tables, which
carry types, constants and provenance and can be pickled. Handles are indices into `nodes`; every e-node ever made has
one, and `find` gives the canonical handle of its class.

Each class has an analysis (Willsey et al., "egg", POPL 2021, section 4): its type, its constant contents if it has
any, the symbolic contents of small integer tensors, and whether it is a term over constants only. What becomes known
later is carried on to the parents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .constants import SMALL, ConstantInfo, summarise
from .facts import Facts, agree, array_of, holds, refine, symbolic_contents
from .graph import AttrValue, Constant, DType, Graph, TensorType, ValueType
from .matcher import Matcher, Row
from .operators import WITH_BODIES, is_pure, signature
from .shapes import IllTyped, SymbolicValue, infer
from .symbolic import Dim, known, symbol

ABSENT = 0
"""The handle of an absent optional input."""

CAPTURES = "$captures"
"""The attribute with the names under which the bodies of a node read values from around them: its last children."""

LOCAL = "$"
"""How the names begin by which bodies that rules have made read what the model's do not."""

LEAVES = ("Absent", "Input", "Const")
_LARGEST = 2**31  # elements of an empty tensor but for its empty axes


@dataclass(frozen=True, slots=True)
class ENode:
    """An operator over classes.

    `attrs` is an interned dictionary, equal attribute sets being one object; `outputs` counts the node's outputs (a
    node with several has a tuple as its value, taken apart by `Proj`). `serial` tells apart what must not be merged:
    two draws of a random operator. Leaves are `Absent`, `Input` (attribute `name`) and `Const` (attribute `digest`)."""

    op: str
    attrs: Mapping[str, AttrValue]
    children: tuple[int, ...]
    outputs: int = 1
    serial: int = 0


@dataclass(slots=True)
class EGraph:
    """E-nodes, their classes, and what is known of them.

    `made_by[h]` is the rule that first made node `h` (None for a node of the model), `origins[h]` the names of the
    original nodes it stands for. `knowledge` counts what has become known, so that a failed condition can tell whether
    it is worth another look; `touched` lists the classes of which more has become known, one after the other, and both
    where two have merged. `earlier` has the rules that made a node in the e-graph that this one was narrowed from."""

    nodes: list[ENode] = field(default_factory=list)
    made_by: list[str | None] = field(default_factory=list)
    origins: list[tuple[str, ...]] = field(default_factory=list)
    roots: dict[str, int] = field(default_factory=dict)
    constants: dict[str, ConstantInfo] = field(default_factory=dict)
    commutative: frozenset[str] = frozenset()
    knowledge: int = 0
    unions: list[tuple[int, int, str | None]] = field(default_factory=list)
    _parent: list[int] = field(default_factory=list)
    _known: list[Facts] = field(default_factory=list)
    _users: list[list[int]] = field(default_factory=list)
    _members: list[list[int]] = field(default_factory=list)
    _memo: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _attrs: list[Mapping[str, AttrValue]] = field(default_factory=list)
    _attr_ids: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _outputs: list[int] = field(default_factory=list)
    _ops: dict[str, int] = field(default_factory=dict)
    _fresh: int = 0
    _serials: int = 0
    matcher: Matcher | None = None
    source: Callable[[], Dim] | None = None
    _stamps: list[int] = field(default_factory=list)
    _new_fixed: list[int] = field(default_factory=list)
    _new_variadic: list[Row] = field(default_factory=list)
    _new_leaves: list[int] = field(default_factory=list)
    _new_rows: dict[int, list[Row]] = field(default_factory=dict)
    _new_equal: list[tuple[int, int]] = field(default_factory=list)
    _merged: bool = False
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    touched: list[int] = field(default_factory=list)
    earlier: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def create(cls, commutative: Iterable[str] = ()) -> EGraph:
        """An empty e-graph with its egglog side; `commutative` names the operators whose operands are unordered."""
        egraph = cls(commutative=frozenset(commutative), matcher=Matcher())
        assert egraph.matcher is not None
        egraph.matcher.declare_commutative([egraph.op_id(op) for op in sorted(egraph.commutative)])
        egraph._append(ENode("Absent", {}, ()), Facts((TensorType(),)), None, ())
        egraph._new_leaves.append(ABSENT)
        return egraph

    @classmethod
    def scratch(cls, fresh: Callable[[], Dim]) -> EGraph:
        """An empty e-graph to compute types in, without matching; `fresh` gives dims of which nothing is known."""
        egraph = cls(source=fresh)
        egraph._append(ENode("Absent", {}, ()), Facts((TensorType(),)), None, ())
        return egraph

    def continue_symbols(self, other: EGraph) -> None:
        """Makes no dims from now on that another e-graph has made."""
        self._fresh = other._fresh

    def __getstate__(self) -> dict[str, Any]:
        """The tables without the egglog side, which cannot leave its process."""
        skip = {
            "matcher",
            "_memo",
            "_stamps",
            "_new_fixed",
            "_new_variadic",
            "_new_leaves",
            "_new_rows",
            "_new_equal",
            "_attr_ids",
            "_numbers",
            "touched",
        }
        return {name: getattr(self, name) for name in self.__slots__ if name not in skip}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.matcher, self._memo, self._attr_ids, self._numbers = None, {}, {}, {}
        self._new_leaves, self._new_rows, self._new_equal = [], {}, []
        self._new_fixed, self._stamps, self._new_variadic, self.touched = [], [], [], []

    # --- reading ---

    def find(self, handle: int) -> int:
        """The canonical handle of a node's class."""
        parent = self._parent
        while parent[handle] != handle:
            parent[handle] = parent[parent[handle]]
            handle = parent[handle]
        return handle

    def classes(self) -> dict[int, list[int]]:
        """The nodes of every class by canonical handle, in order of their making."""
        found: dict[int, list[int]] = {}
        for handle in range(len(self.nodes)):
            found.setdefault(self.find(handle), []).append(handle)
        return found

    def members(self, handle: int) -> list[int]:
        """The nodes of a class."""
        return self._members[self.find(handle)]

    def users(self, handle: int) -> list[int]:
        """The nodes that read a class."""
        return self._users[self.find(handle)]

    def is_output(self, handle: int, whole: int, index: int) -> bool:
        """Whether a class is output `index` of the tuple `whole`."""
        return any(
            (node := self.nodes[h]).op == "Proj"
            and node.attrs["index"] == index
            and self.find(node.children[0]) == whole
            for h in self.members(handle)
        )

    def types(self, handle: int) -> tuple[ValueType, ...]:
        """The types of a class: one, or one for each output of a multi-output operator."""
        return self._known[self.find(handle)].types

    def type(self, handle: int) -> TensorType:
        """The tensor type of a class; all unknown for one that is no tensor."""
        found = self._known[self.find(handle)].types[0]
        return found if isinstance(found, TensorType) else TensorType()

    def constant(self, handle: int) -> ConstantInfo | None:
        """The constant that the class is known to equal, or None."""
        return self._known[self.find(handle)].constant

    def is_const(self, handle: int) -> bool:
        """Whether the class has a term over constants only, so that it costs nothing at run time."""
        return self._known[self.find(handle)].is_const

    def value(self, handle: int) -> SymbolicValue | None:
        """The contents of a small integer tensor as dims, if known."""
        return self._known[self.find(handle)].value

    def changed_since(self, knowledge: int, handles: Iterable[int]) -> bool:
        """Whether more has become known of one of these classes since `self.knowledge` had that value."""
        return any(self._stamps[self.find(h)] > knowledge for h in handles)

    def number(self, handle: int, *, contents: bool) -> int:
        """A number that classes share of which the same is known: their types, and if asked for their contents."""
        handle = self.find(handle)
        if handle == ABSENT:
            return -1
        what = self._known[handle]
        if not what.numbers:
            digest = None if what.constant is None else what.constant.digest
            plain = (what.types, what.is_const)
            numbers = self._numbers
            what.numbers += [numbers.setdefault(k, len(numbers)) for k in (plain, (*plain, digest, what.value))]
        return what.numbers[contents]

    def op_id(self, op: str) -> int:
        """The number that stands for an operator in the matcher."""
        return self._ops.setdefault(op, len(self._ops))

    def op_name(self, number: int) -> str:
        """The operator that a number of the matcher stands for."""
        return list(self._ops)[number]

    # --- adding ---

    def fresh(self) -> Dim:
        """A dim of which nothing is known but that it is one."""
        if self.source is not None:
            return self.source()
        self._fresh += 1
        return symbol(f"_e{self._fresh}")  # models have no names that begin with an underscore

    def add_input(self, name: str, type_: ValueType, value: SymbolicValue | None = None) -> int:
        """The class of a graph input (or of a value captured from around the graph); `value` is what it holds."""
        handle = self._add_leaf(ENode("Input", {"name": name}, ()), Facts((type_,), None, value))
        self._settle_empty(handle)
        return handle

    def add_constant(self, constant: Constant | ConstantInfo) -> int:
        """The class of a constant; equal constants share one."""
        info = constant if isinstance(constant, ConstantInfo) else summarise(constant)
        found = self._memo.get(("Const", info.digest))
        if found is not None:
            return found
        self.constants.setdefault(info.digest, info)
        known_ = Facts((info.type,), info, symbolic_contents(info), True)
        return self._add_leaf(ENode("Const", {"digest": info.digest}, ()), known_)

    def _add_leaf(self, node: ENode, what: Facts) -> int:
        key = (node.op, *node.attrs.values())
        if key not in self._memo:
            self._memo[key] = self._append(node, what, None, ())
            self._new_leaves.append(self._memo[key])
        return self._memo[key]

    def add(
        self,
        op: str,
        attrs: Mapping[str, AttrValue],
        children: Iterable[int],
        outputs: int = 1,
        *,
        made_by: str | None = None,
        origins: tuple[str, ...] = (),
        types: tuple[ValueType, ...] | None = None,
        given: bool = False,
    ) -> int:
        """The class of an operator applied to classes, hash-consed.

        `attrs` must be normalised (`operators.normalise_attrs`). `types`, if given, are what the model says of the
        outputs and fill in what inference leaves unknown. Raises `IllTyped` if inference refuses the node, but not for
        one that is `given` by the model: it fails if it is run, and may stand in a branch that is never taken."""
        kids = tuple(self.find(c) for c in children)
        if op in self.commutative and len(kids) == 2 and kids[0] > kids[1]:
            kids = (kids[1], kids[0])
        serial = 0
        if op != "Proj" and not is_pure(op, attrs):
            self._serials += 1
            serial = self._serials
        attr_id = self._intern(attrs, outputs, serial)
        key = (op, attr_id, *kids)
        found = self._memo.get(key)
        if found is not None:
            return found
        node = ENode(op, self._attrs[attr_id], kids, outputs, serial)
        try:
            what = self._infer(node, types)
        except IllTyped:
            if not given:
                raise
            what = Facts((TensorType(),) * outputs)
        handle = self._append(node, what, made_by, origins)
        self._memo[key] = handle
        for child in dict.fromkeys(kids):
            self._users[child].append(handle)
        if not serial:
            row = (handle, self.op_id(op), attr_id, *kids)
            self._new_rows.setdefault(len(kids), []).append(row)
            if _is_variadic(op):
                self._new_variadic.append(row)
        else:
            self._new_leaves.append(handle)
        self._settle(handle)
        return handle

    def attrs_of(self, attr_id: int) -> Mapping[str, AttrValue]:
        """The attributes that a number of the matcher stands for."""
        return self._attrs[attr_id]

    def attrs_id(self, handle: int) -> int:
        """The number that stands for the attributes of a node in the matcher; not known in another process."""
        node = self.nodes[handle]
        return self._intern(node.attrs, node.outputs, node.serial)

    def outputs_of(self, attr_id: int) -> int:
        """The number of outputs of the e-nodes with that attribute number."""
        return self._outputs[attr_id]

    def _intern(self, attrs: Mapping[str, AttrValue], outputs: int, serial: int) -> int:
        key = (outputs, serial, *((k, type(attrs[k]).__name__, _hashable(attrs[k])) for k in sorted(attrs)))
        found = self._attr_ids.get(key)
        if found is None:
            found = self._attr_ids[key] = len(self._attrs)
            self._attrs.append(dict(sorted(attrs.items())))
            self._outputs.append(outputs)
        return found

    def _append(self, node: ENode, what: Facts, made_by: str | None, origins: tuple[str, ...]) -> int:
        handle = len(self.nodes)
        self.nodes.append(node)
        self.made_by.append(made_by)
        self.origins.append(origins)
        self._parent.append(handle)
        self._known.append(what)
        self._users.append([])
        self._members.append([handle])
        self._stamps.append(self.knowledge)
        if what.is_const:
            self._new_fixed.append(handle)
        return handle

    # --- analysis ---

    def _infer(self, node: ENode, declared: tuple[ValueType, ...] | None) -> Facts:
        is_const = (
            bool(node.children)
            and not node.serial
            and all(c == ABSENT or self._known[self.find(c)].is_const for c in node.children)
        )
        if node.op == "Proj":
            types = self.types(node.children[0])
            index = node.attrs["index"]
            assert isinstance(index, int)
            return Facts((types[index] if index < len(types) else TensorType(),), is_const=is_const)
        captured = node.attrs.get(CAPTURES, ())
        inputs = node.children[: len(node.children) - len(captured)] if isinstance(captured, tuple) else ()
        kids = [None if c == ABSENT else self._known[self.find(c)] for c in inputs]
        inference = infer(
            node.op,
            node.attrs,
            [None if k is None else k.types[0] for k in kids],
            [None if k is None else k.value for k in kids],
            node.outputs,
            constants=[array_of(k) for k in kids],
            fresh=self.fresh,
        )
        types = tuple(inference.types)
        if declared is not None:
            types = tuple(refine(a, b) for a, b in zip(types, declared, strict=False))
        value = inference.values[0] if node.outputs == 1 and inference.values else None
        if value is not None and not holds(types[0], value):
            value = None  # dims are whole numbers without bounds; this sum or product of them wraps around
        return Facts(types, None, value, is_const)

    def _settle(self, handle: int) -> None:
        """Makes a node whose contents are known equal to that constant."""
        what = self._known[self.find(handle)]
        node = self.nodes[handle]
        if what.constant is not None or node.outputs != 1 or node.op in LEAVES or self._settle_empty(handle):
            return
        constant = None
        if what.value is not None and all(known(d) for d in what.value.dims) and what.types[0].dtype is not None:  # type: ignore[union-attr]
            shape = (len(what.value.dims),) if what.value.rank else ()
            dtype = what.types[0].dtype  # type: ignore[union-attr]
            assert dtype is not None
            constant = Constant(np.array(what.value.dims, dtype.numpy).reshape(shape))
        elif what.is_const and node.op != "Proj":
            constant = self._fold(handle)
        if constant is not None and agree((constant.type,), what.types, loose=True):
            self.union(handle, self.add_constant(constant))

    def _settle_empty(self, handle: int) -> bool:
        """Makes a tensor without elements equal to the constant of its shape. It is a part of itself, twice and thrice
        over, so that without this rules on parts would write it down in ever more ways."""
        type_ = self.type(handle)
        dims, dtype = type_.shape, type_.dtype
        if dims is None or dtype is None or dtype == DType.STRING or not type_.is_static or 0 not in dims:
            return False
        if np.prod([float(d or 1) for d in dims]) > _LARGEST:  # type: ignore[arg-type]
            return False  # NumPy refuses to make these
        self.union(handle, self.add_constant(Constant(np.empty(dims, dtype.numpy))))  # type: ignore[arg-type]
        return True

    def _fold(self, handle: int) -> Constant | None:
        """The contents of a small node over small constants."""
        from .fold import evaluate

        type_ = self.type(handle)
        if type_.is_static and np.prod(type_.shape or (1,), dtype=np.int64) > SMALL:  # type: ignore[arg-type]
            return None
        node = self.nodes[handle]
        arrays: list[NDArray[Any] | None] = []
        for child in node.children:
            if child == ABSENT:
                arrays.append(None)
                continue
            info = self._known[self.find(child)].constant
            if info is None or info.elements is None:
                return None
            arrays.append(info.elements)
        result = evaluate(node.op, node.attrs, arrays, 1)
        if result is None or result[0] is None or result[0].size > SMALL:
            return None
        return Constant(result[0])

    def _learn(self, handle: int, other: Facts) -> None:
        """Adds what `other` knows to a class and carries news on to its parents."""
        at = self.find(handle)
        what = self._known[at]
        merged = Facts(
            tuple(refine(a, b) for a, b in zip(what.types, other.types, strict=True)),
            what.constant or other.constant,
            what.value or other.value,
            what.is_const or other.is_const,
        )
        if merged != what:
            self._known[at] = merged
            self.knowledge += 1
            self._stamps[at] = self.knowledge
            self.touched.append(at)
            if merged.is_const and not what.is_const:
                self._new_fixed.append(at)
            for user in list(self._users[at]):
                self._relearn(user)

    # --- merging ---

    def can_union(self, a: int, b: int) -> bool:
        """Whether two classes have provably the same type, the least that equality asks for."""
        return self.find(a) == self.find(b) or agree(self.types(a), self.types(b))

    def union(self, a: int, b: int, rule: str | None = None) -> bool:
        """Makes two classes one, on behalf of a rule; False if they were already. The egglog side follows at the next
        `rebuild`."""
        self.unions.append((a, b, rule))
        a, b = self.find(a), self.find(b)
        if a == b:
            self.unions.pop()
            return False
        low, high = min(a, b), max(a, b)
        self._new_equal.append((low, high))
        self._merge(low, high)
        return True

    def _merge(self, low: int, high: int) -> None:
        self._parent[high] = low
        self._users[low].extend(self._users[high])
        self._members[low].extend(self._members[high])
        self.knowledge += 1
        self._stamps[low] = self.knowledge
        self.touched += (low, high)
        self._merged = True
        before, after = self._known[low], self._known[high]
        self._learn(low, after)
        # what was known of `low` is news to the former users of `high`
        if (before.constant, before.value, before.types) != (after.constant, after.value, after.types):
            for user in list(self._users[high]):
                self._relearn(user)

    def _relearn(self, handle: int) -> None:
        """Infers a node anew from what its children are known to be by now."""
        try:
            learned = self._infer(self.nodes[handle], None)
        except IllTyped:
            return
        if len(learned.types) == len(self.types(handle)):
            self._learn(handle, learned)
        self._settle(handle)

    def rebuild(self) -> None:
        """Brings the egglog side up to date and takes over the congruences it finds."""
        assert self.matcher is not None
        while self._new_leaves or self._new_rows or self._new_equal or self._new_fixed:
            leaves, rows, equal, fixed = self._new_leaves, self._new_rows, self._new_equal, self._new_fixed
            variadic, self._new_variadic = self._new_variadic, []
            self._new_leaves, self._new_rows, self._new_equal, self._new_fixed = [], {}, [], []
            self.matcher.load(leaves, rows, equal, fixed, variadic)
            if not self._merged:
                continue
            self._merged = False
            for handle, canonical in sorted(self.matcher.canonical().items()):
                low, high = sorted((self.find(handle), self.find(canonical)))
                if low != high:
                    self.unions.append((handle, canonical, None))
                    self._merge(low, high)
            self._remember()
        self._merged = False

    def _remember(self) -> None:
        """Renews the hash-cons table after classes have merged."""
        memo: dict[tuple[Any, ...], int] = {k: v for k, v in self._memo.items() if k[0] in LEAVES}
        for key, handle in self._memo.items():
            if key[0] in LEAVES:
                continue
            kids = tuple(self.find(c) for c in key[2:])
            if key[0] in self.commutative and len(kids) == 2 and kids[0] > kids[1]:
                kids = (kids[1], kids[0])
            memo.setdefault((key[0], key[1], *kids), handle)
        self._memo = memo


@cache
def _is_variadic(op: str) -> bool:
    found = signature(op)
    return op in WITH_BODIES or (found is not None and found.max_inputs is None)


def _hashable(value: Any) -> Any:
    if isinstance(value, Graph):
        return id(value)
    if isinstance(value, tuple):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, float):
        return repr(value)  # tells -0.0 from 0.0 and NaN equals itself
    return value
