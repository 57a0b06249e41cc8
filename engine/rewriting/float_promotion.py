"""Promotion of 16-bit floats to f32, for native graphs: no kernel computes in f16 or bf16.

An operator on 16-bit floats becomes the same operator on f32 operands. Values of 16 bits remain where something
outside asks for them: graph inputs and outputs, constants, operators that cannot be promoted. Between promoted
operators nothing is rounded, except before the operators that rule files declare `discontinuous`, and before those that
make integers of elements: they see the values that the model's own types hold. This is type promotion as in compilers
for machines without half-precision arithmetic.

Bodies of If, Loop and Scan are promoted with their operands and results, so that no iteration converts.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from ..ir.bodies import all_bodies, change_bodies
from ..ir.graph import AttrValue, Constant, DType, Graph, Node, TensorType, ValueType
from ..operators.inference import IllTyped, infer
from .rule_library import Traits

HALVES = frozenset({DType.F16, DType.BF16})
"""Element types that are promoted."""
_NUMBERS = frozenset(dtype.onnx for dtype in HALVES)
_CASTS = ("Cast", "CastLike")
_OF_SHAPES = ("Shape", "Size", "EyeLike", "Dropout")
"""Operators whose integers and booleans depend on no element."""
_DTYPE_ATTRIBUTES = ("dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type")
"""Attributes that name the type of a result, or the type that it is computed in."""


def needs_promotion(graph: Graph, traits: Traits) -> bool:
    """Return whether an operator in a graph, or in one inside it, computes with 16-bit floats."""

    def computes(part: Graph, node: Node) -> bool:
        halves = (_half(part.types.get(value)) for value in (*node.inputs, *node.outputs))
        return not _moves(node, traits) and node.op not in _CASTS and any(halves)

    return any(computes(part, node) for part in (graph, *all_bodies(graph)) for node in part.nodes)


def promote(graph: Graph, traits: Traits, *, exact: bool = False) -> Graph:
    """Return a graph with the same inputs, outputs and constants that computes 16-bit floats in f32.

    With `exact` the result of every operator is rounded to its own type, as ONNX defines it."""
    taken = {name for part in (graph, *all_bodies(graph)) for name in (*part.types, *_own(part))}
    return _Scope(graph, traits, exact, taken).promoted()


def _half(kind: ValueType | None) -> DType | None:
    """Return the element type of a tensor of 16-bit floats; None for any other."""
    return kind.dtype if isinstance(kind, TensorType) and kind.dtype in HALVES else None


def _own(graph: Graph) -> frozenset[str]:
    """Return the values of a graph that it does not capture."""
    made = (value for node in graph.nodes for value in node.outputs)
    return frozenset((*graph.inputs, *graph.constants, *made))


def _moves(node: Node, traits: Traits) -> bool:
    """Return whether a node only moves elements."""
    moves = traits.kinds.get(node.op) == "injective" or node.op == "Identity"
    return moves and node.op != "EyeLike" and node.op not in traits.discontinuous  # EyeLike reads nothing but a shape


@dataclass(slots=True)
class _Scope:
    """Promotion of one graph; `outer` is the scope around a body.

    `wide` maps a value of 16 bits to its f32 form. `computed` are the values whose f32 form came first, `unrounded`
    those of them from which it may differ, `converted` those that the model itself converts from f32: where it converts
    them back, it asks for the rounding. `stored` are the values of 16 bits that exist as such."""

    graph: Graph
    traits: Traits
    exact: bool
    taken: set[str]
    outer: _Scope | None = None
    own: frozenset[str] = frozenset()
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, ValueType] = field(default_factory=dict)
    wide: dict[str, str] = field(default_factory=dict)
    rounded: dict[str, str] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    unrounded: set[str] = field(default_factory=set)
    converted: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.own = _own(self.graph)
        self.types |= self.graph.types
        self.stored |= {*self.graph.inputs, *self.graph.constants}

    def promoted(self, inputs: Collection[int] = (), outputs: Collection[int] = ()) -> Graph:
        """Return the promoted graph; inputs and outputs at these positions become f32."""
        names = tuple(self._new_form(v) if k in inputs else v for k, v in enumerate(self.graph.inputs))
        self.stored -= self.computed
        for node in self.graph.nodes:
            self._promote(node)
        results = tuple(self._output(v) if k in outputs else self.store(v) for k, v in enumerate(self.graph.outputs))
        return replace(self.graph, inputs=names, outputs=results, nodes=self.nodes, types=self.types)

    def _output(self, value: str) -> str:
        name = self._fresh(value)
        self.nodes.append(Node("Identity", (self.read(value),), (name,), name=name))
        return name

    # --- the forms of a value ---

    def owner(self, value: str) -> _Scope:
        """Return the scope of a value: this one, or one around it if the value is captured."""
        return self if self.outer is None or value in self.own else self.outer.owner(value)

    def type(self, value: str) -> ValueType:
        """Return the type of a value in the model."""
        scope = self.owner(value)
        return scope.graph.types.get(value) or scope.graph.type(value)

    def half(self, value: str) -> DType | None:
        """Return the element type of a value of 16-bit floats; None for any other."""
        return _half(self.type(value)) if value else None

    def read(self, value: str, *, rounded: bool = False) -> str:
        """Return the f32 form of a value of 16 bits, as precise as it is known or `rounded` to these."""
        scope = self.owner(value)
        found = scope._rounded(value) if rounded or self.exact else scope._widened(value)
        self.types[found] = scope.types.get(found) or scope.type(found)
        return found

    def _widened(self, value: str) -> str:
        if value not in self.wide:
            self.wide[value] = self._converted(value)
        return self.wide[value]

    def _rounded(self, value: str) -> str:
        if value not in self.unrounded:
            return self._widened(value)
        if value not in self.rounded:
            self.rounded[value] = self._converted(self.store(value))
        return self.rounded[value]

    def store(self, value: str) -> str:
        """Return a value under its own name and type, after converting it if it only has an f32 form."""
        scope, dtype = self.owner(value), self.half(value)
        if dtype is not None and value not in scope.stored:
            scope.stored.add(value)
            scope._convert(scope.wide[value], value, dtype)
        return value

    def _converted(self, value: str) -> str:
        name = self._fresh(value)
        self._convert(value, name, DType.F32)
        return name

    def _convert(self, source: str, target: str, dtype: DType) -> None:
        self.nodes.append(Node("Cast", (source,), (target,), {"saturate": 1, "to": dtype.onnx}, f"{target}_cast"))

    def _fresh(self, value: str) -> str:
        """Return the name of a new f32 form of a value."""
        numbered = (f"{value}_f32_{number}" for number in itertools.count(1))
        name = next(name for name in itertools.chain([f"{value}_f32"], numbered) if name not in self.taken)
        self.taken.add(name)
        kind = self.type(value)
        self.types[name] = replace(kind, dtype=DType.F32) if isinstance(kind, TensorType) else kind
        return name

    def _new_form(self, value: str, *, rounded: bool = False) -> str:
        """Return the name of the f32 form of a value that a promoted node makes."""
        self.wide[value] = self._fresh(value)
        self._compute(value, rounded=rounded)
        return self.wide[value]

    def _compute(self, value: str, *, rounded: bool = False) -> None:
        self.computed.add(value)
        if not rounded:
            self.unrounded.add(value)

    # --- nodes ---

    def _promote(self, node: Node) -> None:
        """Add the promoted form of a node."""
        operands = [v for v in node.inputs if self.half(v) is not None]
        if any(True for _ in node.subgraphs()):
            self._promote_control(node)
        elif not operands and not any(self.half(v) for v in node.outputs):
            self.nodes.append(node)
        elif node.op == "BitCast":  # the bits are those of the model's own type
            self._keep(node)
        elif node.op in _CASTS:
            self._promote_cast(node)
        elif operands and _moves(node, self.traits):
            self._promote_move(node, operands)
        else:
            attrs = self._promotable(node)
            if attrs is None:
                self._keep(node)
            else:
                self._add(node, attrs, rounded=node.op in self.traits.discontinuous or self._chooses(node))

    def _chooses(self, node: Node) -> bool:
        """Whether results are integers that elements decide, such as the indices of MaxPool: those jump."""
        kinds = [self.type(v) for v in node.outputs if v]
        discrete = any(isinstance(t, TensorType) and t.dtype is not None and not t.dtype.is_float for t in kinds)
        return discrete and node.op not in _OF_SHAPES

    def _promote_move(self, node: Node, operands: list[str]) -> None:
        """Move elements in f32 if some operand was computed so, else in 16 bits."""
        owners = [(self.owner(v), v) for v in operands]
        attrs = self._promotable(node) if any(v in scope.computed for scope, v in owners) else None
        if attrs is None:
            self._keep(node)
            return
        unrounded = any(v in scope.unrounded for scope, v in owners)
        self._add(node, attrs, grid=self.exact or not unrounded)
        if any(v in scope.converted for scope, v in owners):
            self.converted.update(node.outputs)

    def _promotable(self, node: Node) -> dict[str, AttrValue] | None:
        """Return the attributes of a node on f32; None if its types are not known to become f32 then."""
        attrs = {name: _attribute(name, value) for name, value in node.attrs.items()}
        types = [self.type(v) if v else None for v in node.inputs]
        if not all(t is None or (isinstance(t, TensorType) and t.dtype is not None) for t in types):
            return None
        in_f32 = [replace(t, dtype=DType.F32) if isinstance(t, TensorType) and _half(t) else t for t in types]
        try:
            found = infer(node.op, attrs, in_f32, [], len(node.outputs))
        except IllTyped:
            return None
        for value, kind in zip(node.outputs, found.types, strict=True):
            own = self.type(value) if value else None
            if value and not (isinstance(own, TensorType) and own.dtype is not None):
                return None  # members of a sequence have the type that the model states; no type is known to become f32
            if self.half(value) and not (isinstance(kind, TensorType) and kind.dtype is DType.F32):
                return None
        return attrs

    def _add(self, node: Node, attrs: dict[str, AttrValue], *, rounded: bool = False, grid: bool = False) -> None:
        """Add a promoted node on `rounded` operands; `grid` says that its results are values of 16 bits."""
        inputs = tuple(self.read(v, rounded=rounded) if self.half(v) else v for v in node.inputs)
        outputs = tuple(self._new_form(v, rounded=grid) if self.half(v) else v for v in node.outputs)
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs, attrs=attrs))

    def _keep(self, node: Node) -> None:
        """Add a node as it is."""
        for value in node.inputs:
            self.store(value)
        self.nodes.append(node)
        self.stored.update(node.outputs)

    def _promote_cast(self, node: Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        kind, target = self.type(x), self.type(y)
        source = kind.dtype if isinstance(kind, TensorType) else None
        dtype = target.dtype if isinstance(target, TensorType) else None
        if dtype in HALVES and source is DType.F32:
            self.wide[y] = x
            self._compute(y)
            self.converted.add(y)
        elif dtype is source:
            self._promote_move(Node("Identity", (x,), (y,), name=node.name), [x])
        elif self.half(x) is None or dtype is None or dtype is DType.STRING:
            self._keep(node)
        else:
            asked = x in self.owner(x).converted or dtype is not DType.F32
            form = self.read(x, rounded=asked and dtype is not DType.F64)
            saturate = {"saturate": node.attrs["saturate"]} if "saturate" in node.attrs else {}
            op, attrs = ("Identity", {}) if dtype is DType.F32 else ("Cast", {**saturate, "to": dtype.onnx})
            self.nodes.append(replace(node, op=op, inputs=(form,), attrs=attrs))
            self.stored.add(y)

    # --- bodies ---

    def _promote_control(self, node: Node) -> None:
        """Add a node with promoted bodies; operands and results become f32 where all bodies agree in their types."""
        inputs, outputs = self._interface(node)
        offset = 1 if node.op == "Loop" else 0

        def change(body: Graph) -> Graph:
            scope = _Scope(body, self.traits, self.exact, self.taken, self)
            return scope.promoted(inputs, {k + offset for k in outputs})

        changed = change_bodies(node, change)
        operands = tuple(self.read(v) if k in inputs else self.store(v) for k, v in enumerate(node.inputs))
        results = tuple(self._new_form(v) if k in outputs else v for k, v in enumerate(node.outputs))
        self.stored.update(v for k, v in enumerate(node.outputs) if k not in outputs)
        self.nodes.append(replace(changed, inputs=operands, outputs=results))

    def _interface(self, node: Node) -> tuple[set[int], set[int]]:
        """Return the positions of the inputs of a node, and of its outputs, that become f32 with those of its bodies.

        A state is an input and an output, and becomes f32 as both or not at all."""
        bodies = [body for _, body in node.subgraphs()]
        if self.exact or node.op not in ("If", "Loop", "Scan"):
            return set(), set()
        offset = 1 if node.op == "Loop" else 0

        def agree(value: str, inner: list[str]) -> bool:
            kinds = {_half(body.types.get(v)) for body, v in zip(bodies, inner, strict=True)}
            return self.half(value) is not None and kinds == {self.half(value)}

        inputs = {
            k for k, v in enumerate(node.inputs) if node.op != "If" and agree(v, [body.inputs[k] for body in bodies])
        }
        outputs = {k for k, v in enumerate(node.outputs) if agree(v, [body.outputs[k + offset] for body in bodies])}
        first, scanned = 2 if node.op == "Loop" else 0, node.attrs.get("num_scan_inputs", 0)
        count = len(node.inputs) - first - (scanned if isinstance(scanned, int) else 0) if node.op != "If" else 0
        split = {k for k in range(count) if (k + first in inputs) != (k in outputs)}
        return inputs - {k + first for k in split}, outputs - split


def _attribute(name: str, value: AttrValue) -> AttrValue:
    """Return an attribute of an operator for its promoted form."""
    if name in _DTYPE_ATTRIBUTES and isinstance(value, int) and value in _NUMBERS:
        return DType.F32.onnx
    if isinstance(value, Constant) and value.type.dtype in HALVES:
        return Constant(value.array.astype(DType.F32.numpy))
    return value
