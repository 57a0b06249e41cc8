"""Scalars of a case: prepared for comparison, with their element types and signs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from .certificate import Case, Cond, Int, Scalar
from .facts import Facts, add, multiply, replace

KINDS = {
    **dict.fromkeys(("f32", "f16", "bf16", "f64"), "float"), **dict.fromkeys(("i8", "i16", "i32", "i64"), "int"),
    **dict.fromkeys(("u8", "u16", "u32", "u64"), "uint"), "bool": "bool",
}  # fmt: skip
TRUTH = frozenset((
    "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
))  # fmt: skip
CONVERSIONS = frozenset(("Cast", "DequantizeLinear", "QuantizeLinear", "index of"))


def app(op: str, *args: Scalar, attrs: Any = ()) -> Scalar:
    """Return the application of an operator."""
    return ("app", op, attrs, *args)


def number(s: Scalar) -> Fraction | None:
    """Return the number that a scalar is; None for others, infinities and NaN."""
    if s[0] == "const" and s[1] not in ("inf", "-inf", "nan"):
        return Fraction(s[1])
    found = number(s[3]) if s[:2] == ("app", "Neg") else None
    return None if found is None else -found


def parts(s: Scalar) -> tuple[Scalar, ...]:
    """Return the scalars directly below."""
    return s[3:] if s[0] in ("app", "big") else s[2:] if s[0] == "ite" else s[1:] if s[0] == "inverse" else ()


def walk(s: Scalar) -> Iterator[Scalar]:
    """Yield a scalar and all below it."""
    yield s
    for part in parts(s):
        yield from walk(part)


def indices(s: Scalar) -> Iterator[Any]:
    """Yield the integers and conditions in a scalar."""
    for part in walk(s):
        match part:
            case ("read" | "flat", _, *places):
                yield from places
            case ("int", value):
                yield value
            case ("ite", cond, _, _):
                yield cond
            case ("big", _, listed, _):
                yield from (size for _, size in listed)


def changed(s: Scalar, env: Mapping[Any, Int]) -> Scalar:
    """Return a scalar with atoms of its integers replaced, other than the variables that it binds."""
    match s:
        case ("read" | "flat", name, *places):
            return (s[0], name, *(replace(i, env) for i in places))
        case ("int", value):
            found = replace(value, env)
            return ("const", str(found)) if isinstance(found, int) else ("int", found)
        case ("app", op, attrs, *args):
            return ("app", op, attrs, *(changed(a, env) for a in args))
        case ("ite", cond, a, b):
            return ("ite", replace(cond, env), changed(a, env), changed(b, env))
        case ("big", op, listed, body):
            return ("big", op, tuple((v, replace(n, env)) for v, n in listed), changed(body, env))
        case ("inverse", inner):
            return ("inverse", changed(inner, env))
    return s


def skeleton(s: Scalar) -> str:
    """Return the text of a scalar without its indices."""
    if s[0] in ("read", "flat", "const"):
        return str(s[1])
    return f"{s[0]} {s[1] if s[0] in ('app', 'big') else ''}({' '.join(map(skeleton, parts(s)))})"


def outline(s: Scalar) -> str:
    """Return what a scalar has in common with all that may equal it as an atom: its operator and what it reads."""
    if s[0] in ("read", "flat", "const"):
        return str(s[1])
    names = sorted({p[1] for p in walk(s) if p[0] in ("read", "flat")})
    return f"{s[0]} {s[1] if s[0] in ('app', 'big') else ''}({' '.join(names)})"


class Scalars:
    """The scalars of a case, under its facts."""

    def __init__(self, case: Case, facts: Facts) -> None:
        self.case = case
        self.facts = facts
        self._count = itertools.count()

    # --- preparation ---

    def prepared(self, *sides: Scalar) -> list[Scalar]:
        """Return scalars with all that the facts define: contents, splits, and positions for indices."""
        found = [self._known(s) for s in sides]
        flat = {p[1] for s in found for p in walk(s) if p[0] == "flat"}
        return [self._by_position(s, flat) for s in found]

    def _known(self, s: Scalar) -> Scalar:
        env = self.facts.defined
        match s:
            case ("read" | "flat", name, *places):
                if name in self.case.contents:
                    return self._known(self.case.contents[name])
                if s[0] == "read" and name in self.case.integers:
                    return changed(("int", ("sum", (1, (("data", name, *places),)))), env)
            case ("const", text) if text.startswith("-"):
                return app("Neg", ("const", text[1:]))
            case ("app", op, attrs, *args):
                named = tuple((k, self._known(v) if isinstance(v, tuple) and v else v) for k, v in attrs)
                return ("app", op, named, *map(self._known, args))
            case ("ite", cond, a, b):
                chosen = replace(cond, env)
                if isinstance(chosen, bool):
                    return self._known(a if chosen else b)
                return ("ite", chosen, self._known(a), self._known(b))
            case ("big", op, listed, body):
                pairs = tuple((v, replace(n, env)) for pair in listed for v, n in self._split(pair))
                return ("big", op, pairs, self._known(body))
        return changed(s, env)

    def _split(self, pair: tuple[Any, Int]) -> Iterator[tuple[Any, Int]]:
        if pair[0] not in self.facts.split:
            yield pair
            return
        for part in self.facts.split[pair[0]]:
            if part[0] is not None:
                yield from self._split(part)

    def _by_position(self, s: Scalar, flat: set[str]) -> Scalar:
        match s:
            case ("read", name, *places) if name in flat:
                position: Int = 0
                for i, size in zip(places, self.case.shapes[name], strict=True):
                    position = add(multiply(position, replace(size, self.facts.defined)), i)
                return ("flat", name, position)
            case ("app" | "ite" | "big", *_):
                below = parts(s)
                return (*s[: len(s) - len(below)], *(self._by_position(p, flat) for p in below))
        return s

    def opened(self, listed: Any, body: Scalar) -> tuple[tuple[tuple[Any, Int], ...], Scalar]:
        """Return index variables under new names, and the body with them."""
        env: dict[Any, Int] = {}
        pairs = []
        for v, size in listed:
            new = ("var", f"!{next(self._count)}")
            pairs.append((new, replace(size, env)))
            env[v] = ("sum", (1, (new,)))
        return tuple(pairs), changed(body, env)

    # --- element types ---

    def type_of(self, s: Scalar) -> str | None:
        """Return the type of a scalar; None for a number, which takes the type of its context."""
        match s:
            case ("read" | "flat", name, *_):
                return self.case.types.get(name)
            case ("app", op, attrs, *args):
                if op in TRUTH:
                    return "bool"
                if op in CONVERSIONS:
                    return str(dict(attrs)["to"])
                if op.startswith("op "):
                    return self.case.types[op]
                typed = args[:1] if op == "Pow" else args[1:] if op == "Where" else args
                return next((t for t in map(self.type_of, typed) if t is not None), None)
        return next((t for t in map(self.type_of, parts(s)) if t is not None), None)

    def kinds(self, dtype: str) -> tuple[str, ...]:
        """Return the kinds that a type may be of."""
        if dtype in KINDS:
            return (KINDS[dtype],)
        return self.case.kinds.get(dtype, ("float", "int", "uint", "bool"))

    def regime(self, s: Scalar, outer: str) -> str:
        """Return the arithmetic of an operand that is compared, converted or passed to an unknown function."""
        dtype = self.type_of(s)
        if dtype is None:
            return outer
        kinds = self.kinds(dtype)
        return "ring" if set(kinds) <= {"int", "uint"} else "bits"

    # --- what is known of values ---

    def compared(self, s: Scalar) -> list[tuple[str, Scalar]]:
        """Return the comparisons that hold for all elements of what a scalar reads."""
        if s[0] not in ("read", "flat"):
            return [(op, b) for op, a, b in self.case.elements if a == s and isinstance(b, tuple)]
        return [(op, b) for op, a, b in self.case.elements if a in (s[1], s) and isinstance(b, tuple)]

    def finite(self, s: Scalar) -> bool:
        """Whether a scalar is a finite number, overflow aside."""
        ops = {op for op, b in self.compared(s) if op == "finite" or number(b) is not None}
        if s[0] == "int" or number(s) is not None or "finite" in ops or (ops & {"<", "<="} and ops & {">", ">="}):
            return True
        strict = s[:1] == ("app",) and s[1] in ("Add", "Sub", "Mul", "Neg", "Abs", "Sum")
        return (strict or s[:2] == ("big", "Sum")) and all(map(self.finite, parts(s)))

    def positive(self, s: Scalar) -> bool:
        """Whether a scalar is positive or NaN."""
        value = number(s)
        if value is not None:
            return value > 0
        if s[0] == "app":
            return s[1] in ("Exp", "Sigmoid") or (s[1] in ("Add", "Mul", "Div") and all(map(self.positive, s[3:])))
        return (s[0] == "inverse" or s[:2] == ("big", "Sum")) and all(map(self.positive, parts(s)))

    def never_negative(self, s: Scalar) -> bool:
        """Whether a scalar is never negative or -∞; it may be NaN or a zero of either sign."""
        value = number(s)
        if value is not None or s[0] == "const":
            return value is None or value >= 0
        if s[0] in ("read", "flat"):
            return any(op == "nonnegative" for op, _ in self.compared(s))
        if s[0] == "app":
            always = s[1] in ("Abs", "Relu", "Exp", "Sigmoid", "Sqrt", "Softplus") or (s[1] == "Mul" and s[3] == s[4])
            keeps = s[1] in ("Add", "Sum", "Mul", "Mean", "Max", "Min") and all(map(self.never_negative, s[3:]))
            return always or keeps
        return s[0] == "big" and s[1] in ("Sum", "Max", "Min") and self.never_negative(s[3])

    def holds(self, *conds: Cond) -> bool:
        """Whether the facts imply conditions."""
        return all(map(self.facts.implies, conds))
