"""`given` clauses: the types that a rule requires of its tensors, and the dims that they bind."""

from __future__ import annotations

from collections.abc import Sequence

from ....grammar.syntax import ast
from ...ir import symbolic
from ...ir.graph import DType, TensorType
from ...ir.values import Refuted, TensorRef, Unprovable
from ..notation import is_literal
from ..rule_context import Bindings, RuleContext, known, require

_CLASSES = {
    "float": lambda t: t.is_float,
    "integer": lambda t: t.is_integer,
    "number": lambda t: t.is_float or t.is_integer,
    "bool": lambda t: t is DType.BOOL,
}


def check_given(context: RuleContext, clauses: Sequence[ast.Given], env: Bindings) -> None:
    """Raise `Unprovable` unless every named tensor has the required type; bind the dims and dtypes it names.

    It is `Refuted` where what is known already contradicts."""
    for clause in clauses:
        for target in clause.targets:
            value = env.get(target.name)
            for tensor in value if isinstance(value, list) else (value,):
                if isinstance(tensor, TensorRef):  # an absent optional input has its default, a constant
                    _check(context, target.name, tensor, clause.type, env)


def _check(context: RuleContext, name: str, tensor: TensorRef, wanted: ast.TypeExpr, env: Bindings) -> None:
    type_ = context.type(tensor)
    require(not wanted.const or context.egraph.is_const(tensor.handle), f"{name} is not a constant")
    if wanted.element == "scalar":
        shape = known(type_.shape, f"the shape of {name} is not known")
        if any(d != 1 for d in shape):
            raise (Refuted if any(isinstance(d, int) and d != 1 for d in shape) else Unprovable)(
                f"{name} is not a scalar"
            )
    elif wanted.element is not None:
        _check_element(name, type_.dtype, wanted.element, env)
    if wanted.shape is not None:
        _check_shape(context, name, type_, wanted.shape, env)


def _check_element(name: str, found: DType | None, element: str, env: Bindings) -> None:
    dtype = known(found, f"the element type of {name} is not known")
    if element in _CLASSES:
        holds = _CLASSES[element](dtype)
    else:
        holds = dtype == (element if is_literal(element) else env.setdefault(element, dtype))
    if not holds:
        raise Refuted(f"{name} is {dtype}, not {element}")


_Dims = Sequence[ast.Expr | ast.ShapeRest | ast.AnyDim]


def _check_shape(context: RuleContext, name: str, type_: TensorType, wanted: _Dims, env: Bindings) -> None:
    shape = known(type_.shape, f"the shape of {name} is not known")
    rest = next((i for i, d in enumerate(wanted) if isinstance(d, ast.ShapeRest)), None)
    if rest is None and len(shape) != len(wanted):
        raise Refuted(f"{name} has rank {len(shape)}, not {len(wanted)}")
    if rest is not None and len(shape) < len(wanted) - 1:
        raise Refuted(f"{name} has rank {len(shape)}, less than {len(wanted) - 1}")
    pairs = list(zip(wanted, shape, strict=False))
    if rest is not None:
        item, end = wanted[rest], len(shape) - (len(wanted) - rest - 1)
        pairs = [*pairs[:rest], *zip(wanted[rest + 1 :], shape[end:], strict=True)]
        found = list(shape[rest:end])
        assert isinstance(item, ast.ShapeRest)
        if item.name is not None and env.setdefault(item.name, found) != found:
            raise Unprovable(f"the dims of {name} differ from {item.name}")
    for expr, dim in pairs:
        if isinstance(expr, (ast.AnyDim, ast.ShapeRest)):
            continue
        if isinstance(expr, ast.Name) and not is_literal(expr.id) and expr.id not in env:
            env[expr.id] = dim
        elif not symbolic.same(value := context.evaluate(expr, env), dim):
            numbers = isinstance(value, int) and isinstance(dim, int)
            raise (Refuted if numbers else Unprovable)(f"a dim of {name} is {dim}")
