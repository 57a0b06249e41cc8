"""Decoding of a language model: tokens per second beside ONNX Runtime, and the share of the memory bandwidth used.

    python -m benchmarks.decoding --bits 4 --threads 2
    python -m benchmarks.decoding --bits 32 8 4 --target avx2 --layers 8

The model is a decoder like Llama with seeded weights, in the form in which it is deployed: RMS normalization, rotary
embeddings, grouped heads, SwiGLU, and caches of keys and values of fixed size that each step extends in place. Both
engines are bound to their arrays and run in one process, in alternating bursts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 32
"""Rows of a block of weights that share a scale."""


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder; `bits` of its weights, 32 for f32. The caches have `positions` positions.

    At `accuracy_level` 4 ONNX Runtime may round what it multiplies with the weights to 8 bits; we never do."""

    layers: int = 16
    width: int = 1024
    hidden: int = 2816
    heads: int = 16
    groups: int = 8
    vocabulary: int = 32000
    positions: int = 512
    bits: int = 4
    accuracy_level: int = 0

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads

    @property
    def weights(self) -> int:
        """Weights that a token is multiplied with."""
        layer = self.width * (2 * self.width + 2 * self.groups * self.head + 3 * self.hidden)
        return self.layers * layer + self.width * self.vocabulary

    @property
    def weight_bytes(self) -> float:
        """Bytes that a token reads of them, scales included."""
        return self.weights * (4 if self.bits == 32 else self.bits / 8 + 4 / BLOCK)

    def cache_bytes(self, length: int) -> int:
        """Return the bytes that a token reads of the keys and values of `length` positions."""
        return self.layers * 2 * self.groups * self.head * 4 * length


def make(d: Decoder, seed: int = 0) -> Any:
    """Return the model: ids [1, S] and a mask of the valid positions to logits [1, 1, V] of the last id, and caches."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, array: Array) -> str:
        constants.append(numpy_helper.from_array(array, name))
        return name

    def node(op: str, inputs: Sequence[str], outputs: int | str = 1, **attrs: Any) -> str:
        own = "com.microsoft" if op.startswith(("Group", "Skip", "MatMulN")) else ""
        names = [f"v{len(nodes)}_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs.split(",")
        nodes.append(helper.make_node(op, list(inputs), names, f"{op}_{len(nodes)}", domain=own, **attrs))
        return names[0]

    def product(x: str, k: int, n: int) -> str:
        name = f"w{len(nodes)}"
        if d.bits == 32:
            weights = rng.standard_normal((k, n), np.float32) * np.float32(k**-0.5)
            return node("MatMul", [x, constant(name, weights)])
        codes = rng.integers(0, 256, (n, k // BLOCK, BLOCK * d.bits // 8), np.uint8)
        spread = 2.0**d.bits / 12**0.5  # of uniform codes
        scales = np.full(n * k // BLOCK, k**-0.5 / spread, np.float32) * rng.uniform(0.5, 1.5, n * k // BLOCK)
        inputs = [x, constant(name, codes), constant(f"{name}.scales", scales.astype(np.float32))]
        return node("MatMulNBits", inputs, K=k, N=n, bits=d.bits, block_size=BLOCK, accuracy_level=d.accuracy_level)

    def gain(name: str) -> str:
        return constant(name, rng.uniform(0.5, 1.5, d.width).astype(np.float32))

    angles = np.outer(np.arange(d.positions), 10000.0 ** (-np.arange(d.head // 2) / (d.head // 2)))
    tables = [constant("cos", np.cos(angles).astype(np.float32)), constant("sin", np.sin(angles).astype(np.float32))]
    one = constant("one", np.array([1], np.int64))
    counts = node("Sub", [node("ReduceSum", ["attention_mask", one], keepdims=0), one])
    lengths = node("Cast", [counts], to=TensorProto.INT32)
    total = node("Cast", [node("Gather", [node("Shape", ["attention_mask"]), one])], to=TensorProto.INT32)
    total = node("Squeeze", [total])
    rows = d.groups * d.head
    x = node("Gather", [constant("embedding", rng.standard_normal((d.vocabulary, d.width), np.float32)), "input_ids"])
    y = node("SimplifiedLayerNormalization", [x, gain("norm")], epsilon=1e-5, axis=-1)
    for i in range(d.layers):
        q, k, v = product(y, d.width, d.width), product(y, d.width, rows), product(y, d.width, rows)
        inputs = [q, k, v, f"past.{i}.key", f"past.{i}.value", lengths, total, *tables]
        outputs = f"v{len(nodes)}_0,present.{i}.key,present.{i}.value"
        a = node("GroupQueryAttention", inputs, outputs, num_heads=d.heads, kv_num_heads=d.groups, do_rotary=1)
        both = f"v{len(nodes) + 1}_0,,,v{len(nodes) + 1}_3"
        y = node("SkipSimplifiedLayerNormalization", [x, product(a, d.width, d.width), gain(f"{i}.mlp")], both)
        x = y[:-1] + "3"
        g = product(y, d.width, d.hidden)
        g = node("Mul", [node("Mul", [g, node("Sigmoid", [g])]), product(y, d.width, d.hidden)])
        both = f"v{len(nodes) + 1}_0,,,v{len(nodes) + 1}_3"
        y = node("SkipSimplifiedLayerNormalization", [x, product(g, d.hidden, d.width), gain(f"{i}.next")], both)
        x = y[:-1] + "3"
    last = [constant(n, np.array([v], np.int64)) for n, v in (("minus", -1), ("end", 1 << 62))]
    logits = product(node("Slice", [y, *last, one]), d.width, d.vocabulary)
    nodes.append(helper.make_node("Identity", [logits], ["logits"]))

    def info(name: str, dtype: int, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, dtype, shape)

    caches = [
        [info(f"{when}.{i}.{kind}", TensorProto.FLOAT, 1, d.groups, d.positions, d.head)
         for i in range(d.layers) for kind in ("key", "value")]
        for when in ("past", "present")
    ]  # fmt: skip
    masks = info("attention_mask", TensorProto.INT64, 1, d.positions)
    graph = helper.make_graph(
        nodes, "decoder", [info("input_ids", TensorProto.INT64, 1, "S"), masks, *caches[0]],
        [info("logits", TensorProto.FLOAT, 1, 1, d.vocabulary), *caches[1]], constants,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


class Engine(ABC):
    """An engine bound to caches: `run` computes logits for ids at the next positions."""

    def __init__(self, d: Decoder) -> None:
        self.decoder, self.length = d, 0
        self.mask = np.zeros((1, d.positions), np.int64)
        shape = (1, d.groups, d.positions, d.head)
        kinds = [f"{i}.{kind}" for i in range(d.layers) for kind in ("key", "value")]
        self.caches = {kind: np.zeros(shape, np.float32) for kind in kinds}
        self.logits = np.zeros((1, 1, d.vocabulary), np.float32)

    def rewind(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self.length = length
        self.mask[:, length:] = 0

    def run(self, ids: Array) -> Array:
        """Append ids [1, S]; return the logits of the last one."""
        self.length += ids.shape[1]
        self.mask[:, : self.length] = 1
        self.compute(ids)
        return self.logits

    @abstractmethod
    def compute(self, ids: Array) -> None:
        """Run the model; the logits and the caches are written in place."""


class Ours(Engine):
    """A program that is given each cache as input and as output."""

    def __init__(self, model: Any, d: Decoder, threads: int, target: str) -> None:
        super().__init__(d)
        import rewrite

        self.program = rewrite.compile(model, threads=threads, target=target)
        self.inputs = {"attention_mask": self.mask} | {f"past.{kind}": c for kind, c in self.caches.items()}
        self.outputs = {"logits": self.logits} | {f"present.{kind}": c for kind, c in self.caches.items()}

    def compute(self, ids: Array) -> None:
        self.program.run(self.inputs | {"input_ids": ids}, out=self.outputs)


class OnnxRuntime(Engine):
    """A session with I/O binding, which shares the caches as well."""

    def __init__(self, model: Any, d: Decoder, threads: int) -> None:
        super().__init__(d)
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.values = {kind: ort.OrtValue.ortvalue_from_numpy(c) for kind, c in self.caches.items()}
        self.binding = self.session.io_binding()
        for kind, value in self.values.items():
            self.binding.bind_ortvalue_input(f"past.{kind}", value)
            self.binding.bind_ortvalue_output(f"present.{kind}", value)
        self.binding.bind_cpu_input("attention_mask", self.mask)
        self.result = ort.OrtValue.ortvalue_from_numpy(self.logits)
        self.binding.bind_ortvalue_output("logits", self.result)

    def compute(self, ids: Array) -> None:
        self.binding.bind_cpu_input("input_ids", ids)
        self.binding.bind_cpu_input("attention_mask", self.mask)
        self.session.run_with_iobinding(self.binding)
        self.logits = self.result.numpy()


def bandwidth(threads: int, seconds: float = 0.5) -> float:
    """Return the bytes per second that `threads` threads read from memory: the best of some runs."""
    import onnx
    import rewrite

    rows, row = 64, 1 << 20
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[{rows}, {row}] x) => (float[{rows}] y)
        {{ a = Constant<value_ints = [1]>() y = ReduceMax<keepdims = 0>(x, a) }}"""
    x = np.ones((rows, row), np.float32)
    bound = rewrite.compile(onnx.parser.parse_model(text), threads=threads).bind({"x": x})
    return max(x.nbytes / t for t in _times(bound, seconds))


def _times(run: Any, seconds: float) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 3:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def measure(d: Decoder, threads: int, target: str, prompt: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Measure prompts of `prompt` ids and `tokens` tokens after each, on both engines alternately."""
    model = make(d)
    engines = {"rewrite": Ours(model, d, threads, target), "onnxruntime": OnnxRuntime(model, d, threads)}
    del model
    ids = np.random.default_rng(1).integers(0, d.vocabulary, (1, prompt))
    first: dict[str, list[float]] = {name: [] for name in engines}
    each: dict[str, list[float]] = {name: [] for name in engines}
    logits: dict[str, list[Array]] = {name: [] for name in engines}
    for _ in range(rounds + 1):
        for name, engine in engines.items():
            time.sleep(0.05)
            engine.rewind(0)
            start = time.perf_counter()
            found = [engine.run(ids).copy()]
            first[name].append(time.perf_counter() - start)
            for token in range(tokens):
                start = time.perf_counter()
                engine.run(np.array([[token]]))
                each[name].append(time.perf_counter() - start)
                found.append(engine.logits.copy())
            logits[name] = found
    read = d.weight_bytes + d.cache_bytes(prompt + tokens // 2)
    medians = {name: (statistics.median(first[name][1:]), statistics.median(each[name][tokens:])) for name in engines}
    best = min(each["rewrite"])
    ours, theirs = (np.array(logits[name]) for name in engines)
    return {
        "prompt": {name: m[0] for name, m in medians.items()},
        "token": {name: m[1] for name, m in medians.items()},
        "bytes": read,
        "rate": read / medians["rewrite"][1],
        "best": read / best,
        "difference": float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
        "fallbacks": engines["rewrite"].program.fallbacks(),  # type: ignore[attr-defined]
    }


def main() -> None:
    """Print a line for each precision."""
    parser = argparse.ArgumentParser(prog="benchmarks.decoding", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[4], choices=(4, 8, 32))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", default="native")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--accuracy-level", type=int, default=0, help="4: ONNX Runtime rounds to 8 bits")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    for bits in options.bits:
        d = Decoder(layers=options.layers, bits=bits, accuracy_level=options.accuracy_level)
        peak = bandwidth(options.threads)
        found = measure(d, options.threads, options.target, options.prompt, options.tokens, options.rounds)
        peak = max(peak, bandwidth(options.threads))
        prompt, token = found["prompt"], found["token"]
        print(
            f"{bits} bits, {d.weights / 1e6:.0f} M weights, {options.threads} threads, {options.target}: "
            f"prompt {prompt['rewrite'] * 1e3:.1f} ms ({prompt['onnxruntime'] / prompt['rewrite']:.2f}x), "
            f"{1 / token['rewrite']:.1f} tokens/s ({token['onnxruntime'] / token['rewrite']:.2f}x), "
            f"{found['rate'] / 1e9:.1f} GB/s = {found['rate'] / peak:.0%} of {peak / 1e9:.1f} GB/s "
            f"(best {found['best'] / peak:.0%}), difference {found['difference']:.1e} {found['fallbacks'] or ''}",
            flush=True,
        )


if __name__ == "__main__":
    main()
