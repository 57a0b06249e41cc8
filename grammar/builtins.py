"""Vocabulary of rules: reserved words, element types, and library functions with signatures and docs.

The library is closed and total: an unknown or out-of-range argument makes the condition unprovable. The engine
implements the functions, which `functions.txt` lists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ITEMS = ("rule", "op", "fuse", "def", "use", "ruleset", "schedule")
"""Keywords that open an item."""
OP_FLAGS = ("commutative", "impure", "discontinuous")
"""Clauses of operators that are a single word."""
CLAUSES = {
    "rule": ("given", "where", "let", "class", "direction", "joins", "order", "allow", "test"),
    "fuse": ("given", "where", "test"),
    "op": ("kind", *OP_FLAGS, "given", "where", "class", "test"),
    "ruleset": ("joins",),
}
"""Clauses of each kind of item."""
CLAUSE_WORDS = tuple(dict.fromkeys(word for words in CLAUSES.values() for word in words))
"""Keywords that open a clause."""
TEST_WORDS = ("fires", "refuses", "equals", "gives")
"""Verdicts of tests, and the clause after their operands."""
OPERATOR_WORDS = ("and", "or", "not", "in", "is", "for", "if", "else", "broadcasts")
"""Operators and connectives that are words."""
WORDS = ("true", "false", "none", "inf", "nan", "pi")
"""Names with a fixed meaning in every expression."""

DTYPES = (
    *("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "i4", "u64", "u32", "u16", "u8", "u4", "bool", "string"),
    *("c64", "c128", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i2", "u2"),
)
DTYPE_CLASSES = ("float", "integer", "number", "scalar")
NARY = ("Add", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
"""Operators that accept any number of inputs in rules: the pattern matches a whole tree of them, in any order."""
KINDS = ("elementwise", "injective", "reduction", "complex", "opaque")
CLASSES = ("exact", "reassoc", "fast")
RELAXATIONS = ("signed_zero",)
DIRECTIONS = ("simplify", "canonical", "explore", "lower")
WARNINGS = ("overlap", "duplicate", "shadowed", "loop", "growth", "redundant", "unused", "dead")
"""Kinds of warnings that a rule may `allow`; see `lints`."""
RULESETS = ("simplify", "explore", "lower")
"""Rulesets of rules that join none; `canonical` rules belong to `simplify`."""
FUNCTIONS = Path(__file__).with_name("functions.txt")
"""Functions of conditions and attributes, in groups: signatures and docs."""
OPERAND_FUNCTIONS = Path(__file__).with_name("operand_functions.txt")
"""Functions of the operands of tests."""
LIMITS = ("iterations", "matches", "nodes", "seconds")
"""Limits of a ruleset."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a library function. `sort` is a word such as `tensor`, `const`, `dims`, `int`, `list`."""

    name: str
    sort: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A library function: its signature and a one-line doc."""

    name: str
    parameters: tuple[Parameter, ...]
    result: str
    doc: str

    @property
    def min_arguments(self) -> int:
        """Minimum number of arguments."""
        return sum(not (p.optional or p.variadic) for p in self.parameters)

    @property
    def max_arguments(self) -> int | None:
        """Maximum number of arguments, None for any number."""
        return None if any(p.variadic for p in self.parameters) else len(self.parameters)

    @property
    def signature(self) -> str:
        """Text of the signature, as in the table: `dim(x: tensor, i: int) -> dim`."""
        shown = ", ".join(f"{'..' * p.variadic}{p.name}{'?' * p.optional}: {p.sort}" for p in self.parameters)
        return f"{self.name}({shown}) -> {self.result}"


@cache
def functions() -> dict[str, Function]:
    """Return the functions of conditions and attributes, by name."""
    return parse_table(FUNCTIONS.read_text(encoding="utf-8"))


@cache
def operand_functions() -> dict[str, Function]:
    """Return the functions that operands of a `test` may use."""
    return {**functions(), **parse_table(OPERAND_FUNCTIONS.read_text(encoding="utf-8"))}


def parse_table(text: str) -> dict[str, Function]:
    """Read a table of functions: `name(parameters) -> sort`, then a one-line doc."""
    table: dict[str, Function] = {}
    for line in filter(None, text.splitlines()):
        found = re.fullmatch(r"(\w+)\((.*?)\) -> (\w+) +(.+)", line)
        assert found is not None, f"not a line of a table of functions: {line!r}"
        name, parameters, result, doc = found.groups()
        table[name] = Function(name, tuple(map(_parameter, parameters.split(", "))), result, doc)
    return table


def _parameter(text: str) -> Parameter:
    name, sort = text.split(": ")
    return Parameter(name.strip(".?"), sort, optional=name.endswith("?"), variadic=name.startswith(".."))
