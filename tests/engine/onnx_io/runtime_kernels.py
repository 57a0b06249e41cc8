"""Element types and opsets that ONNX Runtime's kernels for CPUs accept, as `engine/onnx_io/runtime_types.txt` has them.

`python -m tests.engine.onnx_io.runtime_kernels` writes that file again, from the installed version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper
from rewrite.engine.ir.graph import DType
from rewrite.engine.onnx_io.runtime_support import DATA, UNTIL
from rewrite.engine.operators.schemas import WORKING_OPSET

OLDEST = 13
"""Oldest opset whose kernels count."""
_OPEN = 2**31 - 1
"""Last opset of kernels that have none."""
_SHAPES: dict[str, tuple[list[int], ...] | None] = {
    "LayerNormalization": ([2, 3, 4], [4]),
    "GroupNormalization": ([2, 4, 5], [4], [4]),
    "RMSNormalization": ([2, 3, 4], [4]),
    "Attention": ([1, 2, 3, 4],) * 3,
    **dict.fromkeys(("CenterCropPad", "AffineGrid", "RotaryEmbedding", "Range", "Bernoulli", "SequenceMap")),
}
"""Shapes of the inputs of operators that have a function; None where it is not asked."""
_ATTRIBUTES: dict[str, dict[str, Any]] = {"GroupNormalization": {"num_groups": 2}}


def lines() -> Iterator[str]:
    """Yield `operator  input  types` for each type variable of an operator with kernels for some of its types only."""
    import onnxruntime

    yield f"# ONNX Runtime {onnxruntime.__version__}: operator, input, element types of that input with a kernel"
    yield f"# or: operator, {UNTIL}, last opset whose definition of it has a kernel"
    yield from _last_opsets()
    kernels = _kernels()
    for (domain, op), types in sorted(kernels.items()):
        schema = _schema(domain, op)
        if schema is None:
            continue
        for variable, found in sorted(types.items()):
            places = [i for i, p in enumerate(schema.inputs) if _type_of(p) == variable]
            if not places:
                continue
            allowed = _allowed(schema, variable)
            if domain == "" and _has_function(schema):
                found = found | {t for t in allowed - found if _loads(op, t)}
            if DType.F32 in found and DType.F16 in allowed:
                found = found | {DType.F16}  # casts are inserted
            if allowed - found:
                name = f"{domain}.{op}" if domain else op
                yield f"{name}  {places[0]}  {' '.join(t for t in DType if t in found)}"

    for op in sorted(s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and ("", s.name) not in kernels):
        schema = _schema("", op)
        if schema is not None and _has_function(schema):
            yield from _of_function(op)


def _last_opsets() -> Iterator[str]:
    """Yield the lines of operators whose newest definition has neither a kernel nor a function."""
    ranges = defaultdict(list)
    for kernel in _registered():
        if kernel.domain in ("", "ai.onnx"):
            ranges[kernel.op_name].append(kernel.version_range)
    newest = onnx.defs.onnx_opset_version()
    for op, known in sorted(ranges.items()):
        if not onnx.defs.has(op) or _has_function(schema := onnx.defs.get_schema(op, newest)) or schema.deprecated:
            continue
        since = schema.since_version
        # a kernel without an end is for the definition that it begins with: a later one may mean something else
        if not any(first == since or first <= since <= last < _OPEN for first, last in known):
            yield f"{op}  {UNTIL}  {since - 1}"


def _of_function(op: str) -> Iterator[str]:
    """Yield the line of an operator that is always replaced by its function, if that does not run for all types."""
    schema = _schema("", op)
    variable = _type_of(schema.inputs[0]) if schema.inputs else ""
    allowed = _allowed(schema, variable)
    found = {t for t in allowed if _loads(op, t)}
    if DType.F32 in found and allowed - found:
        yield f"{op}  0  {' '.join(t for t in DType if t in found)}"


def _registered() -> Iterator[Any]:
    """Yield the kernels for CPUs of standard operators and of those of `com.microsoft`."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain in ("", "ai.onnx", "com.microsoft"):
            yield kernel


def _kernels() -> dict[tuple[str, str], dict[str, set[DType]]]:
    found: dict[tuple[str, str], dict[str, set[DType]]] = defaultdict(lambda: defaultdict(set))
    for kernel in _registered():
        first, last = kernel.version_range
        if kernel.domain != "com.microsoft" and (last < OLDEST or first > WORKING_OPSET):
            continue
        domain = "" if kernel.domain == "ai.onnx" else kernel.domain
        for variable, names in kernel.type_constraints.items():
            found[domain, kernel.op_name][variable] |= {t for t in map(_dtype, names) if t is not None}
    return found


def _schema(domain: str, op: str) -> Any:
    if domain == "":
        try:
            return onnx.defs.get_schema(op, WORKING_OPSET)
        except onnx.defs.SchemaError:
            return None
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return next((s for s in state.get_all_operator_schema() if s.domain == domain and s.name == op), None)


def _type_of(formal: Any) -> str:
    for name in ("typeStr", "type_str", "type_param_str"):
        if hasattr(formal, name):
            return str(getattr(formal, name))
    raise AttributeError(formal)


def _allowed(schema: Any, variable: str) -> set[DType]:
    """Return the element types that the schema allows for a type variable."""
    names = [n for c in schema.type_constraints if _type_of(c) == variable for n in c.allowed_type_strs]
    return {t for t in map(_dtype, names) if t is not None}


def _dtype(name: str) -> DType | None:
    """Return the element type of `tensor(float)`; None for anything else."""
    inner = name.removeprefix("tensor(").removesuffix(")").upper()
    if not name.startswith("tensor(") or not hasattr(onnx.TensorProto, inner):
        return None
    return DType.from_onnx(getattr(onnx.TensorProto, inner))


def _has_function(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def _loads(op: str, dtype: DType) -> bool:
    """Whether ONNX Runtime loads a node of this type: its function may have kernels for what it has none itself."""
    import onnxruntime

    schema = onnx.defs.get_schema(op, WORKING_OPSET)
    shapes = _SHAPES.get(op, ([2, 3],) * schema.min_input)
    if shapes is None:
        return True
    names = [f"i{i}" for i in range(len(shapes))]
    node = helper.make_node(op, names, ["y"], **_ATTRIBUTES.get(op, {}))
    inputs = [helper.make_tensor_value_info(n, dtype.onnx, s) for n, s in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", min(WORKING_OPSET, 23 if schema.since_version <= 23 else 24))]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session.run(None, {n: np.ones(s, dtype.numpy) for n, s in zip(names, shapes, strict=True)})
    except Exception:
        return False
    return True


if __name__ == "__main__":
    DATA.write_text("\n".join(lines()) + "\n", encoding="utf-8")
