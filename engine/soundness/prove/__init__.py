"""Layer 3: proofs that a rule holds for tensors of any size.

A tensor is a function from an index to a scalar expression over reads of the rule's variables; both sides of a rule
are run symbolically, case by case, and their scalars are brought to a normal form in which they are compared. Index
equalities, bounds and guards are settled by an SMT solver over symbolic sizes. Ranks are tried one after the other,
and a proof says up to which it goes. The idea of proving tensor rewrites for any size at a given rank is that of
TensorRight (Arora et al., "TensorRight: Automated Verification of Tensor Graph Rewrites", POPL 2025), which does it
for XLA.

The way through the code: `prover` runs all cases of a rule, each a `path` of choices and facts; `run` gives the
pattern, conditions and right side their values; `movement`, `elementwise`, `reduce`, `linear` say what operators mean;
`settle` and `normal` bring two scalars to normal form; `equality` and `smt` compare them.

What is taken for granted: the semantics written here (a test holds them against ONNX's reference implementation), the
solver, and what the engine asks before it applies a rule: that both sides have one element type and shape, and that it
could type the right side. Sums of class `exact` are equal if the same terms are added in the same order. A proof of
class `reassoc` is one over the real numbers that hides no operand, so that what is not finite stays so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....grammar import ast
    from ....grammar.library import Library

__all__ = ["NotProved", "Proof", "prove"]


@dataclass(frozen=True, slots=True)
class Proof:
    """A rule holds for all sizes.

    `ranks` are those of the results that were looked at, with operands up to the same; None for a proof that is
    elementwise and holds at any rank. `fragment` names what was used to compare, `cases` counts the cases, and `limits`
    say what was bounded besides the ranks (`groups of 2 and 3`)."""

    name: str
    ranks: tuple[int, ...] | None
    fragment: tuple[str, ...]
    cases: int
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"proved for all sizes at {self.where}"
        if self.limits:
            text += f", for {', '.join(self.limits)}"
        return f"{text} ({self.cases} cases, by {', '.join(self.fragment)})"

    @property
    def where(self) -> str:
        """The ranks in words."""
        if self.ranks is None:
            return "any rank"
        low, high = self.ranks[0], self.ranks[-1]
        if low == high:
            return f"rank {low}"
        if self.ranks == tuple(range(low, high + 1)):
            return f"ranks {low}–{high}"
        return "ranks " + ", ".join(map(str, self.ranks))


@dataclass(frozen=True, slots=True)
class NotProved:
    """No proof was found, which says nothing against the rule.

    The reason begins with what kind it is: `not modelled`, `not shown equal`, `right side`, `out of time`, or `failed`
    for a mistake of the prover's own."""

    reason: str


def prove(rule: ast.Rule, library: Library, *, seconds: float = 4.0) -> Proof | NotProved:
    """Proves a rule if it lies in the fragment, with about so many seconds of work (counted in steps, not timed).

    No proof is no refutation: counterexamples are what layer 2 looks for."""
    try:
        import z3  # noqa: F401
    except ImportError:
        return NotProved("layer 3 needs rewrite[prove]")
    from .prover import prove_rule

    try:
        return prove_rule(rule, library, seconds)
    except Exception as error:  # a check of many rules does not end because one of them is strange
        return NotProved(f"failed: {type(error).__name__}: {error}")
