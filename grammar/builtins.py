"""The functions, words and types that rules may use without declaring them, with typed signatures and docs.

The library is closed and total: an argument that is unknown or out of range makes the condition unprovable. The engine
implements what this table declares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

WORDS = ("true", "false", "none", "inf", "nan", "pi")
"""Names with a fixed meaning in every expression."""

DTYPES = (
    *("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "i4", "u64", "u32", "u16", "u8", "u4", "bool", "string"),
    *("c64", "c128", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i2", "u2"),
)
DTYPE_CLASSES = ("float", "integer", "number", "scalar")
NARY = ("Add", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
"""Operators that rules may apply to any number of inputs: a pattern then means a whole tree of them, in any order."""
KINDS = ("elementwise", "injective", "reduction", "complex", "opaque")
CLASSES = ("exact", "reassoc", "fast")
RELAXATIONS = ("signed_zero",)
DIRECTIONS = ("simplify", "canonical", "explore", "lower")
WARNINGS = ("overlap", "duplicate", "shadowed", "loop", "growth", "redundant", "unused", "dead")
"""What the warnings are about that a rule may `allow`; see `warnings`."""
RULESETS = ("simplify", "explore", "lower")
"""The rulesets of rules that join none; `canonical` rules are with those that simplify."""
LIMITS = ("iterations", "matches", "nodes", "seconds")
"""What a ruleset may be limited in."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a library function. `sort` is a word such as `tensor`, `const`, `dims`, `int`, `list`."""

    name: str
    sort: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A library function: its signature and one line of doc."""

    name: str
    parameters: tuple[Parameter, ...]
    result: str
    doc: str

    @property
    def min_arguments(self) -> int:
        """How many arguments it needs."""
        return sum(not (p.optional or p.variadic) for p in self.parameters)

    @property
    def max_arguments(self) -> int | None:
        """How many arguments it takes, None for any number."""
        return None if any(p.variadic for p in self.parameters) else len(self.parameters)

    @property
    def signature(self) -> str:
        """`dim(x: tensor, i: int) -> dim`, as in the table below."""
        shown = ", ".join(
            f"{p.name}{'?' * p.optional}: {p.sort}" if not p.variadic else f"..{p.name}: {p.sort}"
            for p in self.parameters
        )
        return f"{self.name}({shown}) -> {self.result}"


_FUNCTIONS = """
shape(x: tensor) -> dims                          The dims of a tensor.
rank(x: tensor) -> int                            The number of dims of a tensor.
dim(x: tensor, i: int) -> dim                     One dim of a tensor; a negative index counts from the end.
dtype(x: tensor) -> dtype                         The element type of a tensor.
size(x: tensor) -> dim                            The number of elements of a tensor.
dims(t: tensor) -> dims                           The contents of an integer tensor as dims, some perhaps symbolic.
ints(t: tensor) -> ints                           The contents of an integer tensor, all of them known.
scalar(c: tensor) -> number                       The only element of a constant.
values(c: tensor) -> numbers                      The elements of a constant, row by row; at most 4096.
is_const(x: tensor) -> bool                       Whether a tensor is computed from constants only.
uniform(c: tensor) -> bool                        Whether all elements of a constant are equal.
splat(c: tensor) -> number                        The value that all elements of a constant have.
finite(x: tensor) -> bool                         Whether no element is NaN or infinite.
positive(x: tensor) -> bool                       Whether all elements are above zero.
nonnegative(x: tensor) -> bool                    Whether no element is below zero (or NaN).
min_value(c: tensor) -> number                    The smallest element of a constant.
max_value(c: tensor) -> number                    The largest element of a constant.
is_iota(c: tensor) -> bool                        Whether a constant holds 0, 1, 2, …
same(x: tensor, y: tensor) -> bool                Whether two tensors are the same value.
op_name(f: operator) -> string                    The name of the operator that a class head has bound.

known(d: any) -> bool                             Whether a dim, or each of a list, is a known number.
broadcast(..s: dims) -> dims                      The shape that shapes broadcast to.
product(d: dims) -> dim                           The product of dims.
floordiv(a: dim, b: dim) -> dim                   The quotient rounded down.
ceildiv(a: dim, b: dim) -> dim                    The quotient rounded up.
min(..a: any) -> number                           The smallest of several numbers or dims, or of a list.
max(..a: any) -> number                           The largest of several numbers or dims, or of a list.
abs(x: any) -> any                                The absolute value; of a tensor on the right side, `Abs`.
sqrt(x: any) -> any                               The square root; of a tensor on the right side, `Sqrt`.
exp(x: any) -> any                                The exponential; of a tensor on the right side, `Exp`.
log(x: any) -> any                                The natural logarithm; of a tensor on the right side, `Log`.
floor(x: any) -> any                              The next lower integer; of a tensor on the right side, `Floor`.
ceil(x: any) -> any                               The next higher integer; of a tensor on the right side, `Ceil`.
close(a: number, b: number, rtol?: number) -> bool  Whether they are equal up to a relative tolerance (1e-6).

len(l: list) -> int                               The length of a list.
sum(l: list) -> number                            The sum of a list.
prod(l: list) -> number                           The product of a list.
range(a: int, b: int) -> ints                     The integers from a up to b, b excluded.
reverse(l: list) -> list                          The list backwards.
sorted(l: list) -> list                           The list in ascending order.
unique(l: list) -> list                           The list without repetitions, in the order of first occurrence.
index(l: list, v: any) -> int                     Where an element first stands in a list.
take(l: list, i: ints) -> list                    The elements at these places, in this order.
drop(l: list, i: ints) -> list                    The list without the elements at these places.
slice(l: list, a: int, b: int) -> list            The elements from place a up to b, b excluded.
set_at(l: list, i: int, v: any) -> list           The list with one element replaced.
repeat(v: any, n: int) -> list                    A list of n times the same.
flatten(l: list) -> list                          A list of lists as one list.
zip(..l: list) -> list                            Lists as one list of lists: first elements, second elements, …
enumerate(l: list) -> list                        The list of [place, element].
all(l: any) -> bool                               Whether all of a list, or of a tensor's elements, are true.
any(l: any) -> bool                               Whether one of a list, or of a tensor's elements, is true.

inverse_perm(p: ints) -> ints                     The permutation that undoes p.
compose_perm(p: ints, q: ints) -> ints            First p, then q, as one permutation.
identity_perm(p: ints) -> bool                    Whether a permutation moves nothing.
swap_perm(rank: int, i: int, j: int) -> ints      The permutation of `rank` axes that swaps two of them.
axis(a: int, rank: int) -> int                    An axis counted from the front.
axes(l: ints, rank: int) -> ints                  Axes counted from the front, sorted.

is_float(t: dtype) -> bool                        Whether an element type is floating-point.
is_integer(t: dtype) -> bool                      Whether an element type is an integer type.
lossless(from: dtype, to: dtype) -> bool          Whether every value of one element type is a value of the other.
limits(t: dtype) -> numbers                       The lowest and the highest finite value of an element type.

inline(b: any, ..x: any) -> list                  The outputs of a body (of If, Loop, Scan) with these inputs.
iterate(b: any, n: int, ..x: any) -> list         The outputs of a Loop after n runs of a body, from these values.
node_count(b: any) -> int                         How many nodes a body has.
pointwise(b: any) -> bool                         Whether every element is made of the same elements of the inputs.
total(b: any) -> bool                             Whether a body may be computed for nothing: it divides no integers.
hoisted(b: any) -> any                            A body without what no run changes: that is computed before it.
products(b: any, n: int, x: list) -> list         What a Scan over the last n gets if pieces are multiplied before it.
multiplied(b: any, n: int, x: list) -> any        A Scan's body that gets these products.
unchanged(b: any) -> ints                         The carried values that every run of a Loop passes on as they came.
captured(b: any, p: ints, v: list) -> any         A Loop's body that reads these unchanged values from around it.
unread(b: any) -> ints                            Which outputs of a Loop nothing reads or needs for what is read.
without(b: any, p: ints) -> any                   A Loop's body without these outputs and what is carried for them.
twins(b: any, v: list) -> ints                    For each carried value the first one that is equal in every run.
merged(b: any, v: list) -> any                    A Loop's body that carries one value for all that are always equal.

expand_dims(x: tensor, axes: any) -> tensor       `Unsqueeze` at these axes.
reshape(x: tensor, d: dims) -> tensor             `Reshape` to dims of which at most one is not a known number.
const(v: any, t: dtype) -> tensor                 A constant with these contents and element type.
like(v: any, x: tensor) -> tensor                 A constant scalar with the element type of x.
zeros(d: dims, t?: dtype) -> tensor               A constant of zeros.
ones(d: dims, t?: dtype) -> tensor                A constant of ones.
full(d: dims, v: any, t?: dtype) -> tensor        A constant of equal elements.
"""

_OPERAND_FUNCTIONS = """
ones(..d: int) -> tensor                          A constant of ones with these dims.
zeros(..d: int) -> tensor                         A constant of zeros with these dims.
full(v: any, ..d: any) -> tensor                  A constant of equal elements.
iota(n: int) -> tensor                            0, 1, 2, …, n - 1.
random(..d: int) -> tensor                        A seeded random constant with these dims.
"""


@cache
def functions() -> dict[str, Function]:
    """The condition and attribute library, by name."""
    return _parse(_FUNCTIONS)


@cache
def operand_functions() -> dict[str, Function]:
    """What the operands of a `test` may be made with, besides the arithmetic of the library."""
    return {**functions(), **_parse(_OPERAND_FUNCTIONS)}


def _parse(table: str) -> dict[str, Function]:
    found: dict[str, Function] = {}
    for line in table.strip().splitlines():
        if not line:
            continue
        m = re.fullmatch(r"(\w+)\((.*?)\) -> (\w+) +(.+)", line)
        assert m, line
        found[m[1]] = Function(m[1], tuple(_parameter(p) for p in m[2].split(", ")), m[3], m[4])
    return found


def _parameter(text: str) -> Parameter:
    name, sort = text.split(": ")
    return Parameter(name.strip(".?"), sort, optional=name.endswith("?"), variadic=name.startswith(".."))
