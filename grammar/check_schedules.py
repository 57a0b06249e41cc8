"""Checks of rulesets, schedules, and the versions of domains that a file says it is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from . import ast
from .ast import Span
from .builtins import RULESETS
from .diagnostics import Diagnostic, Label, did_you_mean
from .operator_info import OperatorInfo

STANDARD = {"onnx": "", "ai.onnx": ""}
"""How rule files call the domain of the standard, which has no name in models."""


def domain_name(written: str) -> str:
    """The domain as models call it."""
    return STANDARD.get(written, written)


def check_schedules(items: Sequence[ast.Item]) -> list[Diagnostic]:
    """What is wrong with rulesets and schedules, and with the rulesets that rules join."""
    sets = [item for item in items if isinstance(item, ast.Ruleset)]
    schedules = [item for item in items if isinstance(item, ast.Schedule)]
    found = [*_twice(sets, "rulesets"), *_twice(schedules, "schedules")]
    table = {item.name: item for item in reversed(sets)}
    known = [*dict.fromkeys((*RULESETS, *table))]

    def require(name: str, span: Span) -> None:
        if name not in known:
            hint = did_you_mean(name, known) or "there are " + ", ".join(f"`{k}`" for k in known)
            found.append(Diagnostic("unknown-ruleset", f"there is no ruleset `{name}`", span, hint=hint))

    for item in items:
        if isinstance(item, ast.Rule | ast.Ruleset) and item.joins is not None:
            require(item.joins, item.span)
        if isinstance(item, ast.Schedule):
            for node in item.walk():
                if isinstance(node, ast.Run):
                    require(node.ruleset, node.span)
    for item in sets:
        limits = [limit.name for limit in item.limits]
        for i, limit in enumerate(item.limits):
            if limit.name in limits[:i]:
                label = Label(item.limits[limits.index(limit.name)].span, "the first one is here")
                message = f"`{limit.name}` is given twice"
                found.append(Diagnostic("duplicate-clause", message, limit.span, (label,)))
        if item.name in _above(item, table):
            found.append(Diagnostic("ruleset-cycle", f"ruleset `{item.name}` joins itself", item.span))
    return found


def _twice(items: Sequence[ast.Ruleset | ast.Schedule], what: str) -> Iterator[Diagnostic]:
    seen: dict[str, Span] = {}
    for item in items:
        if item.name in seen:
            label = Label(seen[item.name], "the first one is here")
            yield Diagnostic("duplicate-name", f"two {what} are named `{item.name}`", item.span, (label,))
        seen.setdefault(item.name, item.span)


def _above(item: ast.Ruleset, table: dict[str, ast.Ruleset]) -> list[str]:
    """The rulesets that a ruleset is part of, nearest first; in a cycle, once around."""
    names: list[str] = []
    at: ast.Ruleset | None = item
    while at is not None and at.joins is not None and at.joins not in names:
        names.append(at.joins)
        at = table.get(at.joins)
    return names


def check_versions(items: Sequence[ast.Item], operators: OperatorInfo | None) -> list[Diagnostic]:
    """What is wrong with `use domain(versions)`: no such version, or operators that do not exist at all of them."""
    files: dict[str, list[ast.Item]] = {}
    for item in items:
        files.setdefault(item.span.file, []).append(item)
    ranges = {file: [i for i in inside if isinstance(i, ast.UseDomain)] for file, inside in files.items()}
    found: list[Diagnostic] = []
    for uses in ranges.values():
        found += _ranges(uses, operators)
    declared = {
        op.name: use
        for file, inside in files.items()
        for op in inside
        if isinstance(op, ast.Op) and op.params is not None
        for use in ranges[file]
        if op.name.rpartition(".")[0] == use.domain
    }
    if found:
        return found
    for file, uses in ranges.items():
        for use in uses:
            for item in files[file]:
                found += _item(item, use, declared, operators)
    return found


def _ranges(uses: Sequence[ast.UseDomain], operators: OperatorInfo | None) -> Iterator[Diagnostic]:
    seen: dict[str, ast.UseDomain] = {}
    for use in uses:
        domain = domain_name(use.domain)
        if domain in seen:
            label = Label(seen[domain].span, "the first one is here")
            yield Diagnostic("duplicate-name", f"versions of `{use.domain}` are given twice", use.span, (label,))
        seen.setdefault(domain, use)
        if use.high is not None and use.high < use.low:
            yield Diagnostic("empty-range", f"there is no version from {use.low} up to {use.high}", use.span)
        newest = operators.newest(domain) if operators is not None else None
        if newest is not None and max(use.low, use.high or 0) > newest:
            version = max(use.low, use.high or 0)
            message = f"version {version} of `{use.domain}` is not known; the newest is {newest}"
            yield Diagnostic("unknown-version", message, use.span)


def _item(
    item: ast.Item, use: ast.UseDomain, declared: dict[str, ast.UseDomain], operators: OperatorInfo | None
) -> Iterator[Diagnostic]:
    """What an item names that is not there at all the versions that its file is for."""
    domain = domain_name(use.domain)
    said: set[tuple[str, str | None]] = set()
    label = (Label(use.span, "the versions that the file is for"),)
    for call in _calls(item):
        if call.head.rpartition(".")[0] != domain:
            continue
        other = declared.get(call.head)
        if other is not None:
            if (use.low < other.low or _end(use) > _end(other)) and (call.head, None) not in said:
                said.add((call.head, None))
                labels = (*label, Label(other.span, "the versions that it is declared for"))
                message = f"`{call.head}` is not declared for all the versions of `{use.domain}` that the file is for"
                yield Diagnostic("version-range", message, call.span, labels)
            continue
        if operators is None:
            continue
        for attribute in (None, *(a.name for a in call.attributes)):
            missing = operators.missing(call.head, attribute, use.low, use.high)
            if missing and (call.head, attribute) not in said:
                said.add((call.head, attribute))
                what = f"`{call.head}`" if attribute is None else f"attribute `{attribute}` of `{call.head}`"
                yield Diagnostic("version-range", f"{what} {missing}", call.span, label)
                break


def _end(use: ast.UseDomain) -> float:
    return float("inf") if use.high is None else use.high


def _calls(item: ast.Item) -> Iterable[ast.Call]:
    """The operators that the sides of a rule, or a definition, name."""
    return (n for n in item.walk() if isinstance(n, ast.Call) and n.kind is None and n.is_operator)
