"""PyTorch, for tests: a module that imports it from here is skipped where it is not installed."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make nightly` runs these tests")
pytest.importorskip("onnxscript", reason="the exporter of PyTorch needs onnxscript")
