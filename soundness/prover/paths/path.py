"""Path of a symbolic execution: the choices and facts so far, with a solver that knows them.

Where the execution of a rule depends on something undetermined (a rank, an entry of a permutation, whether a dim is 1),
the path takes one option and records the choice. `explore` repeats the execution until every option was taken. So an
execution sees plain values, and a proof is the sum of its cases.

Length: one path, whose choices, facts and arithmetic share its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import z3

from ..terms import integers
from ..terms.integers import Atom, Bool, Cond, Int, Poly
from . import countermodels
from .shared_solver import SharedSolver, add_to
from .step_budget import OutOfTime, StepBudget

T = TypeVar("T")
NONNEGATIVE = "nonnegative"
"""Operator of the predicate that no element of a tensor is below zero; elements may be NaN."""

FINITE = "finite"
"""Operator of the predicate that no element of a tensor is infinite or NaN."""


class Infeasible(Exception):
    """The path contradicts itself, or the rule does not fire on it, so there is nothing to prove."""


class NotModeled(Exception):
    """The rule contains something that the prover does not model, which the message names."""


class Failed(Exception):
    """An obligation of the path, which the message names, could not be proved."""


@dataclass(slots=True)
class Bound:
    """Range of an index variable: `0 <= variable < size`. `summed` unless it indexes the result.

    Variables of a normal form have no `size`; their range is part of the term's guard."""

    size: Int | None
    summed: bool

    @property
    def extent(self) -> Int:
        """Size of a variable that has one."""
        assert self.size is not None
        return self.size


@dataclass(frozen=True, slots=True)
class Predicate:
    """Comparison of the elements of a tensor, or of a scalar, with a scalar."""

    op: str
    left: Any
    right: Any


@dataclass
class Path:
    """Choices and facts of one path. `script` lists the options to take; past its end, the first is taken.

    `mode` is "pointwise" to compare without shapes, "unclamped" to leave the bounds of slices abstract, or empty.
    `bounded` names what is modeled up to a bound other than ranks, `operators` those whose meaning was used, and
    `assumed` what these take for granted beyond what the standard says. `trace` records the steps of the path for its
    certificate, and `goals` the scalars that were shown equal."""

    script: list[int]
    meter: StepBudget
    memo: dict[Any, Any]
    max_rank: int = 4
    mode: str = ""
    made: list[tuple[int, str]] = field(default_factory=list)
    mapping: dict[Atom, Int] = field(default_factory=dict)
    bounds: dict[Atom, Bound] = field(default_factory=dict)
    split: dict[Atom, tuple[Int, ...]] = field(default_factory=dict)
    nonnegative: set[Atom] = field(default_factory=set)
    facts: list[Bool] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    steps: int = 0
    fresh_names: dict[str, int] = field(default_factory=dict)
    extra: dict[Any, Any] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    assumed: set[str] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)
    predicates: list[Predicate] = field(default_factory=list)
    right: bool = False
    trace: list[tuple[Any, ...]] = field(default_factory=list)
    goals: list[tuple[Any, ...]] = field(default_factory=list)
    checked: dict[int, int] = field(default_factory=dict)
    _normals: dict[Poly, Int] = field(default_factory=dict)
    _normal_conds: dict[Cond, tuple[Bool, int]] = field(default_factory=dict)
    _divisions: int = 0

    @property
    def pointwise(self) -> bool:
        """Whether tensors are compared element by element, without shapes."""
        return self.mode == "pointwise"

    @property
    def solver(self) -> Any:
        """Solver with the facts of the path, which are added when it is used."""
        if "solver" not in self.memo:
            self.memo["solver"] = SharedSolver()
        return self.memo["solver"].holding(self, self.facts)

    def progress(self) -> float:
        """Return the share of the cases up to this path, counting the options of each choice as equally many."""
        done, share = 0.0, 1.0
        for option, (count, _) in zip(self.taken, self.made, strict=True):
            share /= count
            done += option * share
        return done + share

    def release(self) -> None:
        """Forget what refers back to the path, once it is not needed any more: the garbage collector is slower."""
        self.memo = {}
        self.extra.clear()
        self.predicates.clear()

    # --- choices ---

    def choose(self, options: Sequence[T], what: str, conds: Sequence[Bool] = ()) -> T:
        """Return one of the options, another one on each path. `conds`, if given, say when each of them applies."""
        if conds:
            self.trace.append(("cases", len(self.made) if len(options) > 1 else -1, *conds))
        if not options:
            raise Infeasible(what)
        if len(options) == 1:
            return options[0]
        place = len(self.made)
        pick = self.script[place] if place < len(self.script) else 0
        self.made.append((len(options), what))
        self.taken.append(pick)
        self.steps = 0
        self.log.append(f"{what} = {options[pick]}")
        return options[pick]

    def any_rank(self, name: str, least: int = 0) -> int:
        """Return a rank for a tensor, another one on each path."""
        return self.choose(range(least, self.max_rank + 1), f"rank of {name}")

    def decide(self, cond: Bool) -> bool:
        """Return the truth of a condition; if it is undetermined, two paths take either value."""
        cond = self.normal_cond(cond)
        if isinstance(cond, bool):
            return cond
        if self.entails(cond):
            return True
        if self.entails(integers.negate(cond)):
            return False
        if self.is_bound(cond):
            raise NotModeled(f"a choice within a sum ({cond})")
        found = self.choose((True, False), str(cond), (cond, integers.negate(cond)))
        self.assume(cond if found else integers.negate(cond), certain=True, implied=True)
        return found

    def concrete(self, value: Int, low: int, high: int, what: str, *, certain: bool = False) -> int:
        """Return a value for an integer between `low` and `high`, another one on each path.

        That it lies there must be provable, unless `certain` states it or excludes other cases."""
        value = self.normal(value)
        if isinstance(value, int):
            return value
        within = integers.conj(integers.ge(value, low), integers.ge(high, value))
        if certain:
            self.assume(within)
        elif not self.entails(within):
            raise NotModeled(f"{what} may be anything")
        fits = [k for k in range(low, high + 1) if not self.entails(integers.negate(integers.eq(value, k)))]
        found = self.choose(fits, what, [integers.eq(value, k) for k in fits])
        self.assume(integers.eq(value, found), certain=True, implied=True)
        return found

    def place(self, value: Int, count: int, what: str) -> int:
        """Return the place in a list of `count` items that an index means, which may count from the end.

        From which end it counts is left open, and that it lies there is taken as stated."""
        value = self.normal(value)
        if isinstance(value, int):
            if not -count <= value < count:
                raise Infeasible(f"{what} is out of range")
            return value % count
        means = {k: integers.disj(integers.eq(value, k), integers.eq(value, k - count)) for k in range(count)}
        found = self.choose([k for k, cond in means.items() if not self.entails(integers.negate(cond))], what)
        self.assume(means[found], certain=True)
        return found

    def fresh(self, stem: str) -> str:
        """Return a name that is unique on the path, and the same in every execution of a script."""
        self.fresh_names[stem] = self.fresh_names.get(stem, 0) + 1
        return f"{stem}#{self.fresh_names[stem]}"

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """Return what was made for this key on the path, or make it."""
        if key not in self.extra:
            self.extra[key] = make()
        return self.extra[key]  # type: ignore[no-any-return]

    def memoized(self, key: Any, make: Callable[[], T]) -> T:
        """Return what was made for this key on any path of the proof, or make it. It must not depend on the path."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]  # type: ignore[no-any-return]

    def tick(self) -> None:
        """Count a step of work. Raises `OutOfTime` if there were too many."""
        self.meter.spend()

    # --- facts ---

    def size(self, name: str) -> Int:
        """Return a variable that is at least 0."""
        found = integers.var(name)
        atom = Atom(name)
        if atom not in self.nonnegative:
            self.nonnegative.add(atom)
            self._add(integers.ge(found), "size")
        return self.normal(found)

    def index(self, name: str, size: Int, *, summed: bool) -> Int:
        """Return a variable that ranges from 0 up to a size, exclusive."""
        size = self.normal(size)
        if size == 1 or self.entails(integers.eq(size, 1)):
            return 0
        atom = Atom(name)
        self.bounds[atom] = Bound(size, summed)
        self.nonnegative.add(atom)
        if not summed:
            self._add(integers.inside(integers.var(name), size), "index")
        return integers.var(name)

    def assume(self, cond: Bool, *, certain: bool = False, implied: bool = False) -> None:
        """Add a fact, which is new unless it is `implied`. Raises `Infeasible` if it contradicts what is known."""
        cond = self.normal_cond(cond)
        if isinstance(cond, bool):
            if not cond:
                raise Infeasible(str(cond))
            return
        if cond.op == "and":
            for part in cond.args:
                self.assume(part, certain=certain, implied=implied)
            return
        if not certain and self.entails(integers.negate(cond)):
            raise Infeasible(str(cond))
        self._add(cond, "implied" if implied else "given")
        if cond.op == "eq":
            self._solve(cond.args[0])

    def _add(self, cond: Bool, why: str) -> None:
        self.facts.append(cond)
        self.trace.append((why, cond))
        self.steps += 1

    def _solve(self, value: Poly) -> None:
        """Substitute an atom for which an equation can be solved."""
        linear = [m[0] for m, c in value.terms if len(m) == 1 and abs(c) == 1]
        for atom in sorted(linear, key=lambda a: (a.kind != "var", a in self.bounds, a.key())):
            found = integers.coefficient(value, atom)
            if found is not None and found[0] in (1, -1) and atom not in self.bounds:
                self._replace(atom, -found[1] if found[0] == 1 else found[1])
                return

    def _replace(self, atom: Atom, by: Int) -> None:
        self.mapping = {a: integers.substitute(v, {atom: by}, self._rebuild) for a, v in self.mapping.items()}
        self.mapping[atom] = by
        self._normals, self._normal_conds = {}, {}
        self.trace.append(("equal", atom, by))
        for bound in self.bounds.values():
            if bound.size is not None:
                bound.size = self.normal(bound.size)
        self.steps += 1

    def normal(self, value: Int) -> Int:
        """Return the integer after all substitutions."""
        if not isinstance(value, Poly):
            return value
        self.meter.spend()
        found = self._normals.get(value)
        if found is None:
            before = self._divisions
            found = integers.substitute(value, self.mapping, self._rebuild)
            if self._divisions == before:
                self._normals[value] = found
        return found

    def _rebuild(self, atom: Atom) -> Int:
        if atom.kind == "div":
            self._divisions += 1  # which may add facts: it is done again each time
            return self.divide(*atom.args)[0]
        return self.mapping.get(atom, integers.of_atom(atom))

    def normal_cond(self, cond: Bool) -> Bool:
        """Return the condition after all substitutions."""
        if isinstance(cond, bool):
            return cond
        known = self._normal_conds.get(cond)
        if known is not None:
            self.meter.spend_again(known[1])
            return known[0]
        divisions, spent = self._divisions, self.meter.spent
        found = integers.map_cond(cond, self.normal)
        if self._divisions == divisions:
            self._normal_conds[cond] = found, self.meter.spent - spent
        return found

    def is_bound(self, cond: Bool) -> bool:
        """Whether a condition contains a variable of a sum."""
        return any(map(self.has_bound, integers.cond_ints(cond)))

    def has_bound(self, value: Int) -> bool:
        """Whether an integer contains a variable of a sum."""
        return any(a in self.bounds and self.bounds[a].summed for a in integers.atoms(value))

    # --- questions ---

    def entails(self, cond: Bool, under: Bool = True) -> bool:
        """Whether the facts of the path, and `under`, imply a condition; index variables are in their range."""
        cond, under = self.normal_cond(cond), self.normal_cond(under)
        if isinstance(cond, bool):
            return cond
        if under is False:
            return True
        if under is True and self._obvious(cond):
            return True
        key = (tuple(self.taken), self.steps, cond, under)
        if key not in self.memo:
            self.tick()
            ranges = tuple(self.ranges([cond, under]))
            self.memo[key] = self._ask([*ranges, under, integers.negate(cond)])
            if self.memo[key]:
                self.trace.append(("implies", integers.conj(*ranges, under), cond))
        return bool(self.memo[key])

    def _obvious(self, cond: Cond) -> bool:
        return cond.op == "ge" and all(c >= 0 and self.nonnegative.issuperset(m) for m, c in cond.args[0].terms)

    def _ask(self, conds: Sequence[Bool]) -> bool:
        """Whether the facts contradict these conditions."""
        if self._refuted(conds):
            return False
        solver = self.solver
        solver.push()
        try:
            add_to(solver, [integers.cond_z3(c) for c in conds if c is not True])
            verdict = solver.check()
            self.meter.solved(solver)
            if verdict == z3.sat:
                self.pool.add(countermodels.from_solver(solver.model(), [*self.facts, *conds]))
            return bool(verdict == z3.unsat)
        finally:
            solver.pop()

    @property
    def pool(self) -> countermodels.Pool:
        """Models found by all paths of the proof."""
        if "pool" not in self.memo:
            self.memo["pool"] = countermodels.Pool()
        return self.memo["pool"]  # type: ignore[no-any-return]

    def _refuted(self, conds: Sequence[Bool]) -> bool:
        """Whether a known model satisfies these conditions and the facts of the path."""
        spend = self.meter.spend
        for model in self.pool.known:
            spend()
            try:
                if all(map(model.holds, conds)) and self._alive(model):
                    self.pool.used(model)
                    return True
            except countermodels.Undefined:
                pass
        return False

    def _alive(self, model: countermodels.Model) -> bool:
        """Whether a model satisfies the facts; facts that were checked before are skipped."""
        start = self.checked.get(model.number, 0)
        if start == len(self.facts):
            return True
        alive = start >= 0 and all(map(model.holds, self.facts[start:]))
        self.checked[model.number] = len(self.facts) if alive else -1
        return alive

    def ranges(self, conds: Sequence[Bool]) -> Iterator[Bool]:
        """Yield the ranges of the summed variables in these conditions."""
        todo = [a for c in conds for v in integers.cond_ints(c) for a in integers.atoms(v)]
        seen: set[Atom] = set()
        while todo:
            atom = todo.pop()
            bound = self.bounds.get(atom)
            if bound is None or bound.size is None or atom in seen or not bound.summed:
                continue
            seen.add(atom)
            yield integers.inside(integers.of_atom(atom), bound.size)
            todo.extend(integers.atoms(bound.size))

    def possible(self) -> bool:
        """Whether the facts are consistent, as far as the solver can decide."""
        key = ("possible", tuple(self.taken), self.steps)
        if key not in self.memo:
            self.tick()
            self.memo[key] = self._refuted([])
            if not self.memo[key]:
                solver = self.solver
                self.memo[key] = solver.check() != z3.unsat
                self.meter.solved(solver)
        return bool(self.memo[key])

    # --- arithmetic that needs facts ---

    def divide(self, a: Int, b: Int) -> tuple[Int, Int]:
        """Return the quotient, rounded down, and the remainder for a positive divisor."""
        a, b = self.normal(a), self.normal(b)
        if isinstance(a, int) and isinstance(b, int):
            self.require(b > 0, "the divisor is not positive")
            return divmod(a, b)
        if b == 1:
            return a, 0
        if not self.entails(integers.ge(b, 1)):
            self.require(integers.ge(b, 1), "a divisor is positive")
        for whole, part, known in self.extra.get("exact quotients", ()):
            if self.normal(whole) == a and self.normal(part) == b:
                return self.normal(known), 0
        quotient, rest = integers.split_multiples(a, b)
        if rest == 0 or self.entails(integers.inside(rest, b)):
            return quotient, rest
        atom = Atom("", "div", (rest, b))
        found = integers.of_atom(atom)
        if ("div", atom) not in self.extra:
            self.extra[("div", atom)] = True
            self._add(integers.inside(rest - b * found, b), "quotient")
            if self.entails(integers.ge(rest)):
                self.nonnegative.add(atom)
        return quotient + self.mapping.get(atom, found), rest - b * self.mapping.get(atom, found)

    def divide_exactly(self, a: Int, b: Int, what: str) -> Int:
        """Return the quotient of an operand that must be a multiple of another; later divisions know it, too."""
        a, b = self.normal(a), self.normal(b)
        known = self.right or (isinstance(a, int) and isinstance(b, int))
        quotient, rest = self.divide(a, b) if known or integers.split_multiples(a, b)[1] == 0 else (None, 0)
        if quotient is None:
            quotient = self.size(self.fresh("quotient"))
            rest = a - b * quotient
            self.extra.setdefault("exact quotients", []).append((a, b, quotient))
        self.require(integers.eq(rest), what)
        return self.normal(quotient)

    def require(self, cond: Bool, what: str, *, typed: bool = False) -> None:
        """State what an operator or function requires of its operands. Raises `Infeasible` if it cannot hold.

        On the left side it is a fact, because the graph is valid. On the right side it must follow from the facts,
        unless it is `typed`: the engine only builds operators whose types it can prove."""
        cond = self.normal_cond(cond)
        if cond is True:
            return
        if self.right and not typed and not self.entails(cond):
            if cond is False or self.entails(integers.negate(cond)):
                raise Infeasible(what)  # the engine would refuse to build it
            raise Failed(f"may be invalid: {what} ({cond})")
        self.assume(cond, implied=self.right and not typed)

    def minimum(self, a: Int, b: Int) -> Int:
        """Return the lesser of two integers, by cases."""
        return a if self.decide(integers.ge(b, a)) else b

    def maximum(self, a: Int, b: Int) -> Int:
        """Return the greater of two integers, by cases."""
        return a if self.decide(integers.ge(a, b)) else b

    def unflatten(self, place: Int, dims: Sequence[Int]) -> list[Int]:
        """Return the index of the element at a row-major position in a tensor of these dims.

        An index variable that ranges over several axes is split."""
        out: list[Int] = []
        for size in map(self.normal, reversed(dims[1:])):
            place, low = self.divide(self.refine(place, size), size)
            out.append(low)
        return [self.normal(i) for i in (place, *reversed(out))] if dims else []

    def refine(self, place: Int, size: Int) -> Int:
        """Return the position with index variables split, so that `size` divides what is left."""
        for _ in range(4):
            place = self.normal(place)
            _, rest = integers.split_multiples(place, size)
            if rest == 0 or self.entails(integers.inside(rest, size)):
                return place
            bound = sorted({a for a in integers.atoms(rest) if a in self.bounds}, key=Atom.key)
            if not any(self._split(atom, rest, size) for atom in bound):
                return place
        return place

    def _split(self, atom: Atom, rest: Int, size: Int) -> bool:
        linear = integers.coefficient(rest, atom)
        if linear is None or linear[0] == 0:
            return False
        inner = integers.exact_quotient(size, linear[0])
        bound = self.bounds[atom]
        if inner is None or inner == 1:
            return False
        outer = integers.exact_quotient(self.normal(bound.extent), inner)
        if outer is None or outer == 1 or not self.entails(integers.ge(inner, 1)):
            return False
        high = self.index(f"{atom.name}/", outer, summed=bound.summed)
        low = self.index(f"{atom.name}%", inner, summed=bound.summed)
        self.split[atom] = (high, low)
        parts = [integers.as_atom(v) for v in (high, low)]
        self.trace.append(("split", atom, bound.size, parts[0], outer, parts[1], inner))
        self._replace(atom, high * inner + low)
        return True


def explore(run: Callable[[Path], T], make: Callable[[list[int]], Path], limit: int) -> Iterator[tuple[Path, T | None]]:
    """Yield every path through `run` with its result, which is None if the path is infeasible."""
    script: list[int] = []
    for _ in range(limit):
        path = make(script)
        path.tick()
        result: T | None = None
        with suppress(Infeasible):
            result = run(path)
        yield path, result
        script = list(path.taken)
        while script and script[-1] + 1 >= path.made[len(script) - 1][0]:
            script.pop()
        if not script:
            return
        script[-1] += 1
    raise OutOfTime
