"""Constant terms of an extraction, evaluated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import RewriteError
from ..egraph.analysis import ENode
from ..egraph.egraph import EGraph
from ..ir.graph import Constant, content_text
from ..ir.names import ABSENT
from ..operators.folding import Array, evaluate
from .priced_egraph import dependencies, post_order

_LARGE = 1 << 20
"""Bytes from which a constant may stay a transposed view of another."""


class TermValues:
    """Values of constant terms by number, shared by the extractions of a model, which mostly agree on these terms."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self.values: dict[int, tuple[Array, ...] | None] = {}
        self.constants: dict[int, Constant] = {}

    def number(self, *term: object) -> int:
        """Return the number of a term: that of its operator, attributes and operands, or of its digest."""
        return self._numbers.setdefault(term, len(self._numbers))


@dataclass(slots=True)
class ConstantTerms:
    """Evaluator of the constant terms of an extraction: of the nodes `choice`, with stored constants by digest."""

    egraph: EGraph
    choice: Mapping[int, int]
    stored: Mapping[str, Constant]
    known: TermValues
    _numbers: dict[int, int] = field(default_factory=dict)

    def constant(self, c: int) -> Constant | None:
        """Return the contents of a class; None if it cannot be evaluated or its type is not the inferred one."""
        node = self.egraph.nodes[self.choice[c]]
        if node.op == "Const":
            return self._leaf(node)
        for at in post_order([c], lambda at: () if at in self._numbers else dependencies(self.egraph, self.choice[at])):
            if at not in self._numbers:
                self._numbers[at] = self._term(self.egraph.nodes[self.choice[at]])
        number = self._numbers[c]
        values = self.known.values[number]
        if values is None or len(values) != 1:
            return None
        if number not in self.known.constants:
            self.known.constants[number] = Constant(_contiguous(values[0]))
        found = self.known.constants[number]
        (type_,) = self.egraph.types(c)
        return found if found.type == type_ else None

    def _leaf(self, node: ENode) -> Constant:
        digest = str(node.attrs["digest"])
        if digest not in self.stored:
            raise RewriteError(f"the constant {digest!r} of the e-graph is not in the graph")
        return self.stored[digest]

    def _term(self, node: ENode) -> int:
        """Evaluate a node whose operands are evaluated, and return the number of the term."""
        known = self.known
        if node.op == "Const":
            number = known.number("Const", node.attrs["digest"])
            known.values[number] = (self._leaf(node).array,)
            return number
        operands = [-1 if d == ABSENT else self._numbers[self.egraph.find(d)] for d in node.children]
        named = sorted((name, content_text(v)) for name, v in node.attrs.items())
        number = known.number(node.op, *named, *operands, node.outputs)
        if number not in known.values:
            known.values[number] = self._evaluate(node, [None if n < 0 else known.values[n] for n in operands])
        return number

    def _evaluate(self, node: ENode, operands: Sequence[tuple[Array, ...] | None]) -> tuple[Array, ...] | None:
        if any(v is None and d != ABSENT for v, d in zip(operands, node.children, strict=True)):
            return None
        if node.op == "Proj":
            index = node.attrs["index"]
            assert operands[0] is not None
            assert isinstance(index, int)
            return (operands[0][index],) if index < len(operands[0]) else None
        arrays = [None if v is None else v[0] for v in operands]
        found = evaluate(node.op, node.attrs, arrays, node.outputs)
        return None if found is None else tuple(found)


def _contiguous(array: Array) -> Array:
    """Return an array as constants hold it: contiguous, unless it is a large transposed weight.

    Kernels pack weights in another order anyway, and copying those of a transformer takes longer than reading its
    file."""
    if array.nbytes >= _LARGE and array.transpose(np.argsort(array.strides)[::-1]).flags.c_contiguous:
        return array
    return np.ascontiguousarray(array).reshape(array.shape)
