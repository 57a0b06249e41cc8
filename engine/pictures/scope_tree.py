"""Groups of nodes for a readable picture: by the scopes in their names, else by repeated blocks.

Exporters name a node after its module: `/layer1/layer1.0/conv1/Conv`, as PyTorch's older one does, or
`encoder.layer.0.attention.MatMul`. Its newer one states the module in metadata. Where nodes have neither, names of
parameters may tell: `layer1.0.conv1.weight`.
A level that is still too wide is folded by its longest tandem repeat, a sequence of equal operators again and again,
and at last into runs of equal length. Folding by scope is the idea of TensorBoard's graph explorer (Wongsuphasawat et
al., IEEE TVCG 2018).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..ir.graph import Graph, Node

WIDEST = 40
"""Maximum number of boxes on one level; above it repeated blocks or runs are folded."""
_RUN = 24
_SCOPED = 0.1
"""Least share of nodes with a scope for scopes to be used."""
Path = tuple[str, ...]


@dataclass(slots=True)
class Group:
    """A box of the picture: its name, and what is inside, in the order of the graph: numbers of nodes, and groups."""

    name: str
    children: list[int | Group] = field(default_factory=list)

    def nodes(self) -> list[int]:
        """Return the numbers of all nodes inside."""
        found: list[int] = []
        for child in self.children:
            found += child.nodes() if isinstance(child, Group) else [child]
        return found


def scopes(graph: Graph, nodes: Sequence[Node]) -> dict[str, Path]:
    """Return the scope of each node of a model by its name; empty if neither nodes nor parameters are named so."""
    named = [_of_metadata(graph.scopes.get(node.name, "")) or _of_name(node.name) for node in nodes]
    for found in (named, [_of_parameters(graph, node) for node in nodes]):
        if sum(map(bool, found)) > _SCOPED * len(nodes):
            return {node.name: path for node, path in zip(nodes, _filled(found), strict=True)}
    return {}


def fold(nodes: Sequence[Node], paths: Mapping[str, Path]) -> Group:
    """Return the groups of some nodes: by the scope of the node of that name, or of the first node that it stands for.

    A node of unknown scope joins what surrounds it on both sides."""
    known = [next((paths[name] for name in (n.name, *n.origins) if name in paths), None) for n in nodes]
    top = Group("")
    for number, path in enumerate(_filled(known) if paths else [()] * len(nodes)):
        _place(top, path, number)
    return _tidied(top, [node.op for node in nodes])


def _of_metadata(text: str) -> Path | None:
    """Return the scope in metadata, a list of modules such as `['', 'layer1', 'layer1.0', 'conv2d']`; None if none."""
    modules = re.findall(r"'([^']*)'", text)[:-1]  # the last is the node itself
    return tuple(_joined(modules[-1].split("."))) if modules and modules[-1] else None


def _of_name(name: str) -> Path | None:
    """Return the scope in a node's name; None if it has none."""
    separator = "/" if "/" in name.strip("/") else "."
    parts = [part for part in name.split(separator) if part]
    if separator == ".":
        parts = _joined(parts)
    return tuple(parts[:-1]) or None


def _of_parameters(graph: Graph, node: Node) -> Path | None:
    """Return the scope of the first parameter that a node reads; None if it reads none that has a scope."""
    for value in node.inputs:
        if value in graph.constants and "." in value and ":" not in value:
            parts = _joined([part for part in value.split(".") if part])
            if len(parts) > 1:
                return tuple(parts[:-1])
    return None


def _joined(parts: Sequence[str]) -> list[str]:
    """Return the parts of a dotted name; a number follows what it counts: `layer.0.norm` is in `layer`, `layer.0`."""
    found: list[str] = []
    for part in parts:
        found.append(f"{found[-1]}.{part}" if part.isdigit() and found else part)
    return found


def _filled(paths: Iterable[Path | None]) -> list[Path]:
    """Return the paths; an unknown one is the common beginning of the known ones before and after it."""
    given = list(paths)
    after: list[Path] = [()] * len(given)
    following: Path | None = None
    for number in range(len(given) - 1, -1, -1):
        following = given[number] if given[number] is not None else following
        after[number] = following or ()
    found: list[Path] = []
    before: Path = after[0] if after else ()
    for path, following in zip(given, after, strict=True):
        before = path if path is not None else _common(before, following)
        found.append(before)
    return found


def _common(a: Path, b: Path) -> Path:
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return a[:same]


def _place(top: Group, path: Path, number: int) -> None:
    at = top
    for part in path:
        inner = next((c for c in reversed(at.children) if isinstance(c, Group) and c.name == part), None)
        if inner is None:
            inner = Group(part)
            at.children.append(inner)
        at = inner
    at.children.append(number)


def _tidied(group: Group, ops: Sequence[str]) -> Group:
    """Return a group without boxes of one node, boxes of one box, and levels that are too wide."""
    children: list[int | Group] = []
    for child in group.children:
        inner = _tidied(child, ops) if isinstance(child, Group) else child
        children += inner.children if isinstance(inner, Group) and len(inner.children) == 1 else [inner]
    if len(children) == 1 and isinstance(only := children[0], Group):
        return Group("/".join(filter(None, (group.name, only.name))), only.children)
    return Group(group.name, _narrowed(children, ops))


def _narrowed(children: list[int | Group], ops: Sequence[str]) -> list[int | Group]:
    """Return the boxes of a level, at most about `WIDEST`: of more, repeated blocks and then runs are folded."""
    if len(children) <= WIDEST:
        return children
    start, period, count = _repeat([signature(child, ops) for child in children])
    if count:
        blocks = [children[start + i * period : start + (i + 1) * period] for i in range(count)]
        folded = [Group(f"block {i} of {count}", _narrowed(block, ops)) for i, block in enumerate(blocks, 1)]
        return _narrowed([*children[:start], *folded, *children[start + count * period :]], ops)
    loose: list[list[int | Group]] = [
        [*run] for _, run in itertools.groupby(children, lambda child: isinstance(child, int))
    ]
    wide = [child for run in loose for child in (_runs(run) if isinstance(run[0], int) else run)]
    return wide if len(wide) <= WIDEST else _runs(wide)


def _runs(children: list[int | Group]) -> list[int | Group]:
    """Return some boxes in runs of equal length, but for a few boxes themselves."""
    size = max(_RUN, -(-len(children) // WIDEST))
    if len(children) < 4:
        return children
    runs = [children[i : i + size] for i in range(0, len(children), size)]
    return [Group(f"part {i} of {len(runs)}" if len(runs) > 1 else "other nodes", run) for i, run in enumerate(runs, 1)]


def signature(child: int | Group, ops: Sequence[str]) -> str:
    """Return a text that is equal for equal operators: of a node, or of the nodes of a group in their order."""
    return ops[child] if isinstance(child, int) else f"({','.join(ops[number] for number in child.nodes())})"


def _repeat(signatures: Sequence[str]) -> tuple[int, int, int]:
    """Return the tandem repeat that covers most: where it starts, its period, how often it occurs; zeros if none does.

    Of those that cover about as much, the one of the shortest period."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(signatures))}
    codes = np.array([numbers[text] for text in signatures])
    best, covered = (0, 0, 0), 0.0
    for period in range(2, len(codes) // 2 + 1):
        differs = np.flatnonzero(np.append(codes[:-period] != codes[period:], True))
        lengths = np.diff(differs, prepend=-1) - 1
        longest = int(lengths.argmax())
        count = int(lengths[longest]) // period + 1
        if count > 1 and count * period > 1.05 * covered:
            best, covered = (int(differs[longest] - lengths[longest]), period, count), float(count * period)
    return best if covered >= len(codes) / 3 else (0, 0, 0)
