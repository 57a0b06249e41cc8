"""Weights without denormals: of a product with some, they are scaled by a power of two, and its result is scaled back.

Trained networks have weights that decayed to denormals, far below the others of their filter. On Intel's cores an
instruction that multiplies by one takes over a hundred cycles, on AMD's as long as any other. Scaled by at most 2^23,
they are normal numbers. Both factors are powers of two, so nothing is rounded otherwise. Only results beyond 2^104
overflow earlier, as with any scale that is folded into weights. The second factor joins the product's kernel.

No rule does this: rules see no elements of folded weights, which are computed after the graph is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ...engine.ir.graph import Constant, DType, Graph, Node
from ...engine.ir.names import OWN_DOMAIN, unique_name

_IMAGES = ("Conv", "ConvTranspose")
PRODUCTS = frozenset({"MatMul", "Gemm", *_IMAGES, *(f"{OWN_DOMAIN}.ChannelsLast{op}" for op in _IMAGES)})
"""Operators whose second input are weights and whose third, if there is one, is added to the products."""
_SMALLEST = float(np.finfo(np.float32).tiny)
_BLOCK = 1 << 16


def without_denormals(graph: Graph) -> Graph:
    """Return a graph whose products have no denormals among their f32 weights; the graph itself if they have none."""
    taken = {*graph.types, *graph.inputs, *graph.constants, *(v for node in graph.nodes for v in node.outputs)}
    constants, types = dict(graph.constants), dict(graph.types)

    def add(hint: str, array: NDArray[np.float32]) -> str:
        name = unique_name(hint, taken)
        constants[name] = Constant(array)
        types[name] = constants[name].type
        return name

    @cache
    def exponent_of(value: str) -> int:
        return _exponent(graph.constants[value].array)

    @cache
    def scaled(value: str, exponent: int) -> str:
        return add(f"{value}_scaled", np.ldexp(graph.constants[value].array, exponent))

    def changed(node: Node) -> Iterator[Node]:
        fixed, exponent = node.inputs[1:], exponent_of(node.inputs[1])
        if not exponent or not all(_stays_finite(graph.constants[v].array, exponent) for v in fixed if v):
            yield node
            return
        (result,) = node.outputs
        product = unique_name(f"{result}_scaled", taken)
        types[product] = graph.type(result)
        inputs = (node.inputs[0], *(v and scaled(v, exponent) for v in fixed))
        yield replace(node, inputs=inputs, outputs=(product,))
        factor = add(f"{result}_factor", np.array(math.ldexp(1.0, -exponent), np.float32))
        yield Node("Mul", (product, factor), node.outputs, name=f"{node.name}_scaled_back", origins=node.origins)

    nodes = [made for node in graph.nodes for made in (changed(node) if _is_product(graph, node) else (node,))]
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=nodes, constants=constants, types=types)


def _is_product(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies by f32 weights, and adds nothing but constants."""
    if node.op not in PRODUCTS or len(node.inputs) < 2:
        return False
    fixed = all(v in graph.constants for v in node.inputs[1:] if v)
    return fixed and graph.type(node.inputs[1]).dtype is DType.F32


def _stays_finite(array: NDArray[np.generic], exponent: int) -> bool:
    """Return whether numbers without NaN and infinities have none when scaled by 2^exponent."""
    largest = max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))
    return math.isfinite(largest) and math.frexp(largest)[1] + exponent <= 127


def _exponent(weights: NDArray[np.generic]) -> int:
    """Return the exponent of the least power of two that makes all weights normal: 0 if they are."""
    flat = weights.ravel(order="K")  # a transposed view is not copied
    if not any(map(_has_denormals, (flat[k : k + _BLOCK] for k in range(0, flat.size, _BLOCK)))):
        return 0
    sizes = np.abs(flat)
    return math.frexp(_SMALLEST)[1] - math.frexp(float(sizes[sizes > 0].min()))[1]


def _has_denormals(block: NDArray[np.generic]) -> bool:
    """Return whether some f32 number is denormal. Without its sign, and minus one, its pattern is below all others:
    that of zero becomes the largest."""
    patterns = np.ascontiguousarray(block).view(np.uint32) << np.uint32(1)
    patterns -= np.uint32(1)
    return bool(patterns.min() < np.uint32(0x00FFFFFF))
