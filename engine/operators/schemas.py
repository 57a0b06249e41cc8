"""Interfaces of all operators: inputs, outputs and attributes, from the schemas of the ONNX standard.

Inside the compiler every standard operator has its meaning at `WORKING_OPSET`. A model may use a version whose meaning
differs and that has no translation (see `opsets`). Then the operator carries its version in its name, `Scatter@9`: an
operator of its own, which no rule matches and which is exported unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...grammar.operator_info import Attribute as Attribute
from ...grammar.operator_info import Parameter as Parameter
from ...grammar.operator_info import Signature as Signature
from ..ir.graph import Attrs, AttrValue, DType, graphs_in, long_list_of
from ..ir.names import OWN_DOMAIN

if TYPE_CHECKING:
    from ...grammar.syntax import ast
    from .inference.inference_call import Rule

WORKING_OPSET = 24
"""Opset of ONNX's own domain that graphs use between import and export."""
WORKING_ML_OPSET = 5
"""Opset of the domain `ai.onnx.ml` that graphs use between import and export."""
ML_DOMAIN = "ai.onnx.ml"
STANDARD_DOMAINS = ("", ML_DOMAIN, "ai.onnx.preview.training", "ai.onnx.preview")

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


@dataclass(frozen=True, slots=True)
class Declared:
    """An operator of a domain of its own, as a rule file declares it (`op`); see `rewriting.custom_operators`.

    `pure` means that equal inputs give equal outputs. `defined` are all operators that have a definition. `infer` is
    its inference rule."""

    signature: Signature
    pure: bool
    op: ast.Op
    defined: Mapping[str, ast.Op]
    infer: Rule


_DECLARED: ContextVar[Mapping[str, Declared]] = ContextVar("_DECLARED", default={})  # noqa: B039  never changed


@contextmanager
def declared_operators(table: Mapping[str, Declared]) -> Iterator[None]:
    """Make these operators known besides those of the standard while the context lasts.

    The only place that holds their schemas; rule contexts hold their definitions: signatures and purity are needed at
    too many places to pass a table."""
    token = _DECLARED.set(table)
    try:
        yield
    finally:
        _DECLARED.reset(token)


def find_declared(op: str) -> Declared | None:
    """Return the declaration of a custom operator, or None."""
    return _DECLARED.get().get(op)


@lru_cache(4096)
def split_name(op: str) -> tuple[str, str, int | None]:
    """Split an operator's name into `(domain, name, version)`; the version is None unless marked: `Scatter@9`."""
    name, _, version = op.partition("@")
    domain, _, name = name.rpartition(".")
    return domain, name, int(version) if version else None


def graph_name(declared: str) -> str:
    """Return the name in graphs of an operator that a rule file declares: without a domain, it is in `OWN_DOMAIN`."""
    return declared if "." in declared else f"{OWN_DOMAIN}.{declared}"


def qualified(domain: str, name: str, version: int | None = None) -> str:
    """Return the operator's name in a graph; the inverse of `split_name`."""
    if domain == "ai.onnx":
        domain = ""
    return (f"{domain}." if domain else "") + name + (f"@{version}" if version else "")


def signature(op: str) -> Signature | None:
    """Return the interface of a standard operator at its version, or of a declared one; None for any other.

    That version is the mark in the name, else that of the working opset. An operator that is newer than the working
    opset has its first version."""
    declared = find_declared(op)
    return standard_signature(op) if declared is None else declared.signature


def attributes_of(op: str) -> Mapping[str, Attribute]:
    """Return the attributes of an operator by name; none if it is unknown."""
    known = signature(op)
    return known.attributes if known is not None else {}


@cache
def standard_signature(op: str) -> Signature | None:
    """Return the interface that the standard gives an operator, whatever declares it beside that; None if none."""
    schema = find_schema(op)
    return None if schema is None else _convert(op, schema)


@cache
def find_schema(op: str) -> Any | None:
    """Return the `onnx.defs.OpSchema` of the operator (see `signature`), or None."""
    from onnx import defs

    domain, name, version = split_name(op)
    if domain not in STANDARD_DOMAINS:
        return None
    if version is None:
        version = {"": WORKING_OPSET, ML_DOMAIN: WORKING_ML_OPSET}.get(domain, 1)
        if not defs.has(name, version, domain):
            version, *_ = _history().get((domain, name), (0,))
    return defs.get_schema(name, version, domain) if defs.has(name, version, domain) else None


@cache
def _history() -> dict[tuple[str, str], list[int]]:
    """Return the opset versions in which each operator changed, ascending."""
    from onnx import defs

    found: dict[tuple[str, str], list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {operator: sorted(changes) for operator, changes in found.items()}


def is_tensor_attribute(op: str, name: str) -> bool:
    """Whether the operator's schema says that this attribute holds a tensor."""
    found = signature(op)
    return found is not None and found.is_tensor(name)


def standard_names() -> list[str]:
    """Return the sorted names of all operators that the standard domains have or had."""
    return sorted(qualified(domain, name) for domain, name in _history() if domain in STANDARD_DOMAINS)


@lru_cache(4096)
def versions(op: str) -> Sequence[int]:
    """Return the opset versions in which a standard operator changed, ascending; empty for any other operator."""
    return _history().get(split_name(op)[:2], ())


def suggestions(op: str) -> list[str]:
    """Return names of standard operators that look like this one, for a "did you mean"."""
    domain, name, _ = split_name(op)
    return difflib.get_close_matches(name, sorted(n for d, n in _history() if d == domain), n=3)


@cache
def _dtypes() -> dict[str, str]:
    """Return the element type of each tensor type in a schema."""
    from onnx import TensorProto

    return {f"tensor({TensorProto.DataType.Name(dtype.onnx).lower()})": dtype.value for dtype in DType}


def _convert(op: str, schema: Any) -> Signature:
    import onnx

    allowed = {c.type_param_str: tuple(c.allowed_type_strs) for c in schema.type_constraints}

    def parameter(formal: Any) -> Parameter:
        option = formal.option.name.lower()
        types = allowed.get(formal.type_str, (formal.type_str,))
        return Parameter(
            formal.name,
            option == "optional",
            option == "variadic",
            formal.is_homogeneous,
            formal.type_str,
            frozenset(_dtypes()[t] for t in types if t in _dtypes()),
            any(not t.startswith("tensor(") for t in types),
        )

    def attribute(formal: Any) -> Attribute:
        default = None
        if formal.default_value.name:
            default = _plain(onnx.helper.get_attribute_value(formal.default_value))
        return Attribute(formal.name, formal.type.name, default, formal.required)

    most_inputs, most_outputs = (None if n == 2**31 - 1 else n for n in (schema.max_input, schema.max_output))
    return Signature(
        op,
        tuple(map(parameter, schema.inputs)),
        tuple(map(parameter, schema.outputs)),
        {name: attribute(schema.attributes[name]) for name in sorted(schema.attributes)},
        schema.min_input,
        most_inputs,
        schema.min_output,
        most_outputs,
        schema.since_version,
        schema.deprecated,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def normalize_attrs(op: str, attrs: Attrs) -> dict[str, AttrValue]:
    """Return the attributes in name order, with the defaults of the schema filled in.

    Lists become tuples and floats are rounded to single precision, as ONNX stores them, so that equal attributes are
    equal values. Attributes without default stay absent. The attributes of an operator without schema stay as they
    are."""
    formal = attributes_of(op)
    defaults = _stated_defaults(op) if find_declared(op) is None else _defaults(formal)
    given = {n: _normal(value, formal[n].kind if n in formal else "") for n, value in attrs.items()}
    return dict(sorted((defaults | given).items()))


def _defaults(formal: Mapping[str, Attribute]) -> dict[str, Any]:
    return {n: a.default for n, a in formal.items() if a.default is not None}


@cache
def _stated_defaults(op: str) -> dict[str, Any]:
    """Return the defaults that the schema of a standard operator states."""
    known = standard_signature(op)
    return {} if known is None else _defaults(known.attributes)


def default_attrs(op: str) -> Mapping[str, AttrValue]:
    """Return the attributes that an operator has where none are given."""
    return _standard_defaults(op) if find_declared(op) is None else normalize_attrs(op, {})


@cache
def _standard_defaults(op: str) -> Mapping[str, AttrValue]:
    return normalize_attrs(op, {})


def _normal(value: Any, kind: str) -> Any:
    if isinstance(value, list | tuple):
        untyped = isinstance(value, tuple) and not value and not kind  # its class says what it is a list of
        of = long_list_of(value)
        if of is float:
            return tuple(np.asarray(value, np.float32).astype(np.float64).tolist())
        if of in (int, str) and kind in ("INTS", "STRINGS"):
            return tuple(value)
        return value if untyped else tuple(_normal(item, kind[:-1]) for item in value)
    if kind == "FLOAT" or isinstance(value, float):
        return float(np.float32(value))
    return int(value) if kind == "INT" else value


def is_pure(op: str, attrs: Attrs | None = None) -> bool:
    """Whether equal inputs give equal outputs, so that the operator may be merged, moved and dropped.

    Random operators are not pure. An operator with subgraphs is if everything in them is. An operator that neither a
    schema describes nor a rule file declares is not, for nothing is known of it. One marked with a version is if it
    would be without the mark, except `Dropout@22`, which stands for training."""
    domain, name, version = split_name(op)
    if domain == OWN_DOMAIN:
        return True
    if (declared := find_declared(op)) is not None:
        return declared.pure
    if name in _RANDOM or (name == "Dropout" and version is not None) or find_schema(op) is None:
        return False
    return all(is_pure(node.op, node.attrs) for _, graph in graphs_in(attrs or {}) for node in graph.nodes)
