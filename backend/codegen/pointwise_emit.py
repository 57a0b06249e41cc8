"""Emission of pointwise programs as C statements, on vectors or on scalars.

The tables spell each primitive. In vector code a float value is a `vf` and a truth value a `vm` (see
`kernels/common/vector.h`); in scalar code values have their C types and bool is `uint8_t`, 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from ...engine.ir.graph import DType
from .pointwise_program import Instruction, Pointwise

_INTEGERS = {DType(f"{kind[0]}{bits}"): f"{kind}{bits}_t" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
C_TYPES = {DType.F32: "float", DType.F64: "double", **_INTEGERS, DType.BOOL: "uint8_t"}
"""C types of the elements that C computes with."""
HALVES = {DType.F16: "f16", DType.BF16: "bf16"}
"""16-bit floats, and how functions of `kernels/common/half.h` call them. In registers they are floats."""
STORED = {**C_TYPES, **{dtype: f"v_{name}" for dtype, name in HALVES.items()}}
"""C types of the elements in memory."""
BYTES = {DType.U8: "v_u8", DType.I8: "v_s8"}
"""Those of int8 that vectors load as floats (`kernels/common/low_precision.h`); "uint8_t" is bool there."""

CURVES = ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")

# Max and Min return NaN if either operand is NaN, as ONNX requires. AtLeast and AtMost bound the first operand by the
# second and propagate a NaN of the first only, as Relu and Clip require; that takes one instruction. Above returns the
# second if the first is not above it: also for NaN.
_ARITHMETIC = {"Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Div": "{0} / {1}", "Neg": "-{0}"}
_FUNCTIONS = ("Sqrt", "Exp", "Log", "Log1p", "Erf", "Tanh", "Floor", "Ceil", *CURVES)
VECTOR = {
    **_ARITHMETIC,
    **{op: f"v{op.lower()}({{0}})" for op in (*_FUNCTIONS, "Abs", "Sign", "Sigmoid", "Gelu", "Round")},
    "Pow": "vpow({0}, {1})",
    "Fmod": "vfmod({0}, {1})",
    "Max": "vmax_nan({0}, {1})",
    "Min": "vmin_nan({0}, {1})",
    "AtLeast": "vmax({1}, {0})",
    "AtMost": "vmin({1}, {0})",
    "Above": "vmax({0}, {1})",
    "Reciprocal": "vset1(1.0f) / {0}",
}
VECTOR_COMPARE = {
    "Less": "vlt({0}, {1})",
    "LessOrEqual": "vle({0}, {1})",
    "Greater": "vlt({1}, {0})",
    "GreaterOrEqual": "vle({1}, {0})",
    "Equal": "veq({0}, {1})",
    "IsNaN": "vm_not(veq({0}, {0}))",
}
VECTOR_BOOL = {
    **{op: f"vm_{op.lower()}({{0}}, {{1}})" for op in ("And", "Or", "Xor")},
    "Not": "vm_not({0})",
    "Equal": "vm_not(vm_xor({0}, {1}))",
    "Select": "vm_or(vm_and({0}, {1}), vm_and(vm_not({0}), {2}))",
}

# {f} is the suffix of the C library's functions for the type (f for float), {T} the C type.
_BOUNDS = {"AtLeast": "({0} < {1} ? {1} : {0})", "AtMost": "({0} > {1} ? {1} : {0})"}
SCALAR_FLOAT = {
    **_ARITHMETIC,
    **_BOUNDS,
    "Above": "({0} > {1} ? {0} : {1})",
    **{op: f"{op.lower()}{{f}}({{0}})" for op in _FUNCTIONS},
    "Pow": "pow{f}({0}, {1})",
    "Fmod": "fmod{f}({0}, {1})",
    "Max": "({0} != {0} || {0} > {1} ? {0} : {1})",
    "Min": "({0} != {0} || {0} < {1} ? {0} : {1})",
    "Abs": "fabs{f}({0})",
    "Sign": "({0} != {0} ? {0} : ({T})(({0} > 0) - ({0} < 0)))",
    "Reciprocal": "1 / {0}",
    "Sigmoid": "1 / (1 + exp{f}(-{0}))",
    "Gelu": "{0} / 2 * (1 + erf{f}({0} * ({T})0.70710678118654752440))",
    "Round": "rint{f}({0})",
}
# Integers wrap. Division truncates; division by zero returns zero instead of trapping. Mod has the divisor's sign.
SCALAR_INTEGER = {
    "Add": "({T})(({U}){0} + ({U}){1})",
    "Sub": "({T})(({U}){0} - ({U}){1})",
    "Mul": "({T})(({U}){0} * ({U}){1})",
    "Div": "({T})({1} == 0 ? 0 : {minus_one} ? ({T})(0 - ({U}){0}) : {0} / {1})",
    "Fmod": "({T})({1} == 0 || {minus_one} ? 0 : {0} % {1})",
    "Mod": "({T})({1} == 0 || {minus_one} ? 0 : ({0} % {1} + ({0} % {1} != 0 && (({0} ^ {1}) < 0) ? {1} : 0)))",
    "Max": "({0} > {1} ? {0} : {1})",
    "Min": "({0} < {1} ? {0} : {1})",
    **_BOUNDS,
    "Neg": "({T})(0 - ({U}){0})",
    "Abs": "({T})({0} < 0 ? 0 - ({U}){0} : ({U}){0})",
    "Sign": "({T})(({0} > 0) - ({0} < 0))",
    "BitwiseAnd": "({T})({0} & {1})",
    "BitwiseOr": "({T})({0} | {1})",
    "BitwiseXor": "({T})({0} ^ {1})",
    "BitwiseNot": "({T})(~{0})",
    "ShiftLeft": "({T})((uint64_t){1} > {top} ? 0 : ({U}){0} << {1})",
    "ShiftRight": "({T})((uint64_t){1} > {top} ? ({0} < 0 ? -1 : 0) : {0} >> {1})",
}
SCALAR_COMPARE = {
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    "Equal": "{0} == {1}",
    "IsNaN": "{0} != {0}",
    "And": "{0} & {1}",
    "Or": "{0} | {1}",
    "Xor": "{0} ^ {1}",
    "Not": "!{0}",
}


def vectorizable(program: Pointwise, *, int8: bool = False, half: bool = False) -> bool:
    """Whether all of a program can be emitted on vectors: bool values and either f32 or f64, no integer primitive.

    `int8` admits i32 and int8 operands and int8 results: vectors `vi` for i32, and `vf` of whole numbers for int8.
    `half` admits 16-bit floats as operands and results: vectors `vf`, widened by loads and rounded by stores."""
    allowed = {program.real, DType.BOOL}
    allowed |= {DType.I32, DType.U8, DType.I8} if int8 else set()
    allowed |= set(HALVES) if half else set()
    results = program.result_types if not half else ()
    if not all(o.dtype in allowed for o in program.inputs) or not HALVES.keys().isdisjoint(results):
        return False
    return all(_vector(program, i, int8) is not None for i in program.instructions)


def has_bytes(program: Pointwise) -> bool:
    """Whether a program has int8, if only between operands and results, and can be emitted on vectors that hold it as
    floats."""
    dtypes = {*(item.dtype for item in program.inputs), *program.result_types}
    made = {instruction.dtype for instruction in program.instructions}
    if BYTES.keys().isdisjoint(dtypes | made) or DType.I32 in dtypes or program.real is not DType.F32:
        return False
    return HALVES.keys().isdisjoint(program.result_types) and vectorizable(program, int8=True, half=True)


def computable(program: Pointwise) -> bool:
    """Whether all of a program can be emitted on scalars."""
    return all(_scalar(program, i) is not None for i in program.instructions)


def emit(
    program: Pointwise, operands: Sequence[str], *, vector: bool, prefix: str = "t", int8: bool = False
) -> tuple[list[str], list[str]]:
    """Emit C: statements that each define one variable `<prefix><number>`, and the expressions of the results.

    `operands` are C expressions without side effects: on vectors `vf` (floats) or `vm` (bool), on scalars of the C
    type, which is `float` for 16-bit floats.
    ValueError if `vectorizable` (with the same `int8`) or `computable` is false."""
    names = list(operands)
    statements = []
    for index, instruction in enumerate(program.instructions):
        whole = None if vector else _narrowed(program, instruction)
        if whole is not None:
            names.append(names[whole])
            continue
        text = _vector(program, instruction, int8) if vector else _scalar(program, instruction)
        if text is None:
            raise ValueError(f"no {'vector' if vector else 'scalar'} code for {instruction.op} on {instruction.dtype}")
        expression = text.format(*(names[a] for a in instruction.args))
        if instruction.op == "Const":
            names.append(expression)
            continue
        if vector:
            kind = "vm" if instruction.dtype is DType.BOOL else "vf"
        else:
            kind = "float" if instruction.dtype in HALVES else C_TYPES[instruction.dtype]
        name = f"{prefix}{index}"
        statements.append(f"const {kind} {name} = {expression};")
        names.append(name)
    return statements, [names[r] for r in program.results]


def _narrowed(program: Pointwise, instruction: Instruction) -> int | None:
    """Return the whole number in f32 that an instruction widens again after it became a byte; None for others.

    Bytes and back would cost more than the arithmetic between two quantizations."""
    source = instruction.args[0] - len(program.inputs) if instruction.args else -1
    if instruction.op != "Cast" or instruction.dtype is not DType.F32 or source < 0:
        return None
    narrow = program.instructions[source]
    return narrow.args[0] if narrow.op == "Narrow" else None


def literal(value: float | int | str, dtype: DType) -> str:
    """Return the C literal or constant expression of an immediate."""
    if not dtype.is_float:
        whole = int(value)
        if dtype is DType.I64:
            return "INT64_MIN" if whole == -(2**63) else f"INT64_C({whole})"
        if dtype is DType.U64:
            return f"UINT64_C({whole})"
        return f"({C_TYPES[dtype]})({whole})"
    number = float(np.float32(value) if dtype is DType.F32 else value)
    if math.isnan(number):
        return f'(({C_TYPES[dtype]})__builtin_nan(""))'
    if math.isinf(number):
        return f"({'-' if number < 0 else ''}({C_TYPES[dtype]})__builtin_inf())"
    return f"({number!r}{'f' if dtype is DType.F32 else ''})"


def _vector(program: Pointwise, instruction: Instruction, int8: bool = False) -> str | None:
    """Return the format of one instruction on vectors, or None."""
    op, dtype, real = instruction.op, instruction.dtype, program.real
    sources = [program.dtype(a) for a in instruction.args]
    if real is DType.F64 and not {real, DType.BOOL}.issuperset((dtype, *sources)):
        return None
    if int8 and op == "Narrow":
        return "{0}"
    if not {DType.I32, DType.U8, DType.I8}.isdisjoint(sources):
        if not int8 or op != "Cast" or dtype is not DType.F32:
            return None
        return "__builtin_convertvector({0}, vf)" if sources[0] is DType.I32 else "{0}"
    if not HALVES.keys().isdisjoint((dtype, *sources)):
        return _half(program, instruction)
    if dtype not in (real, DType.BOOL):
        return None
    if op == "Const":
        value = instruction.attr("value")
        return f"vset1({literal(value, dtype)})" if dtype is real else f"vm_set1({int(value)})"
    if op == "Cast":
        from_bool = sources[0] is DType.BOOL
        return "vsel({0}, vset1(1.0f), vset1(0.0f))" if from_bool else "vm_not(veq({0}, vset1(0.0f)))"
    if op == "Select" and dtype is real:
        return "vsel({0}, {1}, {2})"
    if all(s is DType.BOOL for s in sources):
        return VECTOR_BOOL.get(op)
    return (VECTOR if dtype is real else VECTOR_COMPARE).get(op)


def _half(program: Pointwise, instruction: Instruction) -> str | None:
    """Return the format of a conversion between f32 and a 16-bit float on vectors, or of a constant of that type.

    Loads widen operands and stores round results, so only intermediate values are rounded explicitly."""
    if instruction.op == "Const":
        return f"vset1({literal(instruction.attr('value'), DType.F32)})"
    source = program.dtype(instruction.args[0]) if instruction.op == "Cast" else None
    if source not in HALVES:
        return "{0}" if source is DType.F32 else None
    if instruction.dtype is not DType.F32:
        return None
    intermediate = instruction.args[0] >= len(program.inputs)
    return f"v_round_{HALVES[source]}({{0}})" if intermediate else "{0}"


def _scalar(program: Pointwise, instruction: Instruction) -> str | None:
    """Return the format of one instruction on scalars, or None."""
    op, dtype = instruction.op, instruction.dtype
    sources = [program.dtype(a) for a in instruction.args]
    if op == "Const":
        return literal(instruction.attr("value"), DType.F32 if dtype in HALVES else dtype)
    if op == "Cast":
        return _cast(sources[0], dtype)
    if not HALVES.keys().isdisjoint((dtype, *sources)):
        return "({0} ? {1} : {2})" if op == "Select" else None
    if op == "Narrow":
        return f"({C_TYPES[dtype]})(int32_t){{0}}"
    if op == "Select":
        return "({0} ? {1} : {2})"
    if op == "Pow":
        return _power(sources[0], sources[1])
    if dtype is DType.BOOL:
        return SCALAR_COMPARE.get(op)
    if dtype.is_float:
        text = SCALAR_FLOAT.get(op)
        return text and text.replace("{f}", "f" if dtype is DType.F32 else "").replace("{T}", C_TYPES[dtype])
    text = SCALAR_INTEGER.get(op)
    fields = {
        "{T}": C_TYPES[dtype],
        "{U}": "uint64_t" if dtype.bits == 64 else "uint32_t",
        "{minus_one}": "{1} == -1" if dtype.value[0] == "i" else "0",
        "{top}": str(dtype.bits - 1),
    }
    return text and reduce(lambda found, field: found.replace(*field), fields.items(), text)


def _cast(source: DType, target: DType) -> str:
    """Return the format of a conversion; to bool it compares with zero.

    A float becomes a small integer by way of a wide one, whose conversion is defined for more values."""
    if target is DType.BOOL:
        return "{0} != 0"
    if target in HALVES:
        return f"k_round_{HALVES[target]}({'k_to_odd({0})' if source is DType.F64 else '(float){0}'})"
    name = C_TYPES[target]
    if source.is_float and target.is_integer and target is not DType.I64:
        wide = "int32_t" if target.bits < 32 or target is DType.I32 else "int64_t"
        return f"({name})({wide}){{0}}"
    return f"({name}){{0}}"


def _power(base: DType, exponent: DType) -> str | None:
    """Return the format of a power, whose result has the base's type."""
    if base is DType.BOOL or exponent is DType.BOOL:
        return None
    if base.is_integer and exponent.is_integer:
        return f"({C_TYPES[base]})integer_power({{0}}, {{1}})"
    if base is DType.F32 and (exponent is DType.F32 or exponent.is_integer):
        return "powf({0}, (float){1})"
    return f"({C_TYPES[base]})pow((double){{0}}, (double){{1}})"
