"""Coverage of a rule: what its pattern admits, and which of that occurred among the instances on which it fired.

A trait is a way of instances that mistakes are known to hide behind, such as a Slice that runs backwards, a vector in a
matrix product, or an attribute that is not at its default. Only traits that the pattern leaves open apply: a rule that
states the step of a Slice has none about steps. A report names the traits that were never reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...engine.ir.values import RestRef
from ...engine.operators.schemas import attributes_of
from ...grammar.syntax import ast
from ..sampling.coupled_edits import numbers_of
from ..sampling.instance import Instance, Tensor
from ..sampling.subject import Subject
from ..sampling.values import every_value

_INFIX = {"@": "MatMul"}
_PRODUCTS = ("MatMul", "MatMulInteger")
_ATTRIBUTES = frozenset({"group", "pads", "strides", "dilations", "ceil_mode", "count_include_pad", "auto_pad",
                         "keepdims", "noop_with_empty_axes", "select_last_index", "transA", "transB", "alpha", "beta",
                         "mode", "saturate", "reverse", "exclusive", "largest", "is_causal", "epsilon"})  # fmt: skip
"""Attributes whose defaults hide mistakes."""
_SLICE = ((1, "begins at the end", lambda v: v < 0), (2, "ends before the end", lambda v: v < 0),
          (4, "runs backwards", lambda v: v < 0), (4, "takes steps", lambda v: abs(v) > 1))  # fmt: skip
"""Traits of a Slice: input, name, and what its number is like."""


@dataclass
class Coverage:
    """Traits of a rule: those that apply, and those that an instance has reached on which it fired."""

    admitted: dict[str, None] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)

    def add(self, subject: Subject, fired: Iterable[Instance]) -> None:
        """Count the instances of a subject on which its rule fired."""
        forms = [list(_calls(form)) for form in subject.forms]
        for calls in forms[: subject.alternatives]:
            self.admitted |= {trait: None for call in calls for trait, _ in _traits(call, {})}
        self.admitted |= dict.fromkeys(("an empty tensor", "a dim that is a symbol"))
        for instance in fired:
            if subject.model(instance) is None:
                found = (pair for call in forms[instance.form] for pair in _traits(call, instance.operands))
                self.reached |= {trait for trait, holds in found if holds}
            dims = [d for _, tensor in instance.tensors for d in tensor.shape]
            self.reached |= {"an empty tensor"} if 0 in dims else set()
            self.reached |= {"a dim that is a symbol"} if any(not isinstance(d, int) for d in dims) else set()

    def missing(self) -> list[str]:
        """Return the traits that were never reached."""
        return [trait for trait in self.admitted if trait not in self.reached]


def _calls(form: ast.Syntax) -> Iterator[ast.Call]:
    for node in form.walk():
        if isinstance(node, ast.Call) and node.is_operator and node.kind is None:
            yield node
        elif isinstance(node, ast.Binary) and node.operator in _INFIX:
            yield ast.Call(span=node.span, head=_INFIX[node.operator], args=(node.left, node.right))


def _traits(call: ast.Call, operands: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the traits that an operator of the pattern admits, and whether these operands have them."""
    op, names = call.head, [_name(arg) for arg in call.args]
    if op == "Slice":
        for index, trait, holds in _SLICE:
            if index < len(names) and names[index]:
                yield f"a Slice that {trait}", any(map(holds, numbers_of(operands.get(names[index])) or ()))
    if op == "Gather" and len(names) > 1 and names[1]:
        indices = operands.get(names[1])
        yield "a Gather from the end", any(i < 0 for i in numbers_of(indices) or ())
        yield "a Gather by a matrix", isinstance(indices, Tensor) and len(indices.shape) > 1
    for name in names[:2] if op in _PRODUCTS else ():
        if name:
            rank = len(x.shape) if isinstance(x := operands.get(name), Tensor) else 2
            yield f"a vector in {op}", rank == 1
            yield f"a batch in {op}", rank > 2
    if op == "Reshape" and len(names) > 1 and names[0] and names[1]:
        x, target = operands.get(names[0]), numbers_of(operands.get(names[1]))
        more = len(target) - len(x.shape) if isinstance(x, Tensor) and target is not None else 0
        yield "a Reshape that splits an axis", more > 0
        yield "a Reshape that merges axes", more < 0
    if call.rest is not None and call.rest.name is not None:
        own = {a.name for a in call.attributes}
        rest = operands.get(call.rest.name)
        attrs = rest.attrs if isinstance(rest, RestRef) else {}
        for attribute, formal in attributes_of(op).items():
            if attribute in _ATTRIBUTES - own and every_value(op, attribute, 4) is not None:
                yield f"{attribute} of {op}", attribute in attrs and attrs[attribute] != formal.default


def _name(arg: ast.Expr) -> str:
    """Return the variable at an input, alone or as the only item of a list; empty if the pattern states more."""
    if isinstance(arg, ast.ListExpr) and len(arg.items) == 1:
        arg = arg.items[0]
    return arg.id if isinstance(arg, ast.Name) else arg.name if isinstance(arg, ast.Optional) else ""
