"""The abstract syntax of rule files: what the parser makes and every later stage reads.

Patterns and expressions share one set of classes, since a rule's two sides are written in one notation; which of
them may stand where is for the static checks. Every node carries the `Span` of the text it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source file: 1-based lines and columns, the end exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The stretch from the start of this span to the end of `other`."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """The base of all syntax nodes. Spans take no part in equality: printed and re-parsed text compares equal."""

    span: Span = field(compare=False, repr=False)

    def children(self) -> Iterator[Syntax]:
        """The syntax nodes directly below this one, in source order."""
        for name in _below(type(self)):
            value = getattr(self, name)
            if isinstance(value, tuple):
                yield from value
            elif value is not None:
                yield value

    def walk(self) -> Iterator[Syntax]:
        """This node and all below it, parents first."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed([*node.children()])


_SCALARS = frozenset({"str", "bool", "int", "float", "None"})
_PARTS: dict[type[Syntax], tuple[str, ...]] = {}
_BELOW: dict[type[Syntax], tuple[str, ...]] = {}


def parts(node: Syntax) -> tuple[str, ...]:
    """The fields of a node, but for where it is."""
    found = _PARTS.get(type(node))
    if found is None:
        found = _PARTS[type(node)] = tuple(f.name for f in fields(node) if f.name != "span")
    return found


def _below(kind: type[Syntax]) -> tuple[str, ...]:
    """The fields of a kind of nodes that hold other nodes, a tuple of them, or None: as they are annotated."""
    found = _BELOW.get(kind)
    if found is None:
        holds = {f.name: str(f.type).removeprefix("tuple[").replace(", ...]", "").split(" | ") for f in fields(kind)}
        found = tuple(name for name, kinds in holds.items() if name != "span" and not _SCALARS.issuperset(kinds))
        _BELOW[kind] = found
    return found


# --- expressions and patterns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expr(Syntax):
    """An expression or pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Expr):
    """A literal `2`, `0.5` or `1e-5`. In a pattern it matches a constant whose elements all have this value."""

    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class String(Expr):
    """A literal `"NOTSET"`."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Expr):
    """A variable, or one of the words `true`, `false`, `none`, `inf`, `pi`, or a dtype such as `f32`."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListExpr(Expr):
    """`[a, b, c]`."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comprehension(Expr):
    """`[item for variable in iterable if condition]`."""

    item: Expr
    variable: str
    iterable: Expr
    condition: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional(Expr):
    """`(then if condition else otherwise)`; only one of the two is evaluated."""

    then: Expr
    condition: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Expr):
    """`low .. high`: the integers from `low` to `high`, both included."""

    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Expr):
    """`-x` or `not x`; `operator` is `"-"` or `"not"`."""

    operator: str
    operand: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Expr):
    """`left op right` with one of `+ - * / % @ **`, `and`, `or`.

    Over tensors these are Add, Sub, Mul, Div, Mod, MatMul, Pow, And, Or; over numbers and lists plain arithmetic."""

    operator: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Expr):
    """`left op right` with one of `== != < <= > >= in is "is not"`.

    `x is none` asks whether an optional input is absent."""

    operator: str
    left: Expr
    right: Expr

    @property
    def form(self) -> Call | None:
        """The form that `x is Transpose(..)` asks for."""
        is_form = self.operator in ("is", "is not") and isinstance(self.right, Call) and self.right.is_operator
        return self.right if is_form and isinstance(self.right, Call) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Syntax):
    """`name: value` inside an operator's parentheses; in a pattern `name: q = default` for one that may be absent."""

    name: str
    value: Expr
    default: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional(Expr):
    """`B = 0` among an operator's inputs in a pattern: binds the input, or the default when the input is absent."""

    name: str
    default: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Each(Expr):
    """`P ...` among an operator's inputs: one or more inputs in a row, each of this form; on the right, and in lists,
    one for each member of the index that stands in it."""

    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest(Expr):
    """`..a`: among attributes all the others; `..` alone: any attributes (pattern) or none named (class heads)."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class All(Expr):
    """The `*` of `xs[*]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expr):
    """`Conv(x, W, B = 0, pads: p, ..a)` or `rank(x)`.

    An operator's name begins with a capital (`Conv`, or dotted after its domain: `com.microsoft.Gelu`); a library
    function's with a small letter. `kind` is set for class heads: in `elementwise f(x)` it is `"elementwise"` and
    `head` is `"f"`, the variable that the operator is bound to. `args` holds the inputs in order (`Optional` and
    `Subscript(.., All)` among them); `rest` the `..a`, if any."""

    head: str
    args: tuple[Expr, ...]
    attributes: tuple[Attribute, ...] = ()
    rest: Rest | None = None
    kind: str | None = None

    @property
    def has_many(self) -> bool:
        """Whether one of the inputs stands for any number of them: `xs[*]` or `P ...`."""
        return any(isinstance(a, Each) or (isinstance(a, Subscript) and isinstance(a.index, All)) for a in self.args)

    @property
    def is_operator(self) -> bool:
        """Whether the head names (or binds) an operator and not a library function."""
        return self.kind is not None or self.head.rpartition(".")[2][:1].isupper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscript(Expr):
    """`p[i]`, `xs[*]`; after a multi-output operator the output of that number."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives(Expr):
    """`(a | b)`: any one of several patterns. All bind the same variables."""

    options: tuple[Expr, ...]


# --- types ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRest(Syntax):
    """`..s` or `..` in a shape: any number of dims, bound to `name`."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyDim(Syntax):
    """`_` in a shape: one dim, whatever it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeExpr(Syntax):
    """`const f32[N, 3, ..s]`: every part may be left out.

    `element` is a dtype (`f32`), a dtype class (`float`, `integer`, `number`), `scalar` (one element, any rank), or
    None; a name bound elsewhere as dtype variable is allowed too. `shape` is None when not written (any rank); its
    items are expressions (`Name`s bind or compare), `ShapeRest` or `AnyDim`."""

    const: bool
    element: str | None
    shape: tuple[Expr | ShapeRest | AnyDim, ...] | None


# --- clauses --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Syntax):
    """What a binding binds: `y`, `y[i]` (one per match of a group), or `y[*]` (all outputs in order)."""

    name: str
    index: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding(Syntax):
    """`target = value`, in `{ }` roots and in `let`."""

    target: Target
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots(Syntax):
    """`{ a = .., b = .. }`: several roots."""

    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given(Syntax):
    """`x, y: const f32[N]` in a `given` clause."""

    targets: tuple[Target, ...]
    type: TypeExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand(Syntax):
    """`x: f32[2,3]`, `c = [[1,1,1]]` (a constant), or `p = [1,0]` (an attribute) in a test.

    A typed operand without value is a graph input; one typed `const` without value is a seeded random constant."""

    target: Target
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest(Syntax):
    """`test fires|refuses operands [gives expr]`: the left side, built of the operands, is saturated with the rule.

    `test equals left == right for operands` has the verdict `equals` and its two sides in `equals`.
    `test fires|refuses in term for operands` has another term than the left side in `term`.
    `test fires|refuses model "path" [times N]` has the path in `model`."""

    verdict: str
    operands: tuple[Operand, ...] = ()
    gives: Expr | None = None
    term: Expr | None = None
    equals: tuple[Expr, ...] = ()
    model: str | None = None
    times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow(Syntax):
    """`allow overlap "reason"`: a warning about the rule that its author knows of."""

    code: str
    reason: str


# --- items ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Syntax):
    """A top-level item of a rule file. `doc` is its docstring or, without one, the comment on its first line."""

    doc: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Item):
    """`rule NAME lhs => rhs clauses`. `bidirectional` for `<=>`.

    `numerics` is `exact`, `reassoc` or `fast` (`relaxations` may hold `signed_zero`); `direction` is `simplify`,
    `canonical`, `explore` or `lower`; defaults: `exact`, `simplify`."""

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
        """The ruleset that the rule is in: the one it joins, else the one of its direction."""
        return self.joins or ("simplify" if self.direction == "canonical" else self.direction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse(Item):
    """`fuse NAME consumer => group(..) clauses`: the consumer operator may join its producer's kernel.

    The left side is a class-head pattern of a consumer over a producer, such as `elementwise f(complex g(..))`;
    the right side is `group(g, f)`."""

    name: str
    lhs: Expr
    rhs: Expr
    given: tuple[Given, ...] = ()
    where: tuple[Expr, ...] = ()
    tests: tuple[RuleTest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Syntax):
    """A parameter of an `op` declaration: input `x` or `x: f32[N]`, `x = default` (optional input), `epsilon: 1e-5`
    (attribute with default) or `xs[*]` (variadic; `variadic` set). Inputs may have a type."""

    name: str
    default: Expr | None = None
    attribute: Expr | None = None
    variadic: bool = False
    type: TypeExpr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(Item):
    """`op Gelu(x, approximate: "none") = definition  kind elementwise  commutative`.

    Declares properties of an ONNX operator (parameters may be left out) or a new operator (parameters needed).
    `results` are the types of the outputs, `-> T[N]` or `-> (T[N], i64)`; empty where not written. The definition of
    an operator with several outputs is a list. `kind` is one of `builtins.KINDS`."""

    name: str
    params: tuple[Param, ...] | None = None
    definition: Expr | None = None
    kind: str | None = None
    commutative: bool = False
    impure: bool = False
    results: tuple[TypeExpr, ...] = ()
    given: tuple[Given, ...] = ()
    where: tuple[Expr, ...] = ()
    numerics: str = "reassoc"
    tests: tuple[RuleTest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Def(Item):
    """`def NAME(a, b) = expr`: a named expression of the rule language, expanded where it is called."""

    name: str
    params: tuple[str, ...]
    body: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(Item):
    """`use "other.rules"`: the items of another file, found beside this one; with `names` only these rules of it."""

    path: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseDomain(Item):
    """`use onnx(13 .. 24)`: the versions of a domain's operators that the file is for.

    `domain` is as written (`onnx`, `com.acme`); `high` is None for all from `low` on (`onnx(13 ..)`)."""

    domain: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Syntax):
    """`matches 1000` of a ruleset."""

    name: str
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset(Item):
    """`ruleset NAME limits joins OTHER`: rules that are run together, within limits.

    `joins` is the ruleset that runs this one along with its own rules."""

    name: str
    limits: tuple[Limit, ...] = ()
    joins: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Syntax):
    """A step of a schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Step):
    """`explore`: one iteration of a ruleset."""

    ruleset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturate(Step):
    """`saturate(steps)`: again and again, until nothing changes."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Step):
    """`repeat N (steps)`: at most N times, until nothing changes."""

    count: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Item):
    """`schedule NAME = step; step`: which rulesets are run, and in what order."""

    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile(Syntax):
    """A parsed file: its docstring and items in order."""

    path: str
    doc: str = field(default="", compare=False)
    items: tuple[Item, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the file, in order."""
        return tuple(item for item in self.items if isinstance(item, Rule))
