"""The meaning of rule expressions: right sides build e-nodes, conditions are proved.

Expressions are typed by what they meet. Arithmetic with a tensor builds the ONNX operator; in a condition the tensor's
constant contents take its place. Arithmetic on numbers, dims and lists is plain. Whatever is not known for sure raises
`Unprovable`, and the rule does not fire; that holds under `not` too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ..grammar import ast
from ..grammar.builtins import NARY
from .conditions import FUNCTIONS
from .declared import bind as bind_declared
from .declared import max_inputs
from .egraph import ABSENT, CAPTURES, EGraph
from .graph import AttrValue, Constant, DType, Graph, TensorType
from .inlining import output_count, surroundings
from .operators import graph_name, is_tensor_attribute, normalise_attrs, signature
from .shapes import IllTyped
from .symbolic import Expr as DimExpr
from .values import OpRef, RestRef, TensorRef, Unprovable, Value, arithmetic, as_attribute, compare

INFIX = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "@": "MatMul", "**": "Pow", "%": "Mod"}
_LITERALS: dict[str, Value] = {
    "true": True,
    "false": False,
    "none": None,
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    **{str(d): d for d in DType},
}
LITERAL_TOLERANCE = 1e-6
"""How far, relatively, a constant may be from a literal of a pattern unless the rule is exact."""


def is_literal(name: str) -> bool:
    """Whether a name is a word of the language (`true`, `inf`, `f32`) and no variable."""
    return name in _LITERALS


def count_of(index: str) -> str:
    """The name under which a binding keeps how many members index `index` numbers."""
    return f"*{index}"


class Evaluator:
    """Evaluates expressions in one e-graph, on behalf of the rule named `made_by`."""

    def __init__(self, egraph: EGraph) -> None:
        self.egraph = egraph
        self.made_by: str | None = None
        self.origins: tuple[str, ...] = ()
        self.lets: dict[str, ast.Expr] = {}
        self.declared: Mapping[str, ast.Op] = {}
        self.kinds: Mapping[str, str] = {}
        self.indices: tuple[str, ...] = ()
        self.proving = False
        self.assumed: DType | None = None
        self.bodies: dict[str, Graph] = {}
        """The bodies made so far, by content, so that equal ones are one and the same."""

    # --- conditions ---

    def prove(self, condition: ast.Expr, env: dict[str, Value]) -> None:
        """Raises `Unprovable` unless the condition holds for sure."""
        index = self._open_index(condition, env, in_lists=False) if self.indices else None
        if index is not None:
            for i in range(env[count_of(index)]):
                self.prove(condition, {**env, index: i})
            return
        value = self.in_condition(condition, env)
        if isinstance(value, np.ndarray):
            value = bool(value.all())
        if value is not True and value is not np.True_:
            raise Unprovable("it does not hold")

    def in_condition(self, expr: ast.Expr, env: dict[str, Value]) -> Value:
        """The value of an expression where a tensor's name stands for its contents."""
        with self._mode(True):
            return self.evaluate(expr, env)

    @contextmanager
    def _mode(self, proving: bool) -> Iterator[None]:
        before, self.proving = self.proving, proving
        try:
            yield
        finally:
            self.proving = before

    # --- values ---

    def evaluate(self, expr: ast.Expr, env: dict[str, Value]) -> Value:
        """The value of an expression; builds e-nodes where tensors are combined outside of a condition."""
        match expr:
            case ast.Number() | ast.String():
                return expr.value
            case ast.Name():
                return self._name(expr.id, env)
            case ast.Optional():
                return self._name(expr.name, env)
            case ast.ListExpr():
                return self._list(expr, env)
            case ast.Range():
                low, high = self._int(expr.low, env), self._int(expr.high, env)
                if high - low > 4096:
                    raise Unprovable("a range of more than 4096 numbers")
                return list(range(low, high + 1))
            case ast.Comprehension():
                return self._comprehension(expr, env)
            case ast.Each():
                return self._each(expr.value, env)
            case ast.Conditional():
                holds = self._truth(self.in_condition(expr.condition, env))
                return self.evaluate(expr.then if holds else expr.otherwise, env)
            case ast.Unary(operator="not"):
                return not self._truth(self.evaluate(expr.operand, env))
            case ast.Unary():
                value = self._content(self.evaluate(expr.operand, env))
                return self.node("Neg", {}, [value]) if isinstance(value, TensorRef) else -value
            case ast.Binary(operator="and" | "or"):
                return self._logic(expr, env)
            case ast.Binary():
                return self._binary(expr, env)
            case ast.Compare():
                return self._compare(expr, env)
            case ast.Subscript():
                return self._subscript(expr, env)
            case ast.Call():
                return self._call(expr, env)
        raise Unprovable(f"{type(expr).__name__} has no value here")

    def _name(self, name: str, env: dict[str, Value]) -> Value:
        if name in env:
            return env[name]
        if name in _LITERALS:
            return _LITERALS[name]
        if name in self.lets:
            with self._mode(False):
                env[name] = self.evaluate(self.lets[name], env)
            return env[name]
        raise Unprovable(f"{name} is not bound")

    def _list(self, expr: ast.ListExpr, env: dict[str, Value]) -> list[Value]:
        items: list[Value] = []
        for item in expr.items:
            if isinstance(item, ast.Each) or (isinstance(item, ast.Subscript) and isinstance(item.index, ast.All)):
                items.extend(self.evaluate(item, env))
            elif self._open_index(item, env) is not None:  # `[dim(W[i], -1)]`: one item for each member
                items.extend(self._each(item, env))
            else:
                items.append(self.evaluate(item, env))
        return items

    def _each(self, expr: ast.Expr, env: dict[str, Value]) -> list[Value]:
        """The values of an expression for each member of what its index numbers."""
        index = self._open_index(expr, env)
        if index is None:
            raise Unprovable("there is nothing here to have one for each of")
        return [self.evaluate(expr, {**env, index: i}) for i in range(env[count_of(index)])]

    def _open_index(self, expr: ast.Syntax, env: dict[str, Value], *, in_lists: bool = True) -> str | None:
        """The index over which an expression has a value for each member; None for one that has a single value."""
        for index in self.indices:
            if index not in env and count_of(index) in env and _mentions(expr, index, in_lists=in_lists):
                return index
        return None

    def _comprehension(self, expr: ast.Comprehension, env: dict[str, Value]) -> list[Value]:
        out = []
        for item in self._iterable(self.evaluate(expr.iterable, env)):
            inner = {**env, expr.variable: item}
            if expr.condition is None or self._truth(self.evaluate(expr.condition, inner)):
                out.append(self.evaluate(expr.item, inner))
        return out

    def _logic(self, expr: ast.Binary, env: dict[str, Value]) -> bool:
        decisive = expr.operator == "or"
        try:
            if self._truth(self.evaluate(expr.left, env)) is decisive:
                return decisive
        except Unprovable:
            if self._truth(self.evaluate(expr.right, env)) is decisive:
                return decisive
            raise
        return self._truth(self.evaluate(expr.right, env))

    def _binary(self, expr: ast.Binary, env: dict[str, Value]) -> Value:
        left = self._content(self.evaluate(expr.left, env))
        right = self._content(self.evaluate(expr.right, env))
        if isinstance(left, TensorRef) or isinstance(right, TensorRef):
            return self.node(INFIX[expr.operator], {}, [left, right])
        return arithmetic(expr.operator, left, right)

    def _compare(self, expr: ast.Compare, env: dict[str, Value]) -> Value:
        form = expr.form
        if form is not None:
            return self._has_form(self.evaluate(expr.left, env), form, env) is (expr.operator == "is")
        left, right = self.evaluate(expr.left, env), self.evaluate(expr.right, env)
        if expr.operator in ("is", "is not"):
            return (left is None) is (right is None) and (left is None) if expr.operator == "is" else left is not right
        return compare(expr.operator, self._content(left), self._content(right))

    def _has_form(self, value: Value, form: ast.Expr, env: dict[str, Value]) -> bool:
        """Whether a tensor is an application of this form, as far as has been found out."""
        from .submatch import Search

        if not isinstance(value, TensorRef):
            return False
        known = {name: bound for name, bound in env.items() if not isinstance(bound, list)}
        return next(Search(self, exact=True).matches(form, value.handle, known), None) is not None

    def _subscript(self, expr: ast.Subscript, env: dict[str, Value]) -> Value:
        if isinstance(expr.base, ast.Call) and expr.base.is_operator:
            if isinstance(expr.index, ast.All):
                return self.outputs(self.built(expr.base, env, None), None)
            index = self._int(expr.index, env)
            found = signature(expr.base.head)  # one node has them all, whichever of them is asked for
            count = found.max_outputs if found is not None and found.max_outputs is not None else 0
            return self.outputs(self.built(expr.base, env, max(index + 1, count)), index)
        base = self.evaluate(expr.base, env)
        if isinstance(expr.index, ast.All):
            return list(self._iterable(base))
        index = self._int(expr.index, env)
        items = self._iterable(base)
        if not -len(items) <= index < len(items):
            raise Unprovable(f"there is no element {index} among {len(items)}")
        return items[index]

    # --- calls ---

    def _call(self, expr: ast.Call, env: dict[str, Value]) -> Value:
        if expr.kind is None and expr.head not in env and not expr.is_operator:
            function = FUNCTIONS.get(expr.head)
            if function is None:
                raise Unprovable(f"there is no function {expr.head}")
            args = [self.evaluate(a, env) for a in expr.args]
            try:
                return function(self, *args)
            except (TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
                raise Unprovable(f"{expr.head}: {error}") from error
        return self.outputs(self.built(expr, env, 1), 0)

    def built(self, expr: ast.Call, env: dict[str, Value], outputs: int | None) -> TensorRef:
        """The e-node of an operator call; of several outputs the tuple."""
        head = env.get(expr.head)
        op, attrs = (head.op, dict(head.attrs)) if isinstance(head, OpRef) else (expr.head, {})
        named: dict[str, Value] = {}
        if expr.rest is not None and expr.rest.name is not None:
            rest = env.get(expr.rest.name)
            if isinstance(rest, RestRef):
                named.update(rest.attrs)
        with self._mode(False):
            inputs: list[Value] = []
            for arg in expr.args:
                value = self.evaluate(arg, env)
                many = isinstance(arg, ast.Each) or (isinstance(arg, ast.Subscript) and isinstance(arg.index, ast.All))
                inputs.extend(value) if many else inputs.append(value)
            for attribute in expr.attributes:
                named[attribute.name] = self.evaluate(attribute.value, env)
        for name, value in named.items():
            if value is not None and not (isinstance(head, OpRef) and name in head.fixed):
                attrs[name] = self._attribute(op, name, value)
        return self._node(op, attrs, inputs, outputs)

    def _attribute(self, op: str, name: str, value: Value) -> AttrValue:
        """A value as an attribute; where the operator wants a tensor there, a constant's contents."""
        if isinstance(value, Constant) or not is_tensor_attribute(op, name):
            return as_attribute(value)
        if isinstance(value, TensorRef):
            return Constant(self.contents(value))
        if self.assumed is None:
            raise Unprovable(f"{name} is a tensor: write its element type, as in const({value!r}, f32)")
        return Constant(np.atleast_1d(np.array(value)).astype(self.assumed.numpy))

    def all_outputs(self, expr: ast.Expr, env: dict[str, Value], count: int) -> list[Value]:
        """All outputs of an application with `count` of them, or the elements of a list."""
        if isinstance(expr, ast.Conditional):
            holds = self._truth(self.in_condition(expr.condition, env))
            return self.all_outputs(expr.then if holds else expr.otherwise, env, count)
        if isinstance(expr, ast.Call) and (expr.is_operator or isinstance(env.get(expr.head), OpRef)):
            return list(self.outputs(self.built(expr, env, count), None))
        return self._iterable(self.evaluate(expr, env))

    def node(self, op: str, attrs: Mapping[str, AttrValue], inputs: list[Value]) -> TensorRef:
        """The class of a single-output operator over values, which become constants where they are no tensors."""
        return self._node(op, attrs, inputs, 1)

    def _node(self, op: str, attrs: Mapping[str, AttrValue], inputs: list[Value], outputs: int | None) -> TensorRef:
        if op in NARY and len(inputs) != 2:
            return self._tree(op, inputs)
        if op in self.declared:
            return self._declared(self.declared[op], attrs, inputs, outputs)
        sig = signature(op)
        if sig is None:
            raise Unprovable(f"there is no operator {op}")
        like = next((self.egraph.type(v.handle).dtype for v in inputs if isinstance(v, TensorRef)), None)
        children = [self._operand(op, i, v, like) for i, v in enumerate(inputs)]
        for i, formal in enumerate(sig.inputs):
            if not (formal.optional or formal.variadic) and (i >= len(children) or children[i] == ABSENT):
                raise Unprovable(f"{op} has no {formal.name}")
        if sig.max_inputs is not None:
            children += [ABSENT] * (sig.max_inputs - len(children))
        attrs, around = surroundings(attrs)
        children += around
        count = self._output_count(op, attrs, children, outputs)
        try:
            handle = self.egraph.add(
                op, normalise_attrs(op, attrs), children, count, made_by=self.made_by, origins=self.origins
            )
        except IllTyped as error:
            raise Unprovable(f"{op} would be invalid: {error}") from error
        return TensorRef(handle)

    def _tree(self, op: str, inputs: list[Value]) -> TensorRef:
        """A sum or product of any number of terms."""
        if not any(isinstance(v, TensorRef) for v in inputs):
            raise Unprovable(f"{op} of no terms has no type")
        if self.assumed is not None:  # in a test: constants apart, else they were one before any rule looks at them
            inputs = sorted(inputs, key=lambda v: not isinstance(v, TensorRef) or self.egraph.is_const(v.handle))
        total = inputs[0]
        for value in inputs[1:]:
            total = self.node(op, {}, [total, value])
        assert isinstance(total, TensorRef)
        return total

    def _declared(
        self, op: ast.Op, attrs: Mapping[str, AttrValue], inputs: list[Value], outputs: int | None
    ) -> TensorRef:
        """An operator that a rule file defines, equal to its definition, which gives it its type."""
        env = bind_declared(op, inputs, attrs, self)
        meanings = self.meanings(op, env)
        name = graph_name(op.name)
        if name == op.name:
            full = normalise_attrs(name, attrs)
        else:
            given = {p.name: env[p.name] for p in op.params or () if p.attribute is not None}
            full = {name: as_attribute(value) for name, value in given.items() if value is not None}
        like = next((self.egraph.type(v.handle).dtype for v in inputs if isinstance(v, TensorRef)), None)
        children = [self._operand(name, i, v, like) for i, v in enumerate(inputs)]
        sig = signature(name)
        most = max_inputs(op) if sig is None else sig.max_inputs
        children += [ABSENT] * ((most or 0) - len(children))
        count = len(meanings) if outputs is None else min(outputs, len(meanings))
        types = tuple(
            self.egraph.types(m.handle)[0] if isinstance(m, TensorRef) else TensorType() for m in meanings[:count]
        )
        try:
            handle = self.egraph.add(
                name, full, children, count, made_by=self.made_by, origins=self.origins, types=types
            )
        except IllTyped as error:
            raise Unprovable(f"{op.name} would be invalid: {error}") from error
        self.equate(handle, meanings[:count], None)
        return TensorRef(handle)

    def meanings(self, op: ast.Op, env: dict[str, Value]) -> list[Value]:
        """What the definition of a declared operator says of each of its outputs; None where it says nothing."""
        assert op.definition is not None
        lets, self.lets = self.lets, {}
        try:
            with self._mode(False):
                if isinstance(op.definition, ast.ListExpr):
                    found = [self.evaluate(item, env) for item in op.definition.items]
                else:
                    found = [self.evaluate(op.definition, env)]
        finally:
            self.lets = lets
        for value in found:
            if value is not None and not isinstance(value, TensorRef):
                raise Unprovable(f"{op.name} of these inputs is no tensor")
        return found

    def equate(self, handle: int, meanings: list[Value], rule: str | None) -> bool:
        """Makes the outputs of a node equal to values, as far as there are some."""
        outputs = self.egraph.nodes[handle].outputs
        pairs: list[tuple[int, int]] = []
        for i, meaning in enumerate(meanings):
            if not isinstance(meaning, TensorRef):
                continue
            made = {"made_by": self.made_by, "origins": self.origins}
            output = handle if outputs == 1 else self.egraph.add("Proj", {"index": i}, (handle,), **made)  # type: ignore[arg-type]
            if not self.egraph.can_union(output, meaning.handle):
                ours, theirs = self.egraph.type(output), self.egraph.type(meaning.handle)
                raise Unprovable(f"its definition is {theirs} where it is {ours}")
            pairs.append((output, meaning.handle))
        changed = False
        for output, meaning_handle in pairs:
            changed |= self.egraph.union(output, meaning_handle, rule)
        return changed

    def own_defaults(self, op: str) -> dict[str, AttrValue]:
        """The default attributes of an operator that a rule file declares; empty for any other."""
        if op not in self.declared:
            return {}
        if graph_name(op) == op:
            return normalise_attrs(op, {})
        params = self.declared[op].params or ()
        return {p.name: as_attribute(self.evaluate(p.attribute, {})) for p in params if p.attribute is not None}

    def _operand(self, op: str, index: int, value: Value, like: DType | None) -> int:
        if isinstance(value, TensorRef):
            return value.handle
        if value is None:
            return ABSENT
        return self.constant(value, input_dtype(op, index) or like)

    def constant(self, value: Value, dtype: DType | None) -> int:
        """The class of a constant tensor with these contents; floats without a dtype are not guessed."""
        if isinstance(value, np.ndarray):
            return self.egraph.add_constant(Constant(value if dtype is None else value.astype(dtype.numpy)))
        if dtype is None:
            raise Unprovable(f"the element type of {value!r} is not known")
        items = value if isinstance(value, list) else [value]
        if any(isinstance(v, DimExpr) for v in items):
            raise Unprovable("a constant cannot hold an unknown dim")
        try:
            array = np.array(value, dtype=np.float64 if dtype.is_float else None)
            if dtype.is_integer and array.dtype.kind == "f" and array.size:
                raise Unprovable(f"{value!r} is no integer")
            found = array.astype(dtype.numpy)
        except (OverflowError, TypeError, ValueError) as error:  # numbers too large, lists of unequal lengths
            raise Unprovable(f"{value!r} is no {dtype} constant: {error}") from error
        if dtype.is_integer and (found.astype(object) != array.astype(object)).any():
            raise Unprovable(f"{value!r} is beyond the range of {dtype}")
        return self.egraph.add_constant(Constant(found))

    def _output_count(self, op: str, attrs: Mapping[str, AttrValue], children: list[int], outputs: int | None) -> int:
        if op == "Split":
            sizes = self.egraph.value(children[1]) if len(children) > 1 and children[1] != ABSENT else None
            if sizes is not None:
                return len(sizes.dims)
            number = attrs.get("num_outputs")
            if isinstance(number, int):
                return number
        if CAPTURES in attrs:
            outputs = output_count(op, attrs)
        if outputs is None:
            raise Unprovable(f"the number of outputs of {op} is not known")
        sig = signature(op)
        return outputs if sig is None else max(outputs, sig.min_outputs)  # TopK has two, whichever is wanted

    def outputs(self, node: TensorRef, index: int | None) -> Value:
        """Output `index` of a built e-node, or all of them for None."""
        count = len(self.egraph.types(node.handle))
        if count == 1:
            return node if index is not None else [node]
        parts = [
            TensorRef(self.egraph.add("Proj", {"index": i}, (node.handle,), made_by=self.made_by, origins=self.origins))
            for i in (range(count) if index is None else (index,))
        ]
        return parts if index is None else parts[0]

    # --- reading ---

    def _content(self, value: Value) -> Value:
        """In a condition, the contents of a constant in place of the tensor."""
        return self.contents(value) if self.proving and isinstance(value, TensorRef) else value

    def contents(self, tensor: Value) -> np.ndarray[Any, Any]:
        """The elements of a tensor that is a known constant."""
        if isinstance(tensor, np.ndarray):
            return tensor
        if not isinstance(tensor, TensorRef):
            return np.asarray(tensor)
        info = self.egraph.constant(tensor.handle)
        array = info.contents() if info is not None else None
        if array is None:
            raise Unprovable("its contents are not known")
        return array

    def type(self, tensor: Value) -> TensorType:
        """The type of a tensor value."""
        if isinstance(tensor, TensorRef):
            return self.egraph.type(tensor.handle)
        raise Unprovable(f"{tensor!r} is no tensor")

    def _int(self, expr: ast.Expr, env: dict[str, Value]) -> int:
        value = self.evaluate(expr, env)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise Unprovable(f"{value!r} is no known integer")
        return int(value)

    def _iterable(self, value: Value) -> list[Value]:
        if isinstance(value, (list, tuple)):
            return list(value)
        if isinstance(value, np.ndarray) and value.ndim == 1:
            return list(value.tolist())
        raise Unprovable(f"{value!r} is no list")

    def _truth(self, value: Value) -> bool:
        if isinstance(value, np.ndarray):
            return bool(value.all())
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise Unprovable(f"{value!r} is neither true nor false")

    def equal(self, a: Value, b: Value) -> bool:
        """Whether two attribute values are the same; numbers of attributes are f32."""
        a, b = as_attribute(a), as_attribute(b)
        if isinstance(a, float) or isinstance(b, float):
            return isinstance(a, (int, float)) and isinstance(b, (int, float)) and np.float32(a) == np.float32(b)
        return bool(a == b)

    def match_literal(self, literal: ast.Expr, handle: int, *, exact: bool) -> None:
        """Raises `Unprovable` unless a class is a constant whose elements are those of a pattern's literal."""
        wanted = self.evaluate(literal, {})
        array = self.contents(TensorRef(handle))
        if isinstance(wanted, list):
            ok = array.shape == (len(wanted),) and bool((array == np.array(wanted)).all())
        elif exact or array.dtype.kind != "f":
            number = np.asarray(wanted).astype(array.dtype)
            ok = array.size > 0 and bool((array == number).all())
            if array.dtype.kind in "iub":  # -1 is no 255, and 0.5 no 0
                ok = ok and float(number) == float(wanted)
            elif exact and wanted == 0:
                ok = ok and not np.signbit(array).any()
        else:
            near = np.abs(array.astype(np.float64) - wanted) <= LITERAL_TOLERANCE * abs(wanted)
            # half precision rounds 1e-6 by more than the tolerance
            ok = array.size > 0 and bool((near | (array == np.asarray(wanted).astype(array.dtype))).all())
        if not ok:
            raise Unprovable(f"the constant is not {wanted}")


def _mentions(expr: ast.Syntax, name: str, *, in_lists: bool) -> bool:
    """Whether an expression uses a name; without `in_lists` elsewhere than in a list, which has an item for each."""
    if isinstance(expr, ast.Name):
        return expr.id == name
    if isinstance(expr, ast.ListExpr) and not in_lists:
        return False
    return any(_mentions(child, name, in_lists=in_lists) for child in expr.children())


@cache
def input_dtype(op: str, index: int) -> DType | None:
    """The element type that a constant at an operator's input has by its schema, such as i64 for Reshape's shape.

    None where the schema leaves it open, because it follows the other inputs."""
    sig = signature(op)
    if sig is None or not sig.inputs:
        return None
    allowed = sig.inputs[min(index, len(sig.inputs) - 1)].dtypes
    if len(allowed) == 1:
        return DType(next(iter(allowed)))
    if allowed and all(DType(t).is_integer for t in allowed):
        return DType.I64 if "i64" in allowed else None
    return None
