"""Weights without denormals: of a product with some, they are scaled by a power of two, and its result is scaled back.

Trained networks have weights that decayed to denormals, far below the others of their filter. On Intel's cores an
instruction that multiplies by one takes over a hundred cycles, on AMD's hardly more than others. Scaled by at most
2^23, they are normal numbers. Both factors are powers of two, so only denormal sums are rounded otherwise, and only
sums beyond 2^104 overflow where they did not (docs/floats.md). The second factor joins the product's kernel.

No rule does this: rules see no elements of folded weights, which are computed after the graph is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.bodies import all_bodies, change_bodies
from ...engine.ir.graph import Constant, DType, Graph, Node
from ...engine.ir.names import OWN_DOMAIN, unique_name

_IMAGES = ("Conv", "ConvTranspose")
PRODUCTS = frozenset({"MatMul", "Gemm", *_IMAGES, *(f"{OWN_DOMAIN}.ChannelsLast{op}" for op in _IMAGES)})
"""Operators whose second input are weights and whose third, if there is one, is added to the products."""
_FRACTION, _EXPONENT = 0x007FFFFF, 0x7F800000
"""Bits of an f32. A denormal has a fraction only."""
_BLOCK = 1 << 16
"""Number of weights that are looked at together: they stay in the first caches."""


def without_denormals(graph: Graph) -> Graph:
    """Return a graph whose products have no denormals among their f32 weights, in bodies neither; the graph itself if
    they have none."""
    taken: set[str] = set()
    for one in (graph, *all_bodies(graph)):
        taken.update(one.types, one.inputs, one.constants, *(node.outputs for node in one.nodes))
    scaler = _Scaler(taken)
    found = scaler.changed(graph, {})
    if not scaler.constants:
        return graph
    types = {name: constant.type for name, constant in scaler.constants.items()}
    return replace(found, constants={**found.constants, **scaler.constants}, types={**found.types, **types})


class _Scaler:
    """Scales the weights of products.

    Attributes:
        constants: what is added to the constants of the main graph; bodies capture it.
    """

    def __init__(self, taken: set[str]) -> None:
        self.constants: dict[str, Constant] = {}
        self._taken = taken
        self._exponents: dict[int, int] = {}
        self._names: dict[tuple[int, int], str] = {}

    def changed(self, graph: Graph, around: Mapping[str, Constant]) -> Graph:
        """Return a graph with its products changed, given the constants of the graphs around it."""
        own = {*graph.inputs, *(v for node in graph.nodes for v in node.outputs)}
        constants = {**{v: c for v, c in around.items() if v not in own}, **graph.constants}
        types = dict(graph.types)
        nodes: list[Node] = []
        for node in graph.nodes:
            fixed = [v for v in node.inputs[1:] if v] if node.op in PRODUCTS else []
            exponent = self._exponent([constants[v] for v in fixed]) if constants.keys() >= set(fixed) else 0
            if exponent:
                product = unique_name(f"{node.outputs[0]}_scaled", self._taken)
                types[product] = graph.type(node.outputs[0])
                nodes += self._scaled(node, product, exponent, constants)
            else:
                nodes.append(change_bodies(node, lambda body: self.changed(body, constants)))
        return replace(graph, nodes=nodes, types=types)

    def _exponent(self, fixed: Sequence[Constant]) -> int:
        """Return the exponent of the scale of a product with these weights and addends: 0 for none."""
        if not fixed or fixed[0].type.dtype is not DType.F32:
            return 0
        if id(fixed[0]) not in self._exponents:
            self._exponents[id(fixed[0])] = _exponent(fixed[0].array)
        exponent = self._exponents[id(fixed[0])]
        return exponent if all(_stays_finite(c.array, exponent) for c in fixed) else 0

    def _scaled(self, node: Node, product: str, exponent: int, constants: Mapping[str, Constant]) -> list[Node]:
        """Return a product by scaled weights, and the node that scales its result back."""
        result = node.outputs[0]
        inputs = (node.inputs[0], *(v and self._name(v, constants[v], exponent) for v in node.inputs[1:]))
        factor = self._add(f"{result}_factor", np.array(math.ldexp(1.0, -exponent), np.float32))
        name = f"{node.name or result}_scaled_back"
        back = Node("Mul", (product, factor), node.outputs, name=name, origins=node.origins)
        return [replace(node, inputs=inputs, outputs=(product,)), back]

    def _name(self, value: str, constant: Constant, exponent: int) -> str:
        """Return the name of a scaled constant, which products share."""
        key = id(constant), exponent
        if key not in self._names:
            self._names[key] = self._add(f"{value}_scaled", _scaled(constant.array, exponent))
        return self._names[key]

    def _add(self, hint: str, array: NDArray[np.float32]) -> str:
        name = unique_name(hint, self._taken)
        self.constants[name] = Constant(array)
        return name


def _stays_finite(array: NDArray[np.generic], exponent: int) -> bool:
    """Return whether numbers without NaN and infinities have none when scaled by 2^exponent."""
    largest = max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    return math.isfinite(largest) and math.frexp(largest)[1] + exponent <= 127


# The weights are read as bit patterns: a thread may have set its processor to take denormals for zeros.


def _exponent(weights: NDArray[np.generic]) -> int:
    """Return the exponent of the least power of two that makes all f32 weights normal: 0 if they are."""
    flat = weights.ravel(order="K")  # a transposed view is not copied
    least = min((_least_pattern(flat[k : k + _BLOCK]) for k in range(0, flat.size, _BLOCK)), default=_EXPONENT)
    return 24 - least.bit_length() if least <= _FRACTION else 0


def _least_pattern(block: NDArray[np.generic]) -> int:
    """Return the pattern of the least positive magnitude.

    Doubled, which drops the sign, and less one, the pattern of zero is above all others."""
    patterns = np.ascontiguousarray(block).view(np.uint32) << np.uint32(1)
    patterns -= np.uint32(1)
    return (int(patterns.min()) + 1) >> 1


def _scaled(array: NDArray[np.generic], exponent: int) -> NDArray[np.float32]:
    """Return f32 numbers times 2^exponent, of which all are 0 or normal; `exponent` is 1 to 23."""
    patterns = array.view(np.uint32)
    fractions = (patterns & np.uint32(_FRACTION)).astype(np.float32)
    small = fractions * np.float32(2.0**-100) * np.float32(2.0 ** (exponent - 49))  # both factors are normal
    large = array.astype(np.float32, copy=False) * np.float32(2.0**exponent)
    found: NDArray[np.float32] = np.where(patterns & np.uint32(_EXPONENT), large, np.copysign(small, array))
    return found
