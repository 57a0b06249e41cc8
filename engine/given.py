"""`given` clauses: the types that a rule asks of its tensors, and the dims that they bind."""

from __future__ import annotations

from collections.abc import Sequence

from ..grammar import ast
from . import symbolic
from .evaluate import Evaluator, is_literal
from .graph import DType, TensorType
from .values import TensorRef, Unprovable, Value

_CLASSES = {
    "float": lambda t: t.is_float,
    "integer": lambda t: t.is_integer,
    "number": lambda t: t.is_float or t.is_integer,
    "bool": lambda t: t is DType.BOOL,
}


def check_given(clauses: Sequence[ast.Given], env: dict[str, Value], evaluator: Evaluator) -> None:
    """Raises `Unprovable` unless every named tensor has the type asked for; binds the dims and dtypes it names."""
    for clause in clauses:
        for target in clause.targets:
            value = env.get(target.name)
            for tensor in value if isinstance(value, list) else (value,):
                if tensor is None or isinstance(tensor, TensorRef):
                    _check(target.name, tensor, clause.type, env, evaluator)


def _check(
    name: str, tensor: TensorRef | None, wanted: ast.TypeExpr, env: dict[str, Value], evaluator: Evaluator
) -> None:
    if tensor is None:
        return  # an optional input that is absent has its default, a constant
    type_ = evaluator.type(tensor)
    if wanted.const and not evaluator.egraph.is_const(tensor.handle):
        raise Unprovable(f"{name} is no constant")
    if wanted.element == "scalar":
        if type_.shape is None or any(d != 1 for d in type_.shape):
            raise Unprovable(f"{name} is no scalar")
    elif wanted.element is not None:
        _check_element(name, type_, wanted.element, env)
    if wanted.shape is not None:
        _check_shape(name, type_, wanted.shape, env, evaluator)


def _check_element(name: str, type_: TensorType, element: str, env: dict[str, Value]) -> None:
    if type_.dtype is None:
        raise Unprovable(f"the element type of {name} is not known")
    test = _CLASSES.get(element)
    if test is not None:
        ok = test(type_.dtype)
    elif is_literal(element):
        ok = type_.dtype == element
    else:
        ok = env.setdefault(element, type_.dtype) == type_.dtype
    if not ok:
        raise Unprovable(f"{name} is {type_.dtype}, not {element}")


def _check_shape(
    name: str,
    type_: TensorType,
    wanted: Sequence[ast.Expr | ast.ShapeRest | ast.AnyDim],
    env: dict[str, Value],
    evaluator: Evaluator,
) -> None:
    shape = type_.shape
    if shape is None:
        raise Unprovable(f"the shape of {name} is not known")
    rest = next((i for i, d in enumerate(wanted) if isinstance(d, ast.ShapeRest)), None)
    if rest is None:
        if len(shape) != len(wanted):
            raise Unprovable(f"{name} has rank {len(shape)}, not {len(wanted)}")
        pairs = list(zip(wanted, shape, strict=True))
    else:
        after = len(wanted) - rest - 1
        if len(shape) < len(wanted) - 1:
            raise Unprovable(f"{name} has rank {len(shape)}, less than {len(wanted) - 1}")
        pairs = list(zip(wanted[:rest], shape[:rest], strict=True))
        pairs += list(zip(wanted[rest + 1 :], shape[len(shape) - after :], strict=True))
        found = list(shape[rest : len(shape) - after])
        item = wanted[rest]
        assert isinstance(item, ast.ShapeRest)
        if item.name is not None and env.setdefault(item.name, found) != found:
            raise Unprovable(f"the dims of {name} differ from {item.name}")
    for expr, dim in pairs:
        if isinstance(expr, (ast.AnyDim, ast.ShapeRest)):
            continue
        if isinstance(expr, ast.Name) and not is_literal(expr.id) and expr.id not in env:
            env[expr.id] = dim
        elif not symbolic.same(evaluator.evaluate(expr, env), dim):
            raise Unprovable(f"a dim of {name} is {dim}")
