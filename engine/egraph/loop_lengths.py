"""Length of a Loop's stacked results: its number of iterations, often known only at run time.

Loops that run equally often have results of one length. Without that knowledge no rule could replace a Loop by another
whose body was made smaller, since the lengths of both are unknown. The key of a Loop is all that its iteration count
depends on: the operands, and the part of the body that the condition depends on, with the first values of the states
that this part reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.graph import Graph, content_text
from ..ir.names import ABSENT
from ..operators.schemas import is_pure

Key = tuple[Any, ...]
_INPUTS, _OUTPUTS = 2, 1
"""Number of entries before the states: in a Loop's operands and its body's inputs, and in its body's outputs."""


def length_key(body: Graph, captured: Mapping[str, int], operands: Sequence[int]) -> Key | None:
    """Return a key of what a Loop's iteration count depends on: Loops with equal keys run equally often.

    `captured` has the classes of captured values by their names in the body, `operands` the classes of the Loop's
    inputs. None if the condition depends on an impure node or on one with a body of its own."""
    states = len(body.inputs) - _INPUTS
    if states < 0 or len(body.outputs) < _OUTPUTS + states or not all(body.outputs):
        return None
    copied = {node.outputs[0]: node.inputs[0] for node in body.nodes if node.op == "Identity"}

    def source(name: str) -> str:
        while name in copied:
            name = copied[name]
        return name

    first = dict(zip(body.inputs[_INPUTS:], operands[_INPUTS:], strict=False))
    following = dict(zip(body.inputs[_INPUTS:], map(source, body.outputs[_OUTPUTS:]), strict=False))
    made_by = {name: node for node in body.nodes for name in node.outputs if name}
    numbers: dict[str, Key] = {name: ("captured", at) for name, at in captured.items()}
    numbers |= {name: ("constant", constant.digest) for name, constant in body.constants.items()}
    numbers |= {name: (what,) for name, what in zip(body.inputs, ("iteration", "condition"), strict=False)}
    numbers |= {name: ("captured", first[name]) for name, after in following.items() if after == name and name in first}
    needed: dict[str, None] = {}
    left = [body.outputs[0]]
    while left:
        name = source(left.pop())
        if not name or name in numbers or name in needed:
            continue
        needed[name] = None
        if name in made_by:
            node = made_by[name]
            if not is_pure(node.op, node.attrs) or any(True for _ in node.subgraphs()):
                return None
            left += node.inputs
        elif name in following:
            left.append(following[name])
        else:
            return None
    read = [name for name in body.inputs[_INPUTS:] if name in needed]
    numbers |= {name: ("state", i) for i, name in enumerate(read)}
    parts: list[Key] = []
    for node in body.nodes:
        if needed.keys().isdisjoint(node.outputs):
            continue
        attrs = tuple((k, content_text(v)) for k, v in sorted(node.attrs.items()))
        operands_read = tuple(numbers[source(name)] if name else () for name in node.inputs)
        parts.append((node.op, attrs, len(node.outputs), operands_read))
        numbers |= {name: ("node", len(parts), i) for i, name in enumerate(node.outputs) if name}
    count, condition, *_ = [*operands[:_INPUTS], ABSENT, ABSENT]
    states_read = tuple((first.get(name, ABSENT), numbers[following[name]]) for name in read)
    return count, condition, numbers[source(body.outputs[0])], states_read, tuple(parts)
