"""Translation of operators from any opset to the working one and back, one node at a time.

An operator of a model has the meaning of the newest version of its schema that is not newer than the model's opset.
`upgrade` takes it to the working opset, `downgrade` from there to a target opset, step by step along the versions of
its schema. A step needs no adapter if the interface did not change, or was only extended by attributes with a default
or by optional inputs (downwards: if the extension is not used). `UNLIKE` lists the exceptions, whose meaning changed.
Other steps need an adapter (`up`, `down`). An operator without one keeps its version in its name (`Scan@8`).

ONNX's version converter is not equivalent. Of the 35 old operators in the tests it converts 32 upwards correctly, and 7
downwards; and it needs a whole model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ...ir.names import OWN_DOMAIN
from ...operators import schemas
from .adapter_pairs import DOWN, UP
from .adapters import LOWEST, may_train
from .step import Step, Unfit, needed, require

if TYPE_CHECKING:
    from ...ir.graph import Attrs, AttrValue, Graph, Node
    from ..model_values import ModelValues

__all__ = ["NotExpressible", "can_express", "downgrade", "missing", "newest_opset", "upgrade", "version_at"]

UNLIKE = frozenset(
    {
        ("OneHot", 11),  # negative indices count from the end
        ("PRelu", 7),  # the slope broadcasts as in NumPy instead of by channel
        ("GroupNormalization", 21),  # scale and bias by channel instead of by group
        ("Scan", 9),  # no batch dim
    }
)
"""Steps where the meaning changed although the interface would allow the step."""


class NotExpressible(Exception):
    """An operator that the target opset cannot express. `needs` is the least opset that can, None if there is none."""

    def __init__(self, node: Node, needs: int | None) -> None:
        self.node = node
        self.needs = needs
        super().__init__(f"{node.op} needs opset {needs}" if needs else f"{node.op} cannot be written")


def working_opset(domain: str) -> int | None:
    """Return the opset that graphs use, for the domains that have one."""
    return {"": schemas.WORKING_OPSET, schemas.ML_DOMAIN: schemas.WORKING_ML_OPSET}.get(domain)


@lru_cache(4096)
def version_at(op: str, opset: int) -> int | None:
    """Return the version of the operator's schema that holds at an opset; None if it does not exist there."""
    return max((v for v in schemas.versions(op) if v <= opset), default=None)


def _at(op: str, version: int) -> schemas.Signature:
    found = schemas.signature(f"{op}@{version}")
    assert found is not None
    return found


def upgrade(node: Node, opset: int, values: ModelValues, graph: Graph) -> list[Node]:
    """Return nodes at the working opset that mean what this node means at `opset` of its domain.

    The node's operator has no version mark. Where there is no translation, the result is one node with a marked name.
    Constants are added to the values and to the graph."""
    op, target, version = node.op, working_opset(node.domain), version_at(node.op, opset)
    if target is None or version is None:
        return [node]
    goal = version_at(op, target) or version
    mark = schemas.qualified(*schemas.split_name(op)[:2], version)
    attrs = schemas.normalize_attrs(mark, node.attrs)
    marked = [replace(node, op=mark, attrs=attrs)]
    gone = version == goal and _at(op, version).deprecated
    if gone or (op == "Dropout" and version >= 12 and may_train(Step(node, values, graph))):
        return marked
    nodes = [replace(node, attrs={name: value for name, value in attrs.items() if name != "consumed_inputs"})]
    try:
        for current in _between(version, goal, op):
            nodes[-1:] = _up(Step(nodes[-1], values, graph), current)
            if nodes[-1].op != op:  # replaced for good by an adapter
                break
        else:
            for current in reversed(_between(goal, version, op)):
                nodes[-1] = _narrow(nodes[-1], current)
            if version != goal and _at(op, goal).deprecated:
                return marked
    except Unfit:
        return marked
    return [replace(n, attrs=schemas.normalize_attrs(n.op, n.attrs)) for n in nodes]


def _between(old: int, new: int, op: str) -> list[int]:
    """Return the versions of an operator after one and up to another."""
    return [v for v in schemas.versions(op) if old < v <= new]


def _up(s: Step, version: int) -> list[Node]:
    """Take a node to a version from the one before. Raises `Unfit`."""
    op = s.node.op
    if (op, version) in UP:
        return _as_list(UP[op, version](s))
    require((op, version) not in UNLIKE)
    require(_extends_the_one_before(op, version))
    return [s.node]


@lru_cache(4096)
def _extends_the_one_before(op: str, version: int) -> bool:
    """Whether the version before means the same with this interface, as far as interfaces tell."""
    return _extends(_at(op, needed(version_at(op, version - 1))), _at(op, version))


def _down(s: Step, version: int) -> list[Node]:
    """Take a node from a version to the one before. Raises `NotExpressible`."""
    adapter = DOWN.get((s.node.op, version))
    try:
        return _as_list(adapter(s)) if adapter is not None else [_narrow(s.node, version)]
    except Unfit as obstacle:
        raise NotExpressible(s.node, obstacle.needs or version) from None


def _as_list(made: Node | list[Node]) -> list[Node]:
    return made if isinstance(made, list) else [made]


def _extends(old: schemas.Signature, new: schemas.Signature) -> bool:
    """Whether the old interface means the same with the new one, as far as interfaces tell."""
    for name, attribute in old.attributes.items():
        later = new.attributes.get(name)
        same = later is not None and (later.kind, later.default) == (attribute.kind, attribute.default)
        if not same and name != "consumed_inputs":
            return False
    before, after = old.inputs, new.inputs
    return (
        not any(a.required and name not in old.attributes for name, a in new.attributes.items())
        and len(after) >= len(before)
        and all(a.variadic == b.variadic for a, b in zip(before, after, strict=False))
        and len(new.outputs) >= len(old.outputs)
        and all(p.optional for p in (*after[len(before) :], *new.outputs[len(old.outputs) :]))
    )


def _narrow(node: Node, version: int) -> Node:
    """Take a node one version down, if it uses nothing that came with this version. Raises `Unfit`."""
    require((node.op, version) not in UNLIKE)
    new, old = _at(node.op, version), _at(node.op, needed(version_at(node.op, version - 1)))
    attrs = dict(node.attrs)
    for name in new.attributes.keys() & attrs.keys():
        if name in old.attributes:
            require(old.attributes[name].kind == new.attributes[name].kind)
        else:
            value = attrs.pop(name)
            require(value == new.attributes[name].default or (name == "dilations" and set(value) <= {1}))  # type: ignore[arg-type]
    require(old.min_inputs <= len(node.inputs) <= (math.inf if old.max_inputs is None else old.max_inputs))
    require(len(node.outputs) <= (math.inf if old.max_outputs is None else old.max_outputs))
    require(all(name or p.optional for p, name in zip(old.inputs, node.inputs, strict=False)))
    return replace(node, attrs=attrs)


def downgrade(node: Node, opset: int, values: ModelValues, graph: Graph) -> list[Node]:
    """Return nodes at `opset` of the node's domain that mean what it means at the working opset.

    Constants are added to the values and to the graph. Raises `NotExpressible`, with the least sufficient opset, if
    there are none."""
    domain, name, mark = schemas.split_name(node.op)
    if domain == OWN_DOMAIN:
        raise NotExpressible(node, None)
    op = schemas.qualified(domain, name)
    if domain not in schemas.STANDARD_DOMAINS or not schemas.versions(op):
        return [node]
    at_target = version_at(op, opset)
    if mark is not None:
        if at_target != mark:
            raise NotExpressible(node, mark if opset < mark else None)
        return [replace(node, op=op)]
    if at_target is None and op not in LOWEST:
        raise NotExpressible(node, schemas.versions(op)[0])
    goal = working_opset(domain)
    current = (at_target if goal is None else version_at(op, goal)) or schemas.versions(op)[0]
    nodes = [node]
    for version in _between(current, at_target or 0, op):
        try:
            nodes[-1:] = _up(Step(nodes[-1], values, graph), version)
        except Unfit:
            raise NotExpressible(node, None) from None
    while current > opset:
        nodes[-1:] = _down(Step(nodes[-1], values, graph), current)
        current = version_at(nodes[-1].op, current - 1) or 0  # perhaps of another operator that takes over
    return nodes


def missing(op: str, attribute: str | None, low: int, high: int) -> str:
    """Describe how an operator or attribute is missing at some opset from `low` to `high`; empty if it is not.

    It exists at an opset if the translation has the same meaning, even in another form or as another operator."""
    domain = schemas.split_name(op)[0]
    attrs: dict[str, AttrValue] = {} if attribute is None else {attribute: _ANY}
    wrong = next((v for v in range(low, high + 1) if not can_express(op, attrs, {domain: v})), None)
    if wrong is None:
        return ""
    first = next((v for v in range(wrong, newest_opset(domain) + 1) if can_express(op, attrs, {domain: v})), None)
    if first is not None:
        known = attribute is None and version_at(op, low) is not None
        return f"{'has its present meaning' if known else 'exists'} from opset {first} on"
    return f"does not exist at opset {wrong}"


_ANY = "\0"
"""Value of an attribute that may have any but the default."""


def newest_opset(domain: str) -> int:
    """Return the newest opset of a standard domain that the installed package `onnx` knows."""
    from onnx import defs

    if domain == "":
        return defs.onnx_opset_version()
    return max(s.since_version for s in defs.get_all_schemas() if s.domain == domain)


def can_express(op: str, attrs: Attrs, opsets: Mapping[str, int]) -> bool:
    """Whether an operator with these attributes exists at the opsets, as far as name and attributes tell."""
    domain, name, mark = schemas.split_name(op)
    if domain not in opsets:
        return False
    if domain not in schemas.STANDARD_DOMAINS:
        return domain != OWN_DOMAIN
    plain, opset = schemas.qualified(domain, name), opsets[domain]
    at_target = version_at(plain, opset)
    if mark is not None:
        return at_target == mark
    if at_target is None:
        return plain in LOWEST and opset >= LOWEST[plain]
    if _at(plain, at_target).deprecated:
        return False
    steps = _between(at_target, working_opset(domain) or 0, plain)
    return all((plain, version) in DOWN or _may_narrow(plain, attrs, version) for version in steps)


def _may_narrow(op: str, attrs: Attrs, version: int) -> bool:
    """Whether `_narrow` may take a node with these attributes down from a version."""
    new, before = _at(op, version).attributes, version_at(op, version - 1)
    added = new.keys() - (_at(op, before).attributes if before is not None else {})
    return (op, version) not in UNLIKE and all(attrs[key] == new[key].default for key in added & attrs.keys())
