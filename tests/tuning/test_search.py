"""Search: proposals are new points of the space, and the best ones lead to better ones."""

from __future__ import annotations

from rewrite.backend.ir.schedule import Knob, Point, Space
from rewrite.tuning.search import Evolution, point_key

SPACE = Space(("gemm",), tuple(Knob(name, tuple(range(10))) for name in "abcd"), lambda p: p.get("a") != 3)


def time_of(point: Point) -> float:
    """A bowl with its minimum, 0.5, at a=7, b=2, c=5 and d=0; a knob left out counts as 9."""
    wanted = {"a": 7, "b": 2, "c": 5, "d": 0}
    return 0.5 + sum((int(point.get(name, 9)) - value) ** 2 for name, value in wanted.items()) / 300


def best_after(count: int, seed: int, *, explored: int) -> float:
    search, best = Evolution(SPACE, seed, explored=explored), 2.0
    for _ in range(count // 6):
        for point in search.propose(6):
            search.observe(point, time_of(point))
            best = min(best, time_of(point))
    return best


def test_evolution_finds_better_points_than_chance() -> None:
    seeds = range(10)
    evolved = sum(best_after(120, seed, explored=12) for seed in seeds) / 10
    drawn = sum(best_after(120, seed, explored=10**9) for seed in seeds) / 10
    assert evolved < 0.51
    assert evolved < drawn - 0.005


def test_proposals_are_new_points_of_the_space() -> None:
    search, seen = Evolution(SPACE, 1), set()
    for _ in range(30):
        for point in search.propose(6):
            assert SPACE.accepts(point)
            assert point_key(point) not in seen
            seen.add(point_key(point))
            search.observe(point, time_of(point))
    assert len(seen) == 180


def test_a_seed_decides_the_proposals() -> None:
    first, same, other = (Evolution(SPACE, seed).propose(6) for seed in (1, 1, 2))
    assert first == same != other


def test_a_small_space_is_exhausted() -> None:
    space = Space(("gemm",), (Knob("near", (0, 8, 16)),))
    search = Evolution(space, 0)
    found = search.propose(6)
    assert sorted(p["near"] for p in found) == [0, 8, 16]
    assert search.propose(6) == []


def test_suggested_points_come_first() -> None:
    search = Evolution(SPACE, 4)
    for value in range(4):  # of which a=3 violates the constraint
        search.suggest({"a": value, "b": 9})
    search.suggest({"e": 1})
    first = search.propose(6)
    assert first[:3] == [{"a": value, "b": 9} for value in range(3)]
    assert not set(map(point_key, first)) & set(map(point_key, search.propose(6)))


def test_points_of_an_earlier_search_are_not_proposed_again() -> None:
    space = Space(("gemm",), (Knob("near", (0, 8, 16)),))
    known: list[tuple[Point, float]] = [({"near": 8}, 0.9), ({"near": 99}, 0.1)]  # the latter is of another space
    assert sorted(p["near"] for p in Evolution(space, 0, known).propose(6)) == [0, 16]
