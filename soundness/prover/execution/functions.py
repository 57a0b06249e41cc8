"""Functions of the rule language on symbolic values. Functions that are missing here are not modeled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce
from typing import Any

from ....grammar.syntax import ast
from ..paths import element_types, tensors
from ..paths.path import FINITE, NONNEGATIVE, Infeasible, NotModeled, Predicate
from ..paths.tensors import Leaf, Tensor
from ..semantics import movement
from ..semantics.einsum import Equation
from ..terms import integers, scalars
from ..terms.integers import Poly, eq, ge
from ..terms.scalars import Scalar, app
from .arithmetic import Head
from .expressions import Expressions

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _function(f: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Register a function of values under its own name or others."""

    def call(run: Expressions, *args: ast.Expr) -> Any:
        return f(run, *(run.evaluate(a) for a in args))

    FUNCTIONS.update(dict.fromkeys(names or (f.__name__.strip("_"),), call))
    return f


# --- tensors and their contents ---

_function(lambda run, x: run.tensor(x).shape, "shape")
_function(lambda run, x: run.tensor(x).rank, "rank")
_function(lambda run, x: run.tensor(x).size, "size")
_function(lambda run, x, i: at(run, run.tensor(x).shape, i), "dim")
_function(lambda run, x: element_types.root(run.path, run.tensor(x).dtype), "dtype")
_function(lambda run, *shapes: tensors.broadcast(run.path, [run.items(s) for s in shapes]), "broadcast")
_function(lambda run, t: element_types.is_one_of(run.path, t, ("float",)), "is_float")
_function(lambda run, t: element_types.is_one_of(run.path, t, ("int", "uint")), "is_integer")


@_function
def limits(run: Expressions, t: Any) -> list[Any]:
    """Return the least and the greatest integer of an element type, by cases on whether it has a sign."""
    path, name = run.path, element_types.root(run.path, t)
    if not isinstance(t, str) or not set(element_types.kinds(path, name)) <= {"int", "uint"}:
        raise NotModeled("the limits of a type that may not be one of integers")
    greatest = path.size(f"greatest of {name}")
    path.assume(ge(greatest, 127), certain=True)
    if element_types.kind(path, name) == "uint":
        return [0, greatest]
    return [path.normal(-greatest - 1), greatest]


# all elements positive: the prover only uses that none is negative
_function(lambda run, x: Predicate(NONNEGATIVE, run.tensor(x), scalars.ZERO), "nonnegative", "positive")
_function(lambda run, x: Predicate(FINITE, run.tensor(x), scalars.ZERO), "finite")


def at(run: Expressions, items: list[Any], index: Any) -> Any:
    """Return an element of a list."""
    return items[run.position(items, index)]


def ints(run: Expressions, t: Any) -> list[Any]:
    """Return the contents of an integer tensor."""
    if isinstance(t, list):
        return t
    if isinstance(t, Leaf) and t.name.partition("[")[0] not in run.lists and t.fixed != 0:
        raise NotModeled("the contents of a tensor of any length")
    found: list[Any] = run.tensor(t).values()
    return found


_function(ints, "ints", "dims", "values")


@_function
def scalar(run: Expressions, c: Any) -> Any:
    """Return the only element of a constant."""
    if isinstance(c, (int, Fraction, float, Poly, Scalar)):
        return c
    t = run.tensor(c)
    if not run.path.pointwise:
        run.path.assume(eq(t.size, 1))
    index = [] if run.path.pointwise else [0] * t.rank
    if isinstance(t, Leaf):
        name = element_types.root(run.path, t.dtype)
        known = run.path.extra.get(("kind", name))
        if name in ("i64", "i32") or (known is not None and set(known) <= {"int", "uint"}):
            run.path.extra[("integers", t.name)] = True
    found = t.at(index)
    if found.op == "int":
        return run.path.normal(found.args[0])
    if not found.is_number:
        return found
    return int(found.args[0]) if found.args[0].denominator == 1 else found.args[0]


@_function
def known(run: Expressions, d: Any) -> bool:
    """Whether dims are known numbers, by cases."""
    if isinstance(d, int) or (isinstance(d, list) and all(isinstance(v, int) for v in d)):
        return True
    return run.path.once(("known", str(d)), lambda: run.path.choose((True, False), f"{d} is a known number"))


@_function
def _op_name(run: Expressions, f: Any) -> Any:
    if not isinstance(f, Head):
        raise NotModeled("op_name")
    return f.op if f.op is not None else f"?{f.variable}"  # it differs from all that have names


# --- numbers ---

_function(lambda run, items: run.path.normal(integers.product(run.items(items))), "product", "prod")
_function(lambda run, a, b: run.path.divide(run.integer(a), run.integer(b))[0], "floordiv")
_function(lambda run, a, b: run.path.divide(run.integer(a) + run.integer(b) - 1, run.integer(b))[0], "ceildiv")
_function(lambda run, items: reduce(partial(run.arithmetic, "+"), run.items(items), 0), "sum")


def _extreme(op: str, run: Expressions, *args: Any) -> Any:
    def better(a: Any, b: Any) -> Any:
        if isinstance(a, (int, Poly)) and isinstance(b, (int, Poly)):
            return run.path.minimum(a, b) if op == "Min" else run.path.maximum(a, b)
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            raise NotModeled("an extreme of contents")
        return app(op, scalars.number(a), scalars.number(b))

    items = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    run.path.require(bool(items), "an extreme of nothing")
    return reduce(better, items)


_function(partial(_extreme, "Min"), "min")
_function(partial(_extreme, "Max"), "max")


def _unary(op: str, run: Expressions, x: Any) -> Any:
    return run.operator(op, {}, None, [x])[0] if isinstance(x, Tensor) else app(op, scalars.number(x))


for _op in ("Sqrt", "Exp", "Log", "Abs", "Floor", "Ceil"):
    _function(partial(_unary, _op), _op.lower())

# --- lists ---

_function(lambda run, items: len(run.items(items)), "len")
_function(lambda run, a, b: run.stretch(a, b), "range")
_function(lambda run, items: run.items(items)[::-1], "reverse")
_function(lambda run, value, n: [value] * _count(run, n), "repeat")
_function(lambda run, items: [v for item in run.items(items) for v in run.items(item)], "flatten")
_function(lambda run, items: [[i, v] for i, v in enumerate(run.items(items))], "enumerate")
_function(lambda run, items, places: [at(run, run.items(items), i) for i in run.items(places)], "take")
# the permutation that applies p, then q
_function(lambda run, p, q: [at(run, run.items(p), i) for i in run.items(q)], "compose_perm")
_function(lambda run, p: integers.conj(*(eq(v, i) for i, v in enumerate(run.items(p)))), "identity_perm")


@_function
def sorted_(run: Expressions, items: Any) -> list[Any]:
    """Return a list in ascending order."""
    out: list[Any] = []
    for item in run.items(items):
        place = next((k for k, v in enumerate(out) if run.path.decide(integers.lt(item, v))), len(out))
        out.insert(place, item)
    return out


@_function
def _unique(run: Expressions, items: Any) -> list[Any]:
    out: list[Any] = []
    for item in run.items(items):
        if not any(run.path.decide(eq(item, v)) for v in out):
            out.append(item)
    return out


@_function
def _index(run: Expressions, items: Any, value: Any) -> int:
    for i, v in enumerate(run.items(items)):
        if run.truth(run.compare("==", v, value)):
            return i
    raise Infeasible("the value is not in the list")


@_function
def _drop(run: Expressions, items: Any, places: Any) -> list[Any]:
    found = run.items(items)
    n = len(found)
    dropped = [run.path.concrete(run.integer(p), -n - 1, n, "place in a list") for p in run.items(places)]
    return [item for i, item in enumerate(found) if i not in dropped and i - n not in dropped]


@_function
def _slice_(run: Expressions, items: Any, a: Any, b: Any) -> list[Any]:
    found = run.items(items)
    low, high = (run.path.concrete(run.integer(v), -len(found), len(found), "bound") for v in (a, b))
    return found[low:high]


@_function
def _set_at(run: Expressions, items: Any, i: Any, value: Any) -> list[Any]:
    found = run.items(items)
    found[run.position(found, i)] = value
    return found


def _count(run: Expressions, n: Any) -> int:
    count = run.integer(n)
    if not isinstance(count, int):
        raise NotModeled("a list of unknown length")
    run.path.require(count >= 0, "a list of negative length")
    return count


@_function
def _zip_(run: Expressions, *lists: Any) -> list[Any]:
    found = [run.items(v) for v in lists]
    run.path.require(len(set(map(len, found))) <= 1, "lists of different lengths")
    return list(map(list, zip(*found, strict=True)))


@_function
def _all_(run: Expressions, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if any(isinstance(v, Predicate) for v in value):
        return value if len(value) > 1 else value[0]
    return integers.conj(*value)


@_function
def _any_(run: Expressions, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(v, (bool, integers.Cond)) for v in value):
        return integers.disj(*value)
    raise NotModeled("any of contents")


# --- permutations and axes ---


@_function
def _inverse_perm(run: Expressions, p: Any) -> list[Any]:
    last = len(run.items(p)) - 1
    found = [run.path.concrete(run.integer(v), 0, last, "entry of a permutation", certain=True) for v in p]
    run.path.require(sorted(found) == list(range(len(found))), "the list is not a permutation")
    return [found.index(i) for i in range(len(found))]


@_function
def _swap_perm(run: Expressions, n: Any, i: Any, j: Any) -> list[Any]:
    perm = list(range(_count(run, n)))
    a, b = run.position(perm, i), run.position(perm, j)
    perm[a], perm[b] = perm[b], perm[a]
    return perm


@_function
def axis(run: Expressions, a: Any, n: Any) -> Any:
    """Return an axis counted from the front."""
    a, n = run.integer(a), run.integer(n)
    if not isinstance(n, int):
        raise NotModeled("a rank")
    return run.path.place(a, n, "axis")


@_function
def axes(run: Expressions, items: Any, n: Any) -> list[Any]:
    """Return axes counted from the front, sorted; none occurs twice."""
    found = sorted_(run, [axis(run, a, n) for a in run.items(items)])
    for a, b in itertools.pairwise(found):
        run.path.assume(integers.negate(eq(a, b)))
    return [run.path.normal(v) for v in found]


# --- equations of Einsum ---


@_function
def _subscripts(run: Expressions, equation: Any) -> list[list[int]]:
    """Return the labels of an equation; none for one that is not plain."""
    if not isinstance(equation, Equation):
        raise NotModeled("the labels of an equation")
    return [list(term) for term in equation.terms or ()]


@_function
def _einsum_equation(run: Expressions, terms: Any) -> Equation:
    """Return the equation with these labels."""
    found = tuple(tuple(run.items(term)) for term in run.items(terms))
    if not all(isinstance(label, int) for term in found for label in term):
        raise NotModeled("labels that are computed")
    if any(len(set(term)) < len(term) for term in found):
        raise NotModeled("a label twice in a term")
    return Equation(found)


# --- new tensors ---


@_function
def _expand_dims(run: Expressions, x: Any, places: Any) -> Any:
    found = places if isinstance(places, list) else [places]
    if not isinstance(x, Tensor):
        x = run.constant(x, "f32")
    return run.operator("Unsqueeze", {}, None, [x, found])[0] if found else x


@_function
def _reshape(run: Expressions, x: Any, target: Any) -> Tensor:
    t = x if isinstance(x, Tensor) else run.constant(x, "f32")
    if run.path.pointwise:
        raise NotModeled("reshape in a pointwise proof")
    dims = [run.integer(d) for d in run.items(target)]
    if any(d == -1 for d in dims):
        return movement.reshaped(run.path, t, movement.target_dims(run.path, t.shape, dims, 1))
    run.path.assume(integers.conj(*map(ge, dims)))
    run.path.require(eq(integers.product(dims), t.size), "the size of a reshaped tensor", typed=True)
    return movement.reshaped(run.path, t, dims)


def _filling(value: Any) -> Callable[..., Any]:
    """Return a function that fills a tensor with a value, or with its second argument."""

    def call(run: Expressions, *args: ast.Expr) -> Tensor:
        pointwise = run.path.pointwise
        sizes = [] if pointwise else [run.integer(d) for d in run.items(run.evaluate(args[0]))]
        rest = [run.evaluate(a) for a in args[1:]]
        found = scalars.number(rest.pop(0) if value is None else value)
        dtype = rest[0] if rest and isinstance(rest[0], str) else "f32"
        place = None if pointwise else (lambda place: found)
        return Tensor(run.path, sizes, lambda index: found, dtype=dtype, place=place)

    return call


FUNCTIONS.update(full=_filling(None), zeros=_filling(0), ones=_filling(1))


@_function
def _const(run: Expressions, value: Any, t: Any) -> Tensor:
    if isinstance(value, list):
        return movement.listed(run.path, [run.integer(v) for v in value])
    return run.constant(value, t if isinstance(t, str) else "f32")


# a constant scalar of the type of x
_function(lambda run, value, x: run.constant(scalar(run, value), run.tensor(x).dtype), "like")
