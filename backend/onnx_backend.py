"""The backend interface that the `onnx` package defines (`onnx.backend.base.Backend`).

import rewrite.onnx_backend as backend
outputs = backend.prepare(model).run([x, y])
outputs = backend.run_model(model, [x, y])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, defs, helper, shape_inference
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ..errors import UserError
from .program import Program

MODEL_SECONDS = 5.0  # saturation of models run through this interface is kept short


class Prepared(BackendRep):
    """A compiled model behind the interface of `onnx.backend.base.BackendRep`."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs, on inputs by position (a list, an array) or by name."""
        names = [port.name for port in self.program.inputs]
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        elif isinstance(inputs, list | tuple):
            feeds = dict(zip(names, inputs, strict=False))
        else:
            feeds = {names[0]: inputs} if names else {}
        found = self.program.run({name: _as_value(value) for name, value in feeds.items()})
        names = [port.name for port in self.program.outputs]
        return namedtupledict("Outputs", names)(*found.values())


def _as_value(value: Any) -> Any:
    return value if isinstance(value, list) or value is None else np.asarray(value)


class RewriteBackend(Backend):
    """`rewrite` as an ONNX backend, on the CPU."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Whether the model can be run: every operator has a kernel or a reference implementation."""
        try:
            cls.prepare(model, device)
        except UserError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> Prepared:
        """Optimises and compiles a model. Options: `threads`; `optimise=False` for the graph as it is; and those of
        `engine.pipeline.optimize`. Raises UserError for a model or device that can't be used."""
        if not cls.supports_device(device):
            raise UserError(f"there is no device {device!r}", hint="The device is CPU.")
        from .pipeline import compile_graph

        threads = options.pop("threads", None)
        if options.pop("optimise", True):
            from ..engine.pipeline import optimize

            graph = optimize(model, **{"time_limit": MODEL_SECONDS, **options}).native
        else:
            from ..engine.onnx_in import read

            graph = read(model)
        return Prepared(compile_graph(graph, threads=threads))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Prepares a model and runs it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs a single node on arrays."""
        names = [name for name in node.input if name]
        arrays = list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), np.shape(a))
            for name, a in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        if outputs_info is not None:
            outputs = [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, (dtype, shape) in zip(filter(None, node.output), outputs_info, strict=True)
            ]
        graph = helper.make_graph([node], "node", values, outputs)
        imports = [helper.make_opsetid("", options.pop("opset_version", defs.onnx_opset_version()))]
        if node.domain:
            imports.append(helper.make_opsetid(node.domain, 1))
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports))
        return cls.run_model(model, arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU."""
        return device.partition(":")[0].upper() == "CPU"


is_compatible = RewriteBackend.is_compatible
prepare = RewriteBackend.prepare
run_model = RewriteBackend.run_model
run_node = RewriteBackend.run_node
supports_device = RewriteBackend.supports_device
