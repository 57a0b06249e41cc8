"""Restriction of an e-graph to the nodes that extraction chose.

A saturated e-graph holds every form of a model that was found. Rules about the chosen form only (layout, the choice of
an algorithm) would match all of them. So these rules run on an e-graph of the chosen nodes, which is always small.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..egraph.egraph import EGraph
from ..egraph.encode import input_symbols
from ..ir.graph import DType, TensorType
from ..ir.names import ABSENT
from ..ir.symbolic import symbols
from .extract import Extraction
from .priced_egraph import dependencies, post_order
from .provenance import Provenance


def restricted_egraph(
    egraph: EGraph, extraction: Extraction, commutative: Iterable[str], into: EGraph | None = None
) -> EGraph:
    """Return an e-graph of the chosen nodes, those of constant terms included, with the same roots.

    Every node has its type and origins; `EGraph.earlier` has the rules that made it. Rules may match the same nodes
    again. The nodes are added to the empty e-graph `into`, by default one with an egglog side."""
    choice = extraction.choice
    order = post_order(choice, lambda c: dependencies(egraph, choice[c]))
    live = [c for c in order if c not in extraction.folded]
    provenance = Provenance(egraph, choice, [*live, *extraction.folded], extraction.folded)
    restricted = into or EGraph.create(commutative)
    restricted.symbols = egraph.symbols
    restricted.extents = input_symbols(egraph)
    at = {egraph.find(ABSENT): ABSENT}
    for c in order:
        node = egraph.nodes[choice[c]]
        if node.op == "Input":
            at[c] = restricted.add_input(str(node.attrs["name"]), egraph.types(c)[0], egraph.value(c))
        elif node.op == "Const":
            at[c] = restricted.add_constant(egraph.constants[str(node.attrs["digest"])])
            _add_quantized(egraph, restricted, c, at[c])
        else:
            rules, origins = provenance.of(c)
            children = [ABSENT if d == ABSENT else at[egraph.find(d)] for d in node.children]
            at[c] = restricted.add(
                node.op, node.attrs, children, node.outputs, origins=origins, types=egraph.types(c), given=True
            )
            restricted.earlier.setdefault(at[c], rules)
            _add_sizes(egraph, restricted, c, at[c])
    restricted.roots = {name: at[egraph.find(c)] for name, c in egraph.roots.items() if egraph.find(c) in at}
    return restricted


def _add_sizes(egraph: EGraph, restricted: EGraph, c: int, found: int) -> None:
    """Add the numbers of integers known from the sizes of inputs, beside what computes them.

    A shape keeps a tensor alive of which nothing else is needed: the other layout of an image that is resized."""
    value, type_ = egraph.value(c), egraph.types(c)[0]
    dims = None if value is None or egraph.is_const(c) else value.whole
    if dims is None or not isinstance(type_, TensorType) or type_.dtype not in (DType.I64, DType.I32):
        return
    if all(symbols(dim) <= restricted.extents for dim in dims):
        restricted.union(restricted.add_sizes(dims, type_.dtype, scalar=type_.rank == 0), found)


def _add_quantized(egraph: EGraph, restricted: EGraph, c: int, constant: int) -> None:
    """Add the quantized form of a dequantized constant beside it.

    Small constants are folded at once, so rules on quantized weights would not find theirs."""
    for handle in egraph.members(c):
        node = egraph.nodes[handle]
        contents = [None if d == ABSENT else egraph.constant(d) for d in node.children]
        known = all(d == ABSENT or info is not None for d, info in zip(node.children, contents, strict=True))
        if node.op != "DequantizeLinear" or not known:
            continue
        children = [ABSENT if info is None else restricted.add_constant(info) for info in contents]
        made = restricted.add(node.op, node.attrs, children, types=egraph.types(c), given=True)
        restricted.union(made, constant)
        return
