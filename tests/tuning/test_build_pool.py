"""A pool of workers builds what is built here, and its losses are made good here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from rewrite.backend.ir.schedule import DEFAULT, Point
from rewrite.engine.verification.random_inputs import make_inputs
from rewrite.errors import RewriteError, UserError
from rewrite.tuning import build_pool
from rewrite.tuning.build_pool import BuildJob, BuildPool, unpack
from rewrite.tuning.measuring_process import MeasuringProcess
from rewrite.tuning.race import Race
from rewrite.tuning.tune import BATCH, batch_size

from .test_measuring import kernel

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool() -> Iterator[BuildPool]:
    with build_pool.build_pool("native", workers=2) as found:
        assert found is not None
        yield found


def job() -> BuildJob:
    one = kernel()
    return BuildJob(one.key, one.graph, 1, "native", True, None)


def points(count: int) -> list[Point]:
    random = Random(4)
    return [DEFAULT, *(kernel().space.sample(random) for _ in range(count - 1))]


def contents(bundle: Path) -> dict[str, bytes]:
    return {str(file.relative_to(bundle)): file.read_bytes() for file in bundle.rglob("*") if file.is_file()}


def test_a_pool_builds_what_is_built_here(pool: BuildPool, tmp_path: Path) -> None:
    chosen = points(4)
    for number, archive in enumerate(pool.built(job(), chosen)):
        assert isinstance(archive, bytes)
        there = unpack(archive, tmp_path / f"there{number}")
        here = job().build(chosen[number], tmp_path / f"here{number}", tmp_path / "cache")
        assert contents(there) == contents(here)
        assert there.stat().st_mode & 0o777 == 0o700


def test_what_the_compiler_rejects_is_an_error(pool: BuildPool) -> None:
    broken = BuildJob("key", kernel().graph, 1, "no such target", True, None)
    [found] = pool.built(broken, [DEFAULT])
    assert isinstance(found, RewriteError)
    assert "no such target" in str(found)


def test_killed_workers_lose_nothing(pool: BuildPool, tmp_path: Path) -> None:
    chosen = points(8)
    archives = pool.built(job(), chosen)
    first = next(archives)
    killed = pool._client.run(os.getpid)
    assert len(killed) == 2
    for process in killed.values():
        os.kill(process, signal.SIGKILL)
    found = [first, *archives]
    assert len(found) == 8
    assert all(isinstance(archive, bytes) for archive in found)
    last = unpack(found[-1], tmp_path / "last")  # type: ignore[arg-type]
    here = job().build(chosen[-1], tmp_path / "here", tmp_path / "cache")
    assert contents(last) == contents(here)
    assert set(pool._client.run(os.getpid).values()).isdisjoint(killed.values())


def test_a_race_builds_here_what_no_worker_delivers(
    pool: BuildPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = pool.built

    def lossy(job: BuildJob, points: list[Point]) -> Iterator[bytes | RewriteError | None]:
        for number, archive in enumerate(built(job, points)):
            yield [None, archive, RewriteError("rejected")][number % 3]

    monkeypatch.setattr(pool, "built", lossy)
    (tmp_path / "race").mkdir()
    chosen = [{"tile": "4x2"}, {"tile": "5x2"}, {"tile": "6x2"}]
    with MeasuringProcess([], 0) as process:
        race = Race(
            kernel(), process, tmp_path / "race", make_inputs(kernel().graph, {}),
            threads=1, target="native", reassociate=True, library=None, pool=pool,
        )  # fmt: skip
        found = {str(measured.point): measured for measured in race.run(chosen)}
        monkeypatch.setattr(race, "_build", None)  # what a worker built is not built again
        assert race.compare(chosen[1]) is not None
    assert [found[str(point)].outcome for point in chosen] == ["", "", "error"]
    assert all(found[str(point)].difference < 1e-4 for point in chosen[:2])


def test_workers_of_another_kind_are_refused(pool: BuildPool, monkeypatch: pytest.MonkeyPatch) -> None:
    there = build_pool.build_environment
    monkeypatch.setattr(build_pool, "build_environment", lambda target: "another")
    monkeypatch.setattr(pool._client, "run", lambda function, target, on_error: {"tcp://127.0.0.2:1": there(target)})
    with pytest.raises(UserError, match=r"no worker of the pool is like this machine \(1 workers\)"):
        BuildPool(pool._client, "native")


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_pool, "CONNECTING", 0.5)
    with (
        pytest.raises(UserError, match="no scheduler answers at 'tcp"),
        build_pool.build_pool("native", scheduler="tcp://127.0.0.1:9"),
    ):
        pass


def test_no_worker_waits_for_others_of_a_batch() -> None:
    assert [batch_size(workers) for workers in (1, 2, 4, 6, 9)] == [BATCH, BATCH, 8, BATCH, 9]


def test_without_workers_there_is_no_pool() -> None:
    with build_pool.build_pool("native") as found:
        assert found is None
