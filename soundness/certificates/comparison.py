"""Equality of two scalars of a case: congruence, the axioms, and sums of guarded products.

An arithmetic is `bits` (IEEE 754, integers bit for bit, truth values), `zeros` (the same up to the sign of a zero),
`ring` (integers modulo 2ⁿ), `real` (class `reassoc`) or `fast`. In the last three, a scalar is a sum of rows: a factor
times atoms, summed over index variables where conditions hold. Two scalars are equal if the rows of their difference
cancel, after variables were renamed so that atoms agree.

Length: one comparison, whose steps call each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from .axioms import BITS, COMMUTATIVE, FAST, FLOAT_BITS, REALS, ZEROS, apply, equations
from .case_scalars import CONVERSIONS, TRUTH, Scalars, app, changed, indices, number, outline, skeleton, walk
from .certificate import Case, Cond, Int, Scalar
from .facts import Exhausted, Facts, add, atoms, below, compare, conjuncts, linear
from .facts import replace as substituted

_AXIOMS = {
    "bits": equations(BITS, FLOAT_BITS), "zeros": equations(BITS, FLOAT_BITS, ZEROS), "ring": equations(BITS, ZEROS),
    "real": equations(BITS, FLOAT_BITS, ZEROS, REALS), "fast": equations(FAST, BITS, FLOAT_BITS, ZEROS, REALS),
}  # fmt: skip
_SUMS = ("ring", "real", "fast")
_OPPOSITE = {"Max": "Min", "Min": "Max", "FirstMax": "FirstMin", "LastMax": "LastMin", "FirstMin": "FirstMax",
             "LastMin": "LastMax", "Sum": "Sum"}  # fmt: skip
_STEPS = ("Relu", "Ceil", "Floor")
_RISING = ("Exp", "Sigmoid", "Tanh", "Erf", "Atan", "Softplus")
_ODD = frozenset(("Sin", "Tan", "Tanh", "Atan", "Asin", "Sinh", "Erf", "Asinh", "Atanh"))
_EVEN = frozenset(("Cos", "Cosh"))
_STRICT = frozenset(("Add", "Sub", "Neg", "Mul", "Div", "Sum", "Mean", "Abs"))
ROWS = 400
GUARDS = 8
_NAMED = (Fraction("0.7071067811865476"), Fraction("0.7978845608028654"),
          *(Fraction(p, q) for q in (3, 6, 7, 9) for p in range(1, q)))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Factor times atoms, summed over variables below their sizes where conditions hold. `side` is 1 or -1."""

    factor: Fraction
    atoms: tuple[Scalar, ...]
    variables: tuple[tuple[Any, Int], ...] = ()
    guard: tuple[Cond, ...] = ()
    side: int = 1

    @property
    def conditions(self) -> tuple[Cond, ...]:
        """The ranges of the variables, and the guard."""
        return (*(c for v, n in self.variables for c in below(_one(v), n)), *self.guard)

    @property
    def outline(self) -> tuple[str, ...]:
        """What the atoms are, indices aside."""
        return tuple(sorted(map(outline, self.atoms)))


def _one(atom: Any) -> Int:
    return ("sum", (1, (atom,)))


def literal(value: Fraction) -> Fraction:
    """Return the number that a decimal stands for, such as 1/6 for 0.16666667."""
    near = (k for k in _NAMED if value and abs(abs(value) - k) <= k / 20_000_000)
    found = next(near, None)
    return value if found is None else found if value > 0 else -found


class Equality(Scalars):
    """Comparison of scalars under the facts of a case."""

    def __init__(self, case: Case, facts: Facts) -> None:
        super().__init__(case, facts)
        self.dropped: list[Scalar] = []
        self._memo: dict[Any, bool] = {}

    def equal(self, a: Scalar, b: Scalar, arithmetic: str, under: tuple[Cond, ...] = ()) -> bool:
        """Whether two scalars are equal where conditions hold. `same` compares their structure only."""
        if a == b:
            return True
        key = (a, b, arithmetic, under)
        if key not in self._memo:
            self.facts.effort.spend()
            self._memo[key] = self._equal(a, b, arithmetic, under)
        return self._memo[key]

    def _equal(self, a: Scalar, b: Scalar, arithmetic: str, under: tuple[Cond, ...]) -> bool:
        if self._congruent(a, b, "same", under):
            return True
        if arithmetic in _SUMS:
            return self._vanish([*self.rows(a, arithmetic), *_times(self.rows(b, arithmetic), -1, side=-1)],
                                arithmetic, under)  # fmt: skip
        if arithmetic == "same":
            return False
        return self._congruent(self.rewritten(a, arithmetic), self.rewritten(b, arithmetic), arithmetic, under)

    # --- congruence ---

    def _congruent(self, a: Scalar, b: Scalar, arithmetic: str, under: tuple[Cond, ...]) -> bool:
        if a == b:
            return True
        match a, b:
            case (("int", x), ("const", _)) | (("const", _), ("int", x)):
                value = number(b if b[0] == "const" else a)
                whole = value is not None and value.denominator == 1
                return whole and value is not None and self.facts.equal(x, int(value), *under)
            case ("int", x), ("int", y):
                return self.facts.equal(x, y, *under)
            case ("read" | "flat", name, *places), (_, other, *others) if a[0] == b[0] and name == other:
                return all(self.facts.equal(i, j, *under) for i, j in zip(places, others, strict=True))
            case ("ite", cond, p, q), _:
                inside, outside = (*under, cond), (*under, ("not", cond))
                return all(
                    self.facts.implies(False, *where) or self.equal(s, b, arithmetic, where)
                    for s, where in ((p, inside), (q, outside))
                )
            case _, ("ite", _, _, _):
                return self._congruent(b, a, arithmetic, under)
            case ("inverse", x), ("inverse", y):
                return self.equal(x, y, arithmetic, under)
            case ("big", op, _, _), ("big", other, _, _):
                return op == other and self._same_big(a, b, arithmetic, under)
            case ("app", op, attrs, *args), ("app", other, named, *others):
                if op != other or len(args) != len(others) or not self._same_attributes(attrs, named, under):
                    return False
                if op in ("Max", "Min") and arithmetic in ("zeros", *_SUMS):  # as sets
                    return all(any(self.equal(x, y, arithmetic, under) for y in p) for p, q in
                               ((others, args), (args, others)) for x in q)  # fmt: skip
                each = [self._operand_arithmetic(op, k, args, arithmetic) for k in range(len(args))]
                orders = itertools.permutations(others) if op in COMMUTATIVE and len(args) <= 4 else (others,)
                return any(all(map(self.equal, args, order, each, itertools.repeat(under))) for order in orders)
        return False

    def _same_attributes(self, a: Any, b: Any, under: tuple[Cond, ...]) -> bool:
        return len(a) == len(b) and all(
            k == m and (v == w or (isinstance(v, tuple) and isinstance(w, tuple) and bool(v) and bool(w)
                                   and self._congruent(v, w, "same", under)))
            for (k, v), (m, w) in zip(a, b, strict=True)
        )  # fmt: skip

    def _operand_arithmetic(self, op: str, place: int, args: Sequence[Scalar], outer: str) -> str:
        """Return the arithmetic of an operand. What is compared or converted must not be reassociated: it may jump."""
        if outer == "same" or (op == "Where" and place):
            return outer
        if op == "Where":
            return "bits"
        if op in TRUTH:
            typed = next((a for a in args if self.type_of(a) is not None), None)
            return "bits" if typed is None else self.regime(typed, "bits")
        if op in CONVERSIONS or op == "Pow" or op.startswith("op "):
            found = self.regime(args[place], outer)
            return outer if found == "bits" and outer in ("real", "fast") and self._floats(args[place]) else found
        return outer

    def _floats(self, s: Scalar) -> bool:
        dtype = self.type_of(s)
        return dtype is not None and set(self.kinds(dtype)) == {"float"}

    def _same_big(self, a: Scalar, b: Scalar, arithmetic: str, under: tuple[Cond, ...]) -> bool:
        """Compare two sums or extremes: in the same order, or any order where that does not matter."""
        any_order = ("Max", "Min", *(("Sum", "Prod") if arithmetic in _SUMS else ()))
        if a[1] in any_order and arithmetic != "same":
            opened = [self.opened(s[2], s[3]) for s in (a, b)]
            x, y = (self._forced(Row(Fraction(1), (body,), listed)) for listed, body in opened)
            for env in self._alignments(y, x, arithmetic, under):
                inside, other = x.conditions, tuple(substituted(c, env) for c in y.conditions)
                return self.facts.implies(("and", *other), *under, *inside) and self.facts.implies(
                    ("and", *inside), *under, *other
                )
            return False
        if len(a[2]) != len(b[2]):
            return False
        left, body = self.opened(a[2], a[3])
        env = {v: _one(w) for (v, _), (w, _) in zip(b[2], left, strict=True)}
        sizes = all(self.facts.equal(n, substituted(m, env), *under) for (_, n), (_, m) in zip(left, b[2], strict=True))
        ranges = tuple(c for v, n in left for c in below(_one(v), n))
        return sizes and self.equal(body, changed(b[3], env), arithmetic, (*under, *ranges))

    # --- axioms ---

    def rewritten(self, s: Scalar, arithmetic: str) -> Scalar:
        """Return a scalar after axioms were applied from left to right, inside first."""
        match s:
            case ("app", op, attrs, *args):
                each = [self.rewritten(a, self._operand_arithmetic(op, k, args, arithmetic))
                        for k, a in enumerate(args)]  # fmt: skip
                return self._at_head(("app", op, attrs, *each), arithmetic)
            case ("big", op, listed, body):
                body = self.rewritten(body, arithmetic)
                if op in ("Max", "Min") and body[:2] == ("big", op):  # an extreme of extremes is one
                    listed, body = (*listed, *body[2]), body[3]
                moved = self._moved(("big", op, listed, body), arithmetic)
                return moved if moved[0] == "big" else self.rewritten(moved, arithmetic)
            case ("ite", cond, a, b):
                return ("ite", cond, self.rewritten(a, arithmetic), self.rewritten(b, arithmetic))
        return s

    def _at_head(self, s: Scalar, arithmetic: str) -> Scalar:
        op, args = s[1], s[3:]
        if op in ("Max", "Min") and arithmetic in ("zeros", *_SUMS):
            args = tuple(dict.fromkeys(p for a in args for p in (a[3:] if a[:2] == ("app", op) else (a,))))
            s = app(op, *args)
        found = apply(_AXIOMS[arithmetic], s)
        if found is None and (op in CONVERSIONS or op.startswith("op ")):
            found = self._chosen(s)
        if found is None and op == "Sum":
            found = app("Add", app("Sum", *args[:-1]), args[-1])
        if found is None and op in ("Ceil", "Floor", "Round", "Relu") and args[0][:2] == ("app", "Cast"):
            dtype = self.type_of(args[0][3])  # a whole number, or one that is not below zero
            allowed = {"uint"} if op == "Relu" else {"int", "uint"}
            found = args[0] if dtype is not None and set(self.kinds(dtype)) <= allowed else None
        return s if found is None else self.rewritten(found, arithmetic)

    def _chosen(self, s: Scalar) -> Scalar | None:
        """Return a function of a chosen operand as the choice of two: f(Where(c, a, b)) is Where(c, f(a), f(b))."""
        for k, a in enumerate(s[3:], start=3):
            if a[:2] == ("app", "Where"):
                return app("Where", a[3], *((*s[:k], side, *s[k + 1 :]) for side in a[4:]))
        if s[1] == "index of" and s[3][0] == "big" and s[3][3][:2] == ("app", "Neg") and self._floats(s[3]):
            return (*s[:3], ("big", _OPPOSITE[s[3][1]], s[3][2], s[3][3][3]))
        return None

    def _moved(self, s: Scalar, arithmetic: str) -> Scalar:
        """Move a function out of an extreme or sum with which it commutes; the range of an extreme is not empty."""
        _, op, listed, body = s
        if body[0] != "app" or arithmetic == "bits":
            return s
        function, attrs, *args = body[1:]
        if op == "Prod" and function == "Exp" and arithmetic == "fast":
            return app("Exp", ("big", "Sum", listed, args[0]))
        if function == "Neg" and op in ("Max", "Min", "Sum") and arithmetic != "ring":
            return app("Neg", ("big", _OPPOSITE[op], listed, args[0]))
        rising = function in _STEPS or (function in _RISING and arithmetic in ("real", "fast"))
        if op in ("Max", "Min") and rising and self.holds(*(compare("ge", add(n, -1)) for _, n in listed)):
            return app(function, ("big", op, listed, args[0]), attrs=attrs)
        return s

    # --- rows ---

    def rows(self, s: Scalar, arithmetic: str) -> list[Row]:
        """Return a scalar as rows."""
        found = self._rows(s, arithmetic)
        if len(found) > ROWS:
            raise Exhausted("too many rows")
        return self._gathered(found)

    def _rows(self, s: Scalar, arithmetic: str) -> list[Row]:
        value = number(s)
        if value is not None:
            value = value if arithmetic == "ring" else literal(value)
            return [Row(value, ())] if value else []
        match s:
            case ("int", ("sum", *monomials)):
                return [Row(Fraction(f), tuple(("int", _one(a)) for a in m)) for f, m in monomials]
            case ("ite", cond, a, b):
                inside = [replace(r, guard=(*r.guard, cond)) for r in self._rows(a, arithmetic)]
                return inside + [replace(r, guard=(*r.guard, ("not", cond))) for r in self._rows(b, arithmetic)]
            case ("big", "Sum", listed, body):
                listed, body = self.opened(listed, body)
                return [replace(r, variables=(*listed, *r.variables)) for r in self._rows(body, arithmetic)]
            case ("big", op, listed, body):
                moved = self.rewritten(s, arithmetic)
                return [Row(Fraction(1), (moved,))] if moved[0] == "big" else self._rows(moved, arithmetic)
            case ("inverse", inner):
                return self._inverse(inner, arithmetic)
            case ("app", op, attrs, *args):
                return self._arithmetic(s, op, attrs, args, arithmetic)
        return [Row(Fraction(1), (s,))]

    def _arithmetic(self, s: Scalar, op: str, attrs: Any, args: list[Scalar], arithmetic: str) -> list[Row]:
        match op:
            case "Add" | "Sum":
                return [r for a in args for r in self._rows(a, arithmetic)]
            case "Sub":
                return [*self._rows(args[0], arithmetic), *_times(self._rows(args[1], arithmetic), -1)]
            case "Neg":
                return _times(self._rows(args[0], arithmetic), -1)
            case "Mul":
                return self._product(self._rows(args[0], arithmetic), self._rows(args[1], arithmetic), arithmetic)
            case "Mean" if arithmetic != "ring":
                return _times([r for a in args for r in self._rows(a, arithmetic)], Fraction(1, len(args)))
            case "Div" if arithmetic != "ring":
                return self._product(self._rows(args[0], arithmetic), self._inverse(args[1], arithmetic), arithmetic)
            case "Reciprocal" if arithmetic != "ring":
                return self._inverse(args[0], arithmetic)
            case "Pow" if (power := self._power(args, arithmetic)) is not None:
                return power
            case "Exp" if args[0][:2] == ("app", "Log") and self.positive(args[0][3]):
                return self._rows(args[0][3], arithmetic)
        for k, a in enumerate(args):
            if a[0] == "ite":  # a function of a choice by index is a choice of two
                sides = (("app", op, attrs, *args[:k], side, *args[k + 1 :]) for side in a[2:])
                return self._rows(("ite", a[1], *sides), arithmetic)
        found = self.rewritten(s, arithmetic)
        if found != s:
            return self._rows(found, arithmetic)
        if op in _ODD | _EVEN and arithmetic != "ring":
            rows = self.rows(args[0], arithmetic)
            if rows and _lead(rows) < 0:
                negated = self._positive_form(args[0])
                turned = [Row(Fraction(1), (("app", op, attrs, negated),))]
                return _times(turned, -1) if op in _ODD else turned
        return [Row(Fraction(1), (s,))]

    def _positive_form(self, s: Scalar) -> Scalar:
        return s[3] if s[:2] == ("app", "Neg") else app("Neg", s)

    def _power(self, args: Sequence[Scalar], arithmetic: str) -> list[Row] | None:
        base, exponent = args[0], number(args[1])
        if exponent is None:
            return None
        if exponent.denominator == 1 and 1 <= exponent <= 4:
            found = self._rows(base, arithmetic)
            for _ in range(int(exponent) - 1):
                found = self._product(found, self._rows(base, arithmetic), arithmetic)
            return found
        if arithmetic == "ring":
            return None
        if exponent == -1:
            return self._inverse(base, arithmetic)
        if abs(exponent) == Fraction(1, 2) and (arithmetic == "fast" or self.never_negative(base)):
            root = app("Sqrt", base)
            return self._rows(root, arithmetic) if exponent > 0 else self._inverse(root, arithmetic)
        return None

    def _product(self, left: list[Row], right: list[Row], arithmetic: str) -> list[Row]:
        if len(left) * len(right) > ROWS:
            raise Exhausted("too many rows")
        if not left or not right:
            self.dropped += [a for r in (*left, *right) for a in r.atoms]
        return [
            Row(a.factor * b.factor, self._simplified((*a.atoms, *b.atoms), arithmetic), (*a.variables, *b.variables),
                (*a.guard, *b.guard))
            for a, b in itertools.product(left, right)
        ]  # fmt: skip

    def _simplified(self, found: tuple[Scalar, ...], arithmetic: str) -> tuple[Scalar, ...]:
        """Return the atoms of a product: |a|·|a| is a·a, and a · 1/a is 1 where a is a positive number."""
        left = list(found)
        for a in found:
            if a[:2] == ("app", "Abs") and left.count(a) >= 2:
                left.remove(a)
                left.remove(a)
                left += [a[3]] * 2
            elif a[0] == "inverse" and a in left and a[1] in left:
                whole = a[1][0] == "int" and self.holds(compare("ge", add(a[1][1], -1)))
                if whole or (arithmetic == "fast" and self.positive(a[1])):
                    left.remove(a)
                    left.remove(a[1])
        return tuple(left)

    def _inverse(self, s: Scalar, arithmetic: str) -> list[Row]:
        """Return 1/s: factor by factor, or for a sum with its first factor outside."""
        rows = self.rows(s, arithmetic)
        if len(rows) == 1 and not rows[0].variables and not rows[0].guard:
            return [Row(1 / rows[0].factor, tuple(self._inverse_atom(a, arithmetic) for a in rows[0].atoms))]
        lead = _lead(rows) if rows else Fraction(1)
        scaled = s if lead == 1 else app("Mul", ("const", str(1 / lead)), s)
        return [Row(1 / lead, (("inverse", scaled),))]

    def _inverse_atom(self, a: Scalar, arithmetic: str) -> Scalar:
        if a[0] == "inverse" and (arithmetic == "fast" or self.positive(a[1]) or a[1][0] == "int"):
            return a[1]  # type: ignore[no-any-return]
        return ("inverse", a)

    # --- rows that cancel ---

    def _gathered(self, rows: list[Row]) -> list[Row]:
        """Return rows without those that are empty; sums that have one term or whose terms are equal are solved."""
        todo, found = list(rows), []
        while todo:
            row = self._forced(todo.pop(0))
            if row.conditions and self.facts.implies(("not", ("and", *row.conditions))):
                continue
            for v, size in row.variables:
                others = tuple(p for p in row.variables if p[0] != v)
                read = [*row.guard, *(n for _, n in others), *(i for a in row.atoms for i in indices(a))]
                if not any(v in set(atoms(i)) for i in read) and self.holds(compare("ge", size)):
                    count = self._rows(changed(("int", size), {}), "ring")
                    rest = replace(row, variables=others, side=1)
                    todo[:0] = [replace(r, side=row.side) for r in self._product([rest], count, "ring")]
                    break
            else:
                found.append(row)
        return found

    def _forced(self, row: Row) -> Row:
        """Replace variables for which the conditions leave one value."""
        for v, _ in row.variables:
            lows: list[Int] = []
            highs: list[Int] = []
            for cond in row.conditions:
                for part in conjuncts(cond):
                    if not isinstance(part, tuple) or part[0] not in ("ge", "eq"):
                        continue
                    found = linear(part[1], v)
                    if found is None or abs(found[0]) != 1:
                        continue
                    at = add(0, found[1], -found[0])
                    if part[0] == "eq":
                        return self._forced(self._without(row, v, at))
                    (lows if found[0] == 1 else highs).append(at)
            for low, high in itertools.product(lows, highs):
                if add(low, high, -1) == 0 or (len(row.conditions) > 2 and self.facts.equal(low, high)):
                    return self._forced(self._without(row, v, low))
        return row

    def _without(self, row: Row, v: Any, value: Int) -> Row:
        env = {v: value}
        conds = [c for cond in row.conditions for c in conjuncts(substituted(cond, env))]
        rest = tuple((w, substituted(n, env)) for w, n in row.variables if w != v)
        ranges = {c for w, n in rest for c in below(_one(w), n)}
        guard = tuple(c for c in dict.fromkeys(conds) if c not in ranges and not self.facts.implies(c))
        return replace(row, atoms=tuple(changed(a, env) for a in row.atoms), variables=rest, guard=guard)

    def _vanish(self, rows: list[Row], arithmetic: str, under: tuple[Cond, ...]) -> bool:
        groups: list[tuple[Row, list[tuple[Row, tuple[Cond, ...]]]]] = []
        for row in rows:
            for first, members in groups:
                env = next(self._alignments(row, first, arithmetic, under), None)
                if env is not None:
                    members.append((row, tuple(substituted(c, env) for c in row.conditions)))
                    break
            else:
                groups.append((row, [(row, row.conditions)]))
        for first, members in groups:
            if not self._cancel([(r.factor, c) for r, c in members], under):
                return False
            sides = [_totals((r.factor, c) for r, c in members if r.side == side).values() for side in (1, -1)]
            if any(not s or min(s) * max(s) < 0 for s in sides):
                self.dropped += first.atoms
        return True

    def _cancel(self, members: list[tuple[Fraction, tuple[Cond, ...]]], under: tuple[Cond, ...]) -> bool:
        """Whether the factors of the conditions that hold always add up to 0."""
        left = [(f, ("and", *conds)) for conds, f in _totals(members).items()]
        if len(left) > GUARDS:
            return False
        for chosen in itertools.product((True, False), repeat=len(left)):
            if sum(f for (f, _), on in zip(left, chosen, strict=True) if on):
                conds = [c if on else ("not", c) for (_, c), on in zip(left, chosen, strict=True)]
                if not self.facts.implies(("not", ("and", *conds)), *under):
                    return False
        return True

    # --- renaming of variables ---

    def _alignments(self, row: Row, to: Row, arithmetic: str, under: tuple[Cond, ...]) -> Iterator[dict[Any, Int]]:
        """Yield the variables of a row as integers over those of another, one for one, so that the atoms are equal."""
        if len(row.variables) != len(to.variables) or row.outline != to.outline:
            return
        own, target = [v for v, _ in row.variables], [v for v, _ in to.variables]
        inside = (*under, *to.conditions) if row.variables or to.guard else under
        for env in self._paired(row.atoms, to.atoms, {}, own):
            free = [v for v in own if v not in env]
            used = {a for i in env.values() for a in atoms(i)}
            spare = [v for v in target if v not in used]
            if len(free) > len(spare):
                continue
            whole = self._closed(env | {v: _one(w) for v, w in zip(free, spare, strict=False)})
            if not _one_to_one(whole, own, target):
                continue
            if self._all_equal([changed(a, whole) for a in row.atoms], list(to.atoms), arithmetic, inside):
                yield whole
                return

    def _closed(self, env: dict[Any, Int]) -> dict[Any, Int]:
        for _ in env:
            env = {v: substituted(i, env) for v, i in env.items()}
        return env

    def _paired(self, left: Sequence[Scalar], right: Sequence[Scalar], env: dict[Any, Int], own: Any) -> Any:
        """Yield renamings by pairing atoms of the same structure in all ways."""
        if not left:
            yield env
            return
        first = outline(left[0])
        for k, other in enumerate(right):
            if outline(other) == first:
                more = self._solved(list(indices(left[0])), list(indices(other)), env, own)
                yield from self._paired(left[1:], (*right[:k], *right[k + 1 :]), more, own)

    def _solved(self, left: list[Any], right: list[Any], env: dict[Any, Int], own: Any) -> dict[Any, Int]:
        """Return a renaming that makes indices equal, where they are linear in a variable that has none yet."""
        for i, j in zip(left, right, strict=False):
            if (isinstance(i, tuple) and i[0] != "sum") or (isinstance(j, tuple) and j[0] != "sum"):
                continue
            i = substituted(i, env)
            for v in own:
                found = linear(i, v) if v not in env else None
                if found is not None and abs(found[0]) == 1:
                    value = add(0, add(j, found[1], -1), found[0])
                    env = {w: substituted(k, {v: value}) for w, k in env.items()} | {v: value}
                    break
        return env

    def _all_equal(self, left: list[Scalar], right: list[Scalar], arithmetic: str, under: tuple[Cond, ...]) -> bool:
        for a in left:
            alike = [b for b in right if outline(b) == outline(a)]
            found = next((b for b in alike if self._equal_atoms(a, b, arithmetic, under)), None)
            if found is None:
                return False
            right.remove(found)
        return True

    def _equal_atoms(self, a: Scalar, b: Scalar, arithmetic: str, under: tuple[Cond, ...]) -> bool:
        return self._congruent(a, b, "same", under) or self._congruent(a, b, arithmetic, under)

    # --- what is not finite ---

    def hides_nothing(self, a: Scalar, b: Scalar) -> bool:
        """Whether both sides of class `reassoc` are finite for the same operands.

        An operand that canceled must be finite, or occur in another row of each side. Sums that may be empty must have
        the same operands outside."""
        unknown = {d for d in self.dropped if not self.finite(d)}
        for s in (a, b):
            if unknown:
                present = {x for r in self.rows(s, "real") if not r.variables and not r.guard for x in r.atoms}
                if not unknown <= present:
                    return False
        sums = [p for s in (a, b) for p in walk(s) if p[:2] == ("big", "Sum")]
        never_empty = all(self.holds(compare("ge", add(n, -1))) for p in sums for _, n in p[2])
        return never_empty or self._reach(a) == self._reach(b)

    def _reach(self, s: Scalar) -> frozenset[Any]:
        """Return the operands that a scalar reads, by name, with the sizes of the sums that they do not depend on."""
        found: set[tuple[str, frozenset[Int]]] = set()

        def visit(part: Scalar, around: tuple[tuple[Any, Int], ...]) -> None:
            if part[:2] == ("big", "Sum"):
                more = tuple(p for p in part[2] if not self.holds(compare("ge", add(p[1], -1))))
                visit(part[3], (*around, *more))
            elif part[0] == "ite" or (part[0] == "app" and part[1] in _STRICT):
                for p in part[2:] if part[0] == "ite" else part[3:]:
                    visit(p, around)
            elif not self.finite(part):
                used = {x for i in indices(part) for x in atoms(i)}
                found.add((skeleton(part), frozenset(n for v, n in around if v not in used)))

        visit(s, ())
        return frozenset((n, left) for n, left in found if not any(m == n and less < left for m, less in found))


def _times(rows: list[Row], factor: Any, side: int = 1) -> list[Row]:
    return [replace(r, factor=r.factor * factor, side=side) for r in rows]


def _totals(members: Iterable[tuple[Fraction, tuple[Cond, ...]]]) -> dict[frozenset[Cond], Fraction]:
    """Return the sum of the factors for each set of conditions, unless it is 0."""
    found: dict[frozenset[Cond], Fraction] = {}
    for factor, conds in members:
        key = frozenset(p for c in conds for p in conjuncts(c))
        found[key] = found.get(key, Fraction(0)) + factor
    return {conds: total for conds, total in found.items() if total}


def _lead(rows: Sequence[Row]) -> Fraction:
    return min(rows, key=lambda r: (r.outline, len(r.variables), abs(r.factor))).factor


def _one_to_one(env: Mapping[Any, Int], own: Sequence[Any], target: Sequence[Any]) -> bool:
    """Whether each variable is plus or minus another one, and else a term of those of earlier ones."""
    done: set[Any] = set()
    left = list(own)
    while left:
        for v in left:
            new = [w for w in target if w not in done and w in set(atoms(env[v]))]
            found = linear(env[v], new[0]) if len(new) == 1 else None
            if found is not None and abs(found[0]) == 1:
                done.add(new[0])
                left.remove(v)
                break
        else:
            return False
    return True
