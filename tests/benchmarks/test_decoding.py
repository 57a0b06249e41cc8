"""The decoder that is measured: both engines compute the same tokens, for each precision of the weights."""

from __future__ import annotations

import numpy as np
import pytest
from rewrite.benchmarks.decoding import Decoder, OnnxRuntime, Ours, make

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("bits", [4, 8, 32])
def test_both_engines_compute_the_same(bits: int) -> None:
    d = Decoder(layers=2, width=64, hidden=96, heads=4, groups=2, vocabulary=50, positions=24, bits=bits)
    model = make(d)
    ours, theirs = Ours(model, d, 2, "native"), OnnxRuntime(model, d, 2)
    assert not ours.program.fallbacks()
    for ids in ([5, 7, 9, 11, 2], [3], [4], [1, 2], [8]):
        found, expected = (engine.run(np.array([ids])).copy() for engine in (ours, theirs))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    ours.rewind(6)
    theirs.rewind(6)
    np.testing.assert_allclose(ours.run(np.array([[9]])), theirs.run(np.array([[9]])), rtol=1e-4, atol=1e-4)
    for kind, cache in theirs.values.items():
        valid = slice(0, ours.length)
        np.testing.assert_allclose(ours.caches[kind][:, :, valid], cache.numpy()[:, :, valid], rtol=1e-4, atol=1e-4)
