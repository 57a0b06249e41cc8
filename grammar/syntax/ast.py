"""Abstract syntax of rule files: the parser's output and the input of every later stage.

Patterns and expressions share one set of classes, since both sides of a rule use one notation; the static checks
decide which may stand where. Every node carries the `Span` of its text.

Length: all node classes of one language, read side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias, dataclass_transform


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source file: 1-based lines and columns, the end exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def to(self, other: Span) -> Span:
        """Return the stretch from the start of this span to the end of `other`."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class _Node(type):
    """Makes every class of nodes a frozen dataclass with slots, built from keyword arguments."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        made = super().__new__(cls, name, bases, namespace)
        # `dataclass(slots=True)` creates the class a second time; only the second is complete.
        return made if "__slots__" in namespace else dataclass(frozen=True, slots=True, kw_only=True, repr=False)(made)


class Syntax(metaclass=_Node):
    """Base of all nodes. Equality ignores spans: printed and re-parsed text compares equal."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    span: Span = field(compare=False)

    def __repr__(self) -> str:
        name = getattr(self, "name", "")
        return f"<{type(self).__name__}{f' {name}' if isinstance(name, str) and name else ''} at {self.span}>"

    def content(self) -> str:
        """Return a text that equal trees share, docstrings included, and different ones do not."""

        def text(value: Any) -> str:
            if isinstance(value, tuple):
                return f"({', '.join(map(text, value))})"
            return value.content() if isinstance(value, Syntax) else repr(value)

        kind = type(self)
        return f"{kind.__name__}({', '.join(text(getattr(self, name)) for name in parts(kind))})"

    def children(self) -> Iterator[Syntax]:
        """Yield the nodes directly below this one, in source order."""
        for name in _below(type(self)):
            value = getattr(self, name)
            if isinstance(value, tuple):
                yield from value
            elif value is not None:
                yield value

    def map_children(self, change: Callable[[Syntax], Syntax]) -> Self:
        """Return this node with `change` applied to its children; the node itself if none of them changes."""
        changes: dict[str, Any] = {}
        for name in _below(type(self)):
            value = getattr(self, name)
            if isinstance(value, tuple):
                items = tuple(map(change, value))
                if any(new is not old for new, old in zip(items, value, strict=True)):
                    changes[name] = items
            elif value is not None and (new := change(value)) is not value:
                changes[name] = new
        return replace(self, **changes) if changes else self

    def walk(self) -> Iterator[Syntax]:
        """Yield this node and all nodes below it, parents first."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed([*node.children()])

    def levels(self) -> Iterator[list[Syntax]]:
        """Yield the nodes at each depth: this one, its children, their children, and so on."""
        level: list[Syntax] = [self]
        while level:
            yield level
            level = [child for node in level for child in node.children()]


@cache
def parts(kind: type[Syntax]) -> tuple[str, ...]:
    """Return the names of a node's fields, except its span."""
    return tuple(f.name for f in fields(kind) if f.name != "span")


@cache
def _below(kind: type[Syntax]) -> tuple[str, ...]:
    """Return the fields that hold a node, a tuple of nodes, or None, by their annotations."""
    holds = {f.name: str(f.type).removeprefix("tuple[").replace(", ...]", "").split(" | ") for f in fields(kind)}
    return tuple(name for name in parts(kind) if not {"str", "bool", "int", "float", "None"}.issuperset(holds[name]))


# --- expressions and patterns ---------------------------------------------------------------------------------------


class Expr(Syntax):
    """An expression or pattern."""


class Number(Expr):
    """A literal `2`, `0.5` or `1e-5`. As a pattern it matches a constant whose elements all have this value."""

    value: int | float


class String(Expr):
    """A literal `"NOTSET"`."""

    value: str


class Name(Expr):
    """A variable, a word (`true`, `false`, `none`, `inf`, `pi`), or a dtype such as `f32`."""

    id: str


class ListExpr(Expr):
    """`[a, b, c]`."""

    items: tuple[Expr, ...]


class Comprehension(Expr):
    """`[item for variable in iterable if condition]`."""

    item: Expr
    variable: str
    iterable: Expr
    condition: Expr | None


class Conditional(Expr):
    """`(then if condition else otherwise)`; only one branch is evaluated."""

    then: Expr
    condition: Expr
    otherwise: Expr


class Range(Expr):
    """`low .. high`: the integers from `low` to `high`, both included."""

    low: Expr
    high: Expr


class Unary(Expr):
    """`-x` or `not x`; `operator` is `"-"` or `"not"`."""

    operator: str
    operand: Expr


class Binary(Expr):
    """`left op right` with one of `+ - * / % @ **`, `and`, `or`.

    Over tensors these are Add, Sub, Mul, Div, Mod, MatMul, Pow, And, Or; over numbers and lists plain arithmetic."""

    operator: str
    left: Expr
    right: Expr


class Compare(Expr):
    """`left op right` with one of `== != < <= > >= in is "is not"`.

    `x is none` tests whether an optional input is absent."""

    operator: str
    left: Expr
    right: Expr

    @property
    def form(self) -> Call | None:
        """The pattern of `x is Transpose(..)`, None for other comparisons."""
        is_form = self.operator in ("is", "is not") and isinstance(self.right, Call) and self.right.is_operator
        return self.right if is_form and isinstance(self.right, Call) else None


class Attribute(Syntax):
    """`name: value` among an operator's arguments; in a pattern, `name: q = default` for one that may be absent."""

    name: str
    value: Expr
    default: Expr | None = None


class Optional(Expr):
    """`B = 0` among an operator's inputs in a pattern: binds the input, or the default when the input is absent.

    As an operand, `x * (s = 1)`, it also matches `x` alone. `desugar` removes those."""

    name: str
    default: Expr


class Each(Expr):
    """`P ...` among inputs: one or more inputs of this form; on the right and in lists, one per member."""

    value: Expr


class Rest(Expr):
    """`..a`: all other attributes; `..` alone: any attributes (pattern) or none named (class heads)."""

    name: str | None


class All(Expr):
    """The `*` of `xs[*]`."""


class Call(Expr):
    """`Conv(x, W, B = 0, pads: p, ..a)` or `rank(x)`.

    Operator names are capitalized (`Conv`, or qualified by the domain: `com.microsoft.Gelu`), function names are not.
    `kind` is set for class heads: in `elementwise f(x)` it is `"elementwise"`, and `head` is `"f"`, the variable bound
    to the operator. `args` holds the inputs in order; `rest` the `..a`, if any."""

    head: str
    args: tuple[Expr, ...]
    attributes: tuple[Attribute, ...] = ()
    rest: Rest | None = None
    kind: str | None = None

    @property
    def has_many(self) -> bool:
        """Whether an input stands for any number of inputs: `xs[*]` or `P ...`."""
        return any(map(is_many, self.args))

    @property
    def is_operator(self) -> bool:
        """Whether the head names or binds an operator, rather than a library function."""
        return self.kind is not None or self.head.rpartition(".")[2][:1].isupper()


class Subscript(Expr):
    """`p[i]`, `xs[*]`; after a multi-output operator, one of its outputs."""

    base: Expr
    index: Expr


def is_many(argument: Syntax) -> bool:
    """Return whether an argument stands for any number of inputs: `xs[*]` or `P ...`."""
    return isinstance(argument, Each) or (isinstance(argument, Subscript) and isinstance(argument.index, All))


class Alternatives(Expr):
    """`(a | b)`: any of several patterns, which bind the same variables."""

    options: tuple[Expr, ...]


class Axis(Expr):
    """`a in rank(x)` as an attribute or list item of a pattern: an axis, bound as nonnegative.

    Written as a `Compare`; `desugar` creates it."""

    name: str
    rank: Expr


class Omitted(Expr):
    """A pattern without some of its optional operands: `pattern` is matched, the `defaults` are bound.

    Not part of the notation; `desugar` creates it."""

    pattern: Expr
    defaults: tuple[Optional, ...]


# --- types ----------------------------------------------------------------------------------------------------------


class ShapeRest(Syntax):
    """`..s` or `..` in a shape: any number of dims, bound to `name`."""

    name: str | None


class AnyDim(Syntax):
    """`_` in a shape: any single dim."""


class TypeExpr(Syntax):
    """`const f32[N, 3, ..s]`; every part is optional.

    `element` is a dtype (`f32`), a class (`float`, `integer`, `number`), `scalar` (one element, any rank), a dtype
    variable, or None. `shape` is None if not written (any rank); its items are expressions (`Name`s bind or compare),
    `ShapeRest` or `AnyDim`. `broadcasts` is the shape after `broadcasts to`, which `desugar` turns into a condition."""

    const: bool
    element: str | None
    shape: tuple[Expr | ShapeRest | AnyDim, ...] | None
    broadcasts: Expr | None = None


# --- clauses --------------------------------------------------------------------------------------------------------


class Target(Syntax):
    """The name that a binding binds: `y`, `y[i]` (one per member of a group), or `y[*]` (all outputs in order)."""

    name: str
    index: Expr | None = None


class Binding(Syntax):
    """`target = value`, in roots `{ }` and in `let`."""

    target: Target
    value: Expr


class Roots(Syntax):
    """`{ a = .., b = .. }`: several roots."""

    bindings: tuple[Binding, ...]


class Given(Syntax):
    """`x, y: const f32[N]` in a `given` clause."""

    targets: tuple[Target, ...]
    type: TypeExpr


class Operand(Syntax):
    """`x: f32[2,3]`, `c = [[1,1,1]]` (a constant), or `p = [1,0]` (an attribute) in a test.

    A typed operand without value is a graph input, or a seeded random constant if typed `const`."""

    target: Target
    type: TypeExpr | None
    value: Expr | None


class RuleTest(Syntax):
    """`test fires|refuses operands [gives expr]`: a claim about the left side, built from the operands.

    `test equals left == right for operands` has the verdict `equals`, with both sides in `equals`.
    `test fires|refuses in term for operands` has its own `term` instead of the left side.
    `test fires|refuses model "path" [times N]` has the path in `model`."""

    verdict: str
    operands: tuple[Operand, ...] = ()
    gives: Expr | None = None
    term: Expr | None = None
    equals: tuple[Expr, ...] = ()
    model: str | None = None
    times: int | None = None


class Allow(Syntax):
    """`allow overlap "reason"`: a warning that the author of the rule accepts."""

    code: str
    reason: str


# --- items ----------------------------------------------------------------------------------------------------------


class Item(Syntax):
    """A top-level item of a rule file. `doc` is its docstring, or else the comment on its first line."""

    doc: str = field(default="", compare=False)


class Rule(Item):
    """`rule NAME lhs => rhs clauses`; `bidirectional` for `<=>`.

    `numerics` is `exact` (default), `reassoc` or `fast`; `relaxations` may hold `signed_zero`. `direction` is
    `simplify` (default), `canonical`, `explore` or `lower`."""

    name: str
    lhs: Expr | Roots
    rhs: Expr | Roots
    bidirectional: bool = False
    given: tuple[Given, ...] = ()
    where: tuple[Expr, ...] = ()
    let: tuple[Binding, ...] = ()
    numerics: str = "exact"
    relaxations: tuple[str, ...] = ()
    direction: str = "simplify"
    joins: str | None = None
    allows: tuple[Allow, ...] = ()
    order: Expr | None = None
    tests: tuple[RuleTest, ...] = ()

    @property
    def ruleset(self) -> str:
        """The ruleset that the rule joins, or else the one of its direction."""
        return self.joins or ("simplify" if self.direction == "canonical" else self.direction)


class Fuse(Item):
    """`fuse NAME consumer => group(..) clauses`: the consumer operator may join its producer's kernel.

    The left side is a class-head pattern of a consumer over a producer, such as `elementwise f(complex g(..))`; the
    right side is `group(g, f)`."""

    name: str
    lhs: Expr
    rhs: Expr
    given: tuple[Given, ...] = ()
    where: tuple[Expr, ...] = ()
    tests: tuple[RuleTest, ...] = ()


class Param(Syntax):
    """A parameter of an `op`: input `x` or `x: f32[N]`, optional input `x = default`, attribute `epsilon: 1e-5`, or
    variadic input `xs[*]`."""

    name: str
    default: Expr | None = None
    attribute: Expr | None = None
    variadic: bool = False
    type: TypeExpr | None = None


class Op(Item):
    """`op Gelu(x, approximate: "none") = definition  kind elementwise  commutative`.

    Declares properties of an ONNX operator (parameters optional) or a new operator (parameters required). `results`
    are the output types, `-> T[N]` or `-> (T[N], i64)`, empty if not written. The definition of an operator with
    several outputs is a list. `kind` is one of `builtins.KINDS`."""

    name: str
    params: tuple[Param, ...] | None = None
    definition: Expr | None = None
    kind: str | None = None
    commutative: bool = False
    impure: bool = False
    discontinuous: bool = False
    results: tuple[TypeExpr, ...] = ()
    given: tuple[Given, ...] = ()
    where: tuple[Expr, ...] = ()
    numerics: str = "reassoc"
    tests: tuple[RuleTest, ...] = ()


class Def(Item):
    """`def NAME(a, b) = expr`: a named expression, expanded where it is called."""

    name: str
    params: tuple[str, ...]
    body: Expr


class Use(Item):
    """`use "other.rules"`: the items of another file, relative to this one; with `names` only these rules."""

    path: str
    names: tuple[str, ...] = ()


class UseDomain(Item):
    """`use onnx(13 .. 24)`: the versions of a domain's operators that the file supports.

    `domain` is as written (`onnx`, `com.acme`); `high` is None for an open range, `onnx(13 ..)`."""

    domain: str
    low: int
    high: int | None


class Limit(Syntax):
    """`matches 1000` of a ruleset."""

    name: str
    value: int | float


class Ruleset(Item):
    """`ruleset NAME limits joins OTHER`: rules that run together, within limits.

    `joins` is the ruleset that includes this one."""

    name: str
    limits: tuple[Limit, ...] = ()
    joins: str | None = None


class Run(Syntax):
    """`explore`: one iteration of a ruleset."""

    ruleset: str


class Saturate(Syntax):
    """`saturate(steps)`: the steps repeated until nothing changes."""

    steps: tuple[Step, ...]


class Repeat(Syntax):
    """`repeat N (steps)`: the steps at most N times, until nothing changes."""

    count: int
    steps: tuple[Step, ...]


Step: TypeAlias = Run | Saturate | Repeat
"""A step of a schedule."""


class Schedule(Item):
    """`schedule NAME = step; step`: rulesets to run, in order."""

    name: str
    steps: tuple[Step, ...]


class RuleFile(Syntax):
    """A parsed file: its docstring and items in order."""

    path: str
    doc: str = field(default="", compare=False)
    items: tuple[Item, ...] = ()
