"""From any opset to the working one and back, one operator at a time.

An operator of a model has the meaning of the newest version of its schema that is not newer than the model's opset.
`upgrade` takes it to the working opset, `downgrade` from there to a target opset, step by step along the versions of
its schema. A step whose interface did not change, or was only extended by attributes with a default or by optional
inputs, is taken as it is (down: if the extension is not used), unless `UNLIKE` says that the meaning changed; other
steps need an adapter (`up`, `down`). An operator without one keeps its version in its name (`Scan@8`, see `operators`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..operators import (
    ML_DOMAIN,
    OWN_DOMAIN,
    STANDARD_DOMAINS,
    WORKING_ML_OPSET,
    WORKING_OPSET,
    Signature,
    normalise_attrs,
    qualified,
    signature,
    split_name,
    versions,
)
from .common import Context, NotExpressible
from .down import DOWN, LOWEST
from .up import UP, for_use

if TYPE_CHECKING:
    from ..graph import Attrs, AttrValue, Node

__all__ = ["Context", "NotExpressible", "can_express", "downgrade", "missing", "newest_opset", "upgrade", "version_at"]

UNLIKE = frozenset(
    {
        ("OneHot", 11),  # negative indices count from the end
        ("PRelu", 7),  # the slope broadcasts as in NumPy instead of by channel
        ("GroupNormalization", 21),  # scale and bias by channel instead of by group
        ("Scan", 9),  # no batch dim
    }
)
"""Steps where the meaning changed although the interface would allow to take them."""


def working_opset(domain: str) -> int | None:
    """The opset that graphs are in, for the domains that have one."""
    return {"": WORKING_OPSET, ML_DOMAIN: WORKING_ML_OPSET}.get(domain)


def version_at(op: str, opset: int) -> int | None:
    """The version of the operator's schema that holds at an opset; None if it is not there (yet)."""
    known = [v for v in versions(op) if v <= opset]
    return known[-1] if known else None


def _at(op: str, version: int) -> Signature:
    found = signature(f"{op}@{version}")
    assert found is not None
    return found


def upgrade(node: Node, opset: int, ctx: Context) -> list[Node]:
    """The nodes at the working opset that mean what this node means at `opset` of its domain.

    The node's operator carries no version mark. The result is one node with a marked name where there is no way."""
    target = working_opset(node.domain)
    version = version_at(node.op, opset)
    if target is None or version is None:
        return [node]
    goal = version_at(node.op, target) or version
    mark = qualified(*split_name(node.op)[:2], version)
    if _at(node.op, version).deprecated or (node.op == "Dropout" and version >= 12 and not for_use(node, ctx)):
        return [_marked(node, mark)]
    attrs = normalise_attrs(mark, node.attrs)
    attrs.pop("consumed_inputs", None)
    nodes = [replace(node, attrs=attrs)]
    current = version
    while current != goal:
        done = _step(nodes[-1], current, goal, ctx)
        if done is None or not done:
            return [_marked(node, mark)]
        nodes[-1:] = done
        if nodes[-1].op != node.op:  # replaced for good by an adapter
            return [_final(n) for n in nodes]
        following = [v for v in versions(node.op) if v > current]
        current = following[0] if goal > current else [v for v in versions(node.op) if v < current][-1]
    if version != goal and _at(node.op, goal).deprecated:
        return [_marked(node, mark)]
    return [_final(n) for n in nodes]


def _marked(node: Node, mark: str) -> Node:
    return replace(node, op=mark, attrs=normalise_attrs(mark, node.attrs))


def _final(node: Node) -> Node:
    return replace(node, attrs=normalise_attrs(node.op, node.attrs))


def _step(node: Node, current: int, goal: int, ctx: Context) -> list[Node] | None:
    """The node one version on towards the goal; None if there is no way."""
    if goal > current:
        following = next(v for v in versions(node.op) if v > current)
        adapter = UP.get((node.op, following))
        if adapter is not None:
            return adapter(node, ctx)
        if (node.op, following) in UNLIKE or not _extends(_at(node.op, current), _at(node.op, following)):
            return None
        return [node]
    try:
        return [_narrow(node, current)]
    except NotExpressible:
        return None


def _extends(old: Signature, new: Signature) -> bool:
    """Whether what could be said with the old interface means the same with the new one, as far as interfaces tell."""
    for name, attribute in old.attributes.items():
        if name != "consumed_inputs":
            later = new.attributes.get(name)
            if later is None or later.kind != attribute.kind or later.default != attribute.default:
                return False
    if any(a.required and name not in old.attributes for name, a in new.attributes.items()):
        return False
    before, after = old.inputs, new.inputs
    if len(after) < len(before) or any(a.variadic != b.variadic for a, b in zip(before, after, strict=False)):
        return False
    if any(not p.optional for p in after[len(before) :]) or len(new.outputs) < len(old.outputs):
        return False
    return all(p.optional for p in new.outputs[len(old.outputs) :])


def _narrow(node: Node, current: int) -> Node:
    """The node one version down, if it uses nothing that came with version `current`."""
    earlier = [v for v in versions(node.op) if v < current]
    if not earlier or (node.op, current) in UNLIKE:
        raise NotExpressible(node, current)
    new, old = _at(node.op, current), _at(node.op, earlier[-1])
    attrs = dict(node.attrs)
    for name, attribute in new.attributes.items():
        if name not in old.attributes and name in attrs:
            plain = name == "dilations" and set(attrs[name]) <= {1}  # type: ignore[arg-type]
            if plain:
                del attrs[name]
                continue
            if attribute.default is None or attrs[name] != attribute.default:
                raise NotExpressible(node, current)
            del attrs[name]
        elif name in old.attributes and name in attrs and old.attributes[name].kind != attribute.kind:
            raise NotExpressible(node, current)
    if old.max_inputs is not None and len(node.inputs) > old.max_inputs:
        raise NotExpressible(node, current)
    if len(node.inputs) < old.min_inputs or (old.max_outputs is not None and len(node.outputs) > old.max_outputs):
        raise NotExpressible(node, current)
    if any(not p.optional and not node.inputs[i] for i, p in enumerate(old.inputs) if i < len(node.inputs)):
        raise NotExpressible(node, current)
    return replace(node, attrs=attrs)


def downgrade(node: Node, opset: int, ctx: Context) -> list[Node]:
    """The nodes at `opset` of the node's domain that mean what it means at the working opset.

    Raises `NotExpressible`, which says the least opset that would do, if there is no way."""
    domain, name, mark = split_name(node.op)
    if domain == OWN_DOMAIN:
        raise NotExpressible(node, None)
    if domain not in STANDARD_DOMAINS:
        return [node]
    plain = qualified(domain, name)
    at_target = version_at(plain, opset)
    if mark is not None:
        if at_target != mark:
            raise NotExpressible(node, None)
        return [replace(node, op=plain)]
    goal = working_opset(domain)
    current = version_at(plain, goal) if goal is not None else at_target
    if current is None:
        current = versions(plain)[0] if versions(plain) else None
    if current is None:
        return [node]
    if at_target is None and plain not in LOWEST:
        raise NotExpressible(node, current if not versions(plain) else versions(plain)[0])
    nodes = [node]
    if at_target is not None and at_target > current:
        while current < at_target:
            done = _step(nodes[-1], current, at_target, ctx)
            if done is None:
                raise NotExpressible(node, None)
            nodes[-1:] = done
            current = next(v for v in versions(plain) if v > current)
        return nodes
    while current > opset:
        adapter = DOWN.get((plain, current))
        if adapter is not None:
            nodes[-1:] = adapter(nodes[-1], ctx)
        else:
            nodes[-1] = _narrow(nodes[-1], current)
        if nodes[-1].op != plain:  # another operator took over: it is at the version just below
            plain = nodes[-1].op
            current = version_at(plain, current - 1) or 0
        else:
            current = [v for v in versions(plain) if v < current][-1]
    return nodes


def missing(op: str, attribute: str | None, low: int, high: int) -> str:
    """How an operator, or an attribute of it, is not there with one meaning at all opsets from `low` to `high`.

    An operator means what it means at the working opset. It is there at another one if what is written for it there
    means the same, be it another form of it or another operator. Empty if nothing is missing."""
    domain = split_name(op)[0]
    attrs: dict[str, AttrValue] = {} if attribute is None else {attribute: _ANY}
    wrong = [v for v in range(low, high + 1) if not can_express(op, attrs, {domain: v})]
    if not wrong:
        return ""
    first = next((v for v in range(wrong[0], newest_opset(domain) + 1) if can_express(op, attrs, {domain: v})), None)
    if first is not None and first > low:
        known = attribute is None and version_at(op, low) is not None
        return f"{'has its present meaning' if known else 'exists'} from opset {first} on"
    return f"does not exist at opset {wrong[0]}"


_ANY = "\0"
"""The value of an attribute that may have any but the default."""


def newest_opset(domain: str) -> int:
    """The newest opset of a standard domain that the installed package `onnx` knows."""
    from onnx import defs

    if domain == "":
        return defs.onnx_opset_version()
    return max(s.since_version for s in defs.get_all_schemas() if s.domain == domain)


def can_express(op: str, attrs: Attrs, opsets: Mapping[str, int]) -> bool:
    """Whether an operator with these attributes exists at the opsets, as far as name and attributes tell."""
    domain, name, mark = split_name(op)
    if domain not in opsets:
        return False
    if domain not in STANDARD_DOMAINS:
        return domain != OWN_DOMAIN
    plain = qualified(domain, name)
    opset = opsets[domain]
    at_target = version_at(plain, opset)
    if mark is not None:
        return at_target == mark
    if at_target is None:
        return plain in LOWEST and opset >= LOWEST[plain]
    found = _at(plain, at_target)
    goal = working_opset(domain)
    if found.deprecated or goal is None:
        return not found.deprecated
    working = version_at(plain, goal)
    if working is None or working <= at_target:
        return True
    current = working
    while current > at_target:
        if (plain, current) not in DOWN and (plain, current) in UNLIKE:
            return False
        if (plain, current) not in DOWN:
            formal = _at(plain, current).attributes
            earlier = [v for v in versions(plain) if v < current][-1]
            before = _at(plain, earlier).attributes
            for key, attribute in formal.items():
                if key not in before and key in attrs and attrs[key] != attribute.default:
                    return False
        current = [v for v in versions(plain) if v < current][-1]
    return True
