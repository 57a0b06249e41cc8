"""Checks of rulesets, schedules, and the opset versions that a file declares."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from ..builtins import RULESETS
from ..diagnostics import Diagnostic, Label, did_you_mean, repeated
from ..operator_info import OperatorInfo
from ..syntax import ast
from ..syntax.ast import Span


def domain_name(written: str) -> str:
    """Return the name of a domain in models, where that of the standard domain is empty."""
    return "" if written in ("onnx", "ai.onnx") else written


def check_schedules(items: Sequence[ast.Item]) -> Iterator[Diagnostic]:
    """Yield diagnostics of the limits of rulesets, and of rulesets that are joined or run."""
    sets = [item for item in items if isinstance(item, ast.Ruleset)]
    table = {item.name: item for item in reversed(sets)}
    known = [*dict.fromkeys((*RULESETS, *table))]
    for name, span in _named(items):
        if name not in known:
            hint = did_you_mean(name, known) or "known rulesets: " + ", ".join(f"`{k}`" for k in known)
            yield Diagnostic("unknown-ruleset", f"unknown ruleset `{name}`", span, hint=hint)
    for item in sets:
        for limit, label in repeated(item.limits):
            yield Diagnostic("duplicate-clause", f"duplicate limit `{limit.name}`", limit.span, (label,))
        if item.name in _above(item, table):
            yield Diagnostic("ruleset-cycle", f"ruleset `{item.name}` joins itself", item.span)


def _named(items: Iterable[ast.Item]) -> Iterator[tuple[str, Span]]:
    """Yield the rulesets that rules and rulesets join, and those that schedules run."""
    for item in items:
        if isinstance(item, ast.Rule | ast.Ruleset) and item.joins is not None:
            yield item.joins, item.span
        if isinstance(item, ast.Schedule):
            yield from ((node.ruleset, node.span) for node in item.walk() if isinstance(node, ast.Run))


def _above(item: ast.Ruleset, table: dict[str, ast.Ruleset]) -> list[str]:
    """Return the rulesets that include a ruleset, nearest first; in a cycle, once around."""
    names: list[str] = []
    at: ast.Ruleset | None = item
    while at is not None and at.joins is not None and at.joins not in names:
        names.append(at.joins)
        at = table.get(at.joins)
    return names


def check_versions(items: Sequence[ast.Item], operators: OperatorInfo | None) -> list[Diagnostic]:
    """Return diagnostics of `use domain(versions)`: unknown versions, operators missing from some of them."""
    files: dict[str, list[ast.Item]] = {}
    for item in items:
        files.setdefault(item.span.file, []).append(item)
    ranges = {file: [i for i in inside if isinstance(i, ast.UseDomain)] for file, inside in files.items()}
    found = [diagnostic for uses in ranges.values() for diagnostic in _ranges(uses, operators)]
    declared = {
        op.name: use
        for file, inside in files.items()
        for op in inside
        if isinstance(op, ast.Op) and op.params is not None
        for use in ranges[file]
        if op.name.rpartition(".")[0] == use.domain
    }
    return found or [
        diagnostic
        for file, uses in ranges.items()
        for use, item in itertools.product(uses, files[file])
        for diagnostic in _item(item, use, declared, operators)
    ]


def _ranges(uses: Sequence[ast.UseDomain], operators: OperatorInfo | None) -> Iterator[Diagnostic]:
    for use, label in repeated(uses, lambda use: domain_name(use.domain)):
        yield Diagnostic("duplicate-name", f"duplicate versions of `{use.domain}`", use.span, (label,))
    for use in uses:
        if use.high is not None and use.high < use.low:
            yield Diagnostic("empty-range", f"the range {use.low} .. {use.high} is empty", use.span)
        newest = operators.newest(domain_name(use.domain)) if operators is not None else None
        version = max(use.low, use.high or 0)
        if newest is not None and version > newest:
            message = f"unknown version {version} of `{use.domain}`; the newest is {newest}"
            yield Diagnostic("unknown-version", message, use.span)


def _item(
    item: ast.Item, use: ast.UseDomain, declared: dict[str, ast.UseDomain], operators: OperatorInfo | None
) -> Iterator[Diagnostic]:
    """Yield diagnostics of operators that do not exist at all versions of the file."""
    reported: set[tuple[str, str | None]] = set()
    label = (Label(use.span, "versions of this file"),)
    calls = [n for n in item.walk() if isinstance(n, ast.Call) and n.kind is None and n.is_operator]
    for call in calls:
        if call.head.rpartition(".")[0] != domain_name(use.domain):
            continue
        other = declared.get(call.head)
        if other is not None:
            if (use.low < other.low or _end(use) > _end(other)) and (call.head, None) not in reported:
                reported.add((call.head, None))
                labels = (*label, Label(other.span, "versions of its declaration"))
                message = f"`{call.head}` is not declared for all versions of `{use.domain}` of this file"
                yield Diagnostic("version-range", message, call.span, labels)
        elif operators is not None:
            for attribute in (None, *(a.name for a in call.attributes)):
                missing = operators.missing(call.head, attribute, use.low, use.high)
                if missing and (call.head, attribute) not in reported:
                    reported.add((call.head, attribute))
                    what = f"`{call.head}`" if attribute is None else f"attribute `{attribute}` of `{call.head}`"
                    yield Diagnostic("version-range", f"{what} {missing}", call.span, label)
                    break


def _end(use: ast.UseDomain) -> float:
    return inf if use.high is None else use.high
