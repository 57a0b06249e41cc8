"""Coding of attributes and bindings as JSON: what JSON cannot hold as it is becomes an object of one key."""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any

import numpy as np

from ...system.short_text import clipped
from ..ir.constants import SMALL
from ..ir.graph import Constant, DType, Graph, content_text
from ..ir.protos import EmptyDefault, EmptyFloats, EmptyStrings
from ..ir.symbolic import Expr as DimExpr
from ..ir.values import BodyRef, OpRef, RestRef, TensorRef, Value


class NotCoded(Exception):
    """A value that a trail does not hold: it follows from the others."""


class BodyDigest(str):
    """The digest of a body: the graph itself stands in the model, or a step builds it."""

    __slots__ = ()


def body_digest(graph: Graph | BodyDigest) -> BodyDigest:
    """Return the digest of a body's content."""
    if isinstance(graph, BodyDigest):
        return graph
    return BodyDigest(hashlib.sha256(content_text(graph).encode()).hexdigest()[:32])


class Encoder:
    """Encoder of attributes and bindings. Raises `NotCoded` for values that a replay finds by itself."""

    def attribute(self, value: Any) -> Any:
        """Return an attribute as JSON."""
        match value:
            case Graph() | BodyDigest():
                return {"body": str(body_digest(value))}
            case Constant():
                return {"array": array_to_json(value.array)}
            case bool() | str():
                return value
            case int() | float():
                return _plain(value)
            case EmptyFloats():
                return {"empty": "floats"}
            case EmptyStrings():
                return {"empty": "strings"}
            case EmptyDefault():
                return {"empty": "default"}
            case tuple() | list():
                return [self.attribute(item) for item in value]
        raise NotCoded(f"an attribute {value!r}")

    def value(self, value: Value) -> Any:
        """Return the value of a variable as JSON."""
        match value:
            case None:
                return {"absent": True}
            case TensorRef():
                return {"term": value.handle}
            case DType():
                return {"dtype": str(value)}
            case OpRef():
                return {"operator": value.op, "attrs": self._attributes(value.attrs)}
            case RestRef():
                return {"rest": self._attributes(value.attrs)}
            case BodyRef():
                captures = {name: tensor.handle for name, tensor in value.captures.items()}
                read = sorted(value.read)
                return {"of": value.op, "body": str(body_digest(value.graph)), "captures": captures, "read": read}
            case bool() | str():
                return value
            case int() | float():
                return _plain(value)
            case list() | tuple():
                return [self.value(item) for item in value]
            case DimExpr():
                raise NotCoded("a dim")
        raise NotCoded(repr(value))

    def _attributes(self, attrs: Any) -> dict[str, Any]:
        return {name: self.attribute(value) for name, value in attrs.items()}


def _plain(value: float) -> Any:
    return value if isinstance(value, int) or math.isfinite(value) else {"float": repr(float(value))}


def decode_attribute(value: Any) -> Any:
    """Return the attribute that JSON describes; of a body its `BodyDigest`. Raises ValueError."""
    match value:
        case {"body": str(digest)}:
            return BodyDigest(digest)
        case {"array": dict(array)}:
            return Constant(array_from_json(array))
        case {"float": str(text)}:
            return float(text)
        case {"empty": "floats"}:
            return EmptyFloats()
        case {"empty": "strings"}:
            return EmptyStrings()
        case {"empty": "default"}:
            return EmptyDefault()
        case bool():
            return int(value)
        case int() | float() | str():
            return value
        case list():
            return tuple(map(decode_attribute, value))
    raise ValueError(f"{value!r} is not an attribute")


def decode_value(value: Any, count: int) -> Value:
    """Return the value of a variable that JSON describes, over `count` terms. Raises ValueError."""

    def term(number: Any) -> TensorRef:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
            raise ValueError(f"there is no term {number!r}")
        return TensorRef(number)

    match value:
        case {"absent": True}:
            return None
        case {"term": number}:
            return term(number)
        case {"dtype": str(name)}:
            return DType(name)
        case {"operator": str(op), "attrs": dict(attrs)}:
            return OpRef(op, {name: decode_attribute(v) for name, v in attrs.items()})
        case {"rest": dict(attrs)}:
            return RestRef({name: decode_attribute(v) for name, v in attrs.items()})
        case {"of": str(op), "body": str(digest), "captures": dict(captures), "read": list(read)}:
            tensors = {str(name): term(number) for name, number in captures.items()}
            return BodyRef(BodyDigest(digest), tensors, op, frozenset(map(int, read)))  # type: ignore[arg-type]
        case {"float": str(text)}:
            return float(text)
        case bool() | int() | float() | str():
            return value
        case list():
            return [decode_value(item, count) for item in value]
    raise ValueError(f"{value!r} is not the value of a variable")


def array_to_json(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return an array as its element type, shape and bytes."""
    dtype = str(DType.from_numpy(array.dtype))
    if dtype == "string":
        return {"dtype": dtype, "shape": list(array.shape), "strings": [str(item) for item in array.reshape(-1)]}
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def array_from_json(data: Any) -> np.ndarray[Any, Any]:
    """Return the array that `array_to_json` wrote. Raises ValueError."""
    match data:
        case {"dtype": "string", "shape": list(shape), "strings": list(strings)}:
            return np.array(list(map(str, strings)), dtype=object).reshape(shape)
        case {"dtype": str(dtype), "shape": list(shape), "data": str(text)}:
            array = np.frombuffer(base64.b64decode(text, validate=True), DType(dtype).numpy)
            if array.size > SMALL:
                raise ValueError(f"a constant of {array.size:,} elements")
            return array.reshape(shape)
    raise ValueError(f"{clipped(repr(data), 60)} is not an array")
