"""One way through a rule: what has been decided and assumed so far, with a solver that knows it.

A rule is run symbolically. Where the run depends on what is not determined (a rank, an entry of a permutation, whether
a dim is 1), the path takes one of the possible ways and notes it; `explore` runs the rule again and again until every
way has been taken. So what a run sees are plain values, and a proof is the sum of its cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import integers, models
from .integers import Atom, Bool, Cond, Int, Poly
from .meter import Meter, OutOfTime

T = TypeVar("T")
QUERY_STEPS = 1_500_000
"""What the solver may spend on one question: half a second or so, but counted in its own steps, so that it is the same
on every machine and under any load."""


class Infeasible(Exception):
    """The path contradicts itself, or the rule does not fire on it: there is nothing to prove."""


class NotModelled(Exception):
    """The rule says something that the prover has no meaning for; the message says what."""


class Failed(Exception):
    """An obligation of the path could not be discharged; the message says which."""


@dataclass(slots=True)
class Bound:
    """What is known of an index variable: `0 <= variable < size`. `summed` unless it indexes the result.

    Variables of a normal form have no `size`: the guard that goes with them says where they run."""

    size: Int | None
    summed: bool

    @property
    def extent(self) -> Int:
        """The size of a variable that has one."""
        assert self.size is not None
        return self.size


@dataclass
class Path:
    """The facts of one way. `script` says which way to take at each choice; beyond its end the first."""

    script: list[int]
    meter: Meter
    memo: dict[Any, Any]
    max_rank: int = 4
    mode: str = "exact"
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
    right: bool = False
    told: int = 0
    checked: dict[int, int] = field(default_factory=dict)
    _solver: Any = None

    @property
    def solver(self) -> Any:
        """The solver with the facts of the path, which are told to it when it is first asked."""
        import z3

        if self._solver is None:
            self._solver = z3.Solver()
            self._solver.set("rlimit", QUERY_STEPS)
            self._solver.set("random_seed", 7)
        for fact in self.facts[self.told :]:
            self._solver.add(integers.cond_z3(fact))
        self.told = len(self.facts)
        return self._solver

    # --- choices ---

    def choose(self, options: Sequence[T], what: str) -> T:
        """One of the options, another one on each path."""
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

    def decide(self, cond: Bool) -> bool:
        """The truth of a condition: both, on two paths, where it is not determined."""
        cond = self.normal_cond(cond)
        if isinstance(cond, bool):
            return cond
        if self.entails(cond):
            return True
        if self.entails(integers.negate(cond)):
            return False
        if self.is_bound(cond):
            raise NotModelled(f"a choice within a sum ({cond})")
        found = self.choose((True, False), str(cond))
        self.assume(cond if found else integers.negate(cond), certain=True)
        return found

    def concrete(self, value: Int, low: int, high: int, what: str, *, certain: bool = False) -> int:
        """A known value for an integer between `low` and `high`, another on each path.

        `certain` says that it lies there, or that other cases are not asked for; else it must be provable."""
        value = self.normal(value)
        if isinstance(value, int):
            return value
        within = integers.conj(integers.ge(value, low), integers.ge(high, value))
        if certain:
            self.assume(within)
        elif not self.entails(within):
            raise NotModelled(f"{what} may be anything")
        fits = [k for k in range(low, high + 1) if not self.entails(integers.negate(integers.eq(value, k)))]
        found = self.choose(fits, what)
        self.assume(integers.eq(value, found), certain=True)
        return found

    def fresh(self, stem: str) -> str:
        """A name that nothing else on the path has; the same on every run of the same script."""
        self.fresh_names[stem] = self.fresh_names.get(stem, 0) + 1
        return f"{stem}#{self.fresh_names[stem]}"

    def tick(self) -> None:
        """A step of work; raises `OutOfTime` if there were too many."""
        self.meter.spend()

    # --- facts ---

    def size(self, name: str) -> Int:
        """A variable that is at least 0."""
        found = integers.var(name)
        atom = Atom(name)
        if atom not in self.nonnegative:
            self.nonnegative.add(atom)
            self._add(integers.ge(found))
        return self.normal(found)

    def index(self, name: str, size: Int, *, summed: bool) -> Int:
        """A variable that runs from 0 up to a size."""
        size = self.normal(size)
        if size == 1 or self.entails(integers.eq(size, 1)):
            return 0
        atom = Atom(name)
        self.bounds[atom] = Bound(size, summed)
        self.nonnegative.add(atom)
        if not summed:
            self._add(integers.inside(integers.var(name), size))
        return integers.var(name)

    def assume(self, cond: Bool, *, certain: bool = False) -> None:
        """Adds a fact; `Infeasible` if it contradicts what is known."""
        cond = self.normal_cond(cond)
        if cond is True:
            return
        if cond is False:
            raise Infeasible(str(cond))
        if isinstance(cond, Cond) and cond.op == "and":
            for part in cond.args:
                self.assume(part, certain=certain)
            return
        if not certain and self.entails(integers.negate(cond)):
            raise Infeasible(str(cond))
        self._add(cond)
        if isinstance(cond, Cond) and cond.op == "eq":
            self._solve(cond.args[0])

    def _add(self, cond: Bool) -> None:
        self.facts.append(cond)
        self.steps += 1

    def _solve(self, value: Int) -> None:
        """Replaces an atom by what an equation says it is."""
        if not isinstance(value, Poly):
            return
        linear = [m[0] for m, c in value.terms if len(m) == 1 and abs(c) == 1]
        for atom in sorted(linear, key=lambda a: (a.kind != "var", a in self.bounds, a.key())):
            found = integers.coefficient(value, atom)
            if found is not None and found[0] in (1, -1) and atom not in self.bounds:
                self._replace(atom, -found[1] if found[0] == 1 else found[1])
                return

    def _replace(self, atom: Atom, by: Int) -> None:
        self.mapping = {a: integers.substitute(v, {atom: by}, self._again) for a, v in self.mapping.items()}
        self.mapping[atom] = by
        for bound in self.bounds.values():
            if bound.size is not None:
                bound.size = self.normal(bound.size)
        self.steps += 1

    def normal(self, value: Int) -> Int:
        """The integer with everything put in that equations say."""
        if not isinstance(value, Poly):
            return value
        self.meter.spend()
        return integers.substitute(value, self.mapping, self._again)

    def _again(self, atom: Atom) -> Int:
        if atom.kind == "div":
            return self.divide(atom.args[0], atom.args[1])[0]
        found = integers.of_atom(atom)
        return self.mapping.get(atom, found)

    def normal_cond(self, cond: Bool) -> Bool:
        """The condition with everything put in that equations say."""
        return integers.map_cond(cond, self.normal)

    def is_bound(self, cond: Bool) -> bool:
        """Whether a condition mentions a variable that is summed over."""
        return any(self.has_bound(v) for v in integers.cond_ints(cond))

    def has_bound(self, value: Int) -> bool:
        """Whether an integer mentions a variable that is summed over."""
        return any(a in self.bounds and self.bounds[a].summed for a in integers.atoms(value))

    # --- questions ---

    def entails(self, cond: Bool, under: Bool = True) -> bool:
        """Whether the facts of the path prove a condition, `under` another one; index variables are in their range."""
        cond, under = self.normal_cond(cond), self.normal_cond(under)
        if isinstance(cond, bool):
            return cond
        if under is False:
            return True
        if under is True and self._obvious(cond):
            return True
        key = (tuple(self.taken), self.steps, cond, under)
        found = self.memo.get(key)
        if found is None:
            self.tick()
            found = self.memo[key] = self._ask(cond, under)
        return bool(found)

    def _obvious(self, cond: Cond) -> bool:
        if cond.op != "ge":
            return False
        return all(c >= 0 and all(a in self.nonnegative for a in m) for m, c in cond.args[0].terms)

    def _ask(self, cond: Bool, under: Bool) -> bool:
        import z3

        negated = integers.negate(cond)
        ranges = list(self.ranges([cond, under]))
        if self._refuted([*ranges, under, negated]):
            return False
        solver = self.solver
        solver.push()
        try:
            for fact in (*ranges, under, negated):
                if fact is not True:
                    solver.add(integers.cond_z3(fact))
            verdict = solver.check()
            self.meter.solved(solver)
            if verdict == z3.sat:
                self.pool.add(models.from_solver(solver.model(), [*self.facts, *ranges, under, negated]))
            return bool(verdict == z3.unsat)
        finally:
            solver.pop()

    @property
    def pool(self) -> models.Pool:
        """Models that this path and others have met."""
        found: models.Pool | None = self.memo.get("pool")
        if found is None:
            found = self.memo["pool"] = models.Pool()
        return found

    def _refuted(self, conds: Sequence[Bool]) -> bool:
        """Whether a known model satisfies these conditions and the facts of the path."""
        for model in self.pool.known:
            self.meter.spend()
            try:
                if all(model.holds(c) for c in conds) and self._alive(model):
                    self.pool.used(model)
                    return True
            except models.Undefined:
                continue
        return False

    def _alive(self, model: models.Model) -> bool:
        """Whether a model satisfies the facts; how far that has been looked at is remembered."""
        start = self.checked.get(model.number, 0)
        if start < 0:
            return False
        for fact in self.facts[start:]:
            if not model.holds(fact):
                self.checked[model.number] = -1
                return False
        self.checked[model.number] = len(self.facts)
        return True

    def ranges(self, conds: Sequence[Bool]) -> Iterator[Bool]:
        """That the summed variables in these conditions are in their range."""
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
        """Whether the facts do not contradict each other, as far as the solver can tell."""
        import z3

        key = ("possible", tuple(self.taken), self.steps)
        if key not in self.memo:
            self.tick()
            self.memo[key] = self._refuted([]) or self.solver.check() != z3.unsat
            if self._solver is not None:
                self.meter.solved(self._solver)
        return bool(self.memo[key])

    # --- arithmetic that needs facts ---

    def divide(self, a: Int, b: Int) -> tuple[Int, Int]:
        """Quotient rounded down and remainder for a positive divisor."""
        a, b = self.normal(a), self.normal(b)
        if isinstance(a, int) and isinstance(b, int):
            if b <= 0:
                raise Infeasible("division by what is not positive")
            return divmod(a, b)
        if b == 1:
            return a, 0
        if not self.entails(integers.ge(b, 1)):
            self.require(integers.ge(b, 1), "a divisor is positive")
        quotient, rest = integers.split_multiples(a, b)
        if rest == 0 or self.entails(integers.inside(rest, b)):
            return quotient, rest
        atom = Atom("", "div", (rest, b))
        found = integers.of_atom(atom)
        if ("div", atom) not in self.extra:
            self.extra[("div", atom)] = True
            self._add(integers.inside(rest - b * found, b))
            if self.entails(integers.ge(rest)):
                self.nonnegative.add(atom)
        return quotient + self.mapping.get(atom, found), rest - b * self.mapping.get(atom, found)

    def require(self, cond: Bool, what: str, *, typed: bool = False) -> None:
        """What an operator asks of its operands.

        On the left side it is known, since the graph is valid; on the right side it must follow from what is known,
        unless it is `typed`: the engine builds no operator whose operands do not provably broadcast."""
        cond = self.normal_cond(cond)
        if cond is True:
            return
        if self.right and not typed and not self.entails(cond):
            if cond is False or self.entails(integers.negate(cond)):
                raise Infeasible(what)  # the engine refuses to build it
            raise Failed(f"may be invalid: {what} ({cond})")
        self.assume(cond)

    def minimum(self, a: Int, b: Int) -> Int:
        """The lesser of two integers, by cases."""
        return a if self.decide(integers.ge(b, a)) else b

    def maximum(self, a: Int, b: Int) -> Int:
        """The greater of two integers, by cases."""
        return a if self.decide(integers.ge(a, b)) else b

    def unflatten(self, place: Int, dims: Sequence[Int]) -> list[Int]:
        """The index in a tensor of these dims of the element at a place, counted row by row.

        An index variable that runs over several axes at once is taken apart."""
        out: list[Int] = []
        place = self.normal(place)
        for size in reversed(list(dims)[1:]):
            size = self.normal(size)
            place = self._refine(place, size)
            place, low = self.divide(place, size) if size != 1 else (place, 0)
            out.append(low)
        if dims:
            out.append(self.normal(place))
        out.reverse()
        return [self.normal(i) for i in out]

    def _refine(self, place: Int, size: Int) -> Int:
        """The place with index variables split so that `size` can be divided off."""
        for _ in range(4):
            place = self.normal(place)
            _, rest = integers.split_multiples(place, size)
            if rest == 0 or self.entails(integers.inside(rest, size)):
                return place
            for atom in sorted({a for a in integers.atoms(rest) if a in self.bounds}, key=Atom.key):
                if self._split(atom, rest, size):
                    break
            else:
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
        self._replace(atom, high * inner + low)
        return True


def explore(run: Callable[[Path], T], make: Callable[[list[int]], Path], limit: int) -> Iterator[tuple[Path, T | None]]:
    """Every path through `run` with what it gave, None where it is infeasible."""
    script: list[int] = []
    for _ in range(limit):
        path = make(script)
        path.tick()
        result: T | None
        try:
            result = run(path)
        except Infeasible:
            result = None
        yield path, result
        taken = list(path.taken)
        while taken and taken[-1] + 1 >= path.made[len(taken) - 1][0]:
            taken.pop()
        if not taken:
            return
        taken[-1] += 1
        script = taken
    raise OutOfTime
