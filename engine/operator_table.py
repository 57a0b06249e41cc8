"""What rule files are checked and kept with: ONNX's operators, and what the engine wants to know of rules at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..grammar import ast

if TYPE_CHECKING:
    from ..grammar.library import Library
    from .operators import Signature


class OperatorTable:
    """What the checks of rule files ask about ONNX operators; see `grammar.operator_info`."""

    def signature(self, op: str) -> _Signature | None:
        """The inputs and attributes of an operator, or None if no schema describes it."""
        found = self.schema(op)
        if found is None:
            return None
        inputs = [(p.name, p.optional, p.variadic) for p in found.inputs]
        return _Signature(
            inputs, found.attributes, found.min_inputs, 1 << 30 if found.max_inputs is None else found.max_inputs
        )

    def schema(self, op: str) -> Signature | None:
        """The types of an operator's inputs, outputs and attributes, or None if no schema describes it."""
        from .operators import signature

        return signature(op)

    def missing(self, op: str, attribute: str | None, low: int, high: int | None) -> str:
        """What is not there of an operator at opsets `low` to `high`; see `opsets.missing`."""
        from . import opsets
        from .operators import STANDARD_DOMAINS, split_name

        domain = split_name(op)[0]
        if self.schema(op) is None or domain not in STANDARD_DOMAINS:
            return ""
        return opsets.missing(op, attribute, low, opsets.newest_opset(domain) if high is None else high)

    def newest(self, domain: str) -> int | None:
        """The newest opset of a standard domain."""
        from .operators import STANDARD_DOMAINS
        from .opsets import newest_opset

        return newest_opset(domain) if domain in STANDARD_DOMAINS else None

    def is_tensor(self, op: str, attribute: str) -> bool:
        """Whether an attribute of an operator holds a tensor."""
        from .operators import is_tensor_attribute

        return is_tensor_attribute(op, attribute)

    def version(self) -> str:
        """The version of the `onnx` package, told without importing it."""
        found = find_spec("onnx")
        return str(Path(found.origin).stat().st_mtime_ns) if found is not None and found.origin is not None else ""

    def names(self) -> list[str]:
        """The names of the standard operators."""
        from .operators import standard_names

        return standard_names()


@dataclass(frozen=True, slots=True)
class _Signature:
    inputs: list[tuple[str, bool, bool]]
    attributes: Mapping[str, Any]
    min_inputs: int
    max_inputs: int


class Facts:
    """What is kept of a library besides its items: the rules that recognise operators, and facts of rules and ops.

    Of a rule: its class, its ruleset, the domain of the operator that it recognises, and for each way it goes the
    fields `index`, `indexed`, `indices`, `heads` and `required` of a `CompiledRule`. Of an operator: its kind, whether
    it is commutative, has a definition, and is in the standard, and its class."""

    def derived(self, library: Library) -> Sequence[ast.Rule]:
        """The rules that recognise operators."""
        from .library import recognitions

        return recognitions(library)

    def facts(self, item: ast.Item) -> list[Any]:
        """The facts of a rule or operator; nothing of another item."""
        if isinstance(item, ast.Op):
            from .operators import signature

            standard = "." not in item.name and signature(item.name) is not None
            return [item.kind, item.commutative, item.definition is not None, standard, item.numerics]
        if not isinstance(item, ast.Rule):
            return []
        from .compile_rules import heads
        from .library import compiled

        recognised = item.rhs.head if item.name.startswith("recognise_") and isinstance(item.rhs, ast.Call) else ""
        ways = [
            [c.index, sorted(c.indexed), c.indices, heads(c), sorted(dict.fromkeys(_required(c.lhs)))]
            for c in compiled(item)
        ]
        return [item.numerics, item.ruleset, recognised.rpartition(".")[0], ways]


def _required(pattern: ast.Expr | ast.Roots) -> Iterator[str]:
    """Operators without which a pattern matches nothing; not all of them, since alternatives are not looked into."""
    from .evaluate import INFIX

    match pattern:
        case ast.Roots(bindings=bindings):
            for binding in bindings:
                yield from _required(binding.value)
        case ast.Call() if pattern.kind is None and pattern.is_operator:
            yield pattern.head
            for arg in pattern.args:
                yield from _required(arg)
        case ast.Binary(operator=operator) if operator in INFIX:
            yield INFIX[operator]
            yield from _required(pattern.left)
            yield from _required(pattern.right)
        case ast.Subscript(base=base):
            yield from _required(base)
