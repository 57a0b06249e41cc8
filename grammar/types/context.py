"""What the parts of the inference share: the variables of one rule, the problems found, and operators applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .. import ast
from ..ast import Span
from ..diagnostics import Diagnostic, Fix, Label
from ..operator_info import FormalParameter, OperatorInfo, OperatorSchema
from .linear import Linear
from .shapes import RULES, Application
from .terms import Conflict, DTypes, Origin, Shape, Shapes, Tensor
from .type import ALL, INTEGERS
from .values import ATTRIBUTE_SORTS, Value, said, unknown

MAX_DEPTH = 8
"""How deep definitions of operators are looked into."""


@dataclass(slots=True)
class Operand:
    """One input of an operator: what it is, where it stands, and whether it stands for several."""

    value: Value
    span: Span
    starred: bool = False


@dataclass(slots=True)
class Context:
    """The state of one inference: one rule, one choice among its alternatives."""

    operators: OperatorInfo | None
    declared: Mapping[str, ast.Op]
    optional: bool = True
    """Whether optional inputs are taken to be there."""
    choices: Mapping[int, int] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)
    env: dict[str, Value] = field(default_factory=dict)
    lets: dict[str, ast.Expr] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)
    """The names that stand for any member of a group."""
    problems: list[Diagnostic] = field(default_factory=list)
    certain: bool = True
    """Whether what is looked at is computed for sure whenever the rule fires."""
    depth: int = 0
    done: dict[tuple[str, bool], Value] = field(default_factory=dict)
    applications: list[Application] = field(default_factory=list)

    def problem(
        self, code: str, message: str, span: Span, *labels: Label, hint: str = "", fix: Fix | None = None
    ) -> None:
        """Note what is wrong."""
        found = Diagnostic(code, message, span, labels, hint, fix=fix)
        if all((p.code, p.span) != (code, span) for p in self.problems):
            self.problems.append(found)

    @contextmanager
    def attempt(self, span: Span, subject: str = "") -> Iterator[None]:
        """Turn a conflict into a problem at a place."""
        try:
            yield
        except Conflict as conflict:
            message = conflict.message
            if subject:
                message = message.replace(" would have", f" of {subject} would have", 1)
            self.problem(conflict.code, message, span, *conflict.labels, hint=conflict.hint)

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """What is looked at inside may never be computed: nothing follows from it."""
        before, self.certain = self.certain, False
        try:
            yield
        finally:
            self.certain = before

    def settle(self) -> None:
        """Look at all operators once more, now that more is known of what stands around them."""
        for application in self.applications:
            with self.attempt(application.origin.span):
                RULES[application.op](application)

    # --- parts

    def tensor(self) -> Tensor:
        """A tensor of which nothing is known."""
        return self.shapes.tensor()

    def integer(self, value: int | None = None) -> Value:
        """An integer, known or not."""
        return Value("int", number=self.shapes.store.fresh(None) if value is None else Linear(value))

    def of_sort(self, sort: str) -> Value:
        """A value of a sort as the table of functions and the kinds of attributes name them."""
        store = self.shapes.store
        if sort == "int":
            return Value("int", number=store.fresh(None))
        if sort == "dim":
            return Value("dim", number=store.fresh())
        if sort in ("ints", "dims"):
            return Value(sort, length=store.fresh(), element=self.of_sort(sort[:-1]))
        if sort in ("floats", "strings", "numbers"):
            return Value(sort, length=store.fresh(), element=Value(sort[:-1]))
        if sort == "list":
            return Value(sort, length=store.fresh(), element=unknown())
        if sort == "tensor":
            return Value(sort, tensor=self.tensor())
        if sort == "dtype":
            return Value(sort, dtype=DTypes())
        return Value(sort)

    # --- operators

    def schema(self, op: str) -> OperatorSchema | None:
        """The schema of an operator of the standard."""
        return self.operators.schema(op) if self.operators is not None else None

    def attribute(self, op: str, name: str) -> Value:
        """A value of the kind that an attribute has."""
        schema = self.schema(op)
        if schema is not None:
            formal = schema.attributes.get(name)
            if formal is None:
                return unknown()
            if op == "Cast" and name == "to":
                return Value("dtype", dtype=DTypes())
            return self.of_sort(ATTRIBUTE_SORTS.get(formal.kind, "any"))
        return unknown()

    def apply(
        self,
        op: str,
        operands: Sequence[Operand],
        attributes: Mapping[str, Value],
        span: Span,
        *,
        is_open: bool,
        pattern: bool,
    ) -> list[Tensor]:
        """The outputs of an operator; adds what must hold of its inputs. `is_open` if more attributes may be set."""
        schema = self.schema(op)
        if schema is None:
            from .expressions import declared_outputs

            return declared_outputs(self, op, operands, span)
        origin = Origin(span, f"`{op}` is applied here")
        inputs = self._inputs(op, schema, operands, pattern)
        variables: dict[str, DTypes] = {}
        for i, (tensor, operand) in enumerate(zip(inputs, operands, strict=True)):
            if tensor is not None and schema.inputs:
                formal = schema.inputs[min(i, len(schema.inputs) - 1)]
                with self.attempt(operand.span, _named(operand)):
                    self._input_type(op, formal, tensor, operand, variables)
        outputs = []
        for formal in schema.outputs:
            tensor = self.tensor()
            if not formal.type.startswith("tensor(") and (formal.homogeneous or not formal.variadic):
                tensor.dtype = variables.setdefault(formal.type, tensor.dtype)
            if not formal.others and self.certain:
                with self.attempt(span):
                    tensor.dtype.narrow(formal.dtypes, Origin(span, f"`{op}` gives this"))
            outputs.append(tensor)
        if not self.certain or not outputs:
            return outputs or [self.tensor()]
        known = dict(attributes)
        if not is_open:
            for name, formal_attribute in schema.attributes.items():
                if name not in known and formal_attribute.default is not None:
                    known[name] = self._default(formal_attribute.default)
        if op == "Cast" and "to" in known and known["to"].dtype is not None:
            with self.attempt(span):
                outputs[0].dtype.unify(known["to"].dtype, Origin(span, "cast to this"))
        rule = RULES.get(op)
        if rule is not None:
            stars = [o.starred for o in operands]
            application = Application(op, inputs, stars, known, outputs, self.shapes, origin)
            self.applications.append(application)
            with self.attempt(span):
                rule(application)
        return outputs

    def _input_type(
        self, op: str, formal: FormalParameter, tensor: Tensor, operand: Operand, variables: dict[str, DTypes]
    ) -> None:
        type_ = formal.type
        if not self.certain:
            return
        if not formal.others:
            tensor.dtype.narrow(formal.dtypes, Origin(operand.span, f"`{op}` takes this here"))
        if type_.startswith("tensor(") or (formal.variadic and not formal.homogeneous):
            return
        origin = Origin(operand.span, f"`{op}` takes one element type")
        if type_ in variables:
            variables[type_].unify(tensor.dtype, origin)
        else:
            variables[type_] = tensor.dtype

    def _inputs(
        self, op: str, schema: OperatorSchema, operands: Sequence[Operand], pattern: bool
    ) -> list[Tensor | None]:
        """The operands as tensors; numbers and lists become constants as the engine makes them."""
        like = next((o.value.tensor for o in operands if o.value.sort in ("tensor", "tensors")), None)
        inputs: list[Tensor | None] = []
        for i, operand in enumerate(operands):
            value = operand.value
            if value.sort in ("tensor", "tensors"):
                inputs.append(value.tensor)
            elif value.sort == "none":
                inputs.append(None)
            elif value.is_number or value.is_list or value.sort == "contents":
                tensor = self.literal(value, pattern)
                formal = schema.inputs[min(i, len(schema.inputs) - 1)] if schema.inputs else None
                if not pattern and formal is not None and not formal.others and self.certain:
                    self._literal_type(op, formal.dtypes, tensor, like, operand)
                inputs.append(tensor)
            elif value.sort in ("string", "operator", "rest", "dtype", "graph"):
                message = f"`{op}` takes tensors; this is {said(value)}"
                self.problem("wrong-input", message, operand.span)
                inputs.append(self.tensor())
            else:
                inputs.append(self.tensor())
        return inputs

    def _literal_type(
        self, op: str, allowed: frozenset[str], tensor: Tensor, like: Tensor | None, operand: Operand
    ) -> None:
        with self.attempt(operand.span, "this constant"):
            if len(allowed) == 1:
                tensor.dtype.narrow(allowed, Origin(operand.span, f"`{op}` takes this here"))
            elif allowed and allowed <= INTEGERS:
                if "i64" in allowed:
                    tensor.dtype.narrow(frozenset(("i64",)), Origin(operand.span, f"`{op}` takes this here"))
            elif like is not None:
                like.dtype.unify(tensor.dtype, Origin(operand.span, f"it has the type of the first input of `{op}`"))

    def literal(self, value: Value, pattern: bool) -> Tensor:
        """The constant that a number or list becomes; in a pattern it may have any shape."""
        tensor = self.tensor()
        tensor.const = True
        if value.fraction:
            floats = frozenset(d for d in ALL if d[0] in "fc" or d == "bf16")
            tensor.dtype.allowed = floats if pattern else ALL - INTEGERS
        if not pattern:
            if value.is_number:
                tensor.shape = Shape(Linear(0), {})
            elif value.is_list and value.length is not None and not (value.element and value.element.is_list):
                tensor.shape = self.shapes.shape([value.length], None)
        return tensor

    def _default(self, default: object) -> Value:
        if isinstance(default, bool | str | float):
            return Value("any")
        if isinstance(default, int):
            return self.integer(default)
        if isinstance(default, tuple) and all(isinstance(d, int) for d in default):
            items = [self.integer(d) for d in default]
            return Value("ints", length=Linear(len(items)), items=items)
        return unknown()


def _named(operand: Operand) -> str:
    return operand.value.text or "" if operand.value.sort in ("tensor", "tensors") else "this constant"
