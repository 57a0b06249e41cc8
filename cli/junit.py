"""Results of tests as JUnit XML, the form that build servers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import transient
from ..errors import UserError


@dataclass(frozen=True, slots=True)
class Case:
    """One test: `group` is shown as its class, `failure` is empty if it passed."""

    group: str
    name: str
    file: str
    line: int
    seconds: float
    failure: str = ""


def write(path: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write a report with one suite. Raises `UserError` if the file cannot be written."""
    from xml.etree import ElementTree

    failed = sum(bool(case.failure) for case in cases)
    totals = {
        "tests": str(len(cases)),
        "failures": str(failed),
        "errors": "0",
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ElementTree.Element("testsuites", totals)
    element = ElementTree.SubElement(root, "testsuite", {"name": suite, **totals})
    for case in cases:
        attributes = {"classname": case.group, "name": case.name, "file": case.file, "line": str(case.line)}
        item = ElementTree.SubElement(element, "testcase", {**attributes, "time": f"{case.seconds:.3f}"})
        if case.failure:
            first, _, rest = _printable(case.failure).partition("\n")
            ElementTree.SubElement(item, "failure", {"message": first}).text = rest or first
    ElementTree.indent(root)
    try:
        with transient.replacing(path) as file:
            ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def _printable(text: str) -> str:
    """A text without the control characters that XML cannot hold."""
    return "".join(c for c in text if c >= " " or c in "\n\t")
