"""Modules and exported programs of PyTorch, by its exporter to ONNX."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..engine.ir.detached_model import DetachedModel
from ..errors import UserError
from .ir_models import detached
from .translation_cache import operator_names, translated

if TYPE_CHECKING:
    import torch

_EXPORTING = threading.RLock()
"""The exporter holds the graph that it builds in a global variable."""


def from_module(
    module: torch.nn.Module,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> DetachedModel:
    """Export a module on example inputs; inputs of the model are named after the parameters of `forward`.

    `dynamic_shapes` is that of `torch.export.export`. Raises `UserError` for a module that cannot be exported, that
    draws random numbers, or that changes its buffers, as Dropout and BatchNorm do in training mode."""
    import torch

    if args is None and kwargs is None:
        hint = "rewrite.compile(module, args=(x,)) exports it on them; `dynamic_shapes` says which sizes are free."
        raise UserError("a torch.nn.Module needs example inputs", hint=hint)
    if isinstance(args, torch.Tensor) or not isinstance(args or (), tuple | list):
        raise UserError(f"`args` is a tuple of inputs, not a {type(args).__name__}", hint="Write args=(x,).")
    try:
        with torch.inference_mode(False), torch.no_grad():
            program = torch.export.export(
                module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
    except Exception as error:  # the exporter's errors have no common base class
        raise UserError(
            f"torch.export cannot export {type(module).__name__}: {_first_lines(error)}",
            hint="torch.compile(module, backend='rewrite') compiles the parts that can be.",
        ) from error
    return from_exported_program(program)


def from_exported_program(program: torch.export.ExportedProgram) -> DetachedModel:
    """Convert an exported program. Raises `UserError` if it has no equivalent in ONNX, with the operators at fault."""
    import torch

    hint = "Call module.eval() before you export: Dropout and BatchNorm do that in training mode only."
    if names := random_operators(program.graph_module):
        raise UserError(f"the module draws random numbers ({', '.join(names)})", hint=hint)
    try:
        with exporting(), torch.inference_mode(False), torch.no_grad():
            found = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
    except Exception as error:
        names = missing_operators(program.graph_module)
        what = f"no ONNX export for {', '.join(names)}" if names else _first_lines(root_cause(error))
        raise UserError(
            f"the program cannot be exported to ONNX: {what}",
            hint="torch.compile(module, backend='rewrite') compiles the parts that can be.",
        ) from error
    signature = found.exported_program.graph_signature  # of the program after decomposition, which is functional
    if changed := sorted(signature.buffers_to_mutate.values()):
        raise UserError(f"the module changes its buffers ({', '.join(changed[:5])})", hint=hint)
    if changed := sorted(signature.user_inputs_to_mutate.values()):
        hint = "Return the new values, or use torch.compile(module, backend='rewrite'), which writes to inputs."
        raise UserError(f"the module changes its inputs ({', '.join(changed)})", hint=hint)
    return detached(found.model)


def random_operators(module: torch.fx.GraphModule) -> list[str]:
    """Return the operators that draw from PyTorch's generator, which has no equivalent in ONNX."""
    return _operators(module, _is_random)


def missing_operators(module: torch.fx.GraphModule) -> list[str]:
    """Return the operators of a graph that the exporter does not know."""
    known = translator().operators
    return _operators(module, lambda node: node.target.name() not in known)


def _operators(module: torch.fx.GraphModule, chosen: Callable[[Any], bool]) -> list[str]:
    """Return the names of the operators of chosen nodes of a graph and its bodies, sorted."""
    import torch

    nodes = [node for part in module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes]
    calls = [n for n in nodes if n.op == "call_function" and isinstance(n.target, torch._ops.OperatorBase)]
    return sorted({str(node.target) for node in calls if chosen(node)})


def _is_random(node: Any) -> bool:
    """Whether a node draws random numbers: attention does with dropout only."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    parameters = node.target._schema.arguments
    given = {p.name: p.default_value for p in parameters}
    given |= {p.name: value for p, value in zip(parameters, node.args, strict=False)} | node.kwargs
    return "dropout_p" not in given or given["dropout_p"] != 0


class Translator:
    """The exporter's table of operators, and its translation of graphs that PyTorch's compiler has made functional.

    Public functions of the exporter trace such a graph a second time, which takes longer than the translation and fails
    for symbolic sizes. So this uses four internal ones, as PyTorch 2.13 has them."""

    def __init__(self) -> None:
        from torch.onnx._internal.exporter import _core, _decomp, _fx_passes, _registration

        self._core, self._passes, self._registration, self._decomp = _core, _fx_passes, _registration, _decomp
        self.operators = operator_names(self._registered)
        """Names of the operators that have a translation."""
        table = _decomp.create_onnx_friendly_decomposition_table(_Operators(self.operators))
        self.decompositions: dict[Any, Any] = {op: made for op, made in table.items() if "::lift" not in op.name()}
        """Decompositions of operators that have no translation of their own. Tracing itself replaces `lift_fresh`."""

    @cached_property
    def _registry(self) -> Any:
        """The exporter's table, which takes a second to make."""
        with quiet():
            return self._registration.ONNXRegistry.from_torchlib()

    def _registered(self) -> list[str]:
        import torch

        found = self._decomp.get_onnx_implemented_overloads(self._registry)
        return [op.name() for op in found if isinstance(op, torch._ops.OperatorBase)]

    def model(self, graph: torch.fx.GraphModule, program: Callable[[], torch.export.ExportedProgram]) -> DetachedModel:
        """Translate a functional and decomposed graph, which `program` wraps. Raises the exporter's errors."""
        return translated(graph.graph, lambda: self._translate(program()))

    def _translate(self, program: torch.export.ExportedProgram) -> DetachedModel:
        with exporting():
            self._passes.insert_type_promotion_nodes(program.graph_module)
            self._passes.remove_assertion_nodes(program.graph_module)
            found = self._core._exported_program_to_onnx_program(program, registry=self._registry)
            return detached(found.model)


@dataclass(frozen=True, slots=True)
class _Operators:
    """The set of the operators with these names, as far as PyTorch asks."""

    names: frozenset[str]

    def __contains__(self, op: Any) -> bool:
        return hasattr(op, "name") and op.name() in self.names


_translators: list[Translator] = []


def translator() -> Translator:
    """Return the translator, which is made once. Raises `UserError` if this version of PyTorch has another exporter."""
    with _EXPORTING:
        if not _translators:
            try:
                _translators.append(Translator())
            except (ImportError, AttributeError) as error:
                import torch

                what = f"the ONNX exporter of PyTorch {torch.__version__} cannot be used: {error}"
                raise UserError(what, hint="pip install 'onnx-rewrite[torch]' installs what it needs.") from error
        return _translators[0]


@contextmanager
def exporting() -> Iterator[None]:
    """Let one thread use the exporter, without its warnings for other callers."""
    with _EXPORTING, quiet():
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress what the exporter logs: notes on metadata that nothing here reads."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def root_cause(error: BaseException) -> BaseException:
    """Return the error that led to this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_lines(error: BaseException) -> str:
    """Return the beginning of an error's text, which may have hundreds of lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] or type(error).__name__
