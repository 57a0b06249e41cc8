"""Symbolic evaluation of a rule's expressions: variables of its pattern, words, operators and functions.

Length: one evaluator, whose kinds of expressions call each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, ClassVar

from ....engine.operators.schemas import normalize_attrs, signature
from ....engine.rewriting.notation import INFIX
from ....grammar.syntax import ast
from ..paths import element_types
from ..paths.path import NotModeled, Path
from ..paths.tensors import Leaf, Tensor
from ..semantics import elementwise, movement
from ..semantics.semantics_registry import CONTENTS, OPERATORS, REDUCTIONS, Attrs, Hole
from ..terms import integers, scalars
from ..terms.integers import Int, Poly
from ..terms.scalars import Scalar
from .arithmetic import Arithmetic, Head

WORDS: dict[str, Any] = {
    "true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan"),
    "pi": Fraction("3.141592653589793"),
}  # fmt: skip
_CLASSES = {"float": ("float",), "integer": ("int", "uint"), "number": element_types.NUMBERS, "bool": ("bool",)}
_ABSENT = object()


class Postponed(Exception):
    """A condition reads an attribute that no operator has read yet."""


class Expressions(Arithmetic):
    """Evaluates the expressions of one direction of a rule on a path. Subclasses supply the language's `functions`."""

    functions: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init__(self, path: Path, rule: ast.Rule, ops: Mapping[str, ast.Op], members: int = 0) -> None:
        super().__init__(path)
        self.rule = rule
        self.ops = ops
        self.members = members
        self.env: dict[str, Any] = {}
        self.lets = {b.target.name: b.value for b in rule.let}
        self.pattern = False
        self.index: str | None = None
        self.literals = 0
        self.settled = False
        """Whether the operators of the pattern have read their attributes, so that others may have any value."""
        self.roots: tuple[ast.Expr, ...] = ()
        self.indexed: frozenset[str] = frozenset()
        self.lists: frozenset[str] = frozenset()
        self.padding: frozenset[str] = frozenset()
        self.given = {t.name: g.type for g in rule.given for t in g.targets}

    def is_list(self, name: str) -> bool:
        """Whether operators of the pattern read the contents of a variable as a list."""
        return name.partition("[")[0] in self.lists and not self.path.pointwise

    @contextmanager
    def reading(self, *, pattern: bool) -> Iterator[None]:
        """Evaluate as part of the pattern, where numbers are constants of any shape, or as a plain expression."""
        before, self.pattern = self.pattern, pattern
        try:
            yield
        finally:
            self.pattern = before

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Restore what a name means afterwards."""
        before = self.env.pop(name, _ABSENT)
        try:
            yield
        finally:
            self.env.pop(name, None)
            if before is not _ABSENT:
                self.env[name] = before

    def leaf(self, name: str) -> Any:
        """Return the variable of an input of the pattern."""
        if name not in self.env:
            self.env[name] = self._leaf(name, self.given.get(name.partition("[")[0]))
        return self.env[name]

    def _leaf(self, name: str, type_: ast.TypeExpr | None) -> Leaf:
        path = self.path
        found = self._variable(name)
        base = name.partition("[")[0]
        if base in self.lists:
            element_types.restrict(path, found.dtype, ("int",))
            found.per_axis = 2 if base in self.padding else 1
        if type_ is None:
            return found
        if type_.element == "scalar":
            rank = 0 if path.pointwise else path.any_rank(name)
            found.fixed, found._shape = rank, [1] * rank
        elif type_.element in _CLASSES:
            element_types.restrict(path, found.dtype, _CLASSES[type_.element])
        elif type_.element is not None:
            known = type_.element in element_types.KINDS
            element_types.unify(path, found.dtype, type_.element if known else f"dtype {type_.element}")
        if type_.shape is not None:
            open_ended = any(isinstance(d, ast.ShapeRest) for d in type_.shape)
            if not open_ended:
                found.fixed = len(type_.shape)
            found.least = len(type_.shape) - open_ended
        return found

    def _variable(self, name: str, rank: int | None = None) -> Leaf:
        found = Leaf(self.path, name, rank)
        self.path.extra[("leaf", name)] = found
        self.path.extra[("dtype of", name)] = found.dtype
        return found

    def evaluate(self, expr: ast.Expr) -> Any:
        """Return the value of an expression."""
        self.path.tick()
        match expr:
            case ast.Number(value=value):
                if self.pattern:
                    return self._literal(value)
                return value if isinstance(value, int) else Fraction(repr(value))
            case ast.String():
                return expr.value
            case ast.Name(id=name) | ast.Axis(name=name):
                return self.name(name)
            case ast.Optional():
                return self.optional(expr)
            case ast.ListExpr():
                return self._list_of(expr) if self.pattern else list(self._spread(expr.items, members=True))
            case ast.Range():
                low, high = self.evaluate(expr.low), self.evaluate(expr.high)
                return self.stretch(low, high + 1)
            case ast.Comprehension():
                return self._comprehension(expr)
            case ast.Unary(operator="not"):
                return integers.negate(self.condition(self.evaluate(expr.operand)))
            case ast.Unary(operand=ast.Number(value=value)) if self.pattern:
                return self._literal(-value)
            case ast.Unary():
                value = self.evaluate(expr.operand)
                if isinstance(value, Tensor):
                    return self.operator("Neg", {}, None, [value])[0]
                computed = isinstance(value, Scalar) and value.op != "const"
                return -value if computed else self.arithmetic("-", 0, value)
            case ast.Binary(operator="and" | "or" as word):
                left = self.condition(self.evaluate(expr.left))
                if left is (word == "or"):
                    return left
                join = integers.conj if word == "and" else integers.disj
                return join(left, self.condition(self.evaluate(expr.right)))
            case ast.Binary():
                left, right = self.evaluate(expr.left), self.evaluate(expr.right)
                if isinstance(left, Tensor) or isinstance(right, Tensor):
                    return self.operator(INFIX[expr.operator], {}, None, [left, right])[0]
                return self.arithmetic(expr.operator, left, right)
            case ast.Compare():
                if isinstance(expr.left, ast.Name) and isinstance(self.env.get(expr.left.id), Hole):
                    if expr.operator in ("is", "is not"):
                        raise NotModeled("whether an attribute is there")
                left, right = self.evaluate(expr.left), self.evaluate(expr.right)
                if expr.operator in ("is", "is not"):
                    return (left is None) == (expr.operator == "is")
                return self.compare(expr.operator, left, right)
            case ast.Subscript():
                return self._subscript(expr)
            case ast.Conditional():
                return self.evaluate(expr.then if self.truth(self.evaluate(expr.condition)) else expr.otherwise)
            case ast.Call():
                return self._call(expr)
            case ast.Alternatives():
                return self.evaluate(self.path.choose(expr.options, "alternative"))
        raise NotModeled(type(expr).__name__)

    def _literal(self, value: Any) -> Tensor:
        """Return a constant of the pattern, of any shape."""
        self.literals += 1
        name = f"constant {self.literals}"
        rank = None
        if not self.path.pointwise:
            rank = 1 if isinstance(value, list) else self.path.any_rank(name)
        found = self._variable(name, rank)
        if isinstance(value, list):
            return movement.listed(self.path, [int(v) for v in value])
        self.path.extra[("value of", name)] = scalars.number(value)
        if isinstance(value, float) and not value.is_integer():
            element_types.restrict(self.path, found.dtype, ("float",))
        return found

    def name(self, name: str) -> Any:
        """Return the value of a variable or word."""
        if name in self.indexed and self.index is not None and self.index in self.env:
            name = f"{name}[{self.env[self.index]}]"
        if name in self.env:
            found = self.env[name]
            if not isinstance(found, Hole):
                return found
            value = self._attribute_value(found)
            return [self.path.normal(v) for v in value] if isinstance(value, list) else value
        if name in WORDS:
            return self._literal(WORDS[name]) if self.pattern and name != "none" else WORDS[name]
        if name in element_types.KINDS or name == "string":
            return name
        if self.pattern:
            return self.leaf(name)
        if name not in self.lets:
            raise Postponed
        before, self.path.right = self.path.right, True
        try:
            self.env[name] = self.evaluate(self.lets[name])
        finally:
            self.path.right = before
        return self.env[name]

    def _attribute_value(self, hole: Hole) -> Any:
        """Return the value of an attribute. One that no operator reads is any number of the attribute's type."""
        if hole.key not in self.path.extra:
            if not self.settled or isinstance(hole.default, bool) or not isinstance(hole.default, (int, float)):
                raise Postponed
            any_value = scalars.Scalar("read", (str(hole),))
            self.path.extra[hole.key] = integers.var(str(hole)) if isinstance(hole.default, int) else any_value
        return self.path.extra[hole.key]

    def optional(self, expr: ast.Optional) -> Any:
        """Return an operand that may be absent, or None, by cases."""
        if expr.name not in self.env:
            if self.path.choose((True, False), f"{expr.name} is there"):
                self.leaf(expr.name)
            else:
                with self.reading(pattern=False):
                    self.env[expr.name] = self.evaluate(expr.default)
        found = self.env[expr.name]
        return found if isinstance(found, Tensor) else None

    def _spread(self, items: Sequence[ast.Expr], *, members: bool = False) -> Iterator[Any]:
        """Yield values of items: all of `x[*]`, and in lists one for each member of an item with the group's index."""
        for item in items:
            if isinstance(item, ast.Subscript) and isinstance(item.index, ast.All):
                yield from self.evaluate(item)
            elif members and any(isinstance(e, ast.Name) and e.id == self.index for e in item.walk()):
                yield from self.per_member(item)
            else:
                yield self.evaluate(item)

    def per_member(self, expr: ast.Expr) -> Iterator[Any]:
        """Yield the value of an expression for each member of the group."""
        assert self.index is not None
        with self.scope(self.index):
            for i in range(self.members):
                self.env[self.index] = i
                yield self.evaluate(expr)

    def _comprehension(self, expr: ast.Comprehension) -> list[Any]:
        out = []
        items = self.items(self.evaluate(expr.iterable))
        with self.scope(expr.variable):
            for item in items:
                self.env[expr.variable] = item
                if expr.condition is None or self.truth(self.evaluate(expr.condition)):
                    out.append(self.evaluate(expr.item))
        return out

    def _subscript(self, expr: ast.Subscript) -> Any:
        base, every = expr.base, isinstance(expr.index, ast.All)
        if isinstance(base, ast.Call) and base.is_operator:
            return self.outputs(base, None if every else expr.index)
        if isinstance(base, ast.Name) and isinstance(expr.index, ast.Name) and expr.index.id == self.index:
            member = self.env.get(self.index)
            if member is None:
                raise Postponed
            if base.id in self.indexed:
                return self.leaf(f"{base.id}[{member}]")
            return self.items(self.evaluate(base))[member]
        if isinstance(base, ast.Name) and every:
            if base.id in self.indexed:
                return [self.leaf(f"{base.id}[{i}]") for i in range(self.members)]
            if base.id not in self.env and self.pattern:
                count = self.path.choose((1, 2, 3), f"inputs {base.id}")
                self.path.bounded.add(f"1 to 3 inputs {base.id}")
                self.env[base.id] = [self.leaf(f"{base.id}[{i}]") for i in range(count)]
        found = self.items(self.evaluate(base))
        return found if every else found[self.position(found, self.evaluate(expr.index))]

    def position(self, items: Sequence[Any], index: Any) -> int:
        """Return an index into a list as a number."""
        return self.path.place(self.integer(index), len(items), "place in a list")

    def outputs(self, call: ast.Call, index: ast.Expr | None) -> Any:
        """Return all outputs of an operator, or one of them. In a pattern, equal calls have the same outputs."""
        key = ("split", call.args, call.attributes, call.rest)
        if self.pattern and call.head == "Split":
            self.path.bounded.add(f"up to {self.path.max_rank} outputs")
        known = self.path.once(key, lambda: self._operator(call)) if self.pattern else self._operator(call)
        if index is None:
            return known
        with self.reading(pattern=False):
            number = self.integer(self.evaluate(index))
        found = self.path.concrete(number, 0, len(known) - 1, "output", certain=True)
        self.path.require(0 <= found < len(known), "the output does not exist")
        return known[found]

    # --- calls ---

    def _call(self, expr: ast.Call) -> Any:
        if expr.kind is None and expr.head not in self.env and not expr.is_operator:
            if self.pattern:  # a literal that is computed from numbers
                with self.reading(pattern=False):
                    return self._literal_of(self._call(expr))
            function = self.functions.get(expr.head)
            if function is None:
                raise NotModeled(f"function {expr.head}")
            return function(self, *expr.args)
        found = self._operator(expr)
        self.path.require(len(found) == 1 or expr.head != "Split", "one output")
        return found[0]

    def _list_of(self, expr: ast.ListExpr) -> Tensor:
        """A constant list of the pattern, whose items may be variables, or axes counted from the front."""
        if all(isinstance(item, ast.Number) for item in expr.items):
            return self._literal([item.value for item in expr.items if isinstance(item, ast.Number)])
        items: list[Int] = []
        for item in expr.items:
            if isinstance(item, ast.Axis):
                items.append(self._axis(item.name))
            elif isinstance(item, ast.Name) and item.id not in WORDS:
                items.append(self.env.setdefault(item.id, integers.var(item.id)))
            elif isinstance(item, ast.Number):
                items.append(int(item.value))
            else:
                raise NotModeled("an item of a list")
        if not all(isinstance(item, (int, Poly)) for item in items):
            raise Postponed
        return movement.listed(self.path, items)

    def _axis(self, name: str) -> Any:
        """The variable of an axis, at least 0; that it is below the rank is known where an operator reads it."""
        if name not in self.env:
            self.env[name] = self.path.size(name)
        return self.env[name]

    def _literal_of(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        found = self._literal(0)
        assert isinstance(found, Leaf)
        self.path.extra[("value of", found.name)] = scalars.number(value)
        return found

    def _operator(self, expr: ast.Call) -> list[Tensor]:
        inputs = list(self._spread(expr.args))
        pattern = self.pattern
        with self.reading(pattern=False):
            named = {a.name: self._attribute(a.value, pattern, expr.head, a.name) for a in expr.attributes}
        rest = None
        if expr.rest is not None:
            rest = expr.rest.name if expr.rest.name is not None else self.path.fresh("..")
            if pattern:
                key = ("named beside", rest)
                self.path.extra[key] = self.path.extra.get(key, frozenset()) | named.keys()
        if expr.kind is not None or isinstance(self.env.get(expr.head), Head):
            return self._head(expr, named, rest, inputs)
        return self.operator(expr.head, named, rest, inputs)

    def _attribute(self, expr: ast.Expr, pattern: bool, op: str = "", name: str = "") -> Any:
        if pattern and isinstance(expr, ast.Name) and expr.id not in WORDS and expr.id not in element_types.KINDS:
            return self.env.setdefault(expr.id, Hole(expr.id, default=self._default(op, name)))
        known = self.env.get(expr.id) if isinstance(expr, ast.Name) else None
        if isinstance(known, Hole) and known.key not in self.path.extra:
            return known  # the operator that reads it first says what it may be
        if pattern and isinstance(expr, ast.Axis):
            return self._axis(expr.name)
        if pattern and isinstance(expr, ast.ListExpr) and any(isinstance(i, (ast.Name, ast.Axis)) for i in expr.items):
            raise NotModeled("an attribute with variables in a list")
        if pattern and isinstance(expr, ast.Subscript):
            raise NotModeled("attributes that vary by member")
        value = self.evaluate(expr)
        whole = isinstance(value, Fraction) and value.denominator == 1 and not isinstance(expr, ast.Number)
        return int(value) if whole else value

    def _default(self, op: str, name: str) -> Any:
        """Return the default of an attribute, if it has one."""
        declared = self.ops.get(op)
        if signature(op) is not None or declared is None:
            return normalize_attrs(op, {}).get(name)
        found = next((p.attribute for p in declared.params or () if p.name == name), None)
        return found.value if isinstance(found, ast.Number) else None

    def _head(self, expr: ast.Call, named: dict[str, Any], rest: str | None, inputs: list[Any]) -> list[Tensor]:
        head = self.env.get(expr.head)
        if head is None:
            head = Head(expr.head, self._choose_head(expr), f"{expr.head}.attributes")
            self.env[expr.head] = head
        if not isinstance(head, Head):
            raise NotModeled("an operator variable that is not a class head")
        found_rest = rest if self.env.get(rest or "") is not None else head.attrs
        if head.op is not None:
            return self.operator(head.op, named, found_rest, inputs)
        if named:
            raise NotModeled("an attribute of any operator")
        tensors = [self.tensor(v) for v in inputs if v is not None]
        element_types.unify(self.path, *(t.dtype for t in tensors))
        name = f"op {expr.head}"
        dtype = f"dtype of {name}/{len(tensors)}"
        self.path.extra[("dtype of", name)] = dtype
        return [elementwise.pointwise(self.path, name, (), tensors, dtype)]

    def _choose_head(self, expr: ast.Call) -> str | None:
        """Choose the operator of a class head: one that conditions name, or any other of the class."""
        count = len(expr.args)
        mentioned = sorted({
            e.value for c in (*self.rule.where, *(b.value for b in self.rule.let)) for e in c.walk()
            if isinstance(e, ast.String) and signature(e.value) is not None
        })  # fmt: skip
        if expr.kind == "elementwise":
            named = [op for op in mentioned if op in elementwise.ALL and _takes(op, count)]
            uneven = {2: ("PRelu", "CastLike"), 3: ("Clip",)}.get(count, ())  # they treat their operands differently
            return self.path.choose(list(dict.fromkeys((None, *named, *uneven))), f"operator {expr.head}")
        listed = self._listed(expr.head)
        if expr.kind == "reduction" and listed and listed <= set(REDUCTIONS):
            return self.path.choose(sorted(listed), f"operator {expr.head}")
        if expr.kind == "reduction" and count == 1:
            raise NotModeled("a reduction of one operand")
        if expr.kind == "reduction" and count == 2:
            second = expr.args[1]
            typed = isinstance(second, ast.Name) and (second.id == "none" or (
                second.id in self.given and self.given[second.id].element in ("i64", "integer")
            ))  # fmt: skip
            if not typed and not self._reads_axes(second):
                raise NotModeled("a reduction that may be a normalization")
            for op in self.ops.values():
                if op.kind == "reduction" and op.name not in REDUCTIONS and _reads_integers(op):
                    raise NotModeled(f"the reduction {op.name}")
            return self.path.choose(REDUCTIONS, f"operator {expr.head}")
        raise NotModeled(f"any {expr.kind} operator")

    def _listed(self, head: str) -> set[str]:
        """Return the operators that a condition `op_name(f) in [...]` leaves for a class head; empty without one."""
        for c in self.rule.where:
            if not (isinstance(c, ast.Compare) and c.operator == "in" and isinstance(c.right, ast.ListExpr)):
                continue
            named = isinstance(c.left, ast.Call) and c.left.head == "op_name" and c.left.args
            if named and isinstance(named[0], ast.Name) and named[0].id == head:
                words = [i.value for i in c.right.items if isinstance(i, ast.String)]
                return set(words) if len(words) == len(c.right.items) else set()
        return set()

    def _reads_axes(self, arg: ast.Expr) -> bool:
        """Whether a condition reads the integers of an operand, which a scale does not have."""
        return isinstance(arg, ast.Name) and any(
            isinstance(e, ast.Call) and e.head == "ints" and e.args and e.args[0] == arg
            for c in self.rule.where for e in c.walk()
        )  # fmt: skip

    def operator(self, op: str, named: dict[str, Any], rest: str | None, inputs: Sequence[Any]) -> list[Tensor]:
        """Return the results of an operator."""
        path = self.path
        declared = self.ops.get(op)
        if declared is not None and declared.definition is not None and signature(op) is None:
            return [self._defined(declared, named, rest, inputs)]
        tensors = [None if v is None else self._input(op, i, v, inputs) for i, v in enumerate(inputs)]
        while tensors and tensors[-1] is None:
            tensors.pop()
        if op not in OPERATORS:
            raise NotModeled(f"the operator {op}")
        if path.pointwise and op not in elementwise.ALL and op not in ("Identity", "Expand"):
            raise NotModeled(f"{op} in a pointwise proof")
        path.operators.add(op)
        defaults = {k: list(v) if isinstance(v, tuple) else v for k, v in normalize_attrs(op, {}).items()}
        return OPERATORS[op](path, Attrs(path, op, named, rest, defaults), tensors)

    def _input(self, op: str, place: int, value: Any, inputs: Sequence[Any]) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, list):
            return movement.listed(self.path, [self.integer(v) for v in value])
        if isinstance(value, (int, Poly)) and place in CONTENTS.get(op, ()):
            return movement.listed(self.path, [value])
        like = next((v.dtype for v in inputs if isinstance(v, Tensor)), None)
        return self.constant(value, like if like is not None else "f32")

    def _defined(self, op: ast.Op, named: dict[str, Any], rest: str | None, inputs: Sequence[Any]) -> Tensor:
        """Return the definition of a declared operator, whose attributes may be among those of a `rest`."""
        assert op.definition is not None
        beside = self.path.extra.get(("named beside", rest), frozenset())
        outer, lets, settled = self.env, self.lets, self.settled
        values = iter(inputs)
        env: dict[str, Any] = {}
        for param in op.params or ():
            if param.attribute is not None:
                if param.name in named or rest is None or param.name in beside:
                    found = named.get(param.name)
                    env[param.name] = self._attribute(param.attribute, False) if found is None else found
                else:
                    env[param.name] = Hole(param.name, rest, self._default(op.name, param.name))
            elif param.variadic:
                env[param.name] = list(values)
            else:
                env[param.name] = next(values, None)
        self.env, self.lets, self.settled = env, {}, True
        try:
            with self.reading(pattern=False):
                return self.tensor(self.evaluate(op.definition))
        finally:
            self.env, self.lets, self.settled = outer, lets, settled


def _reads_integers(op: ast.Op) -> bool:
    """Whether an operator may take two inputs, the second a list of integers like the axes of a reduction."""
    found = signature(op.name)
    if found is None:
        inputs = [p for p in op.params or () if p.attribute is None]
        needed = sum(p.default is None and not p.variadic for p in inputs)
        return needed <= 2 <= len(inputs) or any(p.variadic for p in inputs)
    return found.min_inputs <= 2 and len(found.inputs) > 1 and "i64" in found.inputs[1].dtypes


def _takes(op: str, count: int) -> bool:
    found = signature(op)
    return found is not None and found.min_inputs <= count and (found.max_inputs is None or count <= found.max_inputs)
