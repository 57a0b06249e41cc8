"""What extraction has taken, in an e-graph of its own.

A saturated e-graph holds every form of a model that was found, most of them of no more use. Rules that concern only
what is taken in the end (layout, the choice of an algorithm) would say of all these forms what they say of one. So they
are run on an e-graph that holds the chosen nodes and nothing else, which is small whatever was tried before.
"""

from __future__ import annotations

from collections.abc import Iterable

from .egraph import ABSENT, EGraph
from .extract import Extraction, dependencies
from .provenance import Provenance


def narrowed(egraph: EGraph, extraction: Extraction, commutative: Iterable[str]) -> EGraph:
    """An e-graph of the nodes that an extraction has chosen, those of its constant terms too, with the same roots.

    Every node keeps its type and what it stands for; `EGraph.earlier` has the rules that made it. Nothing is matched in
    it that was not chosen, so a rule may find there again what it has found before."""
    choice = extraction.choice
    order = _order(egraph, choice)
    live = [c for c in order if c not in extraction.folded]
    provenance = Provenance(egraph, choice, [*live, *extraction.folded], extraction.folded)
    narrow = EGraph.create(commutative)
    narrow.continue_symbols(egraph)
    at = {egraph.find(ABSENT): ABSENT}
    for c in order:
        node = egraph.nodes[choice[c]]
        if node.op == "Input":
            at[c] = narrow.add_input(str(node.attrs["name"]), egraph.types(c)[0], egraph.value(c))
        elif node.op == "Const":
            at[c] = narrow.add_constant(egraph.constants[str(node.attrs["digest"])])
            _add_quantised(egraph, narrow, c, at[c])
        else:
            rules, origins = provenance.of(c)
            children = [ABSENT if d == ABSENT else at[egraph.find(d)] for d in node.children]
            at[c] = narrow.add(
                node.op, node.attrs, children, node.outputs, origins=origins, types=egraph.types(c), given=True
            )
            narrow.earlier.setdefault(at[c], rules)
    narrow.roots = {name: at[egraph.find(c)] for name, c in egraph.roots.items() if egraph.find(c) in at}
    return narrow


def _order(egraph: EGraph, choice: dict[int, int]) -> list[int]:
    """The chosen classes, each after those that its node reads."""
    done: dict[int, None] = {}
    for start in choice:
        stack = [(start, False)]
        while stack:
            c, ready = stack.pop()
            if c in done:
                continue
            if ready:
                done[c] = None
                continue
            stack.append((c, True))
            stack.extend((d, False) for d in reversed(dependencies(egraph, choice[c])) if d not in done)
    return list(done)


def _add_quantised(egraph: EGraph, narrow: EGraph, c: int, constant: int) -> None:
    """What a constant was dequantised from, beside it: small ones are evaluated at once, and rules on quantised weights
    would not see theirs."""
    for handle in egraph.members(c):
        node = egraph.nodes[handle]
        contents = [None if d == ABSENT else egraph.constant(d) for d in node.children]
        known = all(d == ABSENT or info is not None for d, info in zip(node.children, contents, strict=True))
        if node.op != "DequantizeLinear" or not known:
            continue
        children = [ABSENT if info is None else narrow.add_constant(info) for info in contents]
        made = narrow.add(node.op, node.attrs, children, types=egraph.types(c), given=True)
        narrow.union(made, constant)
        return
