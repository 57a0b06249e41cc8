"""The terminal: results on standard output, everything else, such as the progress of a run, on standard error."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


@cache
def out() -> Console:
    """Standard output, for results. In a file or a pipe, lines may be longer than on a terminal."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        from .plain_console import Console as Plain

        return Plain()  # type: ignore[return-value]
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140
    return Console(highlight=False, width=wide)


@cache
def err() -> Console:
    """Standard error, for progress, warnings and errors."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        from .plain_console import Console as Plain

        return Plain(stderr=True)  # type: ignore[return-value]
    return Console(stderr=True, highlight=False)


def say(text: str, console: Console | None = None, style: str | None = None) -> None:
    """Print a text as it is, without markup and line breaks; on standard output by default."""
    (console or out()).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labeled texts: wrapped on a terminal, one per line elsewhere, so that other programs find them."""
    if out().is_terminal:
        from .tables import facts

        out().print(facts(rows))
        return
    for label, text in rows:
        for i, line in enumerate(text.splitlines()):
            say(f"{label if not i else '':<10}{line}")


def show_log() -> None:
    """Show what the loggers `rewrite.*` report on standard error; the level is INFO."""
    log = logging.getLogger("rewrite")
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    log.addHandler(handler)
    log.propagate = False


TITLES = {
    "load": "look up cache", "rules": "load rules", "read": "read model", "plan": "plan kernels",
    "compile": "compile kernels", "write": "write outputs", "bench": "measure", "calibrate": "measure machine",
}  # fmt: skip
"""Titles of stages where they are not their names."""


class Stages:
    """Progress of a run: one line per stage, live on a terminal, plain text elsewhere.

    An instance is the `progress` callback. A stage ends when another begins, or when the `with` block ends. `facts` are
    shown after its name: `done` and `total` as a fraction, others as `value name`. `seconds` sums up the time of each.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._stage = self._detail = ""
        self._began = 0.0

    def __enter__(self) -> Stages:
        if not self._quiet and err().is_terminal:
            from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
            from rich.text import Text

            class Elapsed(ProgressColumn):
                """Time since a stage began, drawn again and again, for a stage may report nothing until it ends."""

                def render(self, task: Task) -> Text:
                    seconds = task.finished_time if task.finished else task.elapsed
                    return Text(f"{_seconds(seconds or 0.0):>8}", style="cyan")

            self._live = Progress(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description:<20}"),
                Elapsed(),
                TextColumn("{task.fields[detail]}", style="dim"),
                console=err(),
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(finished=kind is None)
        if self._live is not None:
            self._live.stop()

    def __call__(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Begin `stage`, or show new facts about the current one."""
        if stage != self._stage:
            self._end(finished=True)
            self._stage, self._began, self._detail = stage, time.perf_counter(), ""
            if self._live is not None:
                self._task = self._live.add_task(TITLES.get(stage, stage), total=1, detail="")
        if facts:
            self._detail = _words(facts)
        if self._live is not None and self._task is not None:
            self._live.update(self._task, detail=self._detail)

    def _end(self, *, finished: bool) -> None:
        if not self._stage:
            return
        elapsed = time.perf_counter() - self._began
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + elapsed
        if self._live is not None and self._task is not None:
            self._live.stop_task(self._task)
            self._live.update(self._task, completed=1 if finished else 0)
        elif finished and not self._quiet:
            title = TITLES.get(self._stage, self._stage)
            say(f"{title:<20}{_seconds(elapsed):>8}  {self._detail}".rstrip(), err())
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
