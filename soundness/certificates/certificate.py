"""Format of a certificate: the cases of a proof, each with its facts and with the scalars that are equal in it.

A certificate is plain data, written by the prover and read by the checker, which share no other code:

    integer    a Python int, or ("sum", (factor, (atom, …)), …)
    atom       ("var", name), ("div", integer, integer) for the floor quotient, ("data", tensor, index…)
    condition  True, False, ("ge", integer), ("eq", integer), ("and" | "or" | "not", condition…); `ge` is "at least 0"
    scalar     ("read", tensor, index…), ("flat", tensor, position), ("const", text of a number), ("int", integer),
               ("app", operator, attributes, scalar…), ("ite", condition, scalar, scalar),
               ("big", operator, ((variable, size), …), scalar) for a sum, maximum, … over index variables
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Int: TypeAlias = "int | tuple[Any, ...]"
Cond: TypeAlias = "bool | tuple[Any, ...]"
Scalar: TypeAlias = "tuple[Any, ...]"
Step: TypeAlias = "tuple[Any, ...]"


@dataclass(frozen=True, slots=True)
class Goal:
    """Claim that two scalars, elements of type `dtype`, are equal at the end of a case."""

    left: Scalar
    right: Scalar
    dtype: str


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a proof: the options that it takes, among how many, its steps in their order, and its goals.

    The steps:

        ("given", condition)                    stated by the rule, by its conditions or by a valid model
        ("size", condition), ("index", condition)   a size is at least 0, an index of the result is in its range
        ("implied", condition)                  follows from the facts so far
        ("cases", place, condition, …)          the options of a choice, one of which holds: the case takes the one
                                                that `taken` names at this place (-1: there is one only)
        ("quotient", condition)                 the range of the remainder of a floor quotient
        ("equal", atom, integer)                the facts so far imply that both are equal
        ("implies", condition, condition)       the facts so far and the first imply the second
        ("split", atom, size, atom, size, atom, size)   an index below the first size as two, outer and inner; None
                                                for one that is 0 because its size is 1

    `types` are the element types of tensors and of unknown functions, `kinds` what each type may be, `shapes` the dims
    of tensors that are read by position, `contents` the scalars that all elements of a tensor equal, `integers` the
    tensors that are read as integers, `elements` comparisons (operator, tensor or scalar, scalar) of contents."""

    taken: tuple[int, ...]
    options: tuple[int, ...]
    steps: tuple[Step, ...]
    goals: tuple[Goal, ...]
    types: Mapping[str, str]
    kinds: Mapping[str, tuple[str, ...]]
    shapes: Mapping[str, tuple[Int, ...]]
    contents: Mapping[str, Scalar]
    integers: frozenset[str]
    elements: tuple[tuple[str, Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Certificate of a proof: the numerics class, and the cases of each direction and size of a group."""

    rule: str
    numerics: str
    signed_zero: bool
    parts: tuple[tuple[Case, ...], ...]
