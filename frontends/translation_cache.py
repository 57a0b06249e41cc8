"""Cache of translations: a graph of PyTorch that was translated before, in any process, is not translated again.

Translating takes about as long as tracing, and its table of operators a second of imports. Entries are in the user's
store: the names of the operators that the exporter knows, and models without weights by the content of their graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any

from ..engine.ir.detached_model import DetachedModel
from ..system.store import Namespace, Store, code_stamp, content_key


def operator_names(read: Callable[[], list[str]]) -> frozenset[str]:
    """Return the names of the operators that the exporter translates, which `read` takes from its registry."""
    entries, name = _entries(), content_key("operators", _versions())
    payload = entries.read(name)
    if payload is None:
        payload = json.dumps(sorted(read())).encode()
        entries.save(name, payload)
    return frozenset(json.loads(payload))


def translated(graph: Any, translate: Callable[[], DetachedModel]) -> DetachedModel:
    """Return the model of a `torch.fx.Graph`, which `translate` makes if it is not in the cache.

    Raises what `translate` raises."""
    import onnx

    text = _content(graph)
    if text is None:
        return translate()
    entries, name = _entries(), content_key("graph", _versions(), text)
    if (payload := entries.read(name)) is not None:
        return DetachedModel(onnx.ModelProto.FromString(payload), {})
    model = translate()
    if not model.tensors:
        entries.save(name, model.model.SerializeToString(deterministic=True))
    return model


def _entries() -> Namespace:
    return Store().namespace("translations")


@cache
def _versions() -> str:
    """Return what decides translations beside a graph: the packages that translate, and this one."""
    packages = ("torch", "onnxscript", "onnx-ir", "onnx")
    return " ".join((*map(version, packages), code_stamp("frontends", "torch_backend")))


def _content(graph: Any) -> str | None:
    """Return a graph as text, types and shapes of all values included; None if it refers to other objects.

    Such are the bodies of conditions and loops, and arguments that have an address for a text."""
    lines = []
    for node in graph.nodes:
        if node.op == "get_attr":
            return None
        arguments = sorted(node.kwargs.items())
        lines.append(f"{node.op} {node.name!r} {node.target} {node.args} {arguments} {_type(node.meta.get('val'))}")
    text = "\n".join(lines)
    return None if " at 0x" in text else text


def _type(value: Any) -> str:
    if hasattr(value, "stride"):  # a tensor
        return f"{value.dtype}{list(value.shape)}{list(value.stride())}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_type, value))})"
    return f"{type(value).__name__} {value}"
