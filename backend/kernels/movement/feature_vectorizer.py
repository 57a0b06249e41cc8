"""Lowering of FeatureVectorizer."""

from __future__ import annotations

from ....engine.ir.graph import DType, Node
from ....engine.ir.symbolic import same
from ...codegen.pointwise_emit import C_TYPES
from ...codegen.template_params import ints_attr, launch, threads
from ...ir.iteration_space import Extents
from ...ir.kernel import Kernel
from ...ir.kernel_graph import Step
from ...ir.lower import Context
from ..registry import lowering_alone


@lowering_alone("ai.onnx.ml.FeatureVectorizer")
def lower_feature_vectorizer(node: Node, ctx: Context) -> list[Step] | None:
    """Matrices of known widths and one element type, with the same number of rows."""
    types, wanted = [ctx.type(value) for value in node.inputs], ints_attr(node, "inputdimensions", ())
    dtype = types[0].dtype
    if dtype not in (DType.F32, DType.F64, DType.I64, DType.I32) or len(wanted) != len(types) or min(wanted) < 0:
        return None
    shapes = [x.shape for x in types if x.shape is not None and len(x.shape) == 2 and x.dtype is dtype]
    if len(shapes) != len(types) or not all(same(shape[0], shapes[0][0]) for shape in shapes):
        return None
    widths = [shape[1] for shape in shapes if isinstance(shape[1], int)]
    if len(widths) != len(shapes):
        return None
    extents = Extents()
    parts = [{"width": width, "wanted": count} for width, count in zip(widths, wanted, strict=True)]
    params = {"c": C_TYPES[dtype], "rows": extents(shapes[0][0]), "parts": parts}
    work = threads((shapes[0][0], sum(wanted)))
    return [launch(Kernel("feature_vectorizer", params), node, node.inputs, node.outputs, extents, work)]
