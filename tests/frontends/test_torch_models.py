"""Modules and exported programs of PyTorch as models."""

from typing import Any

import numpy as np
import pytest
import rewrite
from rewrite.errors import UserError

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make nightly` runs these tests")
pytest.importorskip("onnxscript", reason="the exporter of PyTorch needs onnxscript")
nn = torch.nn


def _module() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).eval()


def _agrees(program: Any, module: Any, batch: int) -> None:
    x = torch.randn(batch, 16)
    (found,) = program.run({program.inputs[0].name: x}).values()
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_module_with_a_free_batch() -> None:
    module = _module()
    free = ({0: torch.export.Dim("batch")},)
    program = rewrite.compile(module, args=(torch.randn(2, 16),), dynamic_shapes=free, threads=1)
    assert isinstance(program.inputs[0].shape[0], str)
    for batch in (1, 2, 5):
        _agrees(program, module, batch)


def test_exported_programs_and_onnx_programs() -> None:
    module, x = _module(), torch.randn(2, 16)
    exported = torch.export.export(module, (x,))
    for source in (exported, torch.onnx.export(exported, dynamo=True, verbose=False)):
        _agrees(rewrite.compile(source, threads=1), module, 2)
    assert rewrite.optimize(exported).report is not None


def test_a_program_keeps_the_weights_that_it_was_made_with() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4096))

        def forward(self, x: Any) -> Any:
            return x * self.weight

    module, x = Scale(), torch.rand(4096)
    wanted = module(x).detach().numpy()
    program = rewrite.compile(module, args=(x,), threads=1)
    with torch.no_grad():
        module.weight.zero_()
    np.testing.assert_allclose(program.run({"x": x})["mul"], wanted, rtol=1e-6)


def test_bf16_tensors_in_and_out() -> None:
    module = nn.Linear(16, 8).to(torch.bfloat16)
    x = torch.randn(2, 16, dtype=torch.bfloat16)
    program = rewrite.compile(module, args=(x,), threads=1)
    (found,) = program.run({program.inputs[0].name: x}).values()
    np.testing.assert_allclose(found.astype(np.float32), module(x).detach().float().numpy(), rtol=2e-2, atol=2e-2)


class _Changes(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.add_(1)


class _Unknown(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Dropout(0.5).train(), "draws random numbers"),
        (nn.BatchNorm1d(4).train(), "changes its buffers"),
        (_Changes(), "changes its inputs"),
        (_Unknown(), "no ONNX export for .*bessel_j0"),
    ],
)
def test_what_cannot_be_a_model(module: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        rewrite.compile(module, args=(torch.randn(2, 4),))


def test_a_module_needs_inputs() -> None:
    with pytest.raises(UserError, match="needs example inputs"):
        rewrite.compile(_module())
    with pytest.raises(UserError, match="`args` is a tuple"):
        rewrite.compile(_module(), args=torch.randn(2, 16))


def test_torchscript_is_not_supported() -> None:
    with pytest.raises(UserError, match="is not a model") as error:
        rewrite.compile(torch.jit.trace(_module(), torch.randn(2, 16)))
    assert "TorchScript is not supported" in error.value.hint
