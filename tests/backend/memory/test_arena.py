"""The arena planner: never an overlap, never far from the lower bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewrite.backend.memory import arena
from rewrite.backend.memory.arena import Buffer, Placement, _in_order, lower_bound, padded, place

BUFFERS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    max_size=40,
).map(lambda rows: [Buffer(f"b{i}", size, first, last) for i, (size, first, last) in enumerate(rows)])


@given(BUFFERS)
@settings(max_examples=200, deadline=None)
def test_live_buffers_never_overlap(buffers: list[Buffer]) -> None:
    found = place(buffers)
    for i, a in enumerate(buffers):
        assert found.offsets[a.name] % 64 == 0
        assert found.offsets[a.name] + a.size <= found.size
        for b in buffers[:i]:
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                apart = (
                    found.offsets[a.name] + a.size <= found.offsets[b.name]
                    or found.offsets[b.name] + b.size <= found.offsets[a.name]
                )
                assert apart, (a, b, found)


@given(BUFFERS)
@settings(max_examples=100, deadline=None)
def test_the_bound_is_the_most_bytes_alive(buffers: list[Buffer]) -> None:
    alive = [sum(padded(b.size) for b in buffers if b.first <= t <= b.last) for t in range(50)]
    assert lower_bound(buffers) == max(alive)
    assert place(buffers).size >= lower_bound(buffers)


def overhead(found: Placement) -> float:
    """Excess of the size over the lower bound, as a fraction of it."""
    return found.size / found.bound - 1 if found.bound else 0.0


def test_a_chain_needs_two_buffers() -> None:
    chain = [Buffer(f"b{i}", 1000, i, i + 1) for i in range(100)]
    found = place(chain)
    assert found.size == 2 * padded(1000) == found.bound
    assert overhead(found) == 0


def test_a_dead_buffer_makes_room_for_smaller_ones() -> None:
    buffers = [Buffer("big", 4096, 0, 1), Buffer("a", 1024, 2, 5), Buffer("b", 1024, 3, 5), Buffer("c", 2048, 4, 5)]
    assert place(buffers).size == 4096


def test_many_buffers_are_placed_quickly_and_well() -> None:
    buffers = [Buffer(f"b{i}", 64 * (1 + i * 7919 % 97), i, i + 1 + i % 5) for i in range(6000)]
    found = place(buffers)
    assert overhead(found) < 0.25


@given(BUFFERS)
@settings(max_examples=100, deadline=None)
def test_changing_the_order_never_makes_it_worse(buffers: list[Buffer]) -> None:
    plain = min(
        max((found[b.name] + padded(b.size) for b in buffers), default=0)
        for found in (_in_order(sorted(buffers, key=key)) for key in (lambda b: b.first, lambda b: -b.size))
    )
    assert place(buffers).size <= max(plain, lower_bound(buffers))


def test_an_arena_that_plain_orders_miss() -> None:
    rows = [(3, 0, 2), (2, 0, 0), (2, 1, 4), (3, 3, 5), (1, 2, 3), (2, 5, 6), (4, 6, 7), (1, 4, 7)]
    buffers = [Buffer(f"b{i}", 64 * size, first, last) for i, (size, first, last) in enumerate(rows)]
    assert overhead(place(buffers)) <= 0.05


@given(BUFFERS)
@settings(max_examples=200, deadline=None)
def test_arrays_place_as_the_index_does(buffers: list[Buffer]) -> None:
    assert arena._in_order_by_arrays(buffers) == _in_order(buffers)


def test_buffers_that_live_long_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network unrolled over n steps, n buffers live during most of it: the index would have some n² entries, and
    reading it would take n³ steps. So changes of the order are tried less often, too."""
    orders: list[int] = []
    place_all = arena._in_order_by_arrays
    monkeypatch.setattr(arena, "_in_order_by_arrays", lambda b: orders.append(len(b)) or place_all(b))
    n = 3000
    unrolled = [Buffer(f"b{i}", 64 * (1 + i % 3), i, n + 3 * i) for i in range(n)]
    assert overhead(place(unrolled)) < 0.25
    assert orders
    assert sum(orders) <= 3 * n + arena.WORK // 8
    orders.clear()
    place([Buffer(f"b{i}", 64, i, i + 1) for i in range(n)])
    assert not orders
