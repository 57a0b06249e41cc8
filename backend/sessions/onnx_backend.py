"""The backend interface that the `onnx` package defines (`onnx.backend.base.Backend`).

import rewrite.onnx_backend as backend
outputs = backend.prepare(model).run([x, y])
outputs = backend.run_model(model, [x, y])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, defs, helper, shape_inference
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ...errors import UserError
from ..runtime.program import Program

MODEL_SECONDS = 5.0  # time limit of saturation for models run through this interface


class Prepared(BackendRep):
    """A compiled model behind the interface of `onnx.backend.base.BackendRep`."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs for inputs by position (a list, an array) or by name."""
        if not isinstance(inputs, Mapping):
            given = inputs if isinstance(inputs, list | tuple) else [inputs]
            inputs = dict(zip((port.name for port in self.program.inputs), given, strict=False))
        found = self.program.run({name: _as_value(value) for name, value in inputs.items()})
        return namedtupledict("Outputs", [port.name for port in self.program.outputs])(*found.values())


def _as_value(value: Any) -> Any:
    return value if isinstance(value, list) or value is None else np.asarray(value)


class RewriteBackend(Backend):
    """`rewrite` as an ONNX backend, on the CPU."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Return whether every operator of the model has a kernel or a reference implementation."""
        try:
            cls.prepare(model, device)
        except UserError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> Prepared:
        """Optimize and compile a model. Raises UserError for an unusable model or device.

        Options: `threads`; `optimize=False` to compile the graph unchanged; and those of `engine.options.Options`."""
        if not cls.supports_device(device):
            raise UserError(f"unknown device {device!r}", hint="Only CPU is supported.")
        from ..compile_graph import compile_graph

        threads = options.pop("threads", None)
        if options.pop("optimize", True):
            from ...engine.optimizer import optimize_native
            from ...engine.options import Options

            graph = optimize_native(model, Options.of(**{"time_limit": MODEL_SECONDS, **options})).native
        else:
            from ...engine.onnx_io.importer import read

            graph = read(model)
        return Prepared(compile_graph(graph, threads=threads))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
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
        """Run a single node on arrays."""

        def tensor(name: str, dtype: Any, shape: Sequence[int]) -> ValueInfoProto:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

        arrays = [np.asarray(a) for a in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        values = [tensor(name, a.dtype, a.shape) for name, a in zip(filter(None, node.input), arrays, strict=True)]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        if outputs_info is not None:
            outputs = [tensor(out.name, *about) for out, about in zip(outputs, outputs_info, strict=True)]
        graph = helper.make_graph([node], "node", values, outputs)
        imports = [helper.make_opsetid("", options.pop("opset_version", defs.onnx_opset_version()))]
        if node.domain:
            imports.append(helper.make_opsetid(node.domain, 1))
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports))
        return cls.run_model(model, arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is the CPU."""
        return device.partition(":")[0].upper() == "CPU"


is_compatible = RewriteBackend.is_compatible
prepare = RewriteBackend.prepare
run_model = RewriteBackend.run_model
run_node = RewriteBackend.run_node
supports_device = RewriteBackend.supports_device
