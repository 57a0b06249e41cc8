"""The networks of `nets` written as ONNX by both of PyTorch's exporters, raw and optimised, fixed and dynamic.

`NAME.ts.*` come from the older exporter (it traces TorchScript), `NAME.dynamo.*` from the newer one. `raw` has the
exporter's own optimisation off, `opt` on; `dyn` is raw with symbolic batch (and sequence) sizes, which is the hardest
to optimise.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

from .nets import IMAGE_NETS, TRANSFORMERS

VARIANTS = ("ts.raw", "ts.opt", "ts.dyn", "dynamo.raw", "dynamo.opt", "dynamo.dyn")
NAMES = tuple(f"{net}.{variant}" for net in (*IMAGE_NETS, *TRANSFORMERS) for variant in VARIANTS)
SEQUENCE = 64  # tokens in exports of fixed size


def make(name: str, path: Path) -> None:
    """Export `name`, which is `NET.EXPORTER.VARIANT`, to `path`."""
    import torch

    from .nets import build

    net, exporter, variant = name.split(".")
    dynamic = variant == "dyn"
    # The newer exporter keeps fused attention as one torch operator and decomposes it itself.
    model = build(net, attention="sdpa" if exporter == "dynamo" else "eager")
    inputs, arguments = _arguments(net, batch=2 if dynamic else 1)
    outputs = ["logits"] if net not in ("bert_mini", "bert_base") else ["last_hidden_state", "pooler_output"]
    axes = {0: "batch"} if net in IMAGE_NETS or net.startswith("vit") else {0: "batch", 1: "sequence"}

    options: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
    if exporter == "dynamo":
        options |= {"dynamo": True, "optimize": variant == "opt", "external_data": False}
        if dynamic:
            dims = {axis: torch.export.Dim(word, min=1, max=256) for axis, word in axes.items()}
            shapes: Any = tuple(dims for _ in arguments)
            options["dynamic_shapes"] = (shapes,) if net in TRANSFORMERS else shapes
    else:
        # Training mode PRESERVE keeps batch normalisations apart, which EVAL folds whatever the other options say.
        preserve = torch.onnx.TrainingMode.PRESERVE
        evaluate = torch.onnx.TrainingMode.EVAL
        options |= {
            "dynamo": False,
            "do_constant_folding": variant == "opt",
            "training": evaluate if variant == "opt" else preserve,
            "opset_version": 17,
        }
        if dynamic:
            options["dynamic_axes"] = dict.fromkeys([*inputs, *outputs], axes)
            if net not in IMAGE_NETS:
                options["dynamic_axes"] |= {v: {0: "batch"} for v in outputs if v == "pooler_output" or "vit" in net}
    with _quiet():
        torch.onnx.export(model, arguments, str(path), **options)


def _arguments(net: str, batch: int) -> tuple[list[str], tuple[Any, ...]]:
    """Names and example values of the inputs."""
    import torch

    generator = torch.Generator().manual_seed(11)
    if net in IMAGE_NETS or net.startswith("vit"):
        name = "image" if net in IMAGE_NETS else "pixel_values"
        return [name], (torch.randn(batch, 3, 224, 224, generator=generator),)
    tokens = torch.randint(0, 1000, (batch, SEQUENCE), generator=generator)
    mask = torch.ones_like(tokens)
    mask[:, -SEQUENCE // 4 :] = 0
    if net.startswith("bert"):
        return ["input_ids", "attention_mask", "token_type_ids"], (tokens, mask, torch.zeros_like(tokens))
    return ["input_ids", "attention_mask"], (tokens, mask)


@contextlib.contextmanager
def _quiet() -> Any:
    """The exporters talk about their progress and their future; neither matters here."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
