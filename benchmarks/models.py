"""The model zoo: built on first use, cached in a directory outside the repository.

    python -m benchmarks.models                    make every model
    python -m benchmarks.models 'resnet*' magika   make those that match
    python -m benchmarks.models --list             their names and, where made, their paths

The directory is `$REWRITE_BENCH_DIR`, or `~/.cache/rewrite-bench`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from . import light, packaged, quantized
from .inputs import make_inputs, page

# What `make bench` measures: one raw export of each network and a folded one of some, the classic networks and the
# trained models.
MEASURED = (
    *light.NAMES,
    "resnet18.dynamo.raw", "resnet50.dynamo.raw", "resnet50.ts.opt", "mobilenet_v2.ts.raw", "mobilenet_v3_large.ts.raw",
    "mobilenet_v3_small.dynamo.raw", "efficientnet_b0.ts.raw", "vit_small.dynamo.raw", "vit_base.ts.raw",
    "bert_mini.dynamo.dyn", "bert_base.ts.raw", "bert_base.dynamo.opt", "gpt2.dynamo.raw", "gpt2.ts.dyn",
    "convnext_tiny.ts.raw", "convnext_tiny.dynamo.opt", "swin_tiny.dynamo.raw", "swin_tiny.dynamo.opt", "unet.ts.raw",
    "yolo.dynamo.raw", "yolo.ts.opt", "minilm.ts.raw", "minilm.dynamo.opt", "distilbert.dynamo.raw",
    "t5_encoder.dynamo.raw", "whisper_encoder.ts.raw", "lstm.ts.raw", "mlp.ts.raw",
    "resnext50.ts.raw", "resnext50.ts.opt", "regnet.ts.raw", "convmixer.ts.raw", "mixer.ts.raw", "poolformer.ts.raw",
    "mobilevit.ts.raw", "levit.ts.raw", "pvt_v2.ts.raw", "dinov2.ts.raw", "beit.ts.raw", "swin_v2.ts.raw", "cvt.ts.raw",
    "focalnet.ts.raw", "convnext_v2.ts.raw", "segformer.ts.raw", "yolos.ts.raw", "edsr.ts.raw", "fsrcnn.ts.raw",
    "unet_3d.ts.raw", "denoiser.ts.raw", "graph_net.ts.raw", "state_space.ts.raw", "crnn.ts.raw", "wav2vec2.ts.raw",
    "wav2vec2.ts.dyn", "conformer.ts.raw", "roberta.ts.raw", "roberta.ts.dyn", "albert.ts.raw", "electra.ts.raw",
    "squeezebert.ts.raw", "deberta.ts.raw", "mpnet.ts.raw", "llama.ts.raw", "llama.ts.dyn", "qwen2.ts.raw",
    "bloom.ts.raw", "opt.ts.raw", "resnet50.ts.f16", "unet.ts.f16", "mobilevit.ts.f16", "roberta.ts.f16",
    "llama.ts.f16",
    *packaged.NAMES,
    *(name for name in quantized.NAMES if name != "resnet18.qoperator"),
)  # fmt: skip
BF16 = (
    "light_densenet121", "resnet18.dynamo.raw", "resnet50.dynamo.raw", "mobilenet_v2.ts.raw",
    "mobilenet_v3_large.ts.raw", "efficientnet_b0.ts.raw", "convnext_tiny.ts.raw", "vit_small.dynamo.raw",
    "vit_base.ts.raw", "swin_tiny.dynamo.raw", "bert_base.ts.raw", "distilbert.dynamo.raw", "minilm.ts.raw",
    "gpt2.dynamo.raw", "whisper_encoder.ts.raw", "t5_encoder.dynamo.raw", "unet.ts.raw", "yolo.dynamo.raw",
)  # fmt: skip
"""Those that are measured in bf16, too: what is done so, convolutions and products with constants."""


def directory() -> Path:
    """Directory of the cached models; created if missing."""
    path = Path(os.environ.get("REWRITE_BENCH_DIR", "~/.cache/rewrite-bench")).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def names() -> list[str]:
    """All models of the zoo; the exports only where PyTorch and `transformers` are installed."""
    found = [*light.NAMES, *packaged.NAMES]
    try:
        from . import exports
    except ImportError:
        return found
    return [*found, *exports.NAMES, *quantized.NAMES]


def path(name: str) -> Path:
    """The file of the model `name`, created if missing."""
    target = directory() / f"{name}.onnx"
    if not target.exists():
        fresh = target.with_name(f".{os.getpid()}.{target.name}")
        try:
            _make(name, fresh)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    return target


def _make(name: str, target: Path) -> None:
    if name in light.NAMES:
        light.make(name, target)
    elif name in packaged.NAMES:
        packaged.make(name, target)
    elif name in quantized.NAMES:
        import onnx

        source = path(quantized.SOURCES[name])
        model = onnx.load(source, load_external_data=False)
        quantized.make(name, target, source, lambda seed: make_inputs(model, seed=seed))
    else:
        from . import exports

        exports.make(name, target)


def inputs(name: str) -> dict[str, np.ndarray]:
    """Seeded inputs of the model `name`, at the sizes it is used at."""
    import onnx

    arrays = make_inputs(onnx.load(path(name), load_external_data=False), packaged.DIMS.get(name))
    return {key: page(array.shape) for key, array in arrays.items()} if name.startswith("ocr") else arrays


def select(patterns: Sequence[str]) -> list[str]:
    """The names that match any of the shell patterns, all if there are none; a pattern without a match is an error."""
    known = names()
    if lost := [p for p in patterns if not any(fnmatch(name, p) for name in known)]:
        raise SystemExit(f"no model of the zoo matches {', '.join(lost)}; see python -m benchmarks.models --list")
    return [name for name in known if not patterns or any(fnmatch(name, p) for p in patterns)]


def main() -> None:
    """Make models, or list them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="shell patterns of names; all by default")
    parser.add_argument("--list", action="store_true", help="list instead of making")
    options = parser.parse_args()
    for name in select(options.patterns):
        if options.list:
            file = directory() / f"{name}.onnx"
            print(f"{name:28} {file if file.exists() else '-'}")
            continue
        start = time.perf_counter()
        file = path(name)
        print(f"{time.perf_counter() - start:7.1f} s  {file.stat().st_size / 1e6:8.1f} MB  {file}", flush=True)


if __name__ == "__main__":
    main()
