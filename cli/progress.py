"""Progress of a run: one line per stage, alive on a terminal, plain text elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .console import err

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

TITLES = {
    "load": "look into cache",
    "rules": "load rules",
    "read": "read model",
    "saturate": "saturate",
    "extract": "extract",
    "plan": "plan kernels",
    "compile": "compile kernels",
    "verify": "verify",
    "write": "write outputs",
    "bench": "measure",
    "calibrate": "measure machine",
    "profile": "profile",
}


class Stages:
    """Shows stages as they happen; an instance is itself the `progress` callback of the pipelines.

    A stage ends when another begins, or when the `with` block is left. `facts` become words after the stage's name:
    `done` and `total` as a fraction, others as `value name`.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._began = 0.0
        self._detail = ""

    def __enter__(self) -> Stages:
        if not self._quiet and err().is_terminal:
            from rich.progress import Progress, SpinnerColumn, TextColumn

            self._live = Progress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description:<20}"),
                TextColumn("{task.fields[time]:>8}", style="cyan"),
                TextColumn("{task.fields[detail]}", style="dim"),
                console=err(),
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(finished=kind is None)
        if self._live is not None:
            self._live.stop()

    def __call__(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Begin `stage`, or tell more about the one that runs."""
        if stage != self._stage:
            self._end(finished=True)
            self._stage, self._began, self._detail = stage, time.perf_counter(), ""
            if self._live is not None:
                self._task = self._live.add_task(TITLES.get(stage, stage), total=1, time="", detail="")
        if facts:
            self._detail = _words(facts)
        if self._live is not None and self._task is not None:
            self._live.update(self._task, detail=self._detail, time=_seconds(time.perf_counter() - self._began))

    def _end(self, *, finished: bool) -> None:
        if not self._stage:
            return
        elapsed = time.perf_counter() - self._began
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + elapsed
        if self._live is not None and self._task is not None:
            self._live.update(self._task, completed=1 if finished else 0, time=_seconds(elapsed))
        elif finished and not self._quiet:
            title = TITLES.get(self._stage, self._stage)
            err().print(f"{title:<20}{_seconds(elapsed):>8}  {self._detail}".rstrip(), markup=False, soft_wrap=True)
        self._stage, self._task = "", None


def _words(facts: Mapping[str, Any]) -> str:
    rest = dict(facts)
    words = []
    if "done" in rest:
        done = rest.pop("done")
        words.append(f"{done}/{rest.pop('total')}" if "total" in rest else str(done))
    words += [f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}" for name, value in rest.items()]
    return ", ".join(words)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
