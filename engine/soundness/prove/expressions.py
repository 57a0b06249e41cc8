"""The expressions of a rule run symbolically: variables of its pattern, words, operators and functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ....grammar import ast
from ...evaluate import INFIX
from ...operators import normalise_attrs, signature
from . import elementwise, integers, linear, movement, reduce, scalars, types
from .arithmetic import Arithmetic
from .attributes import Attrs, Hole
from .integers import Poly
from .path import Infeasible, NotModelled, Path
from .registry import OPERATORS
from .run_types import Head
from .scalars import Scalar, app
from .tensors import Leaf, Tensor

CONTENTS = {
    "Reshape": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "Expand": (1,), "Tile": (1,), "Split": (1,), "Squeeze": (1,),
    "Unsqueeze": (1,), "ConstantOfShape": (0,), "ReduceSum": (1,), "ReduceMean": (1,), "ReduceMax": (1,),
    "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,),
}  # fmt: skip
"""The inputs whose contents an operator reads as a list, no longer than the rank of a tensor."""
REDUCTIONS = tuple(op for op in CONTENTS if op.startswith("Reduce"))
WORDS: dict[str, Any] = {
    "true": True, "false": False, "none": None, "inf": float("inf"), "nan": float("nan"),
    "pi": Fraction("3.141592653589793"),
}  # fmt: skip
_MODULES = (elementwise, linear, movement, reduce)


class Postponed(Exception):
    """A condition about an attribute that no operator has asked for yet."""


class Expressions(Arithmetic):
    """What the expressions of one direction of a rule are on a path."""

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
        self.roots: tuple[ast.Expr, ...] = ()
        self.indexed: frozenset[str] = frozenset()
        self.lists: frozenset[str] = frozenset()
        self.padding: frozenset[str] = frozenset()
        self.given = {t.name: g.type for g in rule.given for t in g.targets}

    def leaf(self, name: str) -> Any:
        """The variable of an input of the pattern."""
        if name not in self.env:
            self.env[name] = self._leaf(name, self.given.get(name.partition("[")[0]))
        return self.env[name]

    def _leaf(self, name: str, type_: ast.TypeExpr | None) -> Leaf:
        path = self.path
        found = Leaf(path, name)
        path.extra[("leaf", name)] = found
        path.extra[("dtype of", name)] = found.dtype
        base = name.partition("[")[0]
        if base in self.lists:
            types.restrict(path, found.dtype, ("int",))
            found.per_axis = 2 if base in self.padding else 1
        if type_ is None:
            return found
        if type_.element == "scalar":
            rank = 0 if path.extra.get("pointwise") else path.choose(range(path.max_rank + 1), f"rank of {name}")
            found.fixed, found._dims = rank, [1] * rank
        elif type_.element is not None:
            self._element(found, type_.element)
        if type_.shape is not None and not any(isinstance(d, ast.ShapeRest) for d in type_.shape):
            found.fixed = len(type_.shape)
        return found

    def _element(self, leaf: Leaf, element: str) -> None:
        classes = {"float": ("float",), "integer": ("int", "uint"), "number": types.NUMBERS, "bool": ("bool",)}
        if element in classes:
            types.restrict(self.path, leaf.dtype, classes[element])
        else:
            types.unify(self.path, leaf.dtype, element if element in types.KINDS else f"dtype {element}")

    def evaluate(self, expr: ast.Expr) -> Any:
        """The value of an expression."""
        self.path.tick()
        match expr:
            case ast.Number():
                return self._literal(expr.value) if self.pattern else self._number(expr.value)
            case ast.String():
                return expr.value
            case ast.Name():
                return self.name(expr.id)
            case ast.Optional():
                return self._optional(expr)
            case ast.ListExpr() if self.pattern:
                return self._literal([v.value for v in expr.items if isinstance(v, ast.Number)])
            case ast.ListExpr():
                return list(self._items(expr.items))
            case ast.Range():
                low, high = self.evaluate(expr.low), self.evaluate(expr.high)
                return self._range(low, high + 1)
            case ast.Comprehension():
                return self._comprehension(expr)
            case ast.Unary(operator="not"):
                return integers.negate(self._condition(self.evaluate(expr.operand)))
            case ast.Unary(operand=ast.Number(value=value)) if self.pattern:
                return self._literal(-value)
            case ast.Unary():
                value = self.evaluate(expr.operand)
                if isinstance(value, Tensor):
                    return self.operator("Neg", {}, None, [value])[0]
                return (
                    app("Neg", value)
                    if isinstance(value, Scalar) and value.op != "const"
                    else self.arithmetic("-", 0, value)
                )
            case ast.Binary(operator="and"):
                left = self._condition(self.evaluate(expr.left))
                return left if left is False else integers.conj(left, self._condition(self.evaluate(expr.right)))
            case ast.Binary(operator="or"):
                left = self._condition(self.evaluate(expr.left))
                return left if left is True else integers.disj(left, self._condition(self.evaluate(expr.right)))
            case ast.Binary():
                return self._binary(expr)
            case ast.Compare():
                return self._compare(expr)
            case ast.Subscript():
                return self._subscript(expr)
            case ast.Call():
                return self._call(expr)
            case ast.Alternatives():
                return self.evaluate(self.path.choose(expr.options, "alternative"))
        raise NotModelled(type(expr).__name__)

    def _literal(self, value: Any) -> Tensor:
        """A constant of the pattern, of any shape that a constant may have."""
        self.literals += 1
        name = f"constant {self.literals}"
        rank = None
        if not self.path.extra.get("pointwise"):
            rank = 1 if isinstance(value, list) else self.path.choose(range(self.path.max_rank + 1), f"rank of {name}")
        found = Leaf(self.path, name, rank)
        self.path.extra[("leaf", name)] = found
        self.path.extra[("dtype of", name)] = found.dtype
        if isinstance(value, list):
            return movement.listed(self.path, [int(v) for v in value])
        self.path.extra[("value of", name)] = scalars.number(value)
        if isinstance(value, float) and value != int(value) if value not in (float("inf"), float("-inf")) else True:
            types.restrict(self.path, found.dtype, ("float",))
        return found

    def name(self, name: str) -> Any:
        """The value of a variable or word."""
        if name in self.indexed and self.index is not None and self.index in self.env:
            name = f"{name}[{self.env[self.index]}]"
        if name in self.env:
            found = self.env[name]
            if isinstance(found, Hole):
                key = ("attribute", found.name)
                if key not in self.path.extra:
                    raise Postponed
                value = self.path.extra[key]
                return [self.path.normal(v) for v in value] if isinstance(value, list) else value
            return found
        if name in WORDS:
            return self._literal(WORDS[name]) if self.pattern and name not in ("none",) else WORDS[name]
        if name in types.KINDS or name in ("string",):
            return name
        if name in self.lets and not self.pattern:
            before, self.path.right = self.path.right, True
            try:
                self.env[name] = self.evaluate(self.lets[name])
            finally:
                self.path.right = before
            return self.env[name]
        if self.pattern:
            return self.leaf(name)
        raise Postponed

    def _optional(self, expr: ast.Optional) -> Any:
        if expr.name not in self.env:
            if self.path.choose((True, False), f"{expr.name} is there"):
                self.leaf(expr.name)
            else:
                before, self.pattern = self.pattern, False
                self.env[expr.name] = self.evaluate(expr.default)
                self.pattern = before
        found = self.env[expr.name]
        return found if isinstance(found, Tensor) else None

    def _items(self, items: Sequence[ast.Expr]) -> Iterator[Any]:
        for item in items:
            if isinstance(item, ast.Subscript) and isinstance(item.index, ast.All):
                yield from self.evaluate(item)
            elif (
                self.index is not None and not self.pattern
                and any(isinstance(e, ast.Name) and e.id == self.index for e in item.walk())
            ):  # fmt: skip
                before = self.env.pop(self.index, None)
                for i in range(self.members):
                    self.env[self.index] = i
                    yield self.evaluate(item)
                self.env.pop(self.index)
                if before is not None:
                    self.env[self.index] = before
            else:
                yield self.evaluate(item)

    def _comprehension(self, expr: ast.Comprehension) -> list[Any]:
        out = []
        shadowed = self.env.get(expr.variable)
        for item in self.items(self.evaluate(expr.iterable)):
            self.env[expr.variable] = item
            if expr.condition is None or self.truth(self.evaluate(expr.condition)):
                out.append(self.evaluate(expr.item))
        self.env.pop(expr.variable, None)
        if shadowed is not None:
            self.env[expr.variable] = shadowed
        return out

    def _binary(self, expr: ast.Binary) -> Any:
        left, right = self.evaluate(expr.left), self.evaluate(expr.right)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return self.operator(INFIX[expr.operator], {}, None, [left, right])[0]
        return self.arithmetic(expr.operator, left, right)

    def _compare(self, expr: ast.Compare) -> Any:
        left, right = self.evaluate(expr.left), self.evaluate(expr.right)
        if expr.operator in ("is", "is not"):
            return (left is None) == (expr.operator == "is")
        return self.compare(expr.operator, left, right)

    def _subscript(self, expr: ast.Subscript) -> Any:
        base = expr.base
        if isinstance(base, ast.Call) and base.is_operator:
            if isinstance(expr.index, ast.All):
                return self._outputs(base, None)
            return self._outputs(base, expr.index)
        if isinstance(base, ast.Name) and isinstance(expr.index, ast.Name) and expr.index.id == self.index:
            member = self.env.get(self.index)
            if member is None:
                raise Postponed
            return self.leaf(f"{base.id}[{member}]") if base.id in self.indexed else self._member(base.id, member)
        if isinstance(base, ast.Name) and isinstance(expr.index, ast.All):
            if base.id in self.indexed:
                return [self.leaf(f"{base.id}[{i}]") for i in range(self.members)]
            if base.id not in self.env and self.pattern:
                count = self.path.choose((1, 2, 3), f"inputs {base.id}")
                self.path.extra.setdefault("bounded", set()).add(f"1 to 3 inputs {base.id}")
                self.env[base.id] = [self.leaf(f"{base.id}[{i}]") for i in range(count)]
        found = self.items(self.evaluate(base))
        if isinstance(expr.index, ast.All):
            return found
        index = self.integer(self.evaluate(expr.index))
        number = self.path.concrete(index, -len(found), len(found) - 1, "place in a list", certain=True)
        if not -len(found) <= number < len(found):
            raise Infeasible("there is no such element")
        return found[number]

    def _member(self, name: str, member: int) -> Any:
        return self.items(self.evaluate(ast.Name(span=self.rule.span, id=name)))[member]

    def _outputs(self, call: ast.Call, index: ast.Expr | None) -> Any:
        key = ("split", call.args, call.attributes, call.rest) if self.pattern else None
        known = self.path.extra.get(key) if key is not None else None
        if known is None:
            known = self._operator(call)
            if key is not None:
                self.path.extra[key] = known
                if call.head == "Split":
                    self.path.extra.setdefault("bounded", set()).add(f"up to {self.path.max_rank} outputs")
        if index is None:
            return known
        before, self.pattern = self.pattern, False
        number = self.integer(self.evaluate(index))
        self.pattern = before
        found = self.path.concrete(number, 0, len(known) - 1, "output", certain=True)
        if not 0 <= found < len(known):
            raise Infeasible("there is no such output")
        return known[found]

    # --- calls ---

    def _call(self, expr: ast.Call) -> Any:
        if expr.kind is None and expr.head not in self.env and not expr.is_operator:
            from .functions import FUNCTIONS

            if self.pattern:  # a number computed from numbers
                self.pattern = False
                try:
                    return self._literal_of(self._call(expr))
                finally:
                    self.pattern = True
            function = FUNCTIONS.get(expr.head)
            if function is None:
                raise NotModelled(f"function {expr.head}")
            return function(self, *expr.args)
        return self._operator(expr)[0]

    def _literal_of(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        found = self._literal(0)
        assert isinstance(found, Leaf)
        self.path.extra[("value of", found.name)] = scalars.number(value)
        return found

    def _operator(self, expr: ast.Call) -> list[Tensor]:
        inputs: list[Any] = []
        for arg in expr.args:
            if isinstance(arg, ast.Subscript) and isinstance(arg.index, ast.All):
                inputs.extend(self.evaluate(arg))
            else:
                inputs.append(self.evaluate(arg))
        before, pattern = self.pattern, self.pattern
        self.pattern = False
        try:
            named = {a.name: self._attribute(a.value, pattern) for a in expr.attributes}
        finally:
            self.pattern = before
        rest = None
        if expr.rest is not None:
            rest = expr.rest.name if expr.rest.name is not None else self.path.fresh("..")
            if pattern:
                key = ("named beside", rest)
                self.path.extra[key] = self.path.extra.get(key, frozenset()) | named.keys()
        if expr.kind is not None or isinstance(self.env.get(expr.head), Head):
            return self._head(expr, named, rest, inputs)
        return self.operator(expr.head, named, rest, inputs)

    def _attribute(self, expr: ast.Expr, pattern: bool) -> Any:
        if pattern and isinstance(expr, ast.Name) and expr.id not in WORDS and expr.id not in types.KINDS:
            return self.env.setdefault(expr.id, Hole(expr.id))
        if pattern and isinstance(expr, ast.Subscript):
            raise NotModelled("attributes that vary by member")
        value = self.evaluate(expr)
        return (
            int(value)
            if isinstance(value, Fraction) and value.denominator == 1 and not isinstance(expr, ast.Number)
            else value
        )

    def _head(self, expr: ast.Call, named: dict[str, Any], rest: str | None, inputs: list[Any]) -> list[Tensor]:
        head = self.env.get(expr.head)
        if head is None:
            head = Head(expr.head, self._choose_head(expr), f"{expr.head}.attributes")
            self.env[expr.head] = head
        if not isinstance(head, Head):
            raise NotModelled("a head")
        found_rest = rest if rest is not None and self.env.get(rest) is not None else head.attrs
        if head.op is not None:
            return self.operator(head.op, named, found_rest, inputs)
        if named:
            raise NotModelled("an attribute of any operator")
        tensors = [self.tensor(v) for v in inputs if v is not None]
        for t in tensors[1:]:
            types.unify(self.path, tensors[0].dtype, t.dtype)
        name = f"op {expr.head}"
        dtype = f"dtype of {name}/{len(tensors)}"
        self.path.extra[("dtype of", name)] = dtype
        return [elementwise.pointwise(self.path, name, (), tensors, dtype)]

    def _choose_head(self, expr: ast.Call) -> str | None:
        """The operators that a class head may stand for: those that conditions name, and any other of the class."""
        count = len(expr.args)
        mentioned = sorted({
            e.value for c in (*self.rule.where, *(b.value for b in self.rule.let)) for e in c.walk()
            if isinstance(e, ast.String) and signature(e.value) is not None
        })  # fmt: skip
        if expr.kind == "elementwise":
            options: list[str | None] = [None]
            options += [op for op in mentioned if op in elementwise.ALL and _takes(op, count)]
            options += [
                op for op in {1: (), 2: ("PRelu", "CastLike"), 3: ("Clip",)}.get(count, ()) if op not in options
            ]
            return self.path.choose(options, f"operator {expr.head}")
        if expr.kind == "reduction" and count in (1, 2):
            second = expr.args[1] if count == 2 else None
            typed = isinstance(second, ast.Name) and (second.id == "none" or (
                second.id in self.given and self.given[second.id].element in ("i64", "integer")
            ))  # fmt: skip
            if count == 2 and not typed and not self._reads_axes(second):
                raise NotModelled("a reduction that may be a normalisation")
            if count == 1:
                raise NotModelled("a reduction of one operand")
            for op in self.ops.values():
                if op.kind == "reduction" and op.name not in REDUCTIONS and _reads_integers(op.name):
                    raise NotModelled(f"the reduction {op.name}")
            return self.path.choose(REDUCTIONS, f"operator {expr.head}")
        raise NotModelled(f"any {expr.kind} operator")

    def _reads_axes(self, arg: ast.Expr | None) -> bool:
        """Whether a condition asks for the integers of an operand, which a scale does not have."""
        return isinstance(arg, ast.Name) and any(
            isinstance(e, ast.Call) and e.head == "ints" and e.args and e.args[0] == arg
            for c in self.rule.where for e in c.walk()
        )  # fmt: skip

    def operator(self, op: str, named: dict[str, Any], rest: str | None, inputs: Sequence[Any]) -> list[Tensor]:
        """The results of an operator."""
        path = self.path
        declared = self.ops.get(op)
        if declared is not None and declared.definition is not None and signature(op) is None:
            return [self._defined(declared, named, inputs)]
        meaning = OPERATORS.get(op)
        tensors = [None if v is None else self._input(op, i, v, inputs) for i, v in enumerate(inputs)]
        while tensors and tensors[-1] is None:
            tensors.pop()
        attrs = Attrs(path, named, rest, _defaults(op))
        if meaning is None and op != "Split":
            raise NotModelled(f"the operator {op}")
        if path.extra.get("pointwise") and op not in elementwise.ALL and op not in ("Identity", "Expand"):
            raise NotModelled(f"{op} in a pointwise proof")
        if op == "Split":
            return movement.split_into(path, attrs, tensors, None)
        assert meaning is not None
        path.extra["operator"] = op
        return meaning(path, attrs, tensors)

    def _input(self, op: str, place: int, value: Any, inputs: Sequence[Any]) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, list):
            return movement.listed(self.path, [self.integer(v) for v in value])
        if isinstance(value, (int, Poly)) and place in CONTENTS.get(op, ()):
            return movement.listed(self.path, [value])
        like = next((v.dtype for v in inputs if isinstance(v, Tensor)), None)
        return self.constant(value, like if like is not None else "f32")

    def _defined(self, op: ast.Op, named: dict[str, Any], inputs: Sequence[Any]) -> Tensor:
        assert op.definition is not None
        outer, lets, pattern = self.env, self.lets, self.pattern
        values = iter(inputs)
        env: dict[str, Any] = {}
        for param in op.params or ():
            if param.attribute is not None:
                found = named.get(param.name)
                env[param.name] = self._attribute(param.attribute, False) if found is None else found
            elif param.variadic:
                env[param.name] = list(values)
            else:
                env[param.name] = next(values, None)
        self.env, self.lets, self.pattern = env, {}, False
        try:
            return self.tensor(self.evaluate(op.definition))
        finally:
            self.env, self.lets, self.pattern = outer, lets, pattern


def _reads_integers(op: str) -> bool:
    """Whether the second input of an operator may be a list of integers, as the axes of a reduction are."""
    found = signature(op)
    return found is None or (len(found.inputs) > 1 and "i64" in found.inputs[1].dtypes)


def _takes(op: str, count: int) -> bool:
    found = signature(op)
    return found is not None and found.min_inputs <= count and (found.max_inputs is None or count <= found.max_inputs)


def _defaults(op: str) -> dict[str, Any]:
    found = dict(normalise_attrs(op, {}))
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}
