"""Linear arithmetic over unknown integers: ranks, dims and lengths of lists.

Every unknown has bounds. Equations are solved by substitution as they arrive. Each nonlinear term is a fresh unknown,
so "impossible" is a proof, and any other answer proves nothing.
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
        """The number itself; None with unknowns in it."""
        return None if self.terms else self.constant

    @property
    def unknown(self) -> int | None:
        """The unknown, if the value is a single one."""
        is_single = not self.constant and len(self.terms) == 1 and self.terms[0][1] == 1
        return self.terms[0][0] if is_single else None

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return `self + factor * other`."""
        terms = dict(self.terms)
        for unknown, coefficient in other.terms:
            terms[unknown] = terms.get(unknown, 0) + factor * coefficient
        nonzero = tuple(sorted((u, c) for u, c in terms.items() if c))
        return Linear(self.constant + factor * other.constant, nonzero)

    def times(self, factor: int) -> Linear:
        """Return `factor * self`."""
        return Linear(0).plus(self, factor)


@dataclass(slots=True)
class Store:
    """Everything known about the unknowns."""

    names: dict[int, str] = field(default_factory=dict)
    _low: dict[int, int] = field(default_factory=dict)
    _high: dict[int, int] = field(default_factory=dict)
    _solved: dict[int, Linear] = field(default_factory=dict)
    _pending: list[Linear] = field(default_factory=list)
    _count: int = 0

    def fresh(self, low: int | None = 0) -> Linear:
        """Return a new unknown, at least `low` if given."""
        self._count += 1
        if low is not None:
            self._low[self._count] = low
        return Linear(0, ((self._count, 1),))

    def resolve(self, value: Linear) -> Linear:
        """Return the value with all solved unknowns substituted."""
        solved = self._solved
        if not any(unknown in solved for unknown, _ in value.terms):
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
        """Return the least and the greatest possible value, None where unbounded."""
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
        """Add the equation `left = right`; return False if it is impossible."""
        gap = self.resolve(left.plus(right, -1))
        if not self._may_be_zero(gap):
            return False
        unit = next(((u, c) for u, c in gap.terms if abs(c) == 1), None)
        if unit is None:
            if len(gap.terms) == 1:  # 2·n = 6
                ((unknown, coefficient),) = gap.terms
                self._solved[unknown] = Linear(-gap.constant // coefficient)
                return self._recheck()
            self._pending += [gap] if gap.terms else []
            return True
        unknown, coefficient = unit
        low, high = self._low.get(unknown), self._high.get(unknown)
        rest = gap.plus(Linear(0, (unit,)), -1).times(-coefficient)
        self._solved[unknown] = rest
        if unknown in self.names and (other := rest.unknown) is not None:
            self.names.setdefault(other, self.names[unknown])
        sound = (low is None or self.at_least(rest, low)) and (high is None or self.at_most(rest, high))
        return sound and self._recheck()

    def at_least(self, value: Linear, bound: int) -> bool:
        """Add a lower bound; return False if it is impossible."""
        value = self.resolve(value)
        _, high = self.bounds(value)
        if high is not None and high < bound:
            return False
        if len(value.terms) == 1:
            ((unknown, coefficient),) = value.terms
            if coefficient > 0:
                low = -(-(bound - value.constant) // coefficient)
                self._low[unknown] = max(low, self._low.get(unknown, low))
            else:
                high = (value.constant - bound) // -coefficient
                self._high[unknown] = min(high, self._high.get(unknown, high))
            if self._low.get(unknown) == self._high.get(unknown):
                self._solved.setdefault(unknown, Linear(self._low[unknown]))
            return self._recheck()
        return True

    def at_most(self, value: Linear, bound: int) -> bool:
        """Add an upper bound; return False if it is impossible."""
        return self.at_least(value.times(-1), -bound)

    def _may_be_zero(self, value: Linear) -> bool:
        if value.terms and value.constant % gcd(*(c for _, c in value.terms)):
            return False
        low, high = self.bounds(value)
        return (low is None or low <= 0) and (high is None or high >= 0)

    def _recheck(self) -> bool:
        return all(self._may_be_zero(self.resolve(gap)) for gap in self._pending)

    def text(self, value: Linear) -> str:
        """Return `N`, `2*N + 1` or `3`; `_` if an unknown has no name."""
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
