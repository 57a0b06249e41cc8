"""Models in f64: reductions over whole images stay reductions, for which there are kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import rewrite


@pytest.mark.parametrize(("op", "reduce"), [("ReduceMax", np.max), ("ReduceMean", np.mean)])
@pytest.mark.parametrize("axes", [[2], [2, 3]])
def test_reductions_have_kernels(op: str, reduce: np.ufunc, axes: list[int]) -> None:
    shape = (2, 3, 5, 7)[: axes[-1] + 1]
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (double[{",".join(map(str, shape))}] x) => (double y)
        {{ a = Constant<value_ints = [{",".join(map(str, axes))}]>() y = {op}<keepdims = 1>(x, a) }}"""
    model = onnx.parser.parse_model(text.replace("(double y)", f"(double[{','.join('abcd'[: len(shape)])}] y)"))
    x = np.random.default_rng(3).standard_normal(shape)
    program = rewrite.compile(model)
    assert not program.fallbacks()
    found = program.run({"x": x})["y"]
    np.testing.assert_allclose(found, reduce(x, axis=tuple(axes), keepdims=True), rtol=1e-14)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools_have_kernels(op: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 18]> g (double[2,3,5,7] x) => (double[a,b,c,d] y) {{ y = {op}(x) }}'
    x = np.random.default_rng(4).standard_normal((2, 3, 5, 7))
    program = rewrite.compile(onnx.parser.parse_model(text))
    assert not program.fallbacks()
    reduce = np.max if op == "GlobalMaxPool" else np.mean
    np.testing.assert_allclose(program.run({"x": x})["y"], reduce(x, axis=(2, 3), keepdims=True), rtol=1e-14)
