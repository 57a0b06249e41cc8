"""Integers, conditions and facts of a case: polynomial arithmetic, substitution, and implication by the solver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import z3

from .certificate import Case, Cond, Int, Step

STEPS = 3_000_000
"""Solver steps for one question."""


class Refused(Exception):
    """A step of a certificate does not follow; the message names it."""


class Exhausted(Exception):
    """The work for a certificate is used up."""


class Effort:
    """Work that is left for a certificate: one unit is a comparison, or 100 steps of the solver."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._solver_steps = 0

    def spend(self, units: int = 1) -> None:
        """Count work. Raises `Exhausted` when none is left."""
        self.left -= units
        if self.left < 0:
            raise Exhausted("out of time")

    def contradict(self, solver: Any) -> bool:
        """Whether the solver refutes what it was given; its counter of steps is one for all solvers."""
        found = bool(solver.check() == z3.unsat)
        steps = solver_steps(solver)
        self.spend(1 + max(steps - self._solver_steps, 0) // 100)
        self._solver_steps = max(steps, self._solver_steps)
        return found


def solver_steps(solver: Any) -> int:
    """Return the steps that all solvers have taken so far, which z3 counts as one."""
    counts = solver.statistics()
    for i in range(len(counts) - 1, -1, -1):  # the counter is among the last of some thirty
        name, value = counts[i]
        if name == "rlimit count":
            return int(value)
    return 0


def _items(value: Int) -> list[tuple[int, tuple[Any, ...]]]:
    return list(value[1:]) if isinstance(value, tuple) else [(value, ())]


def total(items: Iterable[tuple[int, tuple[Any, ...]]]) -> Int:
    """Return the polynomial of these factors and products of atoms."""
    found: dict[tuple[Any, ...], int] = {}
    for factor, atoms in items:
        key = tuple(sorted(atoms, key=repr)) if len(atoms) > 1 else atoms
        found[key] = found.get(key, 0) + factor
    rows = sorted(((f, a) for a, f in found.items() if f), key=repr)
    return ("sum", *rows) if any(a for _, a in rows) else rows[0][0] if rows else 0


def add(a: Int, b: Int, times: int = 1) -> Int:
    """Return `a + times * b`."""
    return total([*_items(a), *((times * f, m) for f, m in _items(b))])


def multiply(a: Int, b: Int) -> Int:
    """Return `a * b`."""
    return total((f * g, (*m, *n)) for f, m in _items(a) for g, n in _items(b))


def atoms(value: Any) -> Iterator[Any]:
    """Yield the atoms of an integer or condition, those inside quotients and elements included."""
    if isinstance(value, tuple) and value:
        if value[0] in ("var", "div", "data"):
            yield value
        for part in value:
            yield from atoms(part)


def linear(value: Int, atom: Any) -> tuple[int, Int] | None:
    """Return `(c, rest)` if the integer is `c * atom + rest`, with a number `c` and a rest free of the atom."""
    factor = sum(f for f, m in _items(value) if m == (atom,))
    rest = total((f, m) for f, m in _items(value) if m != (atom,))
    return (factor, rest) if factor and atom not in set(atoms(rest)) else None


def replace(value: Any, env: Mapping[Any, Int]) -> Any:
    """Return an integer or condition with atoms replaced."""
    if not isinstance(value, tuple):
        return value
    if value[0] != "sum":
        return compare(value[0], replace(value[1], env)) if value[0] in ("ge", "eq") else (
            value[0], *(replace(v, env) for v in value[1:])
        )  # fmt: skip
    found: Int = 0
    for factor, product in value[1:]:
        term: Int = factor
        for atom in product:
            term = multiply(term, _atom(atom, env))
        found = add(found, term)
    return found


def _atom(atom: Any, env: Mapping[Any, Int]) -> Int:
    if atom in env:
        return env[atom]
    head = 1 if atom[0] == "div" else 2
    args = tuple(replace(a, env) for a in atom[head:])
    if atom[0] == "div" and all(isinstance(a, int) for a in args) and args[1] > 0:
        return int(args[0] // args[1])
    changed = (*atom[:head], *args)
    return env.get(changed, ("sum", (1, (changed,))))


def compare(op: str, value: Int) -> Cond:
    """Return the condition that an integer is at least 0 (`ge`), or that it is 0 (`eq`)."""
    if isinstance(value, int):
        return value >= 0 if op == "ge" else value == 0
    return (op, value)


def below(index: Int, size: Int) -> tuple[Cond, Cond]:
    """Return the conditions that an index is at least 0 and below a size."""
    return compare("ge", index), compare("ge", add(add(size, index, -1), -1))


def conjuncts(cond: Cond) -> tuple[Cond, ...]:
    """Return the conditions that must all hold."""
    return cond[1:] if isinstance(cond, tuple) and cond[0] == "and" else () if cond is True else (cond,)


@cache
def term(value: Int) -> Any:
    """Return an integer as a z3 term; cached, because cases share most of theirs."""
    products = [z3.Product([z3.IntVal(f), *map(_symbol, m)]) if m else z3.IntVal(f) for f, m in _items(value)]
    return z3.Sum(products) if len(products) > 1 else products[0]


def _symbol(atom: Any) -> Any:
    if atom[0] == "data" and len(atom) > 2:
        return z3.Function(f"data {atom[1]}", *[z3.IntSort()] * (len(atom) - 1))(*map(term, atom[2:]))
    return z3.Int(repr(atom))


@contextmanager
def own_context() -> Iterator[None]:
    """Let z3 work in a context of its own, and give it the former one back: others may hold terms of that."""
    former = z3.z3._main_ctx
    z3.z3._main_ctx = z3.Context()
    try:
        yield
    finally:
        z3.z3._main_ctx = former
        term.cache_clear()
        formula.cache_clear()


@cache
def formula(cond: Cond) -> Any:
    """Return a condition as a z3 formula; cached like `term`."""
    if isinstance(cond, bool):
        return z3.BoolVal(cond)
    if cond[0] in ("ge", "eq"):
        return term(cond[1]) >= 0 if cond[0] == "ge" else term(cond[1]) == 0
    return {"and": z3.And, "or": z3.Or, "not": z3.Not}[cond[0]](*map(formula, cond[1:]))


class CaseSolver:
    """Solver, the one without tactics, that holds the facts of one case after the other.

    A case begins with the facts of the one before up to where they part. These stay, in levels, one for each time that
    new facts were added."""

    def __init__(self) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("rlimit", STEPS)
        self._facts: list[Cond] = []
        self._levels: list[int] = []
        self._case: object = None

    def holding(self, case: object, facts: Sequence[Cond]) -> Any:
        """Return the solver with the facts of a case, to which some may have been added since the last call."""
        if case is not self._case:
            self._case = case
            pairs = enumerate(zip(self._facts, facts, strict=False))
            common = next((i for i, (a, b) in pairs if a != b), min(len(self._facts), len(facts)))
            while len(self._facts) > common:
                self._solver.pop()
                del self._facts[self._levels.pop() :]
        if new := facts[len(self._facts) :]:
            self._levels.append(len(self._facts))
            self._solver.push()
            self._solver.add(*map(formula, new))
            self._facts += new
        return self._solver


class Facts:
    """Facts of a case, its definitions and the splits of its summed variables, as far as its steps were replayed.

    `checked` are the steps that were confirmed in earlier cases, which share them with this one, by the steps up to
    them. `solver` is that of all cases."""

    def __init__(self, case: Case, checked: dict[Any, tuple[int, Step]], effort: Effort, solver: CaseSolver) -> None:
        self.taken = case.taken
        self.options = case.options
        self.effort = effort
        self.checked = checked
        self.given: list[Cond] = []
        self.defined: dict[Any, Int] = {}
        self.split: dict[Any, tuple[tuple[Any, Int], tuple[Any, Int]]] = {}
        self._known: dict[Any, bool] = {}
        self._reached = 0
        self._solver = solver
        self._named: set[Any] = set()
        self._scanned = 0

    def implies(self, cond: Cond, *under: Cond) -> bool:
        """Whether the facts and `under` imply a condition."""
        cond = replace(cond, self.defined)
        if isinstance(cond, bool) and cond:
            return True
        key = (cond, under, len(self.given), len(self.defined))
        if key not in self._known:
            self._known[key] = self._contradict((("not", cond), *(replace(c, self.defined) for c in under)))
        return self._known[key]

    def equal(self, a: Int, b: Int, *under: Cond) -> bool:
        """Whether two integers are equal."""
        return self.implies(compare("eq", add(a, b, -1)), *under)

    def _contradict(self, conds: Iterable[Cond]) -> bool:
        solver = self._solver.holding(self, self.given)
        solver.push()
        try:
            solver.add(*(formula(c) for c in conds))
            return self.effort.contradict(solver)
        finally:
            solver.pop()

    def _add(self, cond: Cond) -> None:
        self.given.append(cond)

    def replay(self, step: Step) -> None:
        """Check a step and learn what it says. Raises `Refused`."""
        option = self.taken[step[1]] if step[0] == "cases" and step[1] >= 0 else 0
        key = (self._reached, step, option)
        if key not in self.checked:
            found = (step[0], *(replace(part, {}) for part in step[1:]))
            if not self._follows(found):
                raise Refused(f"the step {step[0]}: {step[1:]}")
            self.checked[key] = (len(self.checked) + 1, found)
        self._reached, found = self.checked[key]
        match found:
            case ("given" | "implied" | "size" | "index" | "quotient", cond):
                self._add(cond)
            case ("cases", place, *conds):
                self._add(conds[self.taken[place] if place >= 0 else 0])
            case ("equal", atom, value):
                self.defined = {a: replace(v, {atom: value}) for a, v in self.defined.items()} | {atom: value}
            case ("split", whole, _, outer, most, inner, size):
                self.split[whole] = ((outer, most), (inner, size))
                if self._is_index(whole):
                    self._add(compare("eq", add(_joined(outer, inner, size), ("sum", (1, (whole,))), -1)))

    def _is_index(self, atom: Any) -> bool:
        """Whether a fact names an atom."""
        for cond in self.given[self._scanned :]:
            self._named.update(atoms(cond))
        self._scanned = len(self.given)
        return atom in self._named

    def _follows(self, step: Step) -> bool:
        match step:
            case ("given", _):
                return True
            case ("size", ("ge", ("sum", (1, (("var", _),))))):
                return True
            case ("index", cond):
                return self._is_range(cond)
            case ("implied", cond):
                return cond in self.given or self.raw(cond)
            case ("cases", place, *conds):
                count = self.options[place] if place >= 0 else 1
                return len(conds) == count and self.raw(("or", *conds))
            case ("quotient", cond):
                return any(
                    set(conjuncts(cond)) == {c for c in below(_rest(a), a[2]) if c is not True}
                    and self.raw(compare("ge", add(a[2], -1)))
                    for a in atoms(cond) if a[0] == "div"
                )  # fmt: skip
            case ("implies", under, cond):
                return self.raw(cond, under)
            case ("split", whole, size, outer, most, inner, low):
                fresh = outer != inner and whole not in (outer, inner)
                sizes = [compare("eq", add(size, multiply(most, low), -1)), compare("ge", add(low, -1))]
                sizes += [compare("eq", add(n, -1)) for v, n in ((outer, most), (inner, low)) if v is None]
                return fresh and all(map(self.raw, sizes))
            case ("equal", atom, value):
                if atom in self.split:
                    (outer, _), (inner, size) = self.split[atom]
                    return add(value, _joined(outer, inner, size), -1) == 0
                return self.raw(compare("eq", add(("sum", (1, (atom,))), value, -1)))
        return False

    def _is_range(self, cond: Cond) -> bool:
        """Whether a condition is the range of a variable that no fact names yet."""
        for v in {a for a in atoms(cond) if a[0] == "var" and not self._is_index(a)}:
            for part in conjuncts(cond):
                found = linear(part[1], v) if isinstance(part, tuple) else None
                if found is not None and found[0] == -1:
                    return set(conjuncts(cond)) == set(below(("sum", (1, (v,))), add(found[1], 1)))
        return False

    def raw(self, cond: Cond, under: Cond = True) -> bool:
        """Whether the facts imply a condition as it stands."""
        return cond is True or self._contradict((("not", cond), under))


def _rest(quotient: Any) -> Int:
    return add(quotient[1], multiply(quotient[2], ("sum", (1, (quotient,)))), -1)


def _joined(outer: Any, inner: Any, size: Int) -> Int:
    high, low = (0 if v is None else ("sum", (1, (v,))) for v in (outer, inner))
    return add(multiply(high, size), low)
