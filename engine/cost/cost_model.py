"""Cost of a node: a roofline over the machine profile, and simpler measures.

A node takes as long as the slower of its arithmetic and its memory traffic (Williams et al., "Roofline", CACM 2009),
plus a fixed cost. There are two targets:

- `portable`: an ONNX runtime executes the file. Every node is dispatched and reads and writes memory.
- `native`: our kernels, as fast as the machine's `KernelConstants` say. Pointwise nodes join the kernel of their
producer and then cost their arithmetic and their other operands; views are free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..ir.graph import AttrValue, DType, Graph, Node, OtherType, TensorType, ValueType, symbols_of
from ..ir.names import WITH_BODIES
from ..operators.schemas import is_pure
from . import machine as machines
from .machine import Machine
from .operator_cost import Estimator, Kind, Types, Work, is_pointwise, is_view, moves

Model = Literal["latency", "flops", "nodes", "memory"]
Target = Literal["portable", "native"]
NodeArguments = tuple[str, Mapping[str, AttrValue], Types, Types, Sequence[bool], bool, bool, bool]
"""Arguments of `CostModel.node_cost`."""
MODELS: tuple[Model, ...] = ("latency", "flops", "nodes", "memory")

_STORED = 0.05
"""Cost of a stored byte as a share of reading it from memory, so that two constants of the same use differ by size."""
_CONSTANT = 1e-9
"""Seconds for a constant of any size: breaks ties in favor of fewer constants."""
_LACKING = 1e-8
"""Seconds for an operator that is written by its parts: one that the file can have wins a tie."""
_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Clip"})
"""Activations that ONNX Runtime and OpenVINO compute in the kernel of a convolution."""
_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Views that are the same of dequantized data and of bytes."""
_FUSED = 1e-8
"""Seconds for a node that its runtime fuses into another: none at all wins a tie."""
_HIDING = 1e-9
"""Seconds for a view of dequantized data: it loses a tie against one of bytes."""
_REFERENCE = 1e-3
"""Seconds for a node that no kernel computes, and a rule states in other operators: the reference implementation."""
_SLOWDOWN = 10
"""Its time over that of a kernel, besides."""
_STAGE = 2e-5
"""Seconds for a part whose size data decide: steps behind it wait for that size, and Python drives a loop around it."""
LACKING = frozenset(
    (
        *("AffineGrid", "CausalConvWithState", "CenterCropPad", "Einsum", "GlobalLpPool", "Hardmax", "LpPool"),
        *("MaxUnpool", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "SequenceAt", "SplitToSequence"),
        *("SoftmaxCrossEntropyLoss", "SwiGLU"),
    )
)
"""Operators without a kernel that a rule states in others."""
_ALONE = frozenset(("DynamicQuantizeLinear",))
"""Operators whose kernels compute no other node, besides those that move elements."""
_RUN = 1.5
"""Cost of setting up one run of a body, in dispatches of a node (measured with ONNX Runtime)."""


@dataclass(slots=True)
class CostModel:
    """Prices nodes and constants.

    `model` is what counts: `latency` in seconds, `flops`, `nodes`, or `memory` in bytes written and stored. The last
    three add a trifle of latency to break ties. `hints` gives symbolic dims their likely values, others are `nominal`.
    With `exact`, native kernels use no algorithm that rounds otherwise than the plain one.
    `fold_bytes` and `fold_growth` limit what is folded, see `stores`. `lacking` are operators that the opset of a file
    lacks, and that are written by their parts."""

    model: Model = "latency"
    target: Target = "portable"
    machine: Machine = field(default_factory=machines.load)
    threads: int = 1
    hints: Mapping[str, int] = field(default_factory=dict)
    nominal: int = 64
    fold_bytes: float | None = None
    fold_growth: float = 2.0
    lacking: Collection[str] = ()
    exact: bool = False
    _estimator: Estimator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"unknown cost model {self.model!r}; there are {', '.join(MODELS)}")
        if self.target not in ("portable", "native"):
            raise ValueError(f"unknown target {self.target!r}")
        if self.target == "native":
            m = self.machine
            far = m.weight_seconds(math.inf) * m.flops / m.lanes
            self._estimator = Estimator(
                self.hints,
                self.nominal,
                machines.rates(m.isa),
                m.lanes,
                m.constants,
                exact=self.exact,
                cache=m.sizes[2],
                far=far,
            )
        else:
            self._estimator = Estimator(self.hints, self.nominal, exact=self.exact)

    def node_cost(
        self,
        op: str,
        attrs: Mapping[str, AttrValue],
        inputs: Types,
        outputs: Types,
        constant: Sequence[bool] = (),
        joins: bool = True,
        fused: bool = False,
        hides: bool = False,
    ) -> float:
        """Return the cost of one node, never negative.

        `inputs` and `outputs` are the types, None where absent. `constant` marks the inputs that are constants; a node
        of constants only is folded, and costs what storing its outputs costs. `joins` says whether some input is made
        by another node, whose kernel a pointwise node could join. `fused` says that a runtime computes it in the kernel
        of its operand, see `fuses`; `hides` that it hides a dequantized operand, see `hides`."""
        if op == "Proj":
            return 0.0
        if constant and all(c or t is None for c, t in zip(constant, inputs, strict=True)) and any(constant):
            return sum(self.constant_cost(t) for t in outputs if t is not None)
        work = self._estimator.work(op, attrs, inputs, outputs)
        if fused:
            seconds = _FUSED
        else:
            seconds = self._portable(work)
            if self.target == "native":
                seconds = self._native(work, constant, joins, op == "Mul" and _is_gate(inputs, constant))
        if hides:
            seconds += _HIDING
        if op in WITH_BODIES:
            seconds += self._bodies(op, attrs, inputs)
        if op in self.lacking:
            seconds += _LACKING
        if self.target == "native" and _lacks_kernel(op, attrs, inputs):
            seconds = _REFERENCE + _SLOWDOWN * seconds
        if self.target == "native" and op == "Slice" and _is_sized_by_data(inputs, outputs):
            seconds += _STAGE
        if self.model == "nodes":
            return 1.0 + 1e-3 * seconds
        return {"latency": 0.0, "flops": work.flops, "memory": work.writes}[self.model] + seconds

    def fuses(self, op: str, operand: Iterable[str]) -> bool:
        """Return whether ONNX runtimes compute an operator within its operand, given by the operators that make it.

        They do so for activations of a convolution. Sigmoid is left out: in SiLU the convolution has a second user."""
        return self.target == "portable" and op in _ACTIVATIONS and "Conv" in operand

    def takes_pointwise(self, op: str) -> bool:
        """Return whether a pointwise node may join the kernel of this operator: those that move elements take none.

        Transpose counts as one that does: where the node follows, a choice of layouts may still remove it."""
        alone = (moves(op) and op != "Transpose") or op in _ALONE
        return op != "Input" and not (self.target == "native" and alone)

    def hides(self, op: str, operand: Iterable[str]) -> bool:
        """Return whether an operator hides that its operand, given by the operators that make it, was dequantized.

        ONNX runtimes compute on bytes where an operator reads dequantized data. A view between the two prevents it."""
        return self.target == "portable" and op in _RESHAPING and "DequantizeLinear" in operand

    def keeps(self, op: str) -> bool:
        """Return whether a file keeps an operator on constants: runtimes compute on the bytes that it dequantizes.

        ONNX Runtime quantizes weights in floats again, otherwise and with zero points, which take twice as long."""
        return self.target == "portable" and op == "DequantizeLinear"

    def constant_cost(self, type_: ValueType) -> float:
        """Return the cost of storing a constant of this type."""
        nbytes = self._estimator.nbytes(type_)
        seconds = _CONSTANT + _STORED * nbytes / self.machine.bandwidths[3]
        if self.model == "memory":
            return nbytes + seconds
        return seconds if self.model == "latency" else 1e-3 * seconds

    def stores(self, nbytes: float, source: float) -> bool:
        """Whether to fold constants of `source` bytes into one of `nbytes` and store that.

        By default a file may grow by 1 MiB for it, a compiled program by 256 MiB, since its kernels want packed
        weights. In either case a constant of at most `fold_growth` times the source may be stored."""
        default = 1 << 28 if self.target == "native" else 1 << 20
        limit = default if self.fold_bytes is None else self.fold_bytes
        return nbytes <= max(limit, self.fold_growth * source)

    def nbytes(self, type_: ValueType) -> float:
        """Return the size of a value in bytes at the nominal dims."""
        return self._estimator.nbytes(type_)

    def graph_cost(self, graph: Graph) -> float:
        """Return the cost of a graph: its nodes and its constants, each once; operators on constants alone are free."""
        costs, constants = self._priced(graph)
        return sum(costs) + sum(self.constant_cost(_type(graph, v)) for v in constants)

    def node_costs(self, graph: Graph) -> list[float]:
        """Return the cost of each node of a graph, without its constants; 0 for operators on constants alone."""
        return self._priced(graph)[0]

    def node_arguments(self, graph: Graph) -> list[NodeArguments | None]:
        """Return the arguments of `node_cost` for each node of a graph; None for operators on constants alone.

        They do not depend on the machine."""
        return self._arguments(graph)[0]

    def _priced(self, graph: Graph) -> tuple[list[float], Iterable[str]]:
        """Return the cost of each node, and the constants that are stored."""
        arguments, used = self._arguments(graph)
        return [0.0 if a is None else self.node_cost(*a) for a in arguments], used

    def _arguments(self, graph: Graph) -> tuple[list[NodeArguments | None], Iterable[str]]:
        sources = {name: float(c.nbytes) for name, c in graph.constants.items()}  # of the constants that it depends on
        makers = {v: node.op for node in graph.nodes for v in node.outputs}
        joined = self._joined(graph, makers)
        arguments: list[NodeArguments | None] = []
        used: dict[str, None] = {}
        for node in graph.nodes:
            fixed = [v for v in node.inputs if v in sources]
            constant = bool(fixed) and all(v in sources or not v for v in node.inputs)
            source = sum(sources[v] for v in fixed)
            nbytes = (self.nbytes(_type(graph, v)) for v in node.outputs)
            if constant and _is_pure(node) and self.stores(sum(nbytes), source):
                sources.update((v, source) for v in node.outputs if v)
                arguments.append(None)
                continue
            used.update(dict.fromkeys(fixed))
            inputs, outputs = (
                [graph.types.get(v, TensorType()) if v else None for v in values]
                for values in (node.inputs, node.outputs)
            )
            mask = () if constant else [v in sources for v in node.inputs]
            joins = not joined.isdisjoint(node.inputs)
            made = [makers[v] for v in node.inputs[:1] if v in makers]
            fused, hides = self.fuses(node.op, made), self.hides(node.op, made)
            arguments.append((node.op, node.attrs, inputs, outputs, mask, joins, fused, hides))
        used.update(dict.fromkeys(v for v in graph.outputs if v in sources))
        return arguments, used

    def _joined(self, graph: Graph, makers: Mapping[str, str]) -> set[str]:
        """Return the values whose makers' kernels a pointwise node may join.

        A kernel takes no node of another shape, so none after a view, and none where other readers need the value."""
        readers = graph.consumers()

        def is_joined(value: str, op: str) -> bool:
            alone = len(readers[value]) == 1 or all(is_pointwise(node.op) for node in readers[value])
            return alone and not (is_view(op) or moves(op) or op in _ALONE)

        return {value for value, op in makers.items() if value in readers and is_joined(value, op)}

    def _portable(self, work: Work) -> float:
        arithmetic = work.flops / (self.machine.flops * work.efficiency * self.threads) if work.flops else 0.0
        traffic = work.bytes / (self.machine.bandwidth(work.bytes) * machines.shared_speedup(self.threads))
        return self.machine.dispatch + max(arithmetic, traffic)

    def _bodies(self, op: str, attrs: Mapping[str, AttrValue], inputs: Types) -> float:
        """Cost of running bodies besides the work in them: setting up each run and starting its nodes.

        Python drives a Loop whose carried values change their rank."""
        largest = max((len(body.nodes) for body in attrs.values() if isinstance(body, Graph)), default=0)
        runs = 1 if op == "If" else self.nominal
        if self.target != "native":
            return runs * (_RUN + largest) * self.machine.dispatch
        changing = _changing_ranks(attrs, inputs) if op == "Loop" else 0
        return runs * ((_RUN + largest) * self.machine.launch + changing * _REFERENCE)

    def _native(self, work: Work, constant: Sequence[bool], joins: bool, gated: bool) -> float:
        if work.kind is Kind.VIEW:
            return 1e-9  # free, up to a tie-breaking cost
        arithmetic = work.flops / (self.machine.flops * work.efficiency * self.threads) if work.flops else 0.0
        weights = sum(nbytes for nbytes, fixed in zip(work.reads, constant, strict=False) if fixed)
        if work.kind is Kind.POINTWISE and joins and work.reads and not gated:
            extra = sum(work.reads) - max(work.reads) - weights
            # It comes on top of its producer's time, which its arithmetic does not overlap with.
            return 1e-8 + arithmetic + self._traffic(max(0.0, extra), weights)
        traffic = self._traffic(work.bytes - weights, weights)
        hidden = min(arithmetic, traffic)
        return self.machine.launch + max(arithmetic, traffic) + self.machine.constants.exposed * hidden

    def _traffic(self, nbytes: float, weights: float) -> float:
        """Seconds to move bytes that kernels before left in caches, and to read weights, which they evicted."""
        machine, shared = self.machine, machines.shared_speedup(self.threads)
        return (nbytes * machine.seconds_per_byte(nbytes) + weights * machine.weight_seconds(weights)) / shared


def _is_pure(node: Node) -> bool:
    return is_pure(node.op, node.attrs) and not any(True for _ in node.subgraphs())


def _type(graph: Graph, value: str) -> ValueType:
    found = graph.types.get(value)
    if isinstance(found, OtherType):
        return found
    return graph.constants[value].type if value in graph.constants else found or TensorType()


def _changing_ranks(attrs: Mapping[str, AttrValue], inputs: Types) -> int:
    """Return how many carried values of a Loop are not known to have one rank before and after every iteration."""
    body = attrs.get("body")
    if not isinstance(body, Graph):
        return 0
    carried = zip(inputs[2:], body.inputs[2:], body.outputs[1:], strict=False)
    kinds = ((first, _type(body, value), _type(body, following)) for first, value, following in carried)
    ranks = ({k.rank if isinstance(k, TensorType) else -1 for k in around} for around in kinds)
    return sum(len(found) > 1 or None in found for found in ranks)


def _is_gate(inputs: Types, constant: Sequence[bool]) -> bool:
    """Whether the factors of a product are images and one number for each of their channels, or rows and one for each.

    In squeeze-and-excitation blocks and in normalizations such numbers depend on the whole image or row, so no kernel
    that makes it can multiply by them."""
    shapes = [t.shape for t in inputs if isinstance(t, TensorType) and t.shape is not None]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or len(shapes[0]) not in (3, 4) or any(constant):
        return False
    ones = [[axis for axis in range(1, len(shape)) if shape[axis] == 1] for shape in shapes]
    return sorted(ones, key=len) in (([[], [1, 2]], [[], [2, 3]]) if len(shapes[0]) == 4 else ([[], [2]],))


def _lacks_kernel(op: str, attrs: Mapping[str, AttrValue], inputs: Types) -> bool:
    """Whether only the reference implementation computes a node for which a rule has another form, with kernels."""
    if op == "Resize" and attrs.get("mode") in ("linear", "cubic"):
        return isinstance(inputs[0], TensorType) and inputs[0].dtype in (DType.U8, DType.I8)
    return op in LACKING or (op == "Attention" and any(t is not None for t in inputs[4:6]))  # with a cache


def _is_sized_by_data(inputs: Types, outputs: Types) -> bool:
    """Whether data decide the size of a result: it has a symbol of its own, which inference made."""
    made = set().union(*map(symbols_of, outputs)).difference(*map(symbols_of, inputs))
    return any(name.startswith("_") for name in made)
