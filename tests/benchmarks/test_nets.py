"""The networks of the zoo that are written here, and their exports. Without PyTorch there are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_the_detector_finds_one_place_for_each_cell() -> None:
    from rewrite.benchmarks.nets.dense import Detector

    torch.manual_seed(0)
    net = Detector(classes=7).eval()
    with torch.no_grad():
        found = net(torch.randn(2, 3, 64, 96))
    places = sum((64 // s) * (96 // s) for s in Detector.STRIDES)
    assert tuple(found.shape) == (2, 4 + 7, places)
    middles, sides = found[:, :2], found[:, 2:4]
    assert (sides <= 2 * (Detector.BINS - 1) * 32).all()
    assert ((found[:, 4:] >= 0) & (found[:, 4:] <= 1)).all()
    # a cell's box may reach so far: its middle, and half the difference of two distances
    assert (middles.abs() <= 96 + (Detector.BINS - 1) / 2 * 32).all()


def test_the_detector_expects_distances() -> None:
    from rewrite.benchmarks.nets.classic import build

    weight = build("yolo").expect.weight
    np.testing.assert_array_equal(weight.detach().numpy().ravel(), np.arange(16))


def test_the_unet_keeps_the_size() -> None:
    from rewrite.benchmarks.nets.dense import UNet

    with torch.no_grad():
        assert tuple(UNet(4, 3).eval()(torch.zeros(1, 3, 48, 32)).shape) == (1, 3, 48, 32)


@pytest.mark.parametrize("name", ["mlp.ts.raw", "lstm.ts.dyn"])
def test_an_export_computes_what_the_network_does(name: str, tmp_path: Path) -> None:
    from rewrite.benchmarks import exports
    from rewrite.benchmarks.nets.classic import build
    from rewrite.benchmarks.zoo import NETS

    exports.make(name, tmp_path / "m.onnx")
    net = name.partition(".")[0]
    arguments = NETS[net].arguments(3 if name.endswith("dyn") else 1)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    [found] = session.run(None, {NETS[net].inputs[0]: arguments[0].numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, build(net)(*arguments).numpy(), atol=1e-5)


def test_every_measured_export_is_known() -> None:
    from rewrite.benchmarks import models

    assert set(models.MEASURED) <= set(models.names())
