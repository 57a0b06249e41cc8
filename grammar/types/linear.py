"""Linear arithmetic over unknown whole numbers: ranks, dims and lengths of lists.

Every unknown is an integer with bounds. Equations are solved by substitution as they come; what is not linear is an
unknown of its own, so an answer of "impossible" is a proof and every other answer says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + Σ coefficient · unknown`."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def known(self) -> int | None:
        """The number that it is, None if it has unknowns."""
        return None if self.terms else self.constant

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for unknown, coefficient in other.terms:
            terms[unknown] = terms.get(unknown, 0) + factor * coefficient
        kept = tuple(sorted((u, c) for u, c in terms.items() if c))
        return Linear(self.constant + factor * other.constant, kept)

    def times(self, factor: int) -> Linear:
        """`factor * self`."""
        return Linear(0).plus(self, factor)


@dataclass(slots=True)
class Store:
    """What is known of the unknowns."""

    names: dict[int, str] = field(default_factory=dict)
    _low: dict[int, int] = field(default_factory=dict)
    _high: dict[int, int] = field(default_factory=dict)
    _solved: dict[int, Linear] = field(default_factory=dict)
    _pending: list[Linear] = field(default_factory=list)
    _count: int = 0

    def fresh(self, low: int | None = 0, high: int | None = None, name: str = "") -> Linear:
        """A new unknown within bounds, both included."""
        self._count += 1
        if low is not None:
            self._low[self._count] = low
        if high is not None:
            self._high[self._count] = high
        if name:
            self.names[self._count] = name
        return Linear(0, ((self._count, 1),))

    def resolve(self, value: Linear) -> Linear:
        """The value with all solved unknowns put in."""
        solved = self._solved
        for unknown, _ in value.terms:
            if unknown in solved:
                break
        else:
            return value
        constant, terms, left = value.constant, dict[int, int](), [*value.terms]
        while left:
            unknown, coefficient = left.pop()
            known = solved.get(unknown)
            if known is None:
                terms[unknown] = terms.get(unknown, 0) + coefficient
            else:
                constant += coefficient * known.constant
                left += [(u, coefficient * c) for u, c in known.terms]
        return Linear(constant, tuple(sorted((u, c) for u, c in terms.items() if c)))

    def bounds(self, value: Linear) -> tuple[int | None, int | None]:
        """The least and the greatest it can be, None where there is no bound."""
        value = self.resolve(value)
        low: int | None = value.constant
        high: int | None = value.constant
        for unknown, coefficient in value.terms:
            ends = (self._low.get(unknown), self._high.get(unknown))
            down, up = ends if coefficient > 0 else (ends[1], ends[0])
            low = None if low is None or down is None else low + coefficient * down
            high = None if high is None or up is None else high + coefficient * up
        return low, high

    def equate(self, left: Linear, right: Linear) -> bool:
        """Note that two values are equal; False if they cannot be."""
        gap = self.resolve(left.plus(right, -1))
        if not self._may_be_zero(gap):
            return False
        unit = next(((u, c) for u, c in gap.terms if abs(c) == 1), None)
        if unit is None and len(gap.terms) == 1:  # 2·n = 6
            ((unknown, coefficient),) = gap.terms
            self._solved[unknown] = Linear(-gap.constant // coefficient)
            return self._recheck()
        if unit is None:
            if gap.terms:
                self._pending.append(gap)
            return True
        unknown, coefficient = unit
        low, high = self._low.get(unknown), self._high.get(unknown)
        rest = gap.plus(Linear(0, (unit,)), -1).times(-coefficient)
        self._solved[unknown] = rest
        if unknown in self.names:
            for other, factor in rest.terms:
                if len(rest.terms) == 1 and factor == 1 and not rest.constant:
                    self.names.setdefault(other, self.names[unknown])
        sound = (low is None or self.at_least(rest, low)) and (high is None or self.at_most(rest, high))
        return sound and self._recheck()

    def at_least(self, value: Linear, bound: int) -> bool:
        """Note a lower bound; False if it cannot hold."""
        value = self.resolve(value)
        _, high = self.bounds(value)
        if high is not None and high < bound:
            return False
        if len(value.terms) == 1:
            ((unknown, coefficient),) = value.terms
            if coefficient > 0:
                self._raise(unknown, -(-(bound - value.constant) // coefficient))
            else:
                self._lower(unknown, (value.constant - bound) // -coefficient)
            return self._recheck()
        return True

    def at_most(self, value: Linear, bound: int) -> bool:
        """Note an upper bound; False if it cannot hold."""
        return self.at_least(value.times(-1), -bound)

    def _raise(self, unknown: int, low: int) -> None:
        self._low[unknown] = max(low, self._low.get(unknown, low))
        self._settle(unknown)

    def _lower(self, unknown: int, high: int) -> None:
        self._high[unknown] = min(high, self._high.get(unknown, high))
        self._settle(unknown)

    def _settle(self, unknown: int) -> None:
        low, high = self._low.get(unknown), self._high.get(unknown)
        if unknown not in self._solved and low is not None and low == high:
            self._solved[unknown] = Linear(low)

    def _may_be_zero(self, value: Linear) -> bool:
        if value.terms and value.constant % gcd(*(c for _, c in value.terms)):
            return False
        low, high = self.bounds(value)
        return (low is None or low <= 0) and (high is None or high >= 0)

    def _recheck(self) -> bool:
        return all(self._may_be_zero(self.resolve(gap)) for gap in self._pending)

    def text(self, value: Linear) -> str:
        """`N`, `2*N + 1`, `3`; `_` where an unknown has no name."""
        value = self.resolve(value)
        if any(unknown not in self.names for unknown, _ in value.terms):
            return "_"
        out = ""
        for unknown, coefficient in value.terms:
            factor = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            sign = "-" if coefficient < 0 else "+"
            out += f" {sign} {factor}{self.names[unknown]}"
        if value.constant or not out:
            out += f" {'-' if value.constant < 0 else '+'} {abs(value.constant)}"
        return out[3:] if out.startswith(" + ") else f"-{out[3:]}"
