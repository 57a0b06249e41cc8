"""Scalars as terms of z3: what normal forms do not show equal, its theories of numbers may.

Integers are bit-vectors of each width, so that overflow wraps as it does; floats of class `exact` are IEEE 754
numbers of each format, NaN and infinities included; of class `reassoc` real numbers with infinities and NaN
(`extended`); of class `fast` real numbers. An operator that the theory
does not have is an uninterpreted function, and so are, at first, the arithmetic operators of floats. What is proved
holds for any such function.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from . import extended, types
from .extended import Extended
from .laws import definition, snapped
from .normal import Normaliser
from .path import NotModelled, Path
from .run_types import Predicate
from .scalars import Scalar, app, walk
from .tensors import Leaf, Tensor

if TYPE_CHECKING:
    from .equality import Claim

STEPS = 2_500_000
"""What the solver may spend on one question, in its own steps."""
FORMATS = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
WIDTHS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
OF_KIND = {
    "float": ("f32", "f16", "bf16", "f64"), "int": ("i8", "i16", "i32", "i64"), "uint": ("u8", "u16", "u32", "u64"),
    "bool": ("bool",),
}  # fmt: skip


def decided(path: Path, sides: tuple[Scalar, Scalar], normal: tuple[Scalar, Scalar], claim: Claim, dtype: str) -> str:
    """How two scalars were found equal by the solver; empty if they were not."""
    kind = types.kind(path, dtype)
    if kind == "float" and claim.numerics == "fast":
        return "real numbers" if _equal(path, normal, claim, {}, dtype, "real") else ""
    if kind == "float" and claim.numerics == "exact":
        sides = normal
    elif kind == "float":
        if _equal(path, sides, claim, {}, dtype, "extended"):
            return "real numbers, infinities and NaN"
        ieee = Normaliser(path, ring=False, integer=False, fast=False, signed_zero=True)  # which drops nothing
        sides = (ieee.normal(sides[0]), ieee.normal(sides[1]))
    elif not any(s.op == "poly" for n in normal for s in walk(n)):
        sides = normal
    for theory in ("abstract", "precise") if kind == "float" else ("precise",):
        if all(_equal(path, sides, claim, given, dtype, theory) for given in _assignments(path, sides, dtype)):
            return "IEEE 754 numbers" if kind == "float" else "bit-vectors" if kind != "bool" else "truth values"
    return ""


def _assignments(path: Path, sides: tuple[Scalar, Scalar], dtype: str) -> Iterator[dict[str, str]]:
    """Every way to give a format to the types that stand in the scalars."""
    found = {types.root(path, dtype)}
    for s in sides:
        for part in walk(s):
            t = types.type_of(path, part)
            if t is not None:
                found.add(types.root(path, t))
    names = sorted(t for t in found if t not in types.KINDS)
    for t in names:
        types.kind(path, t)
    options = [OF_KIND[types.kind(path, t)] for t in names]
    for count, choice in enumerate(itertools.product(*options)):
        if count > 16:
            raise NotModelled("too many element types")
        yield dict(zip(names, choice, strict=True))


def _equal(
    path: Path, sides: tuple[Scalar, Scalar], claim: Claim, given: Mapping[str, str], dtype: str, theory: str
) -> bool:
    import z3

    path.tick()
    translation = Translation(path, given, theory)
    try:
        wanted = translation.format(dtype)
        a, b = (translation.term(s, wanted) for s in sides)
        facts = list(translation.facts())
        solver = z3.Solver()
        solver.set("rlimit", STEPS)
        solver.set("random_seed", 7)
        solver.add(*facts, *translation.assumed)
        loose = claim.signed_zero or claim.numerics != "exact"
        solver.add(z3.Not(translation.agree(a, b, signed_zero=loose)))
        verdict = solver.check()
        path.meter.solved(solver)
        return bool(verdict == z3.unsat)
    except (NotModelled, z3.Z3Exception):
        return False


class Translation:
    """Scalars as terms under one choice of element types. `theory` is "abstract", "precise" or "real"."""

    def __init__(self, path: Path, given: Mapping[str, str], theory: str) -> None:
        self.path = path
        self.given = given
        self.theory = theory
        self.assumed: list[Any] = []
        self.reads: dict[Scalar, Any] = {}
        self.memo: dict[tuple[Scalar, str], Any] = {}

    def format(self, dtype: str | None) -> str:
        """The element type that a type stands for."""
        if dtype is None:
            raise NotModelled("a number of no type")
        name = types.root(self.path, dtype)
        if self.theory in ("real", "extended") and types.kind(self.path, name) == "float":
            return self.theory
        return self.given.get(name, name)

    def sort(self, t: str) -> Any:
        """The sort of an element type."""
        import z3

        if t == "real":
            return z3.RealSort()
        if t == "bool":
            return z3.BoolSort()
        if t in FORMATS:
            return z3.FPSort(*FORMATS[t])
        if t in WIDTHS:
            return z3.BitVecSort(WIDTHS[t])
        raise NotModelled(f"numbers of type {t}")

    def agree(self, a: Any, b: Any, *, signed_zero: bool) -> Any:
        """That two values are the same bits, NaN as good as NaN."""
        import z3

        if isinstance(a, Extended):
            return extended.agree(a, b)
        if z3.is_fp(a):
            if signed_zero:
                return z3.Or(z3.fpEQ(a, b), z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)))
            return a == b  # SMT-LIB: one NaN, two zeros
        return a == b

    def term(self, s: Scalar, t: str) -> Any:
        """A scalar as a value of an element type."""
        key = (s, t)
        if key not in self.memo:
            self.memo[key] = self._term(s, t)
        return self.memo[key]

    def _term(self, s: Scalar, t: str) -> Any:
        import z3

        match s.op:
            case "const":
                return self._constant(s.args[0], t)
            case "read" | "flat" | "int" | "big" if t == "extended":
                unknown, assumed = extended.variable(f"{s.op} {s}")
                if s.op == "int":
                    unknown = extended.finite(unknown.value)
                self.assumed.append(assumed)
                self.reads[s] = unknown
                return unknown
            case "read" | "flat" | "int" | "big":
                found = z3.Const(f"{s.op} {s}", self.sort(t))
                self.reads[s] = found
                return found
            case "poly":
                return self._poly(s, t)
            case "inverse":
                return self._operator("Div", (), [self._constant(Fraction(1), t), self.term(s.args[0], t)], t)
            case "ite":
                raise NotModelled("a choice by index")
        op, attrs, *args = s.args
        if op == "Where" and t == "extended":
            return extended.choose(self.term(args[0], "bool"), self.term(args[1], t), self.term(args[2], t))
        if op == "Where":
            return z3.If(self.term(args[0], "bool"), self.term(args[1], t), self.term(args[2], t))
        if op == "Cast":
            inner = self._inner(args, None)
            return self._cast(self.term(args[0], inner), inner, t)
        if op in types.TRUTH:
            inner = "bool" if op in ("And", "Or", "Xor", "Not") else self._inner(args, None)
            return self._truth(op, [self.term(a, inner) for a in args])
        meaning = definition(op, attrs, args) if t in ("real", "extended") else None
        if meaning is not None:
            return self.term(meaning, t)
        return self._operator(op, attrs, [self.term(a, t) for a in args], t)

    def _inner(self, args: list[Scalar], fallback: str | None) -> str:
        for a in args:
            t = types.type_of(self.path, a)
            if t is not None:
                return self.format(t)
        if fallback is None:
            raise NotModelled("numbers of no type")
        return fallback

    def _constant(self, value: Any, t: str) -> Any:
        import z3

        if t == "bool":
            return z3.BoolVal(bool(value))
        if t == "real":
            if isinstance(value, str):
                raise NotModelled("an infinity among real numbers")
            return z3.RealVal(str(value))
        if t == "extended":
            return extended.constant(value if isinstance(value, str) else snapped(value))
        if t in FORMATS:
            sort = self.sort(t)
            if isinstance(value, str):
                special = {"nan": z3.fpNaN(sort), "inf": z3.fpPlusInfinity(sort), "-inf": z3.fpMinusInfinity(sort)}
                return special[value]
            return z3.fpToFP(z3.RNE(), z3.RealVal(str(value)), sort)
        if isinstance(value, str) or value.denominator != 1:
            raise NotModelled("an integer that is none")
        return z3.BitVecVal(int(value), self.sort(t))

    def _poly(self, s: Scalar, t: str) -> Any:
        import z3

        total = None
        for factor, atoms, variables, guard in s.args:
            if variables or guard is not True:
                value = z3.Const(f"term {atoms} {variables} {guard}", self.sort(t))
                parts = [value]
            else:
                parts = [self.term(a, t) for a in atoms]
            if factor != 1 or not parts:
                parts.insert(0, self._constant(factor, t))
            value = parts[0]
            for p in parts[1:]:
                value = self._operator("Mul", (), [value, p], t)
            total = value if total is None else self._operator("Add", (), [total, value], t)
        return self._constant(Fraction(0), t) if total is None else total

    def _function(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        import z3

        name = f"{op} {attrs} {[str(a.sort()) for a in args]} {t}"
        if op in ("Add", "Mul"):
            args = sorted(args, key=str)
        return z3.Function(name, *(a.sort() for a in args), self.sort(t))(*args)

    def _truth(self, op: str, args: list[Any]) -> Any:
        import z3

        a = args[0]
        b = args[1] if len(args) > 1 else None
        if isinstance(a, Extended):
            return self._truth_of_extended(op, a, b)
        match op:
            case "And":
                return z3.And(a, b)
            case "Or":
                return z3.Or(a, b)
            case "Xor":
                return z3.Xor(a, b)
            case "Not":
                return z3.Not(a)
            case "Equal":
                return z3.fpEQ(a, b) if z3.is_fp(a) else a == b
            case "IsNaN":
                return z3.fpIsNaN(a) if z3.is_fp(a) else z3.BoolVal(False)
            case "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual":
                return self.order(op, a, b)
        return self._function(op, (), args, "bool")

    def _truth_of_extended(self, op: str, a: Extended, b: Any) -> Any:
        import z3

        match op:
            case "Less" | "LessOrEqual":
                return extended.less(a, b, equal=op == "LessOrEqual")
            case "Greater" | "GreaterOrEqual":
                return extended.less(b, a, equal=op == "GreaterOrEqual")
            case "Equal":
                return z3.And(extended.less(a, b, equal=True), extended.less(b, a, equal=True))
            case "IsNaN":
                return a.tag == extended.NAN
        raise NotModelled(op)

    def order(self, op: str, a: Any, b: Any) -> Any:
        """A comparison."""
        import z3

        if op in ("Greater", "GreaterOrEqual"):
            a, b, op = b, a, op.replace("Greater", "Less")
        strict = op == "Less"
        if z3.is_fp(a):
            return z3.fpLT(a, b) if strict else z3.fpLEQ(a, b)
        if z3.is_bv(a) and self.unsigned(a):
            return z3.ULT(a, b) if strict else z3.ULE(a, b)
        return a < b if strict else a <= b

    def unsigned(self, a: Any) -> bool:
        """Whether integers of this width are unsigned; all of one proof are, or none."""
        return any(v.startswith("u") for v in self.given.values()) and not any(
            v.startswith("i") for v in self.given.values()
        )

    def _operator(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        if t in FORMATS:
            return self._float(op, attrs, args, t)
        if t == "real":
            return self._real(op, attrs, args)
        if t == "extended":
            return self._extended(op, attrs, args)
        if t in WIDTHS:
            mixed = any(v.startswith("u") for v in self.given.values()) and any(
                v.startswith("i") for v in self.given.values()
            )
            if mixed:
                raise NotModelled("signed and unsigned integers together")
            return self._integer(op, attrs, args, t)
        return self._function(op, attrs, args, t)

    def _extreme(self, op: str, a: Any, b: Any, t: str) -> Any:
        """The greater or lesser; NaN if one is; which of two zeros is not said."""
        import z3

        first, second = (self.order("Greater", a, b), self.order("Less", a, b))
        if op == "Min":
            first, second = second, first
        if not z3.is_fp(a):
            return z3.If(first, a, b)
        tie = self._function(f"tie {op}", (), sorted([a, b], key=str), t)
        self.assumed.append(z3.Or(tie == a, tie == b))
        nan = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
        return z3.If(nan, z3.fpNaN(a.sort()), z3.If(first, a, z3.If(second, b, z3.If(a == b, a, tie))))

    def _float(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        import z3

        a = args[0]
        b = args[1] if len(args) > 1 else None
        zero = z3.fpPlusZero(self.sort(t))
        mode = z3.RNE()
        match op:
            case "Neg":
                return z3.fpNeg(a)
            case "Abs":
                return z3.fpAbs(a)
            case "Max" | "Min":
                total = a
                for other in args[1:]:
                    total = self._extreme(op, total, other, t)
                return total
            case "Relu":  # of -0 it may be either zero, not always the one that Max gives
                return self._extreme("Relu", a, zero, t)
            case "Sign":
                one = z3.FPVal(1, self.sort(t))
                tie = self._function("sign of a zero", (), [a], t)
                self.assumed.append(z3.fpIsZero(tie))
                return z3.If(
                    z3.fpIsNaN(a), a, z3.If(z3.fpGT(a, zero), one, z3.If(z3.fpLT(a, zero), z3.fpNeg(one), tie))
                )
            case "Floor":
                return z3.fpRoundToIntegral(z3.RTN(), a)
            case "Ceil":
                return z3.fpRoundToIntegral(z3.RTP(), a)
            case "Round":
                return z3.fpRoundToIntegral(mode, a)
            case "LeakyRelu" | "PRelu":
                slope = b if op == "PRelu" else self.term(dict(attrs)["alpha"], t)
                return z3.If(z3.fpLT(a, zero), self._operator("Mul", (), [a, slope], t), a)
        if self.theory == "precise":
            match op:
                case "Add":
                    return z3.fpAdd(mode, a, b)
                case "Sub":
                    return z3.fpSub(mode, a, b)
                case "Mul":
                    return z3.fpMul(mode, a, b)
                case "Div":
                    return z3.fpDiv(mode, a, b)
                case "Sqrt":
                    return z3.fpSqrt(mode, a)
        return self._function(op, _named(attrs), args, t)

    def _real(self, op: str, attrs: Any, args: list[Any]) -> Any:
        import z3

        a = args[0]
        b = args[1] if len(args) > 1 else None
        match op:
            case "Add":
                return a + b
            case "Sub":
                return a - b
            case "Mul":
                return a * b
            case "Neg":
                return -a
            case "Abs":
                return z3.If(a >= 0, a, -a)
            case "Relu":
                return z3.If(a > 0, a, z3.RealVal(0))
            case "Div":
                return z3.If(b == 0, self._function("Div by 0", (), args, "real"), a / b)
            case "Max" | "Min":
                total = a
                for other in args[1:]:
                    first = total >= other if op == "Max" else total <= other
                    total = z3.If(first, total, other)
                return total
            case "LeakyRelu" | "PRelu":
                slope = b if op == "PRelu" else self.term(dict(attrs)["alpha"], "real")
                return z3.If(a < 0, a * slope, a)
            case "Sqrt":
                found = self._function("Sqrt", (), args, "real")
                self.assumed.append(z3.Implies(a >= 0, z3.And(found >= 0, found * found == a)))
                return found
        return self._function(op, _named(attrs), args, "real")

    def _extended(self, op: str, attrs: Any, args: list[Extended]) -> Extended:
        a = args[0]
        b = args[1] if len(args) > 1 else a
        match op:
            case "Add" | "Sum":
                total = a
                for other in args[1:]:
                    total = extended.add(total, other)
                return total
            case "Sub":
                return extended.add(a, extended.negative(b))
            case "Neg":
                return extended.negative(a)
            case "Mul":
                return extended.multiply(a, b)
            case "Div" | "Reciprocal":
                inverse, assumed = extended.inverse(b if op == "Div" else a)
                self.assumed.append(assumed)
                return extended.multiply(a, inverse) if op == "Div" else inverse
            case "Abs":
                return extended.choose(
                    extended.less(a, extended.constant(Fraction(0)), equal=False), extended.negative(a), a
                )
            case "Max" | "Min":
                total = a
                for other in args[1:]:
                    total = extended.extreme(total, other, greatest=op == "Max")
                return total
            case "Relu":
                return extended.extreme(a, extended.constant(Fraction(0)), greatest=True)
        if op == "Pow":
            raise NotModelled("powers")
        found = extended.applied(f"{op} {_named(attrs)}", args)
        import z3

        self.assumed.append(z3.And(found.tag >= extended.FINITE, found.tag <= extended.NAN))
        return found

    def _integer(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        import z3

        a = args[0]
        b = args[1] if len(args) > 1 else None
        signed = t.startswith("i")
        zero = z3.BitVecVal(0, a.sort())
        match op:
            case "Add":
                return a + b
            case "Sub":
                return a - b
            case "Mul":
                return a * b
            case "Neg":
                return -a
            case "Sum":
                total = a
                for other in args[1:]:
                    total = total + other
                return total
            case "Abs":
                return z3.If(a < 0, -a, a) if signed else a
            case "Relu":
                return self._extreme("Max", a, zero, t)
            case "Sign":
                one = z3.BitVecVal(1, a.sort())
                return z3.If(a == 0, zero, z3.If(z3.And(signed, a < 0), -one, one))
            case "Max" | "Min":
                total = a
                for other in args[1:]:
                    total = self._extreme(op, total, other, t)
                return total
            case "Div":  # truncates; what a division by 0 gives is not said
                return z3.If(b == 0, self._function("Div by 0", (), args, t), a / b if signed else z3.UDiv(a, b))
            case "Mod":
                rest = z3.URem(a, b) if not signed else z3.SRem(a, b) if dict(attrs)["fmod"] else a % b
                return z3.If(b == 0, self._function("Mod by 0", (), args, t), rest)
            case "BitwiseAnd":
                return a & b
            case "BitwiseOr":
                return a | b
            case "BitwiseXor":
                return a ^ b
            case "BitwiseNot":
                return ~a
        return self._function(op, _named(attrs), args, t)

    def _cast(self, a: Any, source: str, t: str) -> Any:
        import z3

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
        """What conditions say of the elements that were read."""
        for p in self.path.extra.get("facts", ()):
            try:
                yield from self._fact(p)
            except NotModelled:
                continue

    def _fact(self, p: Predicate) -> Iterator[Any]:
        names = {"==": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}
        if p.op not in names:
            return
        pointwise = bool(self.path.extra.get("pointwise"))
        rights = p.right.at([]) if isinstance(p.right, Tensor) and pointwise else p.right
        if not isinstance(rights, Scalar):
            return
        if isinstance(p.left, Leaf):
            lefts = [s for s in self.reads if s.op in ("read", "flat") and s.args[0] == p.left.name]
        elif isinstance(p.left, Tensor) and pointwise:
            lefts = [p.left.at([])]
        elif isinstance(p.left, Scalar):
            lefts = [p.left]
        else:
            return
        for left in lefts:
            yield self.term(app(names[p.op], left, rights), "bool")


def _named(attrs: Any) -> str:
    return str([(k, str(v)) for k, v in attrs])
