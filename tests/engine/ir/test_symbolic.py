"""Dim expressions against plain integer evaluation."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.engine.ir import symbolic as sym
from rewrite.engine.ir.dim_expr import bounds
from rewrite.engine.ir.dim_parser import parse
from rewrite.engine.ir.symbolic import Dim, Expr

NAMES = ("N", "M", "batch size")


@dataclass(frozen=True)
class Term:
    """An expression built twice: as a dim, and as a function of the symbols' values."""

    dim: Dim
    value: Callable[[dict[str, int]], int]


def _binary(name: str) -> Callable[[Term, Term], Term]:
    operations: dict[str, tuple[Callable[..., Dim], Callable[[int, int], int]]] = {
        "+": (lambda a, b: a + b, lambda a, b: a + b),
        "-": (lambda a, b: a - b, lambda a, b: a - b),
        "*": (lambda a, b: a * b, lambda a, b: a * b),
        "max": (sym.maximum, max),
        "min": (sym.minimum, min),
    }
    symbolic, plain = operations[name]
    return lambda a, b: Term(symbolic(a.dim, b.dim), lambda env: plain(a.value(env), b.value(env)))


def _divided(name: str) -> Callable[[Term, int], Term]:
    if name == "//":
        return lambda a, n: Term(a.dim // n, lambda env: a.value(env) // n)
    if name == "%":
        return lambda a, n: Term(a.dim % n, lambda env: a.value(env) % n)
    return lambda a, n: Term(sym.ceildiv(a.dim, abs(n)), lambda env: -(-a.value(env) // abs(n)))


leaves = st.one_of(
    st.integers(-7, 7).map(lambda n: Term(n, lambda env: n)),
    st.sampled_from(NAMES).map(lambda name: Term(sym.symbol(name), lambda env: env[name])),
)
divisors = st.integers(-6, 6).filter(bool)
terms = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda op, a, b: _binary(op)(a, b), st.sampled_from(["+", "-", "*", "max", "min"]), inner, inner),
        st.builds(lambda op, a, n: _divided(op)(a, n), st.sampled_from(["//", "%", "ceildiv"]), inner, divisors),
    ),
    max_leaves=8,
)
environments = st.fixed_dictionaries({name: st.integers(0, 20) for name in NAMES})


@given(terms, environments)
@settings(max_examples=400, deadline=None)
def test_arithmetic_agrees_with_integers(term: Term, env: dict[str, int]) -> None:
    assert sym.evaluate(term.dim, env) == term.value(env)


@given(terms)
@settings(max_examples=300, deadline=None)
def test_printing_round_trips(term: Term) -> None:
    assert parse(str(term.dim)) == term.dim


@given(terms, environments)
@settings(max_examples=300, deadline=None)
def test_bounds_hold(term: Term, env: dict[str, int]) -> None:
    low, high = sym.bounds(term.dim)
    value = term.value(env)
    assert low is None or low <= value
    assert high is None or value <= high


@given(terms, terms, environments)
@settings(max_examples=300, deadline=None)
def test_what_is_proved_is_true(a: Term, b: Term, env: dict[str, int]) -> None:
    if sym.at_least(a.dim, b.dim):
        assert a.value(env) >= b.value(env)
    if sym.certainly_differ(a.dim, b.dim):
        assert a.value(env) != b.value(env)
    if sym.same(a.dim, b.dim):
        assert a.value(env) == b.value(env)
    quotient = sym.exact_div(a.dim, b.dim)
    if quotient is not None:
        assert sym.evaluate(quotient, env) * b.value(env) == a.value(env)


@given(terms, terms, environments)
@settings(max_examples=300, deadline=None)
def test_division_by_an_expression(a: Term, b: Term, env: dict[str, int]) -> None:
    if b.value(env) == 0 or b.dim == 0:
        return
    try:
        value = sym.evaluate(a.dim // b.dim, env)
    except ZeroDivisionError:
        return
    assert value == a.value(env) // b.value(env)


@given(terms, terms, environments)
@settings(max_examples=200, deadline=None)
def test_substitution_then_evaluation(term: Term, other: Term, env: dict[str, int]) -> None:
    inner = other.value(env)
    if inner >= 0:
        replaced = sym.substitute(term.dim, {"N": inner if isinstance(other.dim, int) else sym.maximum(other.dim, 0)})
        assert sym.evaluate(replaced, env) == term.value({**env, "N": inner})


SIZES = st.sampled_from([1, 1, 4, "N", "M", "K", "N+2", "N-1", "max(N,1)-1", "max(N-1,M)", "min(N,4)"])


@given(st.lists(SIZES, min_size=1, max_size=5), st.sampled_from([0, 1, 4]))
@settings(max_examples=300, deadline=None)
def test_broadcasting_is_sound(dims: list[int | str], size: int) -> None:
    parsed = [d if isinstance(d, int) else parse(d) for d in dims]
    for env in ({"N": n, "M": m, "K": k} for n in (1, 2, size) for m in (1, size) for k in (1, size)):
        values = {sym.evaluate(d, env) for d in parsed} - {1}
        if len(values) > 1 or min(values, default=0) < 0:  # no sizes that fit
            continue
        together = sym.broadcast_dims(*parsed)
        assert together is not None
        assert sym.evaluate(together, env) == (values.pop() if values else 1)


N, M = sym.symbol("N"), sym.symbol("M")


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * N + 1, "2*N+1"),
        (sym.maximum(N // 7 - sym.minimum(N // 7, 3), 0) + sym.minimum(N // 7, 3), "N//7"),
        (N - 1, "N-1"),
        ((N + 1) // 2, "(N+1)//2"),
        ((N - 1) // 2 + 1, "(N+1)//2"),
        (M * N * 4 // 4, "M*N"),
        (N * M // M, "N"),
        ((N // 2) // 3, "N//6"),
        ((2 * N + 1) // 4, "N//2"),
        ((N // 2 + 1) // 2, "(N+2)//4"),
        (sym.maximum(N + 1, 1), "N+1"),
        (sym.maximum(N, sym.maximum(M, N)), "max(M,N)"),
        (sym.minimum(N, N + 3, M), "min(M,N)"),
        (sym.symbol("batch size") * 2, "2*'batch size'"),
        (sym.product([N, M, 3]), "3*M*N"),
    ],
)
def test_normal_forms(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_modulo_and_division_belong_together() -> None:
    assert (N // 4) * 4 + N % 4 == N
    assert (4 * N + 3) % 4 == 3
    assert isinstance((N - N) // 3, int)


def test_provable_inequalities() -> None:
    assert sym.at_least(N, 0)
    assert not sym.at_least(N, 1)
    assert sym.at_least(N - N // 2, 0)
    assert sym.at_least(N, N // 2)
    assert sym.at_least(N + 1, (N + 1) // 2)
    assert sym.at_least(sym.maximum(N, M), N)
    assert not sym.at_least(N, M)


def test_broadcast_shapes() -> None:
    assert sym.broadcast((N, 1, 3), (M, 3)) == (N, M, 3)
    assert sym.broadcast((N, 3), (5, 1)) == (5, 3)
    assert sym.broadcast((N,), (N,)) == (N,)
    assert sym.broadcast((2,), (3,)) is None
    assert sym.broadcast((N + 2,), (1,)) == (N + 2,)
    assert sym.broadcast((N + 6,), (5,)) is None
    unknown = sym.broadcast((N,), (M,))
    assert unknown is not None
    assert str(unknown[0]) == "bcast(M,N)"
    assert sym.broadcast((N,), (M,)) == sym.broadcast((M,), (N,))
    with pytest.raises(ValueError, match="3 and 2 cannot be broadcast"):
        sym.evaluate(unknown[0], {"N": 2, "M": 3})


@pytest.mark.parametrize("step", [1, -1])
def test_bounds_of_slices_of_any_sign(step: int) -> None:
    for size, bound in itertools.product(range(4), range(-6, 7)):
        low, high = (0, size) if step > 0 else (-1, size - 1)
        found = sym.slice_bound(M - 6, N, low, N if step > 0 else N - 1)
        clamped = min(max(bound + size if bound < 0 else bound, low), high)
        assert sym.evaluate(found, {"N": size, "M": bound + 6}) == clamped


def test_division_towards_zero() -> None:
    for b, offset in itertools.product((1, 2, 5), range(-7, 4)):
        found = sym.truncdiv(N + offset, b)
        assert parse(str(found)) == found
        low, high = bounds(sym.truncdiv(sym.minimum(N, 9) + offset, b))
        for n in range(12):
            value = sym.evaluate(found, {"N": n})
            assert value == int((n + offset) / b)
            assert low <= value
            assert n > 9 or value <= high
    assert sym.truncdiv(N + 3, 2) == (N + 3) // 2
    assert sym.truncdiv(-N, 2) == -(N // 2)
    assert str(sym.truncdiv(N - 3, 2)) == "truncdiv(N-3,2)"
    assert sym.at_least(2 * sym.truncdiv(N - 3, 2) + 4, 0)
    assert not sym.at_least(2 * sym.truncdiv(N - 3, 2) + 1, 0)
    assert sym.at_least(N - sym.truncdiv(N - 3, 2), 0)
    assert not sym.at_least(N - 3 - 2 * sym.truncdiv(N - 3, 2), 0)


def test_sizes_that_an_equality_determines() -> None:
    assert sym.solution(2 * N + 1, 9) == ("N", 4)
    assert sym.solution(9, 2 * N + 1) == ("N", 4)
    assert sym.solution(2 * N, 9) is None
    assert sym.solution(N, -1) is None
    assert sym.solution(N * N, 9) is None
    assert sym.solution(N // 2, 4) is None
    assert sym.solution(N + M, 4) is None
    assert sym.solution(4, 4) is None
    at_odds = sym.broadcast_dims((N - 3) // 2, sym.truncdiv(N - 3, 2))  # at 0 they are -2 and -1
    assert at_odds is not None
    assert sym.solution(at_odds, N) is None


def test_sizes_required_to_be_equal() -> None:
    assert sym.required_equal(N, N) == N
    assert sym.required_equal(N + 1, N) is None
    both = sym.required_equal(N, M)
    assert str(both) == "same(M,N)"
    assert parse(str(both)) == both == sym.required_equal(M, N)
    assert sym.evaluate(both, {"N": 3, "M": 3}) == 3
    with pytest.raises(ValueError, match="2 and 3 are not equal"):
        sym.evaluate(both, {"N": 3, "M": 2})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1+",
        "N M",
        "max()",
        "4//0",
        "2.5",
        "N)",
        "foo(1)",
        "bcast(2,3)",
        "same(2,3)",
        "N[0]",
        "truncdiv(N,M)",
        "truncdiv(N,0)",
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a dimension"):
        parse(text)


def test_expressions_survive_pickling() -> None:
    dim = sym.maximum(N // 3, M) * N + 1
    assert isinstance(dim, Expr)
    assert pickle.loads(pickle.dumps(dim)) == dim
    assert sym.symbols(dim) == {"N", "M"}
    assert sym.symbol_name(sym.symbol("batch size")) == "batch size"
    assert sym.symbol_name(dim) is None
