"""Result of the prover: a proof, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that a rule holds for all sizes, confirmed by the second checker.

    `ranks` are the ranks of results that it covers; None for an elementwise proof, which holds at any rank. `fragment`
    names the methods of comparison, and `limits` the bounds other than ranks (`groups of 2 and 3`). `assumptions` are
    what the proof takes for granted about numbers, operators and element types, in words."""

    name: str
    ranks: tuple[int, ...] | None
    fragment: tuple[str, ...]
    cases: int
    limits: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"proved for all sizes at {self.where}"
        if self.limits:
            text += f", for {', '.join(self.limits)}"
        return f"{text}, confirmed by the second checker ({self.cases} cases, by {', '.join(self.fragment)})"

    @property
    def where(self) -> str:
        """Ranks in words."""
        if self.ranks is None:
            return "any rank"
        low, high = self.ranks[0], self.ranks[-1]
        if self.ranks != tuple(range(low, high + 1)):
            return "ranks " + ", ".join(map(str, self.ranks))
        return f"rank {low}" if low == high else f"ranks {low}–{high}"


@dataclass(frozen=True, slots=True)
class NotProved:
    """No proof was found, which is not evidence against the rule.

    The reason starts with its kind: `not modeled`, `not shown equal`, `right side`, `out of time`, `not confirmed` if
    the second checker refuses the proof, or `failed` for a bug of the prover."""

    reason: str
