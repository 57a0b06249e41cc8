"""The functions of the rule language on symbolic values. Those that are missing have no meaning for the prover."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ....grammar import ast
from . import integers, movement, scalars, tensors, types
from .integers import Poly, eq, ge
from .path import Infeasible, NotModelled
from .run_types import Head, Predicate
from .scalars import Scalar, app
from .signs import NONNEGATIVE
from .tensors import Leaf, Tensor

if TYPE_CHECKING:
    from .expressions import Expressions

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Registers a function of values."""

    def call(run: Expressions, *args: ast.Expr) -> Any:
        return f(run, *(run.evaluate(a) for a in args))

    FUNCTIONS[f.__name__.strip("_")] = call
    return f


@_function
def shape(run: Expressions, x: Any) -> list[Any]:
    """The dims of a tensor."""
    return run.tensor(x).shape


@_function
def rank(run: Expressions, x: Any) -> int:
    """The number of dims."""
    return run.tensor(x).rank


@_function
def dim(run: Expressions, x: Any, i: Any) -> Any:
    """One dim."""
    return at(run, run.tensor(x).shape, i)


def at(run: Expressions, items: list[Any], index: Any) -> Any:
    """An element of a list."""
    i = run.path.concrete(run.integer(index), -len(items), len(items) - 1, "place in a list", certain=True)
    if not -len(items) <= i < len(items):
        raise Infeasible("there is no such element")
    return items[i]


@_function
def size(run: Expressions, x: Any) -> Any:
    """The number of elements."""
    return run.tensor(x).size


@_function
def dtype(run: Expressions, x: Any) -> str:
    """The element type."""
    return types.root(run.path, run.tensor(x).dtype)


@_function
def ints(run: Expressions, t: Any) -> list[Any]:
    """The contents of an integer tensor."""
    if isinstance(t, list):
        return t
    if isinstance(t, Leaf) and t.name.partition("[")[0] not in run.lists:
        if t.fixed != 0:
            raise NotModelled("the contents of a tensor of any length")
    found: list[Any] = run.tensor(t).values()
    return found


FUNCTIONS["dims"] = FUNCTIONS["ints"]


@_function
def values(run: Expressions, t: Any) -> list[Any]:
    """The elements of a constant."""
    found: list[Any] = ints(run, t)
    return found


@_function
def scalar(run: Expressions, c: Any) -> Any:
    """The only element of a constant."""
    if isinstance(c, (int, Fraction, float, Poly, Scalar)):
        return c
    t = run.tensor(c)
    if not run.path.extra.get("pointwise"):
        run.path.assume(eq(t.size, 1))
    found = t.at([0] * t.rank) if not run.path.extra.get("pointwise") else t.at([])
    if isinstance(t, Leaf):
        known = run.path.extra.get(("kind", types.root(run.path, t.dtype)))
        name = types.root(run.path, t.dtype)
        if name in ("i64", "i32") or (known is not None and set(known) <= {"int", "uint"}):
            run.path.extra[("integers", t.name)] = True
            found = t.at([0] * t.rank) if not run.path.extra.get("pointwise") else t.at([])
    if found.op == "int":
        return run.path.normal(found.args[0])
    if found.op == "const" and not isinstance(found.args[0], str):
        value = found.args[0]
        return int(value) if value.denominator == 1 else value
    return found


@_function
def nonnegative(run: Expressions, x: Any) -> Predicate:
    """That no element is below zero."""
    return Predicate(NONNEGATIVE, run.tensor(x), scalars.ZERO)


@_function
def positive(run: Expressions, x: Any) -> Predicate:
    """That all elements are above zero: what follows from it is that none is below."""
    return Predicate(NONNEGATIVE, run.tensor(x), scalars.ZERO)


@_function
def is_const(run: Expressions, x: Any) -> bool:
    """Whether a tensor is a constant: it may be, or not."""
    raise NotModelled("is_const")


@_function
def known(run: Expressions, d: Any) -> bool:
    """Whether dims are known numbers: they may be, or not."""
    if isinstance(d, int) or (isinstance(d, list) and all(isinstance(v, int) for v in d)):
        return True
    key = ("known", str(d))
    if key not in run.path.extra:
        run.path.extra[key] = run.path.choose((True, False), f"{d} is a known number")
    return bool(run.path.extra[key])


@_function
def same(run: Expressions, x: Any, y: Any) -> bool:
    """Whether two tensors are the same."""
    raise NotModelled("same")


@_function
def op_name(run: Expressions, f: Any) -> Any:
    """The operator of a class head; one of which only the class is known is none of those that conditions name."""
    if not isinstance(f, Head):
        raise NotModelled("op_name")
    return f.op if f.op is not None else f"?{f.variable}"


@_function
def broadcast(run: Expressions, *shapes: Any) -> list[Any]:
    """The shape that shapes broadcast to."""
    return tensors.broadcast(run.path, [run.items(s) for s in shapes])


@_function
def product(run: Expressions, items: Any) -> Any:
    """The product of a list."""
    return run.path.normal(integers.product(run.items(items)))


FUNCTIONS["prod"] = FUNCTIONS["product"]


@_function
def sum_(run: Expressions, items: Any) -> Any:
    """The sum of a list."""
    total: Any = 0
    for item in run.items(items):
        total = run.arithmetic("+", total, item)
    return total


@_function
def floordiv(run: Expressions, a: Any, b: Any) -> Any:
    """The quotient rounded down."""
    return run.path.divide(run.integer(a), run.integer(b))[0]


@_function
def ceildiv(run: Expressions, a: Any, b: Any) -> Any:
    """The quotient rounded up."""
    return run.path.divide(run.integer(a) + run.integer(b) - 1, run.integer(b))[0]


def _extreme(run: Expressions, args: tuple[Any, ...], *, low: bool) -> Any:
    items = args[0] if len(args) == 1 and isinstance(args[0], list) else list(args)
    if not items:
        raise Infeasible("an extreme of nothing")
    total = items[0]
    for item in items[1:]:
        if isinstance(total, (int, Poly)) and isinstance(item, (int, Poly)):
            total = run.path.minimum(total, item) if low else run.path.maximum(total, item)
        elif isinstance(total, Tensor) or isinstance(item, Tensor):
            raise NotModelled("an extreme of contents")
        else:
            total = app("Min" if low else "Max", scalars.number(total), scalars.number(item))
    return total


@_function
def min_(run: Expressions, *args: Any) -> Any:
    """The least."""
    return _extreme(run, args, low=True)


@_function
def max_(run: Expressions, *args: Any) -> Any:
    """The greatest."""
    return _extreme(run, args, low=False)


def _unary(name: str, op: str) -> None:
    def implementation(run: Expressions, x: Any) -> Any:
        if isinstance(x, Tensor):
            return run.operator(op, {}, None, [x])[0]
        return app(op, scalars.number(x))

    implementation.__name__ = name
    _function(implementation)


for _name, _op in (
    ("sqrt", "Sqrt"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("abs", "Abs"),
    ("floor", "Floor"),
    ("ceil", "Ceil"),
):
    _unary(_name, _op)


@_function
def len_(run: Expressions, items: Any) -> int:
    """The length of a list."""
    return len(run.items(items))


@_function
def range_(run: Expressions, a: Any, b: Any) -> Any:
    """The integers from a up to b."""
    return run._range(a, b)


@_function
def reverse(run: Expressions, items: Any) -> list[Any]:
    """Backwards."""
    return run.items(items)[::-1]


@_function
def sorted_(run: Expressions, items: Any) -> list[Any]:
    """In ascending order."""
    out: list[Any] = []
    for item in run.items(items):
        place = next((k for k, v in enumerate(out) if run.path.decide(integers.lt(item, v))), len(out))
        out.insert(place, item)
    return out


@_function
def unique(run: Expressions, items: Any) -> list[Any]:
    """Without repetitions."""
    out: list[Any] = []
    for item in run.items(items):
        if not any(run.path.decide(eq(item, v)) for v in out):
            out.append(item)
    return out


@_function
def index(run: Expressions, items: Any, value: Any) -> int:
    """Where an element first stands."""
    for i, item in enumerate(run.items(items)):
        if run.truth(run.compare("==", item, value)):
            return i
    raise Infeasible("it is not in the list")


@_function
def take(run: Expressions, items: Any, places: Any) -> list[Any]:
    """The elements at these places."""
    return [at(run, run.items(items), i) for i in run.items(places)]


@_function
def drop(run: Expressions, items: Any, places: Any) -> list[Any]:
    """The elements that are not at these places."""
    found = run.items(items)
    gone = set()
    for p in run.items(places):
        p = run.integer(p)
        if not isinstance(p, int):
            p = run.path.concrete(p, -len(found) - 1, len(found), "place in a list")
        gone.add(p + len(found) if p < 0 else p)
    return [item for i, item in enumerate(found) if i not in gone]


@_function
def slice_(run: Expressions, items: Any, a: Any, b: Any) -> list[Any]:
    """The elements from a up to b."""
    found = run.items(items)
    low, high = (run.path.concrete(run.integer(v), -len(found), len(found), "bound") for v in (a, b))
    return found[low:high]


@_function
def set_at(run: Expressions, items: Any, i: Any, value: Any) -> list[Any]:
    """With one element replaced."""
    found = list(run.items(items))
    place = run.path.concrete(run.integer(i), -len(found), len(found) - 1, "place in a list", certain=True)
    at(run, found, place)
    found[place] = value
    return found


@_function
def repeat(run: Expressions, value: Any, n: Any) -> list[Any]:
    """So many times the same."""
    count = run.integer(n)
    if not isinstance(count, int):
        raise NotModelled("a list of unknown length")
    if count < 0:
        raise Infeasible("a list of negative length")
    return [value] * count


@_function
def flatten(run: Expressions, items: Any) -> list[Any]:
    """A list of lists as one."""
    return [v for item in run.items(items) for v in run.items(item)]


@_function
def zip_(run: Expressions, *lists: Any) -> list[Any]:
    """First elements, second elements, …"""
    found = [run.items(v) for v in lists]
    if len({len(v) for v in found}) > 1:
        raise Infeasible("lists of different lengths")
    return [list(v) for v in zip(*found, strict=True)]


@_function
def enumerate_(run: Expressions, items: Any) -> list[Any]:
    """`[place, element]`."""
    return [[i, v] for i, v in enumerate(run.items(items))]


@_function
def all_(run: Expressions, value: Any) -> Any:
    """Whether all hold."""
    if isinstance(value, list):
        if any(isinstance(v, Predicate) for v in value):
            return value if len(value) > 1 else value[0]
        return integers.conj(*value)
    return value


@_function
def any_(run: Expressions, value: Any) -> Any:
    """Whether one holds."""
    if isinstance(value, list) and all(isinstance(v, (bool, integers.Cond)) for v in value):
        return integers.disj(*value)
    raise NotModelled("any of contents")


@_function
def inverse_perm(run: Expressions, p: Any) -> list[Any]:
    """The permutation that undoes p."""
    found = _known(run, p)
    if sorted(found) != list(range(len(found))):
        raise Infeasible("no permutation")
    return [found.index(i) for i in range(len(found))]


def _known(run: Expressions, p: Any) -> list[int]:
    items = run.items(p)
    return [run.path.concrete(run.integer(v), 0, len(items) - 1, "entry of a permutation", certain=True) for v in items]


@_function
def compose_perm(run: Expressions, p: Any, q: Any) -> list[Any]:
    """First p, then q."""
    return [at(run, run.items(p), i) for i in run.items(q)]


@_function
def identity_perm(run: Expressions, p: Any) -> Any:
    """Whether a permutation moves nothing."""
    return integers.conj(*(eq(v, i) for i, v in enumerate(run.items(p))))


@_function
def swap_perm(run: Expressions, n: Any, i: Any, j: Any) -> list[Any]:
    """The permutation that swaps two axes."""
    count = run.integer(n)
    if not isinstance(count, int):
        raise NotModelled("a list of unknown length")
    perm = list(range(count))
    a, b = (run.path.concrete(run.integer(v), -count, count - 1, "axis", certain=True) for v in (i, j))
    if not (-count <= a < count and -count <= b < count):
        raise Infeasible("no such axis")
    perm[a], perm[b] = perm[b], perm[a]
    return perm


@_function
def axis(run: Expressions, a: Any, n: Any) -> Any:
    """An axis counted from the front."""
    a, n = run.integer(a), run.integer(n)
    if not isinstance(n, int):
        raise NotModelled("a rank")
    run.path.assume(integers.conj(ge(a, -n), ge(n - 1, a)))
    return run.path.normal(a) if run.path.decide(ge(a)) else run.path.normal(a + n)


@_function
def axes(run: Expressions, items: Any, n: Any) -> list[Any]:
    """Axes counted from the front, sorted; none twice."""
    found = sorted_(run, [axis(run, a, n) for a in run.items(items)])
    for a, b in itertools.pairwise(found):
        run.path.assume(integers.negate(eq(a, b)))
    return [run.path.normal(v) for v in found]


@_function
def is_float(run: Expressions, t: Any) -> bool:
    """Whether an element type is a float."""
    return types.is_one_of(run.path, t, ("float",))


@_function
def is_integer(run: Expressions, t: Any) -> bool:
    """Whether an element type is an integer."""
    return types.is_one_of(run.path, t, ("int", "uint"))


@_function
def expand_dims(run: Expressions, x: Any, places: Any) -> Any:
    """`Unsqueeze` at these axes."""
    found = places if isinstance(places, list) else [places]
    if not isinstance(x, Tensor):
        x = run.constant(x, "f32")
    return run.operator("Unsqueeze", {}, None, [x, found])[0] if found else x


@_function
def reshape(run: Expressions, x: Any, target: Any) -> Tensor:
    """`Reshape` to dims."""
    t = x if isinstance(x, Tensor) else run.constant(x, "f32")
    if run.path.extra.get("pointwise"):
        raise NotModelled("reshape in a pointwise proof")
    dims = [run.integer(d) for d in run.items(target)]
    open_ = [d for d in dims if d == -1]
    if open_:
        return movement.reshaped(run.path, t, movement.target_dims(run.path, t.shape, dims, 1))
    for d in dims:
        run.path.assume(ge(d, 0))
    run.path.require(eq(integers.product(dims), t.size), "the size of a reshaped tensor", typed=True)
    return movement.reshaped(run.path, t, dims)


def _full(run: Expressions, dims: Any, value: Any, t: Any) -> Tensor:
    found = scalars.number(value)
    name = t if isinstance(t, str) else "f32"
    if run.path.extra.get("pointwise"):
        return Tensor(run.path, [], lambda index: found, dtype=name)
    sizes = [run.integer(d) for d in run.items(dims)]
    return Tensor(run.path, sizes, lambda index: found, dtype=name, place=lambda place: found)


def _making(name: str, value: Any) -> None:
    def call(run: Expressions, *args: ast.Expr) -> Tensor:
        dims = None if run.path.extra.get("pointwise") else run.evaluate(args[0])
        rest = [run.evaluate(a) for a in args[1:]]
        if value is None:
            return _full(run, dims, rest[0], rest[1] if len(rest) > 1 else "f32")
        return _full(run, dims, value, rest[0] if rest else "f32")

    FUNCTIONS[name] = call


for _name, _value in (("full", None), ("zeros", 0), ("ones", 1)):
    _making(_name, _value)


@_function
def const(run: Expressions, value: Any, t: Any) -> Tensor:
    """A constant."""
    if isinstance(value, list):
        return movement.listed(run.path, [run.integer(v) for v in value])
    return run.constant(value, t if isinstance(t, str) else "f32")


@_function
def like(run: Expressions, value: Any, x: Any) -> Tensor:
    """A constant scalar of the type of x."""
    if isinstance(value, Tensor):
        value = scalar(run, value)
    return run.constant(value, run.tensor(x).dtype)
