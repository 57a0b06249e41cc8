"""E-graph as rules see it: typed e-nodes in classes, each class with what is known of its value.

Its structure is stored twice. egglog (`matcher`) matches and closes under congruence. Plain tables here carry types,
constants and provenance, and can be pickled. Handles are indices into `nodes`; every e-node ever made has one, and
`find` returns the canonical handle of its class.

Each class has an analysis (see `analysis`). New facts are propagated to parents.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from ...system.short_text import plural
from ..ir.constants import ConstantInfo, summarize
from ..ir.graph import AttrValue, Constant, DType, Graph, TensorType, ValueType, long_list_of
from ..ir.names import ABSENT, LEAVES, SIZES, WITH_BODIES
from ..ir.symbolic import Dim, symbol
from ..operators.inference import IllTyped, SymbolicValue
from ..operators.schemas import is_pure, signature
from . import loop_lengths
from .analysis import (
    ENode,
    Facts,
    agree,
    combine,
    contents_of,
    empty_constant,
    fold,
    infer_facts,
    refine,
    symbolic_contents,
)
from .matcher import Matcher, SharedTables
from .reasons import Congruence, Reason
from .signs import Sign, sign_of_constant

_PROCESS_LOCAL = (
    "matcher", "touched", "reasons", "_memo", "_keys", "_displaced", "_stamps", "_attr_ids", "_numbers", "_lengths",
)  # fmt: skip
"""Tables that are not pickled: the egglog side cannot leave its process, and nothing is added without it."""


@dataclass(slots=True)
class EGraph:
    """E-nodes, their classes, and what is known of them.

    `made_by[h]` is the rule that first made node `h` (None for a node of the model), `origins[h]` the names of the
    original nodes it stands for. `revision` is incremented with every new fact, so that failed conditions are tried
    again only then. `touched` lists, in order, the classes of which more became known, and both classes of each merge.
    `earlier` has the rules that made a node in the e-graph that this one was restricted from. `interned` has, by their
    number in the matcher, the attributes of nodes and the number of outputs; `symbols` counts those that stand for
    fresh dims. `extents` are the symbols of sizes that kernels know before they run; none in a portable graph.
    `reasons` has the reason of each of the `unions`: a `reasons.Reason`, or None for a node that was folded."""

    nodes: list[ENode] = field(default_factory=list)
    made_by: list[str | None] = field(default_factory=list)
    origins: list[tuple[str, ...]] = field(default_factory=list)
    roots: dict[str, int] = field(default_factory=dict)
    constants: dict[str, ConstantInfo] = field(default_factory=dict)
    commutative: frozenset[str] = frozenset()
    revision: int = 0
    unions: list[tuple[int, int, str | None]] = field(default_factory=list)
    reasons: list[Reason | None] = field(default_factory=list)
    _parent: list[int] = field(default_factory=list)
    _known: list[Facts] = field(default_factory=list)
    _users: list[list[int]] = field(default_factory=list)
    _members: list[list[int]] = field(default_factory=list)
    _memo: dict[tuple[Any, ...], int] = field(default_factory=dict)
    interned: list[tuple[Mapping[str, AttrValue], int]] = field(default_factory=list)
    _keys: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _displaced: list[int] = field(default_factory=list)
    _attr_ids: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _ops: dict[str, int] = field(default_factory=dict)
    symbols: int = 0
    extents: frozenset[str] = frozenset()
    _serials: int = 0
    matcher: Matcher | None = None
    source: Callable[[], Dim] | None = None
    _stamps: list[int] = field(default_factory=list)
    _merged: bool = False
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _lengths: dict[loop_lengths.Key, ValueType] = field(default_factory=dict)
    touched: list[int] = field(default_factory=list)
    earlier: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def create(cls, commutative: Iterable[str] = (), shared: SharedTables | None = None) -> EGraph:
        """Create an empty e-graph with its egglog side; `commutative` names the operators whose operands are
        unordered.

        Many small e-graphs, one after the other, are faster with `shared` tables, which `close_matcher` returns."""
        egraph = cls(commutative=frozenset(commutative), matcher=(matcher := Matcher(shared)))
        if shared is not None:
            egraph._ops = shared.ops
        matcher.declare_commutative([egraph.op_id(op) for op in sorted(egraph.commutative)])
        matcher.add("leaf", ABSENT)
        return egraph

    @classmethod
    def scratch(cls, fresh: Callable[[], Dim]) -> EGraph:
        """Create an empty e-graph to infer types in, without matching; `fresh` returns dims of which nothing is
        known."""
        return cls(source=fresh)

    def __post_init__(self) -> None:
        self._append(ENode("Absent", {}, ()), Facts((TensorType(),)), None, ())

    def __repr__(self) -> str:
        return f"<EGraph: {len(self.nodes):,} e-nodes, {plural(len(self.roots), 'root')}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return the tables without the egglog side."""
        return {name: getattr(self, name) for name in self.__slots__ if name not in _PROCESS_LOCAL}

    def __setstate__(self, state: dict[str, Any]) -> None:
        empty = EGraph()
        for each in fields(EGraph):
            setattr(self, each.name, state.get(each.name, getattr(empty, each.name)))

    # --- reading ---

    def find(self, handle: int) -> int:
        """Return the canonical handle of a node's class."""
        parent = self._parent
        while parent[handle] != handle:
            parent[handle] = parent[parent[handle]]
            handle = parent[handle]
        return handle

    def classes(self) -> dict[int, list[int]]:
        """Return the nodes of every class by canonical handle, in order of creation."""
        return {h: sorted(members) for h, members in enumerate(self._members) if self._parent[h] == h}

    def members(self, handle: int) -> list[int]:
        """Return the nodes of a class."""
        return self._members[self.find(handle)]

    def users(self, handle: int) -> list[int]:
        """Return the nodes that read a class."""
        return self._users[self.find(handle)]

    def is_output(self, handle: int, whole: int, index: int) -> bool:
        """Whether a class is output `index` of the tuple `whole`."""
        projections = (node for h in self.members(handle) if (node := self.nodes[h]).op == "Proj")
        return any(node.attrs["index"] == index and self.find(node.children[0]) == whole for node in projections)

    def types(self, handle: int) -> tuple[ValueType, ...]:
        """Return the types of a class: one, or one for each output of a multi-output operator."""
        return self._known[self.find(handle)].types

    def type(self, handle: int) -> TensorType:
        """Return the tensor type of a class; all unknown for one that is not a tensor."""
        found = self._known[self.find(handle)].types[0]
        return found if isinstance(found, TensorType) else TensorType()

    def constant(self, handle: int) -> ConstantInfo | None:
        """Return the constant that the class is known to equal, or None."""
        return self._known[self.find(handle)].constant

    def is_const(self, handle: int) -> bool:
        """Whether the class has a term over constants only, so that it costs nothing at run time."""
        return self._known[self.find(handle)].is_const

    def value(self, handle: int) -> SymbolicValue | None:
        """Return the contents of a small integer tensor as dims, if known."""
        return self._known[self.find(handle)].value

    def sign(self, handle: int) -> Sign:
        """Return what is known of the signs of a tensor."""
        return self._known[self.find(handle)].sign

    def changed_since(self, revision: int, handles: Iterable[int]) -> bool:
        """Whether more has become known of one of these classes since `self.revision` had that value."""
        return any(self._stamps[self.find(h)] > revision for h in handles)

    def number(self, handle: int, *, contents: bool) -> int:
        """Return a number that classes share if the same is known of them: types, and optionally contents."""
        handle = self.find(handle)
        if handle == ABSENT:
            return -1
        facts, numbers = self._known[handle], self._numbers
        if not facts.numbers:
            plain, digest = (facts.types, facts.is_const), facts.constant and facts.constant.digest
            facts.numbers += [numbers.setdefault(k, len(numbers)) for k in (plain, (*plain, digest, facts.value))]
        return facts.numbers[contents]

    def is_duplicate(self, handle: int) -> bool:
        """Whether an operator's node equals an older one: the same operator, attributes and classes of operands."""
        return handle not in self._keys

    def op_id(self, op: str) -> int:
        """Return the number of an operator in the matcher."""
        return self._ops.setdefault(op, len(self._ops))

    def op_name(self, number: int) -> str:
        """Return the operator of a number in the matcher."""
        return list(self._ops)[number]

    # --- adding ---

    def fresh(self) -> Dim:
        """Return a dim of which nothing is known."""
        if self.source is not None:
            return self.source()
        self.symbols += 1
        return symbol(f"_e{self.symbols}")  # imported symbols do not begin with an underscore

    def add_input(self, name: str, type_: ValueType, value: SymbolicValue | None = None) -> int:
        """Return the class of a graph input or captured value; `value` are its contents."""
        handle = self._add_leaf(ENode("Input", {"name": name}, ()), Facts((type_,), None, value))
        self._fold_empty(handle)
        return handle

    def add_sizes(
        self, dims: Iterable[Dim], dtype: DType, *, scalar: bool,
        made_by: str | None = None, origins: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        """Return the class of integers that are known from the sizes of inputs: a list, or one of rank 0."""
        attrs: dict[str, AttrValue] = {"dims": tuple(map(str, dims)), "scalar": int(scalar), "to": dtype.onnx}
        return self.add(SIZES, attrs, [], made_by=made_by, origins=origins)

    def add_constant(self, constant: Constant | ConstantInfo) -> int:
        """Return the class of a constant; equal constants share one."""
        info = constant if isinstance(constant, ConstantInfo) else summarize(constant)
        if ("Const", info.digest) in self._memo:
            return self._memo["Const", info.digest]
        self.constants.setdefault(info.digest, info)
        facts = Facts((info.type,), info, symbolic_contents(info), True, sign_of_constant(info))
        return self._add_leaf(ENode("Const", {"digest": info.digest}, ()), facts)

    def _add_leaf(self, node: ENode, facts: Facts) -> int:
        key = (node.op, *node.attrs.values())
        if key not in self._memo:
            self._memo[key] = self._append(node, facts, None, ())
            self._add_row("leaf", self._memo[key])
        return self._memo[key]

    def add(
        self, op: str, attrs: Mapping[str, AttrValue], children: Iterable[int], outputs: int = 1, *,
        made_by: str | None = None, origins: tuple[str, ...] = (), types: tuple[ValueType, ...] | None = None,
        given: bool = False,
    ) -> int:  # fmt: skip
        """Return the class of an operator applied to classes, hash-consed.

        `attrs` must be normalized (`schemas.normalize_attrs`). `types` are what the model states of the outputs; they
        fill in what inference leaves unknown. Raises `IllTyped` if the node always fails, unless it is `given` by the
        model: it may be in a branch that is never taken."""
        kids = self._operands(op, children)
        pure = op == "Proj" or is_pure(op, attrs)
        self._serials += not pure
        serial = 0 if pure else self._serials
        attr_id = self._intern(attrs, outputs, serial)
        key = (op, attr_id, *kids)
        if key in self._memo:
            return self._memo[key]
        node = ENode(op, self.interned[attr_id][0], kids, outputs, serial)
        try:
            facts = self._infer(node, types)
        except IllTyped:
            if not given:
                raise
            facts = Facts((TensorType(),) * outputs)
        if op == "Loop":
            facts = replace(facts, types=self._with_length(node, facts.types))
        handle = self._append(node, facts, made_by, origins)
        self._memo[key] = handle
        self._keys[handle] = key
        for child in dict.fromkeys(kids):
            self._users[child].append(handle)
        if serial:
            self._add_row("leaf", handle)
        elif self.matcher is not None:
            self.matcher.add_node((handle, self.op_id(op), attr_id, *kids), variadic=_is_variadic(op))
        self._fold_constant(handle)
        return handle

    def _with_length(self, node: ENode, types: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
        """Give a Loop's stacked outputs the length known for Loops that run equally often."""
        body = node.attrs.get("body")
        assert isinstance(body, Graph)
        operands, captured = node.split(node.children)
        states = len(operands) - 2
        key = loop_lengths.length_key(body, captured, operands)
        shapes = [t.shape for t in types[states:] if isinstance(t, TensorType) and t.shape]
        if key is None or not shapes:
            return types
        found = refine(self._lengths.get(key, TensorType()), TensorType(None, shapes[0][:1]))
        assert isinstance(found, TensorType)
        assert found.shape is not None
        self._lengths[key], (length,) = found, found.shape
        stacked = (
            refine(TensorType(t.dtype, (length, *t.shape[1:])), t) if isinstance(t, TensorType) and t.shape else t
            for t in types[states:]
        )
        return (*types[:states], *stacked)

    def _operands(self, op: str, children: Iterable[int]) -> tuple[int, ...]:
        """Return the canonical children, those of a commutative operator in order."""
        kids = tuple(map(self.find, children))
        return kids[::-1] if len(kids) == 2 and kids[0] > kids[1] and op in self.commutative else kids

    def _add_row(self, relation: str, *row: int) -> None:
        """Add a row to a table of egglog; an e-graph to infer types in has none."""
        if self.matcher is not None:
            self.matcher.add(relation, *row)

    def attrs_id(self, handle: int) -> int:
        """Return the number of a node's attributes in the matcher; unknown in another process."""
        node = self.nodes[handle]
        return self._intern(node.attrs, node.outputs, node.serial)

    def _intern(self, attrs: Mapping[str, AttrValue], outputs: int, serial: int) -> int:
        key = (outputs, serial, *((k, type(attrs[k]).__name__, _hashable(attrs[k])) for k in sorted(attrs)))
        if key not in self._attr_ids:
            self._attr_ids[key] = len(self.interned)
            self.interned.append((dict(sorted(attrs.items())), outputs))
        return self._attr_ids[key]

    def _append(self, node: ENode, facts: Facts, made_by: str | None, origins: tuple[str, ...]) -> int:
        handle = len(self.nodes)
        self.nodes.append(node)
        self.made_by.append(made_by)
        self.origins.append(origins)
        self._parent.append(handle)
        self._known.append(facts)
        self._users.append([])
        self._members.append([handle])
        self._stamps.append(self.revision)
        if facts.is_const:
            self._add_row("fixed", handle)
        return handle

    # --- analysis ---

    def _infer(self, node: ENode, stated: tuple[ValueType, ...] | None = None) -> Facts:
        return infer_facts(node, self._child_facts(node), self.fresh, stated)

    def _child_facts(self, node: ENode) -> list[Facts | None]:
        return [None if c == ABSENT else self._known[self.find(c)] for c in node.children]

    def _fold_constant(self, handle: int) -> None:
        """Merge a node whose contents are known with that constant."""
        facts = self._known[self.find(handle)]
        node = self.nodes[handle]
        if facts.constant is not None or node.outputs != 1 or node.op in LEAVES or self._fold_empty(handle):
            return
        constant = contents_of(facts)
        if constant is None and facts.is_const and node.op != "Proj":
            constant = fold(node, self._child_facts(node), self.type(handle))
        if constant is not None and agree((constant.type,), facts.types, loose=True):
            self.union(handle, self.add_constant(constant))

    def _fold_empty(self, handle: int) -> bool:
        """Merge a tensor without elements with the constant of its shape; whether it is one."""
        constant = empty_constant(self.type(handle))
        if constant is not None:
            self.union(handle, self.add_constant(constant))
        return constant is not None

    def _add_facts(self, handle: int, other: Facts) -> None:
        """Add facts to a class and propagate changes to its parents."""
        at = self.find(handle)
        facts = self._known[at]
        merged = combine(facts, other)
        if merged != facts:
            self._known[at] = merged
            self.revision += 1
            self._stamps[at] = self.revision
            self.touched.append(at)
            if merged.is_const and not facts.is_const:
                self._add_row("fixed", at)
            for user in list(self._users[at]):
                self._reinfer(user)

    # --- merging ---

    def can_union(self, a: int, b: int) -> bool:
        """Whether two classes have provably the same type, which equality requires."""
        return self.find(a) == self.find(b) or agree(self.types(a), self.types(b))

    def union(self, a: int, b: int, rule: str | None = None, reason: Reason | None = None) -> bool:
        """Merge two classes; False if they were one already. egglog is updated by the next `rebuild`."""
        low, high = sorted((self.find(a), self.find(b)))
        if low == high:
            return False
        self.unions.append((a, b, rule))
        self.reasons.append(reason)
        self._add_row("equal", low, high)
        self._merge(low, high)
        return True

    def _merge(self, low: int, high: int) -> None:
        self._parent[high] = low
        self._displaced.append(high)
        self._users[low].extend(self._users[high])
        self._members[low].extend(self._members[high])
        self.revision += 1
        self._stamps[low] = self.revision
        self.touched += (low, high)
        self._merged = True
        before, after = self._known[low], self._known[high]
        self._add_facts(low, after)
        # The facts of `low` are new to the former users of `high`.
        users = list(self._users[high])
        known, new = ((f.constant, f.value, f.types, f.sign) for f in (after, before))
        if known == new:
            users = [user for user in users if self._is_square(user)]
        for user in users:
            self._reinfer(user)

    def _is_square(self, handle: int) -> bool:
        """Whether both operands of a node are one class."""
        children = self.nodes[handle].children
        return len(children) == 2 and self.find(children[0]) == self.find(children[1])

    def _reinfer(self, handle: int) -> None:
        """Infer a node again from its children's facts."""
        try:
            learned = self._infer(self.nodes[handle])
        except IllTyped:
            return
        if len(learned.types) == len(self.types(handle)):
            self._add_facts(handle, learned)
        self._fold_constant(handle)

    def close_matcher(self) -> None:
        """Drop the egglog side: nothing will be matched any more."""
        if self.matcher is not None:
            self.matcher.close()
            self.matcher = None

    def rebuild(self) -> None:
        """Update the egglog side and merge the congruences that it finds."""
        assert self.matcher is not None
        while self.matcher.load():
            if not self._merged:
                continue
            self._merged = False
            for handle, canonical in sorted(self.matcher.canonical().items()):
                low, high = sorted((self.find(handle), self.find(canonical)))
                if low != high:
                    self.unions.append((handle, canonical, None))
                    self.reasons.append(Congruence(handle, canonical))
                    self._merge(low, high)
            self._rehash()
        self._merged = False

    def close(self) -> None:
        """Merge congruent classes; for an e-graph without an egglog side."""
        assert self.matcher is None
        while self._displaced:
            for a, b in self._rehash():
                self.union(a, b, reason=Congruence(a, b))

    def _rehash(self) -> list[tuple[int, int]]:
        """Update the hash-cons table after merges, and return pairs of congruent nodes, of which the oldest stays."""
        memo, keys, congruent = self._memo, self._keys, []
        for user in dict.fromkeys(user for high in self._displaced for user in self._users[high]):
            key = keys.pop(user, None)
            if key is None:
                continue  # an older node was congruent
            del memo[key]
            key = (*key[:2], *self._operands(key[0], key[2:]))
            other = memo.get(key, user)
            if other != user:
                congruent.append((other, user))
            if other < user:
                continue
            keys.pop(other, None)
            memo[key] = user
            keys[user] = key
        self._displaced.clear()
        return congruent


@cache
def _is_variadic(op: str) -> bool:
    found = signature(op)
    return op in WITH_BODIES or (found is not None and found.max_inputs is None)


def _hashable(value: Any) -> Any:
    if isinstance(value, Graph):
        return id(value)
    if isinstance(value, tuple):
        of = long_list_of(value)
        if of is float:
            return array("d", value).tobytes()
        return value if of in (int, str) else tuple(map(_hashable, value))
    if isinstance(value, float):
        return repr(value)  # separates -0.0 from 0.0, and NaN equals itself
    return value
