"""What is known of every operator: its inputs, outputs and attributes, from the schemas of the ONNX standard.

Inside the compiler every standard operator means what it means at `WORKING_OPSET`. Where a model uses one of another
version whose meaning differs and that has no translation (see `opsets`), the operator carries its version in its name,
`Scatter@9`: an operator of its own, that no rule matches and that is written back as it was.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..grammar import ast
    from .graph import Attrs, AttrValue

WORKING_OPSET = 24
"""The opset of ONNX's own domain that graphs are in between reading and writing."""
WORKING_ML_OPSET = 5
"""The same for the domain `ai.onnx.ml`."""
ML_DOMAIN = "ai.onnx.ml"
OWN_DOMAIN = "rewrite"
"""The domain of operators that rule files declare."""
LOWER_PRECISION = frozenset(f"{OWN_DOMAIN}.{name}" for name in ("MatMulBf16", "ConvBf16", "ChannelsLastConvBf16"))
"""Operators of the standard library that multiply in a lower precision than that of their operands."""
CHANNELS_LAST = frozenset(
    f"{OWN_DOMAIN}.ChannelsLast{name}" for name in ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool")
)
"""Operators on images with their channels last."""
ATTENTION = frozenset(f"{OWN_DOMAIN}.{name}" for name in ("ScaledDotProductAttention", "AttentionBf16"))
"""Attention as the sum of its parts, with products in f32 or of rounded operands."""
KERNEL_OPERATORS = LOWER_PRECISION | CHANNELS_LAST | ATTENTION
"""Operators of the standard library that kernels compute as a whole; any other stands for its definition."""
STANDARD_DOMAINS = ("", ML_DOMAIN, "ai.onnx.preview.training", "ai.onnx.preview")

WITH_BODIES = ("If", "Loop", "Scan")
"""Operators with graphs among their attributes, which may read any number of values from around them."""

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One formal input or output. A `variadic` one, always the last, stands for any number of values.

    `type` is the type variable or concrete type of the schema (`T`, `tensor(int64)`); `dtypes` the short names of the
    element types that are allowed, empty where it is no tensor; `others` whether sequences, optionals or maps are."""

    name: str
    optional: bool
    variadic: bool
    homogeneous: bool
    type: str
    dtypes: frozenset[str]
    others: bool


@dataclass(frozen=True, slots=True)
class Attribute:
    """One formal attribute. `kind` is the ONNX name of its type (`INT`, `FLOATS`, `GRAPH`, …); `default` is None if
    there is none."""

    name: str
    kind: str
    default: AttrValue | None
    required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The interface of an operator. `max_inputs` and `max_outputs` are None for any number."""

    op: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: Mapping[str, Attribute]
    min_inputs: int
    max_inputs: int | None
    min_outputs: int
    max_outputs: int | None
    since_version: int
    deprecated: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """An operator of a domain of its own, as a rule file declares it (`op`); see `declared`.

    `pure` says that equal inputs give equal outputs; `defined` are all operators that have a definition."""

    signature: Signature
    pure: bool
    op: ast.Op
    defined: Mapping[str, ast.Op]


_DECLARED: ContextVar[Mapping[str, Declared]] = ContextVar("_DECLARED", default={})  # noqa: B039  never changed


@contextmanager
def declaring(table: Mapping[str, Declared]) -> Iterator[None]:
    """Within it, these operators are known besides those of the standard."""
    token = _DECLARED.set(table)
    try:
        yield
    finally:
        _DECLARED.reset(token)


def find_declared(op: str) -> Declared | None:
    """What rule files declare of an operator of a domain of its own, or None."""
    return _DECLARED.get().get(op)


def split_name(op: str) -> tuple[str, str, int | None]:
    """`(domain, name, version)` of an operator's name; the version is None unless marked: `Scatter@9`."""
    name, _, version = op.partition("@")
    domain, _, name = name.rpartition(".")
    return domain, name, int(version) if version else None


def graph_name(declared: str) -> str:
    """How graphs call an operator that a rule file declares: one without a domain is in that of our own."""
    return declared if "." in declared else f"{OWN_DOMAIN}.{declared}"


def qualified(domain: str, name: str, version: int | None = None) -> str:
    """The operator's name in a graph; the inverse of `split_name`."""
    if domain == "ai.onnx":
        domain = ""
    return (f"{domain}." if domain else "") + name + (f"@{version}" if version else "")


def signature(op: str) -> Signature | None:
    """The interface of a standard operator at its version, or of one that is declared; None for any other.

    That version is the mark in the name, else that of the working opset; an operator that is newer than the working
    opset has the first version there is."""
    declared = _DECLARED.get().get(op)
    return _standard_signature(op) if declared is None else declared.signature


@cache
def _standard_signature(op: str) -> Signature | None:
    schema = find_schema(op)
    return None if schema is None else _convert(op, schema)


@cache
def find_schema(op: str) -> Any | None:
    """The `onnx.defs.OpSchema` of the operator (see `signature`), or None."""
    from onnx import defs

    domain, name, version = split_name(op)
    if domain not in STANDARD_DOMAINS:
        return None
    if version is None:
        version = {"": WORKING_OPSET, ML_DOMAIN: WORKING_ML_OPSET}.get(domain, 1)
        if not defs.has(name, version, domain):
            versions = [s.since_version for s in _history().get((domain, name), ())]
            if not versions:
                return None
            version = min(versions)
    return defs.get_schema(name, version, domain) if defs.has(name, version, domain) else None


@lru_cache(maxsize=1)
def _history() -> dict[tuple[str, str], list[Any]]:
    from onnx import defs

    found: dict[tuple[str, str], list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


def is_tensor_attribute(op: str, name: str) -> bool:
    """Whether the schema of an operator says that this attribute holds a tensor."""
    found = signature(op)
    return found is not None and name in found.attributes and found.attributes[name].kind == "TENSOR"


def standard_names() -> list[str]:
    """The names of all operators that the standard domains have or had, in order."""
    return sorted(qualified(domain, name) for domain, name in _history() if domain in STANDARD_DOMAINS)


@cache
def versions(op: str) -> tuple[int, ...]:
    """The opset versions in which a standard operator changed, ascending; empty for one that is not in the standard."""
    domain, name, _ = split_name(op)
    return tuple(sorted(schema.since_version for schema in _history().get((domain, name), ())))


def suggestions(op: str) -> list[str]:
    """Names of standard operators that look like this one, for a "did you mean"."""
    domain, name, _ = split_name(op)
    return difflib.get_close_matches(name, sorted(n for d, n in _history() if d == domain), n=3)


_DTYPES = {
    "tensor(float)": "f32", "tensor(double)": "f64", "tensor(float16)": "f16", "tensor(bfloat16)": "bf16",
    "tensor(int8)": "i8", "tensor(int16)": "i16", "tensor(int32)": "i32", "tensor(int64)": "i64",
    "tensor(uint8)": "u8", "tensor(uint16)": "u16", "tensor(uint32)": "u32", "tensor(uint64)": "u64",
    "tensor(bool)": "bool", "tensor(string)": "string", "tensor(complex64)": "c64", "tensor(complex128)": "c128",
    "tensor(float8e4m3fn)": "f8e4m3fn", "tensor(float8e4m3fnuz)": "f8e4m3fnuz", "tensor(float8e5m2)": "f8e5m2",
    "tensor(float8e5m2fnuz)": "f8e5m2fnuz", "tensor(float8e8m0)": "f8e8m0", "tensor(float4e2m1)": "f4e2m1",
    "tensor(int4)": "i4", "tensor(uint4)": "u4", "tensor(int2)": "i2", "tensor(uint2)": "u2",
}  # fmt: skip


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
            frozenset(_DTYPES[t] for t in types if t in _DTYPES),
            any(not t.startswith("tensor(") for t in types),
        )

    def attribute(formal: Any) -> Attribute:
        default = None
        if formal.default_value.name:
            default = _plain(onnx.helper.get_attribute_value(formal.default_value))
        return Attribute(formal.name, formal.type.name, default, formal.required)

    unbounded = 2**31 - 1
    return Signature(
        op,
        tuple(map(parameter, schema.inputs)),
        tuple(map(parameter, schema.outputs)),
        {name: attribute(schema.attributes[name]) for name in sorted(schema.attributes)},
        schema.min_input,
        None if schema.max_input == unbounded else schema.max_input,
        schema.min_output,
        None if schema.max_output == unbounded else schema.max_output,
        schema.since_version,
        schema.deprecated,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def normalise_attrs(op: str, attrs: Attrs) -> dict[str, AttrValue]:
    """The attributes in name order, with the defaults of the schema filled in.

    Lists become tuples and floats are rounded to single precision, as ONNX stores them, so that equal attributes are
    equal values. Attributes without default stay absent. An operator without schema keeps what it has."""
    found = signature(op)
    formal = found.attributes if found else {}
    result: dict[str, Any] = {n: a.default for n, a in formal.items() if a.default is not None}
    for name, value in attrs.items():
        kind = formal[name].kind if name in formal else ""
        result[name] = _normal(value, kind)
    return dict(sorted(result.items()))


def default_attrs(op: str) -> Mapping[str, AttrValue]:
    """The attributes that an operator has where none are given."""
    return _standard_defaults(op) if find_declared(op) is None else normalise_attrs(op, {})


@cache
def _standard_defaults(op: str) -> Mapping[str, AttrValue]:
    return normalise_attrs(op, {})


def _normal(value: Any, kind: str) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_normal(item, kind[:-1]) for item in value)
    if kind == "FLOAT" or isinstance(value, float):
        return float(np.float32(value))
    return int(value) if kind == "INT" else value


def is_pure(op: str, attrs: Attrs | None = None) -> bool:
    """Whether equal inputs give equal outputs, so that the operator may be merged, moved and dropped.

    Random operators are not, an operator with a subgraph is if all in its subgraphs are, and of an operator that
    neither a schema describes nor a rule file declares nothing is known, so it is not. An operator marked with a
    version is when it would be without (`Dropout@22`, which stands for training, is not)."""
    domain, name, version = split_name(op)
    if domain == OWN_DOMAIN:
        return True
    declared = _DECLARED.get().get(op)
    if declared is not None:
        return declared.pure
    if name in _RANDOM or (name == "Dropout" and version is not None) or find_schema(op) is None:
        return False
    return all(is_pure(node.op, node.attrs) for graph in _graphs(attrs or {}) for node in graph.nodes)


def _graphs(attrs: Attrs) -> list[Any]:
    items = [item for value in attrs.values() for item in (value if isinstance(value, tuple) else (value,))]
    return [item for item in items if hasattr(item, "nodes")]


def output_count(op: str, attrs: Attrs, n_declared: int) -> int:
    """How many outputs an application has, given how many the node names (optional ones at the end may go unnamed)."""
    found = signature(op)
    if found is None:
        return n_declared
    if found.max_outputs is not None and found.max_outputs == 1:
        return 1
    wanted = attrs.get("num_outputs") if op == "Split" else None
    return max(n_declared, found.min_outputs, wanted if isinstance(wanted, int) else 0)
