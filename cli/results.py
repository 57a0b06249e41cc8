"""Results in files: JSON (docs/json.md describes the schema), JUnit XML for build servers, an HTML page."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import UserError
from ..pages.page import finite, make_page
from ..system import scoped

if TYPE_CHECKING:
    from .measure import Timing

SCHEMA = 2


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends. Raises `UserError` if it cannot be written."""
    try:
        with scoped.replacing(path) as file:
            yield file
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def write_text(text: str, target: Path) -> None:
    """Replace the contents of `target` atomically. Raises `UserError` if it cannot be written."""
    with writing(target) as file:
        file.write(text.encode())


def write_json(data: Mapping[str, Any], target: Path, *, ensure_ascii: bool = False) -> None:
    """Write `data` as JSON to `target`, or to standard output if `target` is `-`."""
    text = json.dumps(finite(data), indent=2, ensure_ascii=ensure_ascii) + "\n"
    if str(target) == "-":
        sys.stdout.write(text)
    else:
        write_text(text, target)


def timings_json(measured: Mapping[str, Timing], threads: int, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return timings in seconds by engine, with the extents of free dims."""
    engines = {
        name: {"median": timing.median, "p10": timing.low, "p90": timing.high, "runs": timing.runs}
        for name, timing in measured.items()
    }
    return {"threads": threads, "sizes": dict(sizes), "engines": engines}


def write_page(data: Mapping[str, Any], target: Path) -> None:
    """Write the results of a run, as docs/json.md describes them, as one HTML page without a network."""
    make_page("report", Path(data["model"]).name, data).save(target)


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one test: `group` is shown as its class, `failure` is empty if it passed."""

    group: str
    name: str
    file: str
    line: int
    seconds: float
    failure: str = ""


def write_junit(path: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write test results as JUnit XML with one suite. Raises `UserError` if the file cannot be written."""
    from xml.etree import ElementTree

    failed = sum(bool(case.failure) for case in cases)
    time = f"{sum(case.seconds for case in cases):.3f}"
    totals = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "time": time}
    root = ElementTree.Element("testsuites", totals)
    element = ElementTree.SubElement(root, "testsuite", {"name": suite, **totals})
    for case in cases:
        attributes = {"classname": case.group, "name": case.name, "file": case.file, "line": str(case.line)}
        item = ElementTree.SubElement(element, "testcase", {**attributes, "time": f"{case.seconds:.3f}"})
        if case.failure:
            printable = "".join(c for c in case.failure if c >= " " or c in "\n\t")  # XML forbids the others
            first, _, rest = printable.partition("\n")
            ElementTree.SubElement(item, "failure", {"message": first}).text = rest or first
    ElementTree.indent(root)
    with writing(path) as file:
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
