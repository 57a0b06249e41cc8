"""State of the inference over one rule: variables, constraints, problems, and applied operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..diagnostics import Diagnostic, Fix, Label
from ..operator_info import OperatorInfo, Parameter, Signature
from ..syntax import ast
from ..syntax.ast import Span
from .linear import Linear
from .shapes import RULES, Application
from .terms import ATTRIBUTE_SORTS, Conflict, DTypes, Shape, Shapes, Tensor, Value, describe, unknown
from .type import ALL, INTEGERS

LITERAL = "this constant"
"""What messages call a number or list among the inputs of an operator."""
MAX_DEPTH = 8
"""Maximum depth to which definitions of operators are expanded."""


@dataclass(slots=True)
class Operand:
    """One input of an operator: its value, its place, and whether it stands for several inputs."""

    value: Value
    span: Span
    starred: bool = False


@dataclass(slots=True)
class Context:
    """State of one inference: one rule with one choice of its alternatives."""

    operators: OperatorInfo | None
    declared: Mapping[str, ast.Op]
    optional: bool = True
    """Whether optional inputs are assumed to be present."""
    choices: Mapping[int, int] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)
    env: dict[str, Value] = field(default_factory=dict)
    lets: dict[str, ast.Expr] = field(default_factory=dict)
    indices: set[str] = field(default_factory=set)
    """Names that stand for any member of a group."""
    problems: list[Diagnostic] = field(default_factory=list)
    certain: bool = True
    """Whether the current expression is evaluated whenever the rule fires."""
    depth: int = 0
    done: dict[tuple[str, bool], Value] = field(default_factory=dict)
    applications: list[Application] = field(default_factory=list)

    def problem(
        self, code: str, message: str, span: Span, *labels: Label, hint: str = "", fix: Fix | None = None
    ) -> None:
        """Report a problem, once per code and place."""
        if all((p.code, p.span) != (code, span) for p in self.problems):
            self.problems.append(Diagnostic(code, message, span, labels, hint, fix=fix))

    @contextmanager
    def attempt(self, span: Span, subject: str = "") -> Iterator[None]:
        """Report a conflict raised inside as a problem at `span`."""
        try:
            yield
        except Conflict as conflict:
            message = conflict.message
            if subject:
                message = message.replace(" would have", f" of {subject} would have", 1)
            self.problem(conflict.code, message, span, *conflict.labels)

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """Infer without drawing conclusions: what is inside may never be evaluated."""
        before, self.certain = self.certain, False
        try:
            yield
        finally:
            self.certain = before

    def propagate(self) -> None:
        """Apply the shape rules of all operators again, now that more is known about their operands."""
        for application in self.applications:
            with self.attempt(application.origin.span):
                RULES[application.op](application)

    def inside(self) -> Context:
        """Return the state inside the definition of an operator: other names, the same facts."""
        return replace(self, choices={}, env={}, lets={}, indices=set(), done={}, optional=True)

    # --- parts

    def tensor(self) -> Tensor:
        """Return a tensor of unknown type."""
        return Tensor(DTypes(), Shape(self.fresh()))

    def fresh(self, low: int | None = 0) -> Linear:
        """Return a new unknown; see `Store.fresh`."""
        return self.shapes.store.fresh(low)

    def known(self, value: Value) -> int | None:
        """Return the number that a value is, if known."""
        return self.shapes.store.resolve(value.number).known if value.number is not None else None

    def integer(self, value: int | None = None) -> Value:
        """Return an integer, known or not."""
        return Value("int", number=self.fresh(None) if value is None else Linear(value))

    def several(self, element: Value) -> Value:
        """Return a list of unknown length."""
        return Value("list", length=self.fresh(), element=element)

    def of_sort(self, sort: str) -> Value:
        """Return a value of a sort, named as in the function table or by an attribute's kind."""
        match sort:
            case "int" | "dim":
                return Value(sort, number=self.fresh(None if sort == "int" else 0))
            case "ints" | "dims" | "floats" | "strings" | "numbers":
                return Value(sort, length=self.fresh(), element=self.of_sort(sort[:-1]))
            case "list":
                return self.several(unknown())
            case "tensor":
                return Value(sort, tensor=self.tensor())
            case "dtype":
                return Value(sort, dtype=DTypes())
        return Value(sort)

    # --- operators

    def schema(self, op: str) -> Signature | None:
        """Return the schema of a standard operator."""
        return self.operators.schema(op) if self.operators is not None else None

    def attribute(self, op: str, name: str) -> Value:
        """Return a value of the sort that an attribute has."""
        schema = self.schema(op)
        formal = schema.attributes.get(name) if schema is not None else None
        if formal is not None and (op, name) == ("Cast", "to"):
            return self.of_sort("dtype")
        return self.of_sort(ATTRIBUTE_SORTS.get(formal.kind, "any") if formal is not None else "any")

    def apply(
        self,
        op: str,
        operands: Sequence[Operand],
        span: Span,
        attributes: Mapping[str, Value] | None = None,
        *,
        is_open: bool = False,
        pattern: bool = False,
    ) -> list[Tensor]:
        """Return the outputs of a standard operator, and constrain its inputs. `is_open` if it may have more
        attributes."""
        schema = self.schema(op)
        if schema is None:
            return [self.tensor()]
        origin = Label(span, f"`{op}` is applied here")
        formals = [*schema.inputs, *schema.inputs[-1:] * len(operands)]
        inputs = self._inputs(op, formals, operands, pattern)
        variables: dict[str, DTypes] = {}
        for formal, tensor, operand in zip(formals, inputs, operands, strict=False):
            if tensor is not None and self.certain:
                with self.attempt(operand.span, (operand.value.text or "") if operand.value.is_tensor else LITERAL):
                    _input_type(op, formal, tensor, operand, variables)
        outputs = []
        for formal in schema.outputs:
            tensor = self.tensor()
            if not formal.type.startswith("tensor(") and (formal.homogeneous or not formal.variadic):
                tensor.dtype = variables.setdefault(formal.type, tensor.dtype)
            if not formal.others and self.certain:
                with self.attempt(span):
                    tensor.dtype.restrict(formal.dtypes, Label(span, f"the result of `{op}`"))
            outputs.append(tensor)
        if not self.certain or not outputs:
            return outputs or [self.tensor()]
        known = dict(attributes or {})
        if not is_open:
            for name, formal_attribute in schema.attributes.items():
                if name not in known and formal_attribute.default is not None:
                    known[name] = self._default(formal_attribute.default)
        if op == "Cast" and "to" in known and known["to"].dtype is not None:
            with self.attempt(span):
                outputs[0].dtype.unify(known["to"].dtype, Label(span, "cast to this"))
        if op in RULES:
            stars = [o.starred for o in operands]
            self.applications.append(Application(op, inputs, stars, known, outputs, self.shapes, origin))
            with self.attempt(span):
                RULES[op](self.applications[-1])
        return outputs

    def _inputs(
        self, op: str, formals: Sequence[Parameter], operands: Sequence[Operand], pattern: bool
    ) -> list[Tensor | None]:
        """Return the operands as tensors; numbers and lists become constants as in the engine."""
        like = next((o.value.tensor for o in operands if o.value.is_tensor), None)
        inputs: list[Tensor | None] = []
        for i, operand in enumerate(operands):
            value = operand.value
            if value.is_tensor:
                inputs.append(value.tensor)
            elif value.sort == "none":
                inputs.append(None)
            elif value.is_number or value.is_list or value.sort == "contents":
                tensor = self.literal(value, pattern)
                if not pattern and formals and not formals[i].others and self.certain:
                    self._literal_type(op, formals[i].dtypes, tensor, like, operand)
                inputs.append(tensor)
            else:
                if value.sort in ("string", "operator", "rest", "dtype", "graph"):
                    message = f"`{op}` takes tensors; this is {describe(value)}"
                    self.problem("wrong-input", message, operand.span)
                inputs.append(self.tensor())
        return inputs

    def _literal_type(
        self, op: str, allowed: frozenset[str], tensor: Tensor, like: Tensor | None, operand: Operand
    ) -> None:
        with self.attempt(operand.span, LITERAL):
            if len(allowed) == 1 or (allowed <= INTEGERS and "i64" in allowed):
                wanted = allowed if len(allowed) == 1 else frozenset(("i64",))
                tensor.dtype.restrict(wanted, Label(operand.span, f"required by `{op}`"))
            elif like is not None and not (allowed and allowed <= INTEGERS):
                like.dtype.unify(tensor.dtype, Label(operand.span, f"it takes the type of the first input of `{op}`"))

    def literal(self, value: Value, pattern: bool) -> Tensor:
        """Return the constant that a number or list becomes; in a pattern it may have any shape."""
        tensor = self.tensor()
        tensor.const = True
        if value.fraction:
            floats = frozenset(d for d in ALL if d[0] in "fc" or d == "bf16")
            tensor.dtype.allowed = floats if pattern else ALL - INTEGERS
        if not pattern and value.is_number:
            tensor.shape = Shape(Linear(0))
        elif not pattern and value.is_list and value.length and not (value.element and value.element.is_list):
            tensor.shape = Shape(Linear(1), {0: value.length})
        return tensor

    def _default(self, default: object) -> Value:
        """Return the default of an attribute, as far as shapes may depend on it."""
        if isinstance(default, int) and not isinstance(default, bool):
            return self.integer(default)
        if isinstance(default, tuple) and all(isinstance(d, int) for d in default):
            return Value("ints", length=Linear(len(default)), items=[self.integer(d) for d in default])
        return unknown()


def _input_type(op: str, formal: Parameter, tensor: Tensor, operand: Operand, variables: dict[str, DTypes]) -> None:
    """Restrict an input to what its schema allows; inputs of one type variable share an element type."""
    if not formal.others:
        tensor.dtype.restrict(formal.dtypes, Label(operand.span, f"required by `{op}`"))
    if not formal.type.startswith("tensor(") and (formal.homogeneous or not formal.variadic):
        origin = Label(operand.span, f"the inputs of `{op}` share an element type")
        variables.setdefault(formal.type, tensor.dtype).unify(tensor.dtype, origin)
