"""Random numbers against the same generator in NumPy, and their distributions."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
import rewrite
from numpy.typing import NDArray
from onnx import TensorProto, helper

Array = NDArray[Any]
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
SEED = 3.5
KEY = int(np.float64(SEED).view(np.uint64))


def philox(counter: Array, key: int) -> Array:
    """Return Philox 4x32-10 of counters of four words, in rows (Salmon et al., SC 2011, section 3.3)."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = counter.astype(np.uint64).T
    k0, k1 = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (q >> half) ^ b ^ k0, q & mask, (p >> half) ^ d ^ k1, p & mask
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return np.stack([a, b, c, d], 1)


def words(groups: int) -> Array:
    """Return the words of some groups, 64 in a row."""
    blocks = np.arange(16 * groups)
    found = philox(np.stack([blocks, 0 * blocks, 0 * blocks, 0 * blocks], 1), KEY)
    return found.reshape(groups, 16, 4).transpose(0, 2, 1).reshape(groups, 64)


def pairs(groups: int) -> Array:
    """Return words and those 16 places further on, as numbers of 64 bits, 32 in a row."""
    found = words(groups).reshape(groups, 2, 2, 16)
    return (found[:, :, 0] << np.uint64(32) | found[:, :, 1]).reshape(groups, 32)


def units(dtype: type, count: int) -> Array:
    """Return numbers from 0 on, below 1."""
    if dtype is np.float32:
        found = (words(-(-count // 64)) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    else:
        found = (pairs(-(-count // 32)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found.ravel()[:count]


def normal(dtype: type, count: int) -> Array:
    """Return numbers of a normal distribution."""
    if dtype is np.float32:
        found = words(-(-count // 64)).reshape(-1, 2, 2, 16)
        radii = (found[:, :, 0] >> np.uint64(1)).astype(np.float64) * 2.0**-31 + 2.0**-32
        turns = (found[:, :, 1] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    else:
        both = (pairs(-(-count // 32)) >> np.uint64(11)).astype(np.float64).reshape(-1, 1, 2, 16) * 2.0**-53
        radii, turns = both[:, :, 0] + 2.0**-54, both[:, :, 1]
    radii = np.sqrt(-2 * np.log(radii))
    both = np.stack([radii * np.cos(2 * np.pi * turns), radii * np.sin(2 * np.pi * turns)], 2)
    return both.ravel()[:count]


def run(*nodes: Any, threads: int = 1, times: int = 1, **inputs: Array) -> list[list[Array]]:
    """Return the outputs of nodes of one output each, for some runs of one program, which has kernels for all."""
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    for node, output in zip(nodes, outputs, strict=True):
        kind = next((a.i for a in node.attribute if a.name == "dtype"), TensorProto.FLOAT)
        output.type.tensor_type.elem_type = kind
    graph = helper.make_graph(nodes, "g", infos, outputs)
    program = rewrite.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]), threads=threads)
    assert not program.fallbacks()
    return [list(program.run(inputs).values()) for _ in range(times)]


def test_the_generator_in_numpy_is_philox() -> None:
    zeros, ones = np.zeros((1, 4)), np.full((1, 4), 0xFFFFFFFF)
    assert [hex(x) for x in philox(zeros, 0)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    assert [hex(x) for x in philox(ones, (1 << 64) - 1)[0]] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_with_a_seed(dtype: type, threads: int) -> None:
    near = {"rtol": 1e-5, "atol": 4e-6} if dtype is np.float32 else {"rtol": 1e-12, "atol": 1e-14}
    count, kind = 150_001, TYPES[dtype]
    nodes = [
        helper.make_node("RandomUniform", [], ["u"], shape=[count], seed=SEED, dtype=kind),
        helper.make_node("RandomUniform", [], ["v"], shape=[3, 5], low=-2.0, high=6.0, seed=SEED, dtype=kind),
        helper.make_node("RandomNormal", [], ["n"], shape=[count], seed=SEED, dtype=kind),
        helper.make_node("RandomNormal", [], ["m"], shape=[7], mean=-2.0, scale=0.5, seed=SEED, dtype=kind),
        helper.make_node("RandomUniformLike", ["x"], ["w"], seed=SEED, dtype=kind),
        helper.make_node("Bernoulli", ["x"], ["b"], seed=SEED, dtype=TensorProto.BOOL),
    ]
    x = np.linspace(0, 1, 1000, dtype=dtype)
    first, second = run(*nodes, threads=threads, times=2, x=x)
    u, v, n, m, w, b = first
    np.testing.assert_array_equal(u, units(dtype, count).astype(dtype))
    np.testing.assert_allclose(v.ravel(), -2 + 8 * units(dtype, 15), **near)
    np.testing.assert_allclose(n, normal(dtype, count), **near)
    np.testing.assert_allclose(m, -2 + 0.5 * normal(dtype, 7), **near)
    np.testing.assert_array_equal(w, u[:1000])
    np.testing.assert_array_equal(b, u[:1000] < x)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_numbers_without_a_seed_are_others_in_each_run_and_node() -> None:
    nodes = [helper.make_node("RandomNormal", [], [f"y{i}"], shape=[1000]) for i in range(2)]
    found = [y for outputs in run(*nodes, times=3) for y in outputs]
    assert len(np.unique(found)) > 5990
    assert abs(np.mean(found)) < 0.1
    assert abs(np.std(found) - 1) < 0.1


@pytest.mark.parametrize("given", TYPES)
@pytest.mark.parametrize("wanted", TYPES)
def test_inputs_of_another_type_than_the_results(given: type, wanted: type) -> None:
    x = np.linspace(0, 1, 100, dtype=given)
    options = {"dtype": TYPES[wanted], "seed": SEED}
    ((w, b),) = run(*(helper.make_node(op, ["x"], [op], **options) for op in ("RandomUniformLike", "Bernoulli")), x=x)
    np.testing.assert_array_equal(w, units(wanted, 100).astype(wanted))
    np.testing.assert_array_equal(b, (units(given, 100) < x).astype(wanted))


@pytest.mark.filterwarnings("ignore::rewrite.backend.runtime.fallback.FallbackWarning")
def test_numbers_without_bounds_are_left_to_others() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[3], scale=float("inf"))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    model = helper.make_model(helper.make_graph([node], "g", [], [output]), opset_imports=[helper.make_opsetid("", 21)])
    program = rewrite.compile(model, threads=1)
    assert program.fallbacks() == {"RandomNormal": 1}
    assert not np.isfinite(program.run({})["y"]).any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_process_draws_other_numbers() -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[4], dtype=TensorProto.FLOAT)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    model = helper.make_model(helper.make_graph([node], "g", [], [output]), opset_imports=[helper.make_opsetid("", 22)])
    program = rewrite.compile(model, threads=1)
    program.run({})
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        os.write(theirs, program.run({})["y"].tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 16) != program.run({})["y"].tobytes()
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("dtype", TYPES)
def test_classes_by_their_probabilities(dtype: type) -> None:
    probabilities = np.array([[0.1, 0.2, 0.3, 0.4], [0, 1, 0, 0], [0.5, 0, 0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = (np.log(probabilities) + np.array([[3], [-5], [0]])).astype(dtype)
    options = {"sample_size": 4001, "dtype": TensorProto.INT64, "seed": SEED}
    ((found,),) = run(helper.make_node("Multinomial", ["x"], ["y"], **options), x=logits)
    counts = np.stack([np.bincount(row, minlength=4) for row in found]) / 4001
    np.testing.assert_allclose(counts, probabilities, atol=0.03)
    wanted = units(dtype, 3 * 4001).reshape(3, 4001)
    exact = np.stack([np.searchsorted(np.cumsum(p), u, "right") for p, u in zip(probabilities, wanted, strict=True)])
    assert np.mean(found != exact) < 1e-3
