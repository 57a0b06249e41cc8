"""Comparison of scalars by the SMT solver, for those that normal forms do not show equal.

Integers are bit-vectors, so that overflow wraps. Floats of class `exact` are IEEE 754 numbers of each format, those of
class `reassoc` real numbers with infinities and NaN (`extended`), those of class `fast` real numbers. An operator that
the theory lacks is an uninterpreted function, and so, in a first attempt, is the arithmetic of floats.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any

import z3

from ..paths import element_types
from ..paths.path import FINITE, NONNEGATIVE, NotModeled, Path, Predicate
from ..paths.tensors import Leaf, Tensor
from ..terms import extended_reals
from ..terms.extended_reals import Extended
from ..terms.laws import definition, snapped
from ..terms.scalars import Scalar, app, walk
from .normal_form import Normalizer

FORMATS = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Neg": operator.neg, "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_, "BitwiseXor": operator.xor, "BitwiseNot": operator.invert,
}  # fmt: skip
"""Operators of all theories but that of floats."""
_COMPARED = {"==": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}
_ROUNDING = {"Floor": z3.RTN, "Ceil": z3.RTP, "Round": z3.RNE}


@dataclass(frozen=True)
class Translation:
    """Translation of scalars to z3 under one choice of element types.

    `theory` is "abstract", "precise", "extended" or "real"."""

    path: Path
    given: Mapping[str, str]
    theory: str
    assumed: list[Any] = field(default_factory=list)
    reads: dict[Scalar, Any] = field(default_factory=dict)
    memo: dict[tuple[Scalar, str], Any] = field(default_factory=dict)

    def format(self, dtype: str | None) -> str:
        """Return the element type that a type stands for."""
        if dtype is None:
            raise NotModeled("a number without a type")
        name = element_types.root(self.path, dtype)
        if element_types.kinds(self.path, name) == ("bool",):
            return "bool"
        if self.theory in ("real", "extended") and element_types.kind(self.path, name) == "float":
            return self.theory
        return self.given.get(name, name)

    def sort(self, t: str) -> Any:
        """Return the sort of an element type."""
        if t in ("real", "bool"):
            return z3.RealSort() if t == "real" else z3.BoolSort()
        if t in FORMATS:
            return z3.FPSort(*FORMATS[t])
        if t in WIDTHS:
            return z3.BitVecSort(WIDTHS[t])
        raise NotModeled(f"numbers of type {t}")

    def agree(self, a: Any, b: Any, *, signed_zero: bool) -> Any:
        """Return whether two values have the same bits; all NaNs are equal."""
        if isinstance(a, Extended):
            return extended_reals.agree(a, b)
        if z3.is_fp(a) and signed_zero:
            return z3.Or(z3.fpEQ(a, b), z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)))
        return a == b  # SMT-LIB: one NaN, two zeros

    def term(self, s: Scalar, t: str) -> Any:
        """Return a scalar as a value of an element type."""
        if (s, t) not in self.memo:
            self.memo[s, t] = self._term(s, t)
        return self.memo[s, t]

    def _term(self, s: Scalar, t: str) -> Any:
        match s.op:
            case "const":
                return self._constant(s.args[0], t)
            case "read" | "flat" | "int" | "big":
                # the text of a sum or extreme leaves attributes and guards out
                name = f"big {s!r}" if s.op == "big" else f"{s.op} {s}"
                found = self._valid(extended_reals.variable(name)) if t == "extended" else z3.Const(name, self.sort(t))
                if t == "extended" and s.op == "int":
                    found = Extended(z3.IntVal(extended_reals.FINITE), found.value)
                self.reads[s] = found
                return found
            case "poly":
                return self._poly(s, t)
            case "inverse":
                return self._operator("Div", (), [self._constant(Fraction(1), t), self.term(s.args[0], t)], t)
            case "ite":
                raise NotModeled("a choice by index")
        op, attrs, *args = s.args
        if op == "Where":
            choose = extended_reals.choose if t == "extended" else z3.If
            return choose(self.term(args[0], "bool"), self.term(args[1], t), self.term(args[2], t))
        if op == "Cast":
            inner = self._inner(args)
            return self._cast(self.term(args[0], inner), inner, t)
        if op in element_types.CONVERSIONS:
            return self._anything(s, t)
        if op in element_types.TRUTH:
            inner = "bool" if op in ("And", "Or", "Xor", "Not") else self._inner(args)
            return self._truth(op, [self.term(a, inner) for a in args], inner)
        meaning = definition(op, attrs, args) if t in ("real", "extended") else None
        if meaning is not None:
            return self.term(meaning, t)
        return self._operator(op, attrs, [self._operand(a, t) for a in args], t)

    def _operand(self, a: Scalar, t: str) -> Any:
        """Return an operand as a value of the result's type; of another type, it is anything."""
        own = element_types.type_of(self.path, a)
        if own is None or self.format(own) == t:
            return self.term(a, t)
        return self._anything(a, t)

    def _anything(self, s: Scalar, t: str) -> Any:
        """Return a value about which nothing is known, the same for equal scalars."""
        return self._valid(extended_reals.variable(repr(s))) if t == "extended" else z3.Const(repr(s), self.sort(t))

    def _inner(self, args: list[Scalar]) -> str:
        found = next((t for t in (element_types.type_of(self.path, a) for a in args) if t is not None), None)
        return self.format(found)

    def _valid(self, value: Extended) -> Extended:
        self.assumed.append(value.valid)
        return value

    def _constant(self, value: Any, t: str) -> Any:
        if t == "bool":
            return z3.BoolVal(bool(value))
        if t == "real":
            if isinstance(value, str):
                raise NotModeled("an infinity among real numbers")
            return z3.RealVal(str(value))
        if t == "extended":
            return extended_reals.constant(value if isinstance(value, str) else snapped(value))
        if t in FORMATS:
            sort = self.sort(t)
            if isinstance(value, str):
                special = {"nan": z3.fpNaN(sort), "inf": z3.fpPlusInfinity(sort), "-inf": z3.fpMinusInfinity(sort)}
                return special[value]
            return z3.fpToFP(z3.RNE(), z3.RealVal(str(value)), sort)
        if isinstance(value, str) or value.denominator != 1:
            raise NotModeled("an integer that is not whole")
        return z3.BitVecVal(int(value), self.sort(t))

    def _poly(self, s: Scalar, t: str) -> Any:
        values = []
        for factor, atoms, variables, guard in s.args:
            if variables or guard is not True:
                parts = [z3.Const(f"term {atoms} {variables} {guard}", self.sort(t))]
            else:
                parts = [self.term(a, t) for a in atoms]
            if factor != 1 or not parts:
                parts.insert(0, self._constant(factor, t))
            values.append(reduce(lambda x, y: self._operator("Mul", (), [x, y], t), parts))
        if not values:
            return self._constant(Fraction(0), t)
        return reduce(lambda x, y: self._operator("Add", (), [x, y], t), values)

    def _function(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        name = f"{op} {attrs} {[str(a.sort()) for a in args]} {t}"
        if op in ("Add", "Mul"):
            args = sorted(args, key=z3.AstRef.sexpr)
        return z3.Function(name, *(a.sort() for a in args), self.sort(t))(*args)

    def _truth(self, op: str, args: list[Any], t: str) -> Any:
        if op in ("And", "Or", "Xor", "Not"):
            return getattr(z3, op)(*args)
        a, b = (*args, None)[:2]
        match op:
            case "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual":
                return self.order(op, a, b, t)
            case "Equal" if isinstance(a, Extended):
                return z3.And(extended_reals.less(a, b, equal=True), extended_reals.less(b, a, equal=True))
            case "Equal":
                return z3.fpEQ(a, b) if z3.is_fp(a) else a == b
            case "IsNaN" if isinstance(a, Extended):
                return a.tag == extended_reals.NAN
            case "IsNaN":
                return z3.fpIsNaN(a) if z3.is_fp(a) else z3.BoolVal(False)
        if isinstance(a, Extended):
            raise NotModeled(op)
        return self._function(op, (), args, "bool")

    def order(self, op: str, a: Any, b: Any, t: str) -> Any:
        """Return a comparison of two values of an element type."""
        if op in ("Greater", "GreaterOrEqual"):
            return self.order(op.replace("Greater", "Less"), b, a, t)
        strict = op == "Less"
        if isinstance(a, Extended):
            return extended_reals.less(a, b, equal=not strict)
        if z3.is_fp(a):
            return z3.fpLT(a, b) if strict else z3.fpLEQ(a, b)
        if t.startswith("u"):
            return z3.ULT(a, b) if strict else z3.ULE(a, b)
        return a < b if strict else a <= b

    def _operator(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        if op in ("Max", "Min"):
            return reduce(lambda x, y: self._extreme(op, x, y, t), args)
        if op == "Relu":  # of -0 it may be either zero, and not always the one that Max returns
            return self._extreme("Relu", args[0], self._constant(Fraction(0), t), t)
        if t in FORMATS:
            return self._float(op, attrs, args, t)
        if op in _OPERATIONS and t != "bool":
            return _OPERATIONS[op](*args)
        if op == "Sum" and t != "bool":
            return reduce(operator.add, args)
        if t == "real":
            return self._real(op, attrs, args)
        if t == "extended":
            return self._extended(op, attrs, args)
        return self._integer(op, attrs, args, t) if t in WIDTHS else self._function(op, attrs, args, t)

    def _extreme(self, op: str, a: Any, b: Any, t: str) -> Any:
        """Return the greater or lesser; NaN if one is; which of two zeros is unspecified."""
        if isinstance(a, Extended):
            return extended_reals.extreme(a, b, greatest=op != "Min")
        first, second = (self.order(o, a, b, t) for o in (("Less", "Greater") if op == "Min" else ("Greater", "Less")))
        if not z3.is_fp(a):
            return z3.If(first, a, b)
        tie = self._function(f"tie {op}", (), sorted([a, b], key=z3.AstRef.sexpr), t)
        self.assumed.append(z3.Or(tie == a, tie == b))
        nan = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
        return z3.If(nan, z3.fpNaN(a.sort()), z3.If(first, a, z3.If(second, b, z3.If(a == b, a, tie))))

    def _float(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        a, zero = args[0], z3.fpPlusZero(self.sort(t))
        match op:
            case "Neg":
                return z3.fpNeg(a)
            case "Abs":
                return z3.fpAbs(a)
            case "Sign":
                one = z3.FPVal(1, self.sort(t))
                tie = self._function("sign of a zero", (), [a], t)
                self.assumed.append(z3.fpIsZero(tie))
                number = z3.If(z3.fpGT(a, zero), one, z3.If(z3.fpLT(a, zero), z3.fpNeg(one), tie))
                return z3.If(z3.fpIsNaN(a), a, number)
            case "Floor" | "Ceil" | "Round":
                return z3.fpRoundToIntegral(_ROUNDING[op](), a)
            case "LeakyRelu" | "PRelu":
                slope = args[1] if op == "PRelu" else self.term(dict(attrs)["alpha"], t)
                return z3.If(z3.fpLT(a, zero), self._operator("Mul", (), [a, slope], t), a)
        if self.theory == "precise" and op in ("Add", "Sub", "Mul", "Div", "Sqrt"):
            return getattr(z3, f"fp{op}")(z3.RNE(), *args)
        return self._function(op, _named(attrs), args, t)

    def _real(self, op: str, attrs: Any, args: list[Any]) -> Any:
        a = args[0]
        match op:
            case "Abs":
                return z3.If(a >= 0, a, -a)
            case "Div":
                return z3.If(args[1] == 0, self._function("Div by 0", (), args, "real"), a / args[1])
            case "Sqrt":
                found = self._function("Sqrt", (), args, "real")
                self.assumed.append(z3.Implies(a >= 0, z3.And(found >= 0, found * found == a)))
                return found
        return self._function(op, _named(attrs), args, "real")

    def _extended(self, op: str, attrs: Any, args: list[Extended]) -> Extended:
        a, zero = args[0], extended_reals.constant(Fraction(0))
        match op:
            case "Div" | "Reciprocal":
                inverse, assumed = args[-1].inverse()
                self.assumed.append(assumed)
                return a * inverse if op == "Div" else inverse
            case "Abs":
                return extended_reals.choose(extended_reals.less(a, zero, equal=False), -a, a)
            case "Pow":
                raise NotModeled("powers")
        return self._valid(extended_reals.applied(f"{op} {_named(attrs)}", args))

    def _integer(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        a, signed = args[0], t.startswith("i")
        zero = z3.BitVecVal(0, a.sort())
        match op:
            case "Abs":
                return z3.If(a < 0, -a, a) if signed else a
            case "Sign":
                one = z3.BitVecVal(1, a.sort())
                return z3.If(a == 0, zero, z3.If(z3.And(signed, a < 0), -one, one))
            case "Div" | "Mod":  # quotients truncate; a division by 0 is unspecified
                b = args[1]
                if op == "Div":
                    found = a / b if signed else z3.UDiv(a, b)
                else:
                    found = z3.URem(a, b) if not signed else z3.SRem(a, b) if dict(attrs)["fmod"] else a % b
                return z3.If(b == 0, self._function(f"{op} by 0", (), args, t), found)
        return self._function(op, _named(attrs), args, t)

    def _cast(self, a: Any, source: str, t: str) -> Any:
        if source == t:
            return a
        if t == "bool":
            return z3.Not(z3.fpIsZero(a)) if source in FORMATS else a != 0
        if source == "bool":
            return z3.If(a, self._constant(Fraction(1), t), self._constant(Fraction(0), t))
        if source in FORMATS and t in FORMATS:
            return z3.fpToFP(z3.RNE(), a, self.sort(t))
        if source in WIDTHS and t in WIDTHS:
            more = WIDTHS[t] - WIDTHS[source]
            if more <= 0:
                return z3.Extract(WIDTHS[t] - 1, 0, a)
            return z3.SignExt(more, a) if source.startswith("i") else z3.ZeroExt(more, a)
        if source in WIDTHS and t in FORMATS:
            convert = z3.fpSignedToFP if source.startswith("i") else z3.fpUnsignedToFP
            return convert(z3.RNE(), a, self.sort(t))
        return self._function(f"Cast {source}", (), [a], t)

    # --- facts ---

    def facts(self) -> Iterator[Any]:
        """Yield the conditions on the elements that were read."""
        for p in self.path.predicates:
            with suppress(NotModeled):
                yield from self._fact(p)

    def _fact(self, p: Predicate) -> Iterator[Any]:
        if p.op == FINITE and isinstance(p.left, Leaf):
            for s in [s for s in self.reads if s.op in ("read", "flat") and s.args[0] == p.left.name]:
                found = self.reads[s]
                if isinstance(found, Extended):
                    yield found.tag == extended_reals.FINITE
                elif z3.is_fp(found):
                    yield z3.Not(z3.Or(z3.fpIsNaN(found), z3.fpIsInf(found)))
        if p.op == NONNEGATIVE and isinstance(p.left, Leaf):
            for s in [s for s in self.reads if s.op in ("read", "flat") and s.args[0] == p.left.name]:
                found = self.reads[s]
                zero = self._constant(Fraction(0), self.format(element_types.type_of(self.path, s)))
                yield z3.Not(self.order("Less", found, zero, self.format(element_types.type_of(self.path, s))))
        right = self._element(p.right)
        if p.op not in _COMPARED or right is None:
            return
        if isinstance(p.left, Leaf):
            lefts = [s for s in self.reads if s.op in ("read", "flat") and s.args[0] == p.left.name]
        else:
            lefts = [s for s in [self._element(p.left)] if s is not None]
        for left in lefts:
            yield self.term(app(_COMPARED[p.op], left, right), "bool")

    def _element(self, side: Any) -> Scalar | None:
        """Return the scalar that a side of a predicate stands for, if there is only one."""
        found = side.at([]) if isinstance(side, Tensor) and self.path.pointwise else side
        return found if isinstance(found, Scalar) else None


def _named(attrs: Any) -> str:
    return str([(k, str(v)) for k, v in attrs])


# --- questions ---

STEPS = 2_500_000
"""Solver steps for one question."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Numerics class of a rule (`exact`, `reassoc` or `fast`), and whether it may change the sign of a zero."""

    numerics: str
    signed_zero: bool


def decided(path: Path, sides: tuple[Scalar, Scalar], normal: tuple[Scalar, Scalar], claim: Claim, dtype: str) -> str:
    """Return the theory in which the solver shows two scalars equal; empty if there is none."""
    kind = element_types.kind(path, dtype)
    if kind == "float" and claim.numerics == "fast":
        return "real numbers" if _equal(path, normal, claim, {}, dtype, "real") else ""
    if kind == "float" and claim.numerics == "exact":
        sides = normal
    elif kind == "float":
        if _equal(path, sides, claim, {}, dtype, "extended"):
            return "real numbers, infinities and NaN"
        ieee = Normalizer(path, ring=False, integer=False, fast=False, signed_zero=True)  # this one drops no term
        sides = (ieee.normal(sides[0]), ieee.normal(sides[1]))
    elif not any(s.op == "poly" for n in normal for s in walk(n)):
        sides = normal
    for theory in ("abstract", "precise") if kind == "float" else ("precise",):
        if all(_equal(path, sides, claim, given, dtype, theory) for given in _assignments(path, sides, dtype)):
            return "IEEE 754 numbers" if kind == "float" else "bit-vectors" if kind != "bool" else "truth values"
    return ""


def _assignments(path: Path, sides: tuple[Scalar, Scalar], dtype: str) -> Iterator[dict[str, str]]:
    """Yield every assignment of formats to the type variables in the scalars."""
    types = {dtype, *(element_types.type_of(path, part) for s in sides for part in walk(s))}
    names = sorted({element_types.root(path, t) for t in types if t is not None} - element_types.KINDS.keys())
    options = [element_types.of_kind(element_types.kind(path, t)) for t in names]
    for count, choice in enumerate(itertools.product(*options)):
        if count > 16:
            raise NotModeled("too many element types")
        yield dict(zip(names, choice, strict=True))


def _equal(
    path: Path, sides: tuple[Scalar, Scalar], claim: Claim, given: Mapping[str, str], dtype: str, theory: str
) -> bool:
    path.tick()
    translation = Translation(path, given, theory)
    try:
        wanted = translation.format(dtype)
        a, b = (translation.term(s, wanted) for s in sides)
        facts = list(translation.facts())
        solver = z3.Solver()
        solver.set("rlimit", path.meter.solver_steps(STEPS))
        solver.set("random_seed", 7)
        solver.add(*facts, *translation.assumed)
        loose = claim.signed_zero or claim.numerics != "exact"
        solver.add(z3.Not(translation.agree(a, b, signed_zero=loose)))
        verdict = solver.check()
        path.meter.solved(solver)
        return bool(verdict == z3.unsat)
    except (NotModeled, z3.Z3Exception):
        return False
