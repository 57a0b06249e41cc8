"""Signatures and attributes of operators, against the ONNX schemas."""

from __future__ import annotations

import subprocess
import sys

import pytest
from onnx import defs
from rewrite.engine.operators import schemas as ops


def test_every_standard_operator_has_a_signature() -> None:
    for schema in defs.get_all_schemas():
        op = ops.qualified(schema.domain, schema.name)
        found = ops.signature(op)
        assert found is not None, op
        assert len(found.inputs) == len(ops.find_schema(op).inputs)


def test_signature_of_optional_and_variadic_inputs() -> None:
    conv = ops.signature("Conv")
    assert conv is not None
    assert [(p.name, p.optional) for p in conv.inputs] == [("X", False), ("W", False), ("B", True)]
    assert (conv.min_inputs, conv.max_inputs) == (2, 3)
    concat = ops.signature("Concat")
    assert concat is not None
    assert concat.inputs[0].variadic
    assert concat.max_inputs is None
    assert concat.attributes["axis"].required
    assert "f32" in concat.inputs[0].dtypes


def test_working_opset_decides_the_version() -> None:
    reduce = ops.signature("ReduceMean")
    assert reduce is not None
    assert "axes" not in reduce.attributes
    old = ops.signature("ReduceMean@13")
    assert old is not None
    assert "axes" in old.attributes
    newer = ops.signature("CumProd")
    assert newer is not None
    assert newer.since_version > ops.WORKING_OPSET


@pytest.mark.parametrize("op", ["Nonsense", "com.microsoft.Gelu", "Relu@0", "rewrite.QuickGelu", "Swish@13"])
def test_no_schema(op: str) -> None:
    assert ops.signature(op) is None


@pytest.mark.parametrize("op", ["Conv", "ai.onnx.ml.Scaler", "Scatter@9", "com.microsoft.Gelu", "ai.onnx.ml.Scaler@1"])
def test_names_split_and_join(op: str) -> None:
    assert ops.qualified(*ops.split_name(op)) == op


def test_defaults_are_filled_in_and_floats_rounded() -> None:
    attrs = ops.normalize_attrs("BatchNormalization", {"epsilon": 1e-3})
    assert attrs == ops.normalize_attrs("BatchNormalization", {"epsilon": 0.0010000000474974513, "momentum": 0.9})
    assert list(attrs) == sorted(attrs)
    assert attrs["training_mode"] == 0
    assert ops.normalize_attrs("Transpose", {"perm": [1, 0]}) == {"perm": (1, 0)}
    assert ops.normalize_attrs("Gemm", {"alpha": 1})["alpha"] == 1.0
    assert ops.normalize_attrs("com.microsoft.Gelu", {"b": 1, "a": [1.5]}) == {"a": (1.5,), "b": 1}


def test_purity() -> None:
    assert ops.is_pure("Conv")
    assert ops.is_pure("rewrite.QuickGelu")
    assert ops.is_pure("Scatter@9")
    for op in ("RandomNormal", "Bernoulli", "Dropout@22", "com.microsoft.Unheard"):
        assert not ops.is_pure(op)


def test_suggestions() -> None:
    assert "Relu" in ops.suggestions("Rulu")


def test_importing_schemas_does_not_load_onnx() -> None:
    code = "import sys, rewrite.engine.operators.schemas; print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "False"
