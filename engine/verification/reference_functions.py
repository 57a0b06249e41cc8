"""Functions in Python that compute operators of other domains: the implementation that a definition is held against.

They come from the command line or from Python, never from a rule file, since they are code. A function takes the
inputs as arrays (None for an absent one) and the attributes by name, and returns an array, or several for an operator
with several outputs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...errors import UserError
from ..ir.graph import AttrValue, TensorType, ValueType
from ..operators.folding import Array

Function = Callable[..., Any]
References = Mapping[str, Function]
"""Functions by the names of operators, such as `com.acme.Swish`."""

_FUNCTIONS: ContextVar[References] = ContextVar("_FUNCTIONS", default={})  # noqa: B039  never changed


@contextmanager
def reference_functions(functions: References) -> Iterator[None]:
    """Compute these operators, and no others, by functions while the context lasts, even those with a definition."""
    token = _FUNCTIONS.set(functions)
    try:
        yield
    finally:
        _FUNCTIONS.reset(token)


def known_references() -> References:
    """Return the functions of this context."""
    return _FUNCTIONS.get()


def find_reference(op: str) -> Function | None:
    """Return the function of an operator, or None."""
    return _FUNCTIONS.get().get(op)


def load_references(texts: Sequence[str]) -> dict[str, Function]:
    """Import functions that are written as `com.acme.Swish=package.module:function`.

    Modules are also looked for in the working directory, which is not on the path of an installed command.

    Raises:
        UserError: for another spelling, and for what cannot be imported or called.
    """
    found: dict[str, Function] = {}
    if texts and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # behind installed packages, which it must not hide
    for text in texts:
        op, equals, place = text.partition("=")
        module, colon, name = place.partition(":")
        if not (op and equals and module and colon and name):
            raise UserError(f"no reference: {text!r}", hint="write OPERATOR=MODULE:FUNCTION")
        try:
            value: Any = importlib.import_module(module)
            for part in name.split("."):
                value = getattr(value, part)
        except Exception as error:  # a module may raise anything while it is imported
            raise UserError(
                f"cannot import the reference of {op}: {type(error).__name__}: {error}", where=place
            ) from error
        if not callable(value):
            raise UserError(f"the reference of {op} is no function", where=place)
        found[op] = value
    return found


def call_reference(
    function: Function, op: str, attrs: Mapping[str, AttrValue], arrays: Sequence[Any], types: Sequence[ValueType]
) -> list[Array] | None:
    """Return the outputs that a function computes; None if it refuses the operands by a `ValueError` or arithmetic one.

    `types` are those of the outputs as far as they are inferred from the operator's declaration.

    Raises:
        UserError: if the function raises another exception, or returns what the declaration does not allow.
    """
    try:
        with np.errstate(all="ignore"):
            found = function(*(None if a is None else a.copy() for a in arrays), **attrs)
    except (ArithmeticError, ValueError):
        return None
    except Exception as error:
        raise UserError(f"the reference of {op} fails: {type(error).__name__}: {error}") from error
    outputs = list(found) if isinstance(found, tuple | list) else [found]
    if len(outputs) < len(types):
        raise UserError(f"the reference of {op} returns {len(outputs)} outputs of {len(types)}")
    computed = [np.asarray(output) for output in outputs[: len(types)]]
    for number, (array, type_) in enumerate(zip(computed, types, strict=True)):
        if message := _contradiction(array, type_):
            raise UserError(f"the reference of {op} returns {message} as output {number}")
    return computed


def _contradiction(array: Array, type_: ValueType) -> str:
    """Return what an array is in contradiction to its type; empty if there is none."""
    if not isinstance(type_, TensorType):
        return ""
    if type_.dtype is not None and array.dtype != type_.dtype.numpy:
        return f"{array.dtype} where the declaration says {type_.dtype}"
    known = [] if type_.shape is None else [d if isinstance(d, int) else None for d in type_.shape]
    if type_.shape is not None and (
        len(known) != array.ndim or any(d not in (None, n) for d, n in zip(known, array.shape, strict=True))
    ):
        return f"the shape {list(array.shape)} where the declaration says {type_}"
    return ""
