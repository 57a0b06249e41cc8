"""The networks of `zoo` written as ONNX by both of PyTorch's exporters, raw and optimized, fixed and dynamic.

`NAME.ts.*` come from the older exporter (it traces TorchScript), `NAME.dynamo.*` from the newer one. `raw` has the
exporter's own optimization off, `opt` on; `dyn` is raw with symbolic batch (and sequence) sizes, which is the hardest
to optimize; `free` is raw with every extent of images, volumes and signals symbolic; `f16` is optimized, with all
floats of 16 bits.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

from .zoo import NETS

VARIANTS = ("ts.raw", "ts.opt", "ts.dyn", "ts.free", "ts.f16", "dynamo.raw", "dynamo.opt", "dynamo.dyn")
FREE = frozenset((
    "resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "regnet", "convnext_tiny", "swin_tiny", "segformer",
    "pvt_v2", "mobilevit", "yolo", "unet", "unet_3d", "fsrcnn", "edsr", "wav2vec2", "conformer",
))  # fmt: skip
"""Networks that can be exported with every extent free."""
NAMES = tuple(f"{net}.{v}" for net in NETS for v in VARIANTS if v != "ts.free" or net in FREE)


def make(name: str, path: Path) -> None:
    """Export `name`, which is `NET.EXPORTER.VARIANT`, to `path`."""
    import torch

    from .nets.classic import Output, build

    net, exporter, variant = name.split(".")
    dynamic = variant in ("dyn", "free")
    known = NETS[net]
    # The newer exporter keeps fused attention as one torch operator and decomposes it itself.
    model = build(net, attention="sdpa" if exporter == "dynamo" and known.fused else "eager")
    inputs, outputs = list(known.inputs), list(known.outputs)
    arguments = known.arguments(batch=2 if dynamic else 1)
    if variant == "f16":
        model = model.half()
        arguments = tuple(x.half() if x.is_floating_point() else x for x in arguments)
    folded = variant in ("opt", "f16")
    axes = known.free if variant == "free" else dict(enumerate(known.dynamic))

    options: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
    if exporter == "dynamo":
        options |= {"dynamo": True, "optimize": variant == "opt", "external_data": False}
        if dynamic:
            dims = {axis: torch.export.Dim(word, min=1, max=256) for axis, word in axes.items()}
            shapes: Any = tuple(dims for _ in arguments)
            options["dynamic_shapes"] = (shapes,) if isinstance(model, Output) else shapes
    else:
        # Training mode PRESERVE keeps batch normalizations apart, which EVAL folds whatever the other options say.
        preserve = torch.onnx.TrainingMode.PRESERVE
        evaluate = torch.onnx.TrainingMode.EVAL
        options |= {
            "dynamo": False,
            "do_constant_folding": folded,
            "training": evaluate if folded else preserve,
            "opset_version": 17,
        }
        if dynamic:
            named = inputs if variant == "free" else [*inputs, *outputs]
            options["dynamic_axes"] = dict.fromkeys(named, axes)
            options["dynamic_axes"] |= {v: {0: "batch"} for v in known.pooled}
    with _quiet():
        torch.onnx.export(model, arguments, str(path), **options)


@contextlib.contextmanager
def _quiet() -> Any:
    """Silence the exporters' progress and deprecation messages."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
