"""Candidates built on a pool of workers, by Dask distributed; they are measured on this machine.

Compiling takes most of a search. A task compiles one candidate and returns its bundle as an archive. The scheduler
gives the tasks of a lost worker to others. A candidate that no worker delivers, because its workers died again and
again or because none is left, is compiled here: a search with a pool measures what one without measures.

Tasks are sent by pickle, and a worker runs what it is sent: a pool must be as trusted as this machine.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tarfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backend.bundle.save_bundle import save
from ..backend.compile_graph import compile_graph
from ..backend.ir.schedule import Point
from ..backend.ir.target import parse_targets
from ..backend.schedules.records import Machine
from ..backend.toolchain.compiler import find_compiler
from ..engine.ir.graph import Graph
from ..errors import RewriteError, UserError
from ..grammar.library.load import Library
from ..system import scoped
from .kernels_of_graph import Fixed

SECONDS = 120.0
"""How long to wait for the next candidate before it is compiled here."""
CONNECTING = 10.0
"""Seconds to wait for a scheduler."""


@dataclass(frozen=True)
class BuildJob:
    """What the candidates of a kernel are compiled from, besides their points."""

    key: str
    graph: Graph
    threads: int
    target: str
    reassociate: bool
    library: Library | None

    def build(self, point: Point, path: Path, cache: Path) -> Path:
        """Compile a candidate to a bundle. Raises RewriteError if the compiler rejects it."""
        program = compile_graph(
            self.graph, threads=self.threads, target=self.target, cache_dir=cache, reassociate=self.reassociate,
            library=self.library, schedules=lambda target: Fixed({self.key: point}),
        )  # fmt: skip
        return save(program.variants, path, threads=self.threads, cache_dir=cache)


class BuildPool:
    """Workers that compile candidates: those of a scheduler on hosts whose CPU and compiler are as here."""

    def __init__(self, client: Any, target: str) -> None:
        """Use the workers of a client. Raises UserError if none is like this machine."""
        from distributed.comm.addressing import get_address_host

        self._client = client
        here, there = build_environment(target), client.run(build_environment, target, on_error="return")
        others = {get_address_host(address) for address, found in there.items() if found != here}
        alike = [host for host in map(get_address_host, there) if host not in others]
        # hosts, as a worker that is started again has another address
        self._hosts, self._count = sorted(set(alike)), len(alike)
        if not self._hosts:
            raise UserError(
                f"no worker of the pool is like this machine ({len(there)} workers)",
                hint="Workers need the same CPU model, C compiler, and version of rewrite.",
            )

    def __len__(self) -> int:
        """Return the number of workers that are used."""
        return self._count

    def built(self, job: BuildJob, points: Sequence[Point]) -> Generator[bytes | RewriteError | None, None, None]:
        """Begin to compile candidates, and yield the archive of each in order, or why it cannot be compiled.

        None: no worker delivered it."""
        futures: list[Any] = []
        with contextlib.suppress(Exception):  # a lost scheduler shows below
            # a task of its own: what is only sent to a worker is lost with it
            sent = self._client.submit(_same, job, workers=self._hosts, pure=False)
            futures = [
                self._client.submit(build_archive, sent, dict(point), workers=self._hosts, pure=False)
                for point in points
            ]
        return self._archives(futures, len(points))

    def _archives(self, futures: Sequence[Any], count: int) -> Generator[bytes | RewriteError | None, None, None]:
        end = time.monotonic() + SECONDS
        try:
            for number in range(count):
                try:
                    yield futures[number].result(timeout=max(0.1, end - time.monotonic()))
                except RewriteError as error:
                    yield error
                except Exception:  # whatever ended a worker, the scheduler or the connection to it
                    yield None
                else:
                    end = time.monotonic() + SECONDS
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(list(futures))


@contextlib.contextmanager
def build_pool(target: str, workers: int = 0, scheduler: str = "") -> Iterator[BuildPool | None]:
    """Yield a pool of local worker processes, or that of a scheduler (`tcp://host:port`); None for neither.

    Raises UserError without Dask distributed, or if the scheduler does not answer."""
    if not workers and not scheduler:
        yield None
        return
    try:
        import dask
        import distributed
    except ImportError as error:
        hint = "Install it with: pip install 'onnx-rewrite[tune]'"
        raise UserError("a pool of workers needs the package distributed", hint=hint) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # lost workers and canceled tasks are expected
    with contextlib.ExitStack() as stack:
        settings = {"distributed.admin.large-graph-warning-threshold": "1GB", "logging.distributed": "critical"}
        stack.enter_context(dask.config.set(settings))
        try:
            if workers:
                cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None,
                    local_directory=stack.enter_context(scoped.directory("pool")),
                )  # fmt: skip
                client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
            else:
                client = stack.enter_context(distributed.Client(scheduler, timeout=CONNECTING))
        except (OSError, ValueError, TimeoutError) as error:
            hint = "Start one with `dask scheduler` and `dask worker ADDRESS --nthreads 1`."
            raise UserError(f"no scheduler answers at {scheduler!r}: {error}", hint=hint) from error
        yield BuildPool(client, target)


def build_environment(target: str) -> tuple[Any, ...]:
    """Return what decides about a candidate's code besides its job: machine, compiler with its flags, and version."""
    from ..version import VERSION

    kind = parse_targets(target)[0]
    return Machine.of(kind), find_compiler(kind.machine).key(kind), VERSION


def _same(job: BuildJob) -> BuildJob:
    return job


def build_archive(job: BuildJob, point: Point) -> bytes:
    """Compile a candidate; return its bundle as an archive. Runs on a worker."""
    with scoped.directory("build") as folder:
        bundle = job.build(point, folder / "candidate.rewrite", folder / "cache")
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(bundle, arcname=".")
    return stream.getvalue()


def unpack(archive: bytes, path: Path) -> Path:
    """Write the bundle of an archive to a new directory, readable by its owner only."""
    os.mkdir(path, 0o700)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(path, filter="data")
    return path
