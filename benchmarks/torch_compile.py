"""`torch.compile` with the backend `rewrite`, beside eager mode and Inductor: latency, the first call, overhead.

    python -m benchmarks.torch_compile [--threads 1] [--models resnet50,bert,llama,break,small]

Each model is compiled by both backends in one process. Rounds alternate between the three; the time of a call is the
median over rounds of the fastest call of a round. The first call is measured in processes of their own, with empty
caches of both compilers, and with full ones. `--floors` adds two backends that compile nothing: one runs the graph that
TorchDynamo captured, the other returns a constant from AOTAutograd's graph."""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

BACKENDS = ("eager", "inductor", "rewrite")
ROUNDS = 9
SECONDS = 0.25
"""Time of one backend in a round, at least one call."""


def resnet50() -> tuple[Any, tuple[Any, ...]]:
    """ResNet-50 on one image."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig()), (torch.randn(1, 3, 224, 224),)


def bert() -> tuple[Any, tuple[Any, ...]]:
    """BERT-base on 128 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), (torch.randint(30000, (1, 128)),)


def llama() -> tuple[Any, tuple[Any, ...]]:
    """A Llama of 8 layers and 512 channels on 128 tokens, without a cache."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), (torch.randint(8000, (1, 128)),)


def broken() -> tuple[Any, tuple[Any, ...]]:
    """Two convolutional parts, and a condition on data between them, at which the graph breaks."""
    import torch
    from torch import nn

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts = [
                nn.Sequential(nn.Conv2d(n, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
                for n in (3, 64)
            ]
            self.first, self.second = parts

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            if x.mean() > 1e9:
                x = x * 2
            return self.second(x)

    return Broken(), (torch.randn(1, 3, 56, 56),)


def small() -> tuple[Any, tuple[Any, ...]]:
    """Two linear layers of 16 channels: the overhead of a call."""
    import torch
    from torch import nn

    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.randn(1, 16),)


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "resnet50": resnet50, "bert": bert, "llama": llama, "break": broken, "small": small,
}  # fmt: skip


def compiled(model: Any, backend: str) -> Any:
    """Return a model compiled by a backend."""
    import torch

    if backend == "eager":
        return model
    floors: dict[str, Any] = {"graph": lambda module, _: module.forward, "constant": constant}
    return torch.compile(model, backend=floors.get(backend, backend))


def constant(module: Any, inputs: Any) -> Any:
    """The backend of which calls return the results of the first one."""
    from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

    def replaced(graph: Any, _: Any) -> Any:
        found: list[Any] = []

        def call(*args: Any) -> Any:
            if not found:
                found.append(graph(*args))
            return found[0]

        return make_boxed_func(call)

    return aot_module_simplified(module, inputs, fw_compiler=replaced)


def latencies(name: str, backends: Sequence[str]) -> dict[str, float]:
    """Return the seconds of a call by backend, alternating, and check that results agree."""
    import torch

    model, args = MODELS[name]()
    model.eval()
    functions = {backend: compiled(copy.deepcopy(model), backend) for backend in backends}
    times: dict[str, list[float]] = {backend: [] for backend in backends}
    with torch.inference_mode():
        results = {backend: function(*args) for backend, function in functions.items()}
        for backend in backends[1:]:
            _check_equal(results["eager"], results[backend])
        for _ in range(ROUNDS):
            for backend, function in functions.items():
                times[backend].append(_fastest(function, args))
    return {backend: statistics.median(found) for backend, found in times.items()}


def _check_equal(expected: Any, found: Any) -> None:
    """Raise AssertionError if outputs differ by more than the algorithms' rounding explains."""
    import torch

    tensors, others = (list(value.values()) if isinstance(value, dict) else [value] for value in (expected, found))
    for a, b in zip(tensors, others, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(b, a, rtol=1e-2, atol=1e-3 * float(a.abs().max()))


def _fastest(function: Any, args: tuple[Any, ...]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        function(*args)
        stop = time.perf_counter()
        best = min(best, stop - start)
        if stop > end:
            return best


def first_call(name: str, backend: str) -> float:
    """Return the seconds of compiling and the first call in this process."""
    import torch

    model, args = MODELS[name]()
    model.eval()
    with torch.inference_mode():
        torch.relu(torch.ones(3))
        start = time.perf_counter()
        compiled(model, backend)(*args)
        return time.perf_counter() - start


def first_calls(name: str, threads: int) -> dict[str, float]:
    """Return the seconds of the first call by backend: with empty caches, and in a second process with full ones."""
    found = {}
    for backend in BACKENDS[1:]:
        with tempfile.TemporaryDirectory() as cache:
            environment = {
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
                "REWRITE_CACHE_DIR": f"{cache}/rewrite",
            }
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--first",
                backend,
                "--models",
                name,
                "--threads",
                str(threads),
            ]
            for when in ("empty", "full"):
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                found[f"{backend}, {when} cache"] = float(done.stdout.split()[-1])
    return found


class Refuse(logging.Handler):
    """Ends a measurement in which a graph would run in eager mode instead."""

    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit(record.getMessage())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--first", choices=BACKENDS, help="print the seconds of the first call in this process")
    parser.add_argument("--starts", action="store_true", help="measure first calls instead of latencies")
    parser.add_argument("--floors", action="store_true", help="measure backends that compile nothing, too")
    options = parser.parse_args()
    import torch

    logging.getLogger("rewrite.torch").addHandler(Refuse(logging.WARNING))
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    for name in options.models.split(","):
        if options.first:
            print(first_call(name, options.first))
        elif options.starts:
            print(json.dumps({"model": name, "threads": options.threads, "first": first_calls(name, options.threads)}))
        else:
            times = latencies(name, (*BACKENDS, *(("graph", "constant") if options.floors else ())))
            ratios = {f"{b} / rewrite": round(times[b] / times["rewrite"], 2) for b in times if b != "rewrite"}
            print(json.dumps({"model": name, "threads": options.threads, "seconds": times, **ratios}), flush=True)


if __name__ == "__main__":
    main()
