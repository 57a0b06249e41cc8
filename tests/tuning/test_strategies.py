"""Strategies: proposals are new points of the space, and the best ones lead to better ones."""

from __future__ import annotations

import itertools
import statistics
from random import Random

import pytest
from rewrite.backend.ir.schedule import DEFAULT, Knob, Point, Space
from rewrite.errors import UserError
from rewrite.tuning.strategies import choice
from rewrite.tuning.strategies.learned import Guided, Ranking, grades
from rewrite.tuning.strategies.samplers import Annealing, Evolution, Grid, RandomPoints, all_points
from rewrite.tuning.strategies.search import Sampler, Search, point_key

SPACE = Space(("gemm",), tuple(Knob(name, tuple(range(10))) for name in "abcd"), lambda p: p.get("a") != 3)
NARROW = Space(
    ("conv",),
    (
        Knob("algorithm", ("direct", "winograd")),
        Knob("near", (0, 8, 16), ("algorithm", ("direct",))),
        Knob("near", (1, 2), ("algorithm", ("winograd",))),
    ),
)
WANTED = {"a": 7, "b": 2, "c": 5, "d": 0}


def features(point: Point) -> dict[str, float]:
    return {name: float(point.get(name, 9)) for name in "abcd"}


def time_of(point: Point) -> float:
    """A bowl with its minimum, 0.5, at a=7, b=2, c=5 and d=0; a knob left out counts as 9."""
    return 0.5 + sum((features(point)[name] - value) ** 2 for name, value in WANTED.items()) / 300


def sampler(name: str, space: Space = SPACE, seed: int = 0, ranking: Ranking | None = None) -> Sampler:
    if name in ("guided", "tpe"):
        pytest.importorskip("lightgbm" if name == "guided" else "optuna")
    if name == "guided" and ranking is None:
        ranking = Ranking()
    return choice.make_sampler(name, space, str(seed), ranking=ranking, kernel="k", features=features)


def best_after(search: Search, count: int) -> float:
    for _ in range(count // 6):
        for point in search.propose(6):
            search.observe(point, time_of(point))
    return search.best


@pytest.mark.parametrize("name", ["guided", "evolution", "annealing", "tpe"])
def test_searches_find_better_points_than_chance(name: str) -> None:
    found = statistics.mean(best_after(Search(SPACE, sampler(name, seed=seed)), 96) for seed in range(4))
    drawn = statistics.mean(best_after(Search(SPACE, RandomPoints(SPACE, seed)), 96) for seed in range(4))
    assert found < drawn - 0.005


@pytest.mark.parametrize("name", choice.NAMES)
def test_proposals_are_new_points_of_the_space(name: str) -> None:
    search, seen = Search(SPACE, sampler(name)), set()
    for _ in range(12):
        for point in search.propose(6):
            assert SPACE.accepts(point)
            assert point_key(point) not in seen
            seen.add(point_key(point))
            search.observe(point, time_of(point))
    assert len(seen) == 72


@pytest.mark.parametrize("name", choice.NAMES)
def test_a_small_space_is_exhausted(name: str) -> None:
    search = Search(NARROW, sampler(name, NARROW))
    found: list[Point] = []
    while proposed := search.propose(6):
        found += proposed
        for point in proposed:
            search.observe(point, 1.0 + len(point))
    expected = {point_key(point) for point in all_points(NARROW)} - {point_key(DEFAULT)}
    assert {point_key(point) for point in found} <= expected
    if name != "annealing":  # which may stay at the default, from where some points are many steps away
        assert {point_key(point) for point in found} == expected


def test_all_points_are_enumerated_once() -> None:
    points = list(all_points(NARROW))
    assert points[0] == DEFAULT
    assert len(points) == len({point_key(point) for point in points}) == 1 + 4 + 3
    assert all(NARROW.accepts(point) for point in points)
    assert next(Grid(NARROW).candidates(1)) == DEFAULT


def test_points_that_render_the_same_code_are_proposed_once() -> None:
    """As if only the first knob changed anything."""
    search = Search(SPACE, RandomPoints(SPACE, 0), code=lambda point: point.get("a"))
    found = list(itertools.chain(*(search.propose(6) for _ in range(5))))
    assert sorted(int(point["a"]) for point in found) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert search.best == 1.0


def test_a_seed_decides_the_proposals() -> None:
    first, same, other = (Search(SPACE, Evolution(SPACE, seed)).propose(6) for seed in (1, 1, 2))
    assert first == same != other


def test_suggested_points_come_first() -> None:
    search = Search(SPACE, Evolution(SPACE, 4))
    for value in range(4):  # of which a=3 violates the constraint
        search.suggest({"a": value, "b": 9})
    search.suggest({"e": 1})
    first = search.propose(6)
    assert first[:3] == [{"a": value, "b": 9} for value in range(3)]
    assert not set(map(point_key, first)) & set(map(point_key, search.propose(6)))


def test_points_of_an_earlier_search_are_not_proposed_again() -> None:
    space = Space(("gemm",), (Knob("near", (0, 8, 16)),))
    known: list[tuple[Point, float]] = [({"near": 8}, 0.9), ({"near": 99}, 0.1)]  # the latter is of another space
    search = Search(space, Evolution(space, 0), known)
    assert search.best == 0.9
    assert sorted(p["near"] for p in search.propose(6)) == [0, 16]


def test_annealing_walks_to_faster_points_and_sometimes_to_slower_ones() -> None:
    cold, hot = (Annealing(SPACE, 1, temperature=heat) for heat in (1e-9, 1e9))
    for walk in (cold, hot):
        walk.observe({"a": 1}, 0.9)
        walk.observe({"a": 2}, 1.4)
    near = next(cold.candidates(6))
    assert sum(near.get(name) != {"a": 1}.get(name) for name in "abcd") == 1
    near = next(hot.candidates(6))
    assert sum(near.get(name) != {"a": 2}.get(name) for name in "abcd") == 1


def test_what_was_learned_from_other_kernels_guides_the_first_proposal() -> None:
    pytest.importorskip("lightgbm")
    ranking, chance = Ranking(), Random(5)
    for kernel in ("first", "second"):
        for point in [SPACE.sample(chance) for _ in range(120)]:
            ranking.add(kernel, features(point), time_of(point))
    first = Search(SPACE, Guided(SPACE, 1, ranking, "new", features)).propose(12)
    drawn = Search(SPACE, RandomPoints(SPACE, 1)).propose(12)
    assert statistics.mean(map(time_of, first)) < statistics.mean(map(time_of, drawn)) - 0.02


def test_grades_are_highest_for_the_fastest() -> None:
    assert grades([0.5, 1.0, 0.5 * 2**0.25, float("inf")]) == [31, 0, 23, 0]
    assert grades([float("inf")]) == [0]


def test_an_unknown_search_is_refused() -> None:
    with pytest.raises(UserError, match="no search 'magic'"):
        choice.checked_name("magic")
    assert choice.checked_name("grid") == "grid"
    assert choice.checked_name(None) in ("guided", "evolution")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    monkeypatch.setitem(__import__("sys").modules, "lightgbm", None)
    with pytest.raises(UserError, match="needs the package optuna"):
        choice.make_sampler("tpe", SPACE, "0")
    with pytest.raises(UserError, match="needs the package lightgbm"):
        Ranking()
