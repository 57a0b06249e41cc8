"""Equality of two scalars by the solver: IEEE 754 numbers, bit-vectors, truth values, real numbers with or without ∞.

What a theory lacks is an unknown function of its operands. For floats of class `exact`, arithmetic is unknown too in a
first attempt, which is fast, and IEEE 754 in a second. Real numbers with infinities and NaN are a pair of a tag and a
number; they agree if both are finite and the same, or both are not finite.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

import z3

from .axioms import REALS, apply, equations
from .case_scalars import CONVERSIONS, KINDS, TRUTH, app, number, walk
from .certificate import Certificate, Scalar
from .comparison import Equality, literal

FORMATS = {"f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
_COMPARED = {"==": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}
_ROUNDED = {"Floor": z3.RTN, "Ceil": z3.RTP, "Round": z3.RNE}
_ALGEBRA: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Neg": operator.neg, "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_, "BitwiseXor": operator.xor, "BitwiseNot": operator.invert,
}  # fmt: skip
_REALS = equations(REALS)
STEPS = 2_500_000
"""Solver steps for one question."""


class Unknown(Exception):
    """Scalar that a theory cannot express."""


class Tagged(NamedTuple):
    """Real number, or an infinity or NaN by its tag: 0 finite, 1 and 2 infinite, 3 NaN."""

    tag: Any
    value: Any

    def sort(self) -> str:
        """Name of the sort."""
        return "tagged"


def _text(a: Any) -> str:
    """Return a text by which terms are ordered; the one for people takes a hundred times as long to make."""
    return f"{a.tag.sexpr()} {a.value.sexpr()}" if isinstance(a, Tagged) else str(a.sexpr())


def _times(a: Tagged, b: Tagged) -> Tagged:
    signs = [z3.If(x.tag == 0, z3.If(x.value > 0, 1, z3.If(x.value < 0, -1, 0)), z3.If(x.tag == 1, 1, -1))
             for x in (a, b)]  # fmt: skip
    sign = signs[0] * signs[1]
    infinite = z3.If(z3.Or(a.tag == 3, b.tag == 3, sign == 0), 3, z3.If(sign > 0, 1, 2))
    return Tagged(z3.If(z3.And(a.tag == 0, b.tag == 0), 0, infinite), a.value * b.value)


def _plus(a: Tagged, b: Tagged) -> Tagged:
    nan = z3.Or(a.tag == 3, b.tag == 3, z3.And(a.tag != 0, b.tag != 0, a.tag != b.tag))
    return Tagged(z3.If(nan, 3, z3.If(a.tag != 0, a.tag, b.tag)), a.value + b.value)


def _minus(a: Tagged) -> Tagged:
    return Tagged(z3.If(a.tag == 1, 2, z3.If(a.tag == 2, 1, a.tag)), -a.value)


def _choice(cond: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Tagged):
        return Tagged(*(z3.If(cond, x, y) for x, y in zip(a, b, strict=True)))
    return z3.If(cond, a, b)


class Translation:
    """Translation of scalars, where `formats` says which format a type is and `theory` how floats are computed.

    `theory` is "abstract", "ieee", "tagged" or "real"."""

    def __init__(self, sides: Equality, formats: Mapping[str, str], theory: str) -> None:
        self.sides = sides
        self.formats = formats
        self.theory = theory
        self.assumed: list[Any] = []
        self.leaves: list[tuple[Scalar, str, Any]] = []
        self.memo: dict[Any, Any] = {}

    def format(self, dtype: str | None) -> str:
        """Return the format of an element type."""
        if dtype is None:
            raise Unknown
        kinds = set(self.sides.kinds(dtype))
        if kinds == {"bool"}:
            return "bool"
        if kinds == {"float"} and self.theory in ("real", "tagged"):
            return self.theory
        return self.formats.get(dtype, dtype)

    def sort(self, t: str) -> Any:
        """Return the sort of a format."""
        if t in FORMATS:
            return z3.FPSort(*FORMATS[t])
        if KINDS.get(t) in ("int", "uint"):
            return z3.BitVecSort(int(t[1:]))
        if t in ("real", "bool"):
            return z3.RealSort() if t == "real" else z3.BoolSort()
        raise Unknown

    def term(self, s: Scalar, t: str) -> Any:
        """Return a scalar as a value of a format."""
        if (s, t) not in self.memo:
            self.memo[s, t] = self._term(s, t)
        return self.memo[s, t]

    def _term(self, s: Scalar, t: str) -> Any:
        if s[0] == "const":
            return self._constant(s[1], t)
        if s[0] in ("read", "flat", "int", "big"):
            return self._leaf(s, t)
        if s[0] == "inverse":
            return self._operator("Div", (), [self._constant("1", t), self.term(s[1], t)], t)
        if s[0] != "app":
            raise Unknown
        op, attrs, *args = s[1:]
        if op == "Where":
            return _choice(self.term(args[0], "bool"), self.term(args[1], t), self.term(args[2], t))
        if op == "Cast":
            source = self.format(self.sides.type_of(args[0]))
            return self._cast(self.term(args[0], source), source, t)
        if op in CONVERSIONS:
            return self._leaf(s, t)
        if op in TRUTH:
            inner = "bool" if op in ("And", "Or", "Xor", "Not") else self.format(self._typed(args))
            return self._truth(op, [self.term(a, inner) for a in args], inner)
        meaning = apply(_REALS, s) if t in ("real", "tagged") else None
        if meaning is not None:
            return self.term(meaning, t)
        return self._operator(op, attrs, [self._operand(a, t) for a in args], t)

    def _typed(self, args: list[Scalar]) -> str | None:
        return next((d for d in map(self.sides.type_of, args) if d is not None), None)

    def _operand(self, a: Scalar, t: str) -> Any:
        own = self.sides.type_of(a)
        return self.term(a, t) if own is None or self.format(own) == t else self._leaf(a, t)

    def _leaf(self, s: Scalar, t: str) -> Any:
        """Return an unknown value, the same for equal scalars."""
        for known, format_, value in self.leaves:
            if format_ == t and self.sides.equal(known, s, "same"):
                return value
        name = f"leaf {len(self.leaves)}"
        found: Any
        if t == "tagged":
            found = Tagged(z3.IntVal(0) if s[0] == "int" else z3.Int(f"tag {name}"), z3.Real(name))
            self.assumed.append(z3.And(found.tag >= 0, found.tag <= 3))
        else:
            found = z3.Const(name, self.sort(t))
        self.leaves.append((s, t, found))
        return found

    def _constant(self, text: str, t: str) -> Any:
        special = {"inf": 1, "-inf": 2, "nan": 3}.get(text, 0)
        if t == "tagged":
            value = number(("const", text)) or Fraction(0)
            return Tagged(z3.IntVal(special), z3.RealVal(str(literal(value))))
        if t in FORMATS:
            sort = self.sort(t)
            named = [None, z3.fpPlusInfinity, z3.fpMinusInfinity, z3.fpNaN][special]
            return z3.fpToFP(z3.RNE(), z3.RealVal(text), sort) if named is None else named(sort)
        found = number(("const", text))
        if found is None or (t != "real" and found.denominator != 1):
            raise Unknown
        if t == "bool":
            return z3.BoolVal(bool(found))
        return z3.RealVal(text) if t == "real" else z3.BitVecVal(int(found), self.sort(t))

    def _function(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        """Return an unknown function of its operands; a sum or product does not depend on their order."""
        if op in ("Add", "Mul", "tie"):
            args = sorted(args, key=_text)
        if t == "tagged":
            flat = [v for a in args for v in (a.tag, z3.If(a.tag == 0, a.value, z3.RealVal(0)))]
            sorts = [v.sort() for v in flat]
            found = Tagged(z3.Function(f"tag {op} {attrs}", *sorts, z3.IntSort())(*flat),
                           z3.Function(f"{op} {attrs}", *sorts, z3.RealSort())(*flat))  # fmt: skip
            self.assumed.append(z3.And(found.tag >= 0, found.tag <= 3))
            return found
        if any(isinstance(a, Tagged) for a in args):
            raise Unknown
        name = f"{op} {attrs} {[str(a.sort()) for a in args]} {t}"
        return z3.Function(name, *(a.sort() for a in args), self.sort(t))(*args)

    # --- truth values ---

    def _truth(self, op: str, args: list[Any], t: str) -> Any:
        if op in ("And", "Or", "Xor", "Not"):
            return getattr(z3, op)(*args)
        a = args[0]
        if op == "IsNaN":
            return a.tag == 3 if isinstance(a, Tagged) else z3.fpIsNaN(a) if z3.is_fp(a) else z3.BoolVal(False)
        if op == "Equal":
            b = args[1]
            if isinstance(a, Tagged):
                return z3.And(self._less(a, b, t, strict=False), self._less(b, a, t, strict=False))
            return z3.fpEQ(a, b) if z3.is_fp(a) else a == b
        if op in ("Greater", "GreaterOrEqual"):
            return self._less(args[1], a, t, strict=op == "Greater")
        if op in ("Less", "LessOrEqual"):
            return self._less(a, args[1], t, strict=op == "Less")
        return self._function(op, (), args, "bool")

    def _less(self, a: Any, b: Any, t: str, *, strict: bool) -> Any:
        if isinstance(a, Tagged):
            apart = z3.Or(z3.And(a.tag == 2, b.tag != 2), z3.And(b.tag == 1, a.tag != 1))
            ordered = apart if strict else z3.Or(apart, a.tag == b.tag)
            number_ = a.value < b.value if strict else a.value <= b.value
            return z3.If(z3.And(a.tag == 0, b.tag == 0), number_, z3.And(a.tag != 3, b.tag != 3, ordered))
        if z3.is_fp(a):
            return z3.fpLT(a, b) if strict else z3.fpLEQ(a, b)
        if KINDS.get(t) == "uint":
            return z3.ULT(a, b) if strict else z3.ULE(a, b)
        return a < b if strict else a <= b

    # --- arithmetic ---

    def _operator(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        a = args[0]
        if op in ("Max", "Min"):
            return reduce(lambda x, y: self._extreme(op, x, y, t), args)
        if op == "Relu":
            return self._extreme("Relu", a, self._constant("0", t), t)
        if op == "Sum" and t != "bool":
            return reduce(lambda x, y: self._operator("Add", (), [x, y], t), args)
        if t == "tagged":
            return self._tagged(op, attrs, args)
        if t in FORMATS:
            return self._float(op, attrs, args, t)
        if op in _ALGEBRA and t != "bool":
            return _ALGEBRA[op](*args)
        if t == "real" and op == "Abs":
            return z3.If(a >= 0, a, -a)
        if t == "real" and op == "Div":
            return z3.If(args[1] == 0, self._function("Div by 0", (), args, t), a / args[1])
        if t == "real" and op == "Sqrt":
            root = self._function(op, (), args, t)
            self.assumed.append(z3.Implies(a >= 0, z3.And(root >= 0, root * root == a)))
            return root
        return self._integer(op, attrs, args, t) if KINDS.get(t) in ("int", "uint") else self._function(
            op, attrs, args, t)  # fmt: skip

    def _extreme(self, op: str, a: Any, b: Any, t: str) -> Any:
        """Return the greater or lesser; NaN if one is. Which of two zeros it is remains open."""
        below, above = self._less(a, b, t, strict=True), self._less(b, a, t, strict=True)
        first, second = (below, above) if op == "Min" else (above, below)
        if isinstance(a, Tagged):
            found = _choice(first, a, b)
            return Tagged(z3.If(z3.Or(a.tag == 3, b.tag == 3), 3, found.tag), found.value)
        if not z3.is_fp(a):
            return z3.If(first, a, b)
        tie = self._function("tie", op, [a, b], t)
        self.assumed.append(z3.Or(tie == a, tie == b))
        nan = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
        return z3.If(nan, z3.fpNaN(a.sort()), z3.If(first, a, z3.If(second, b, z3.If(a == b, a, tie))))

    def _tagged(self, op: str, attrs: Any, args: list[Any]) -> Any:
        a = args[0]
        match op:
            case "Add":
                return _plus(*args)
            case "Sub":
                return _plus(a, _minus(args[1]))
            case "Neg":
                return _minus(a)
            case "Mul":
                return _times(*args)
            case "Div" | "Reciprocal":
                b = args[-1]  # 1/0 is an infinity of some sign
                side = z3.Function("sign of a zero", z3.RealSort(), z3.IntSort())(b.value)
                self.assumed.append(z3.Or(side == 1, side == 2))
                zero = z3.And(b.tag == 0, b.value == 0)
                value = z3.If(z3.Or(b.tag == 1, b.tag == 2, zero), z3.RealVal(0), 1 / b.value)
                inverse = Tagged(z3.If(zero, side, z3.If(b.tag == 3, 3, 0)), value)
                return _times(a, inverse) if op == "Div" else inverse
            case "Abs":
                return _choice(self._less(a, self._constant("0", "tagged"), "tagged", strict=True), _minus(a), a)
            case "Pow":
                raise Unknown
        if not all(isinstance(x, Tagged) for x in args):
            raise Unknown
        return self._function(op, attrs, args, "tagged")

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
                signed = z3.If(z3.fpGT(a, zero), one, z3.If(z3.fpLT(a, zero), z3.fpNeg(one), tie))
                return z3.If(z3.fpIsNaN(a), a, signed)
            case "Floor" | "Ceil" | "Round":
                return z3.fpRoundToIntegral(_ROUNDED[op](), a)
            case "LeakyRelu" | "PRelu":
                slope = args[1] if op == "PRelu" else self.term(dict(attrs)["alpha"], t)
                return z3.If(z3.fpLT(a, zero), self._operator("Mul", (), [a, slope], t), a)
        if self.theory == "ieee" and op in ("Add", "Sub", "Mul", "Div", "Sqrt"):
            return getattr(z3, f"fp{op}")(z3.RNE(), *args)
        return self._function(op, attrs, args, t)

    def _integer(self, op: str, attrs: Any, args: list[Any], t: str) -> Any:
        a, signed = args[0], KINDS[t] == "int"
        zero, one = (z3.BitVecVal(k, a.sort()) for k in (0, 1))
        match op:
            case "Abs":
                return z3.If(a < 0, -a, a) if signed else a
            case "Sign":
                return z3.If(a == 0, zero, z3.If(z3.And(signed, a < 0), -one, one))
            case "Div" | "Mod":  # quotients truncate; a division by 0 is unspecified
                b = args[1]
                if op == "Div":
                    found = a / b if signed else z3.UDiv(a, b)
                else:
                    found = z3.URem(a, b) if not signed else z3.SRem(a, b) if dict(attrs)["fmod"] else a % b
                return z3.If(b == 0, self._function(f"{op} by 0", (), args, t), found)
        return self._function(op, attrs, args, t)

    def _cast(self, a: Any, source: str, t: str) -> Any:
        whole = KINDS.get(source) in ("int", "uint")
        if source == t:
            return a
        if t == "bool":
            return z3.Not(z3.fpIsZero(a)) if source in FORMATS else a != 0
        if source == "bool":
            return _choice(a, self._constant("1", t), self._constant("0", t))
        if source in FORMATS and t in FORMATS:
            return z3.fpToFP(z3.RNE(), a, self.sort(t))
        if whole and KINDS.get(t) in ("int", "uint"):
            more = int(t[1:]) - int(source[1:])
            if more <= 0:
                return z3.Extract(int(t[1:]) - 1, 0, a)
            return z3.SignExt(more, a) if KINDS[source] == "int" else z3.ZeroExt(more, a)
        if whole and t in FORMATS:
            convert = z3.fpSignedToFP if KINDS[source] == "int" else z3.fpUnsignedToFP
            return convert(z3.RNE(), a, self.sort(t))
        return self._function(f"Cast {source}", (), [a], t)

    # --- facts about elements ---

    def elements(self) -> Iterator[Any]:
        """Yield what is known of the elements that were read."""
        for s, t, value in list(self.leaves):
            for op, right in self.sides.compared(s):
                if op == "finite":
                    if isinstance(value, Tagged) or z3.is_fp(value):
                        yield value.tag == 0 if isinstance(value, Tagged) else z3.Not(
                            z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value)))  # fmt: skip
                elif op == "nonnegative":
                    yield z3.Not(self._less(value, self._constant("0", t), t, strict=True))
                elif op in _COMPARED:
                    yield self.term(app(_COMPARED[op], s, right), "bool")


def _formats(sides: Equality, dtypes: set[str]) -> Iterator[dict[str, str]]:
    """Yield every choice of formats for the types that are variables."""
    names = sorted(dtypes - KINDS.keys())
    kinds = [sides.kinds(n) for n in names]
    if any(len(k) > 1 for k in kinds):
        raise Unknown
    options = [[t for t, found in KINDS.items() if found == k[0]] for k in kinds]
    if len(list(itertools.product(*options))) > 16:
        raise Unknown
    yield from (dict(zip(names, choice, strict=True)) for choice in itertools.product(*options))


def _shown(
    sides: Equality, pair: tuple[Scalar, Scalar], dtype: str, formats: Mapping[str, str], theory: str, zeros: bool
) -> bool:
    translation = Translation(sides, formats, theory)
    try:
        wanted = translation.format(dtype)
        a, b = (translation.term(s, wanted) for s in pair)
        known = list(translation.elements())
        if isinstance(a, Tagged):
            finite = z3.And(a.tag == 0, b.tag == 0, a.value == b.value)
            agree = z3.Or(finite, z3.And(a.tag != 0, b.tag != 0))
        elif z3.is_fp(a) and zeros:
            agree = z3.Or(z3.fpEQ(a, b), z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)))
        else:
            agree = a == b
        solver = z3.Solver()
        solver.set("rlimit", STEPS)
        solver.add(*known, *translation.assumed, z3.Not(agree))
        return sides.facts.effort.contradict(solver)
    except (Unknown, z3.Z3Exception):
        return False


def decided(sides: Equality, pair: tuple[Scalar, Scalar], dtype: str, certificate: Certificate) -> bool:
    """Whether the solver shows two scalars of an element type equal, in the numerics class of the certificate."""
    kind, numerics = sides.kinds(dtype)[0], certificate.numerics
    zeros = kind == "float" and (certificate.signed_zero or numerics != "exact")
    if kind == "float" and numerics != "exact":
        theory = "real" if numerics == "fast" else "tagged"
        if _shown(sides, pair, dtype, {}, theory, zeros):
            return True
        if numerics == "fast":
            return False
    if kind in ("float", "bool"):
        a, b = (sides.rewritten(s, "zeros" if zeros else "bits") for s in pair)
        pair = (a, b)
    dtypes = {dtype, *(t for s in pair for p in walk(s) if (t := sides.type_of(p)) is not None)}
    try:
        choices = list(_formats(sides, dtypes))
    except Unknown:
        return False
    theories = ("abstract", "ieee") if kind == "float" else ("ieee",)
    return any(all(_shown(sides, pair, dtype, given, theory, zeros) for given in choices) for theory in theories)
