"""Records of tuned kernels: a file of JSON lines in the user's cache directory, described in docs/tuning.md.

    ROOT/schedules/records.jsonl    one record a line; the last one of a kernel holds

A record holds for one machine (CPU model, vector extension and features, caches), one kernel (a key of its problem and
the number of threads), and one version of the templates that it renders. Others are not used. Lines are only appended,
under a lock, so that several processes may tune. A line that is damaged is skipped with a warning; a point outside of
its space is not used. A record can make a kernel slower, never wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from ...errors import UserError
from ...system import hardware
from ...system.store import Store, write_atomic
from ..ir.schedule import DEFAULT, Point, Space, Tunable, describe
from ..ir.target import Target
from .line_file import LineFile, reported

FORMAT = 1
"""Version of the lines; those of another version are not used."""
_FAILURES = ("crash", "timeout", "wrong", "error")
"""What became of a candidate that has no time."""
_HINT = "Export them again with this version of rewrite."


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and target of a record: CPU model, vector extension, features, and bytes of its caches."""

    cpu: str
    isa: str
    features: tuple[str, ...]
    caches: tuple[int, int, int]

    @classmethod
    def of(cls, target: Target) -> Machine:
        """Return this machine with kernels for a target."""
        return cls(hardware.cpu_name(), target.isa, target.features, (target.l1, target.l2, target.l3))


@dataclass(frozen=True)
class Record:
    """What a search found for one kernel. Neither names nor weights of a model are in it.

    Attributes:
        machine: where it was measured.
        threads: the number of threads of a run.
        kernel: the kernel for people: template and sizes.
        key: of the problem; equal for equal problems.
        templates: version of the templates, see `template_version`.
        point: the fastest schedule; empty if no point was faster than the formulas'.
        default_us, tuned_us: microseconds of both, measured interleaved.
        noise: standard deviation of the ratio of the times of two copies of the default.
        difference: largest difference of the results, relative to the largest result.
        tried: every point that was measured, with its time relative to the default, or what became of it.
        features: numbers that describe the loop nest of each point in `tried`, for learned models; empty if unknown.
    """

    machine: Machine
    threads: int
    kernel: str
    key: str
    templates: str
    point: Point
    default_us: float
    tuned_us: float
    noise: float
    difference: float
    tried: tuple[tuple[Point, float | str], ...] = ()
    features: tuple[Mapping[str, float], ...] = ()

    @property
    def holder(self) -> tuple[Machine, str]:
        """What a later record with the same value replaces."""
        return self.machine, self.key

    def after(self, earlier: Record | None) -> Record:
        """Return this record with the measurements of an earlier one of the same kernel and templates."""
        if earlier is None or earlier.templates != self.templates:
            return self
        known = self.features or earlier.features
        features = (*earlier.features_of_tried, *self.features_of_tried) if known else ()
        return replace(self, tried=(*earlier.tried, *self.tried), features=features)

    @property
    def features_of_tried(self) -> tuple[Mapping[str, float], ...]:
        """`features`, with an empty one for each point if they are unknown."""
        return self.features or ({},) * len(self.tried)

    def line(self) -> str:
        """Return the record as a line of the file."""
        data = {"format": FORMAT, **asdict(self)}
        del data["features"]
        if names := sorted({name for features in self.features for name in features}):
            data["features"] = names
            data["values"] = [[features.get(name) for name in names] for features in self.features]
        return json.dumps(data, separators=(",", ":")) + "\n"

    @classmethod
    def parse(cls, line: str) -> Record | None:
        """Return the record of a line; None if another version wrote it. Raises ValueError if it is damaged."""
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        if data.get("format") != FORMAT:
            return None
        about = data.get("machine")
        if not isinstance(about, dict):
            raise ValueError("no machine")
        caches = tuple(_number(size, "a cache") for size in about.get("caches") or ())
        features = tuple(_text(name, "a feature") for name in about.get("features") or ())
        if len(caches) != 3:
            raise ValueError("not three caches")
        l1, l2, l3 = (int(size) for size in caches)
        machine = Machine(_text(about.get("cpu"), "cpu"), _text(about.get("isa"), "isa"), features, (l1, l2, l3))
        tried = []
        for entry in data.get("tried") or ():
            if not isinstance(entry, list) or len(entry) != 2:
                raise ValueError("a measurement is not a pair")
            outcome = entry[1] if entry[1] in _FAILURES else _number(entry[1], "a measurement")
            tried.append((_point(entry[0]), outcome))
        described = tuple(_features(data))
        if described and len(described) != len(tried):
            raise ValueError("not as many features as measurements")
        return cls(
            machine=machine,
            threads=int(_number(data.get("threads"), "threads")),
            kernel=_text(data.get("kernel"), "kernel"),
            key=_text(data.get("key"), "key"),
            templates=_text(data.get("templates"), "templates"),
            point=_point(data.get("point")),
            default_us=_number(data.get("default_us"), "default_us"),
            tuned_us=_number(data.get("tuned_us"), "tuned_us"),
            noise=_number(data.get("noise"), "noise"),
            difference=_number(data.get("difference"), "difference"),
            tried=tuple(tried),
            features=described,
        )


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is not a text")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is not a number")
    return float(value)


def _features(data: Mapping[str, Any]) -> Iterator[Mapping[str, float]]:
    """Yield the features of each point: columns by name, and a row of values for each, null for an absent one."""
    names = [_text(name, "a feature") for name in data.get("features") or ()]
    for row in data.get("values") or ():
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError("features are not a table")
        for value in row:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ValueError("a feature is not a number")
        yield {name: float(value) for name, value in zip(names, row, strict=True) if value is not None}


def _point(value: object) -> Point:
    if not isinstance(value, dict) or any(isinstance(v, bool) or not isinstance(v, int | str) for v in value.values()):
        raise ValueError("a point is not an object of numbers and texts")
    return value


@dataclass
class Records:
    """The records of a file as they were when it was read, the last of each kernel; `digest` is that of its bytes."""

    digest: str = ""
    latest: dict[tuple[Machine, str], Record] = field(default_factory=dict)

    def schedules(self, target: Target) -> RecordedSchedules | None:
        """Return the schedules for a target on this machine; None without records for it."""
        if not self.latest:
            return None
        machine = Machine.of(target)
        found = {key: record for (own, key), record in self.latest.items() if own == machine}
        return RecordedSchedules(found) if found else None


class RecordedSchedules:
    """Schedules from the records of one machine, by the kernel's key."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records

    def by_key(self, key: str, space: Space) -> Record | None:
        """Return the record of a kernel; None unless it is for the present templates."""
        found = self._records.get(key)
        return found if found is not None and found.templates == template_version(space.templates) else None

    def point(self, kernel: Tunable) -> Point:
        """Return the recorded point; `DEFAULT` without one, and with a warning for one outside of the space."""
        found = self.by_key(kernel.key, kernel.space)
        if found is None:
            return DEFAULT
        if not kernel.space.accepts(found.point):
            warnings.warn(f"the recorded schedule of {kernel.label} is not used: {describe(found.point)}", stacklevel=2)
            return DEFAULT
        return found.point


@cache
def template_version(templates: tuple[str, ...]) -> str:
    """Return the version of some templates: their names, and a digest of their texts and of all that these include."""
    from ..codegen.render import template_texts  # not needed where there are no records

    digest = hashlib.blake2b(digest_size=8)
    for name in templates:
        for text in template_texts(name):
            digest.update(text.encode())
    return f"{','.join(templates)}@{digest.hexdigest()}"


def is_current(record: Record) -> bool:
    """Return whether a record is for the present templates."""
    return record.templates == template_version(tuple(record.templates.partition("@")[0].split(",")))


class RecordFile:
    """The file of records in a store (the user's if None)."""

    def __init__(self, store: Store | None = None) -> None:
        self._file = LineFile("records.jsonl", store)
        self.path = self._file.path

    def read(self) -> Records:
        """Return the records. Damaged lines, and a file that others could have written, are skipped with a warning."""
        try:
            data = self._file.read()
        except FileNotFoundError:
            return Records()
        except OSError as error:
            warnings.warn(f"the records of tuned kernels are not used: {self.path}: {error.strerror}", stacklevel=2)
            return Records()
        found = Records(hashlib.blake2b(data, digest_size=16).hexdigest())
        for record in parse_lines(data.decode(errors="replace"), self._skipped):
            found.latest[record.holder] = record.after(found.latest.get(record.holder))
        return found

    def _skipped(self, number: int, problem: str) -> None:
        hint = "`rewrite tune --prune` removes it"
        warnings.warn(f"a damaged record is skipped: {self.path}, line {number}: {problem}; {hint}", stacklevel=2)

    def append(self, records: Iterable[Record]) -> None:
        """Add records. Raises UserError if the file cannot be written."""
        self._file.append("".join(record.line() for record in records))

    def add_new(self, text: str, where: str) -> int:
        """Add the records of an exported text that are not in the file yet; return how many.

        Raises UserError if a line is damaged or of another version."""

        def refused(number: int, problem: str) -> None:
            raise UserError(f"not a file of records: line {number}: {problem}", where=where, hint=_HINT)

        given = list(parse_lines(text, refused, others=refused))
        there = {record.line() for record in self._all()}
        new = [record for record in given if record.line() not in there]
        if new:
            self.append(new)
        return len(new)

    def prune(self, keep: Callable[[Record], bool]) -> tuple[int, int]:
        """Rewrite the file with the last record of each kernel for which `keep` holds.

        Returns the numbers of lines kept and removed. Raises UserError if the file cannot be written."""
        with self._file.locked(), reported(self.path):
            if not self.path.exists():
                return 0, 0
            lines = self._file.read().decode(errors="replace").splitlines()
            latest: dict[tuple[Machine, str], Record] = {}
            for record in parse_lines("\n".join(lines), lambda *_: None):
                latest[record.holder] = record.after(latest.get(record.holder))
            kept = [record for record in latest.values() if keep(record)]
            write_atomic(self.path, "".join(record.line() for record in kept).encode())
            return len(kept), sum(1 for line in lines if line.strip()) - len(kept)

    def _all(self) -> list[Record]:
        try:
            text = self._file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"the records cannot be read: {error.strerror}", where=str(self.path)) from error
        return list(parse_lines(text, lambda *_: None))


def parse_lines(
    text: str,
    damaged: Callable[[int, str], None],
    others: Callable[[int, str], None] = lambda number, problem: None,
) -> Iterator[Record]:
    """Yield the records of a text; call `damaged` and `others` with the number of a line and what is wrong with it.

    `others` concerns lines of another version."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = Record.parse(line)
        except (ValueError, TypeError, RecursionError) as error:
            damaged(number, re.sub(r"\s+", " ", str(error)))
            continue
        if record is None:
            others(number, "another version of rewrite wrote it")
        else:
            yield record
