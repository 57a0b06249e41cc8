"""The networks that are exported: how each is made, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from .nets import classic, dense, families, library, sequence

SEQUENCE = 64  # tokens in exports of fixed size
IMAGE, TOKENS, FLOATS = "image", "tokens", "floats"


@dataclass(frozen=True)
class Net:
    """A network of the zoo: `make` takes the implementation of attention, "eager" (matrix products and softmax) or
    "sdpa" (one operator), which networks without attention ignore.

    `kind` says what the inputs are; `shape` is that of an image or of floats without the batch. `dynamic` are the
    names of the axes that `dyn` exports leave open."""

    make: Callable[[str], nn.Module]
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("logits",)
    shape: tuple[int, ...] = ()
    dynamic: tuple[str, ...] = ("batch",)
    pooled: tuple[str, ...] = ()  # outputs without a sequence axis
    fused: bool = True  # whether the newer exporter can write its attention as one operator

    @property
    def free(self) -> dict[int, str]:
        """Axes of the inputs whose extents the network may leave open, by number, with their names."""
        open_axes = {
            1: {1: "samples"},
            2: {2: "frames"},
            3: {2: "height", 3: "width"},
            4: {2: "depth", 3: "height", 4: "width"},
        }
        return {0: "batch", **open_axes.get(len(self.shape), {1: "sequence"})}

    def arguments(self, batch: int) -> tuple[Tensor, ...]:
        """Example values of the inputs, seeded."""
        generator = torch.Generator().manual_seed(11)
        if self.kind != TOKENS:
            return (torch.randn(batch, *self.shape, generator=generator),)
        tokens = torch.randint(0, 1000, (batch, SEQUENCE), generator=generator)
        mask = torch.ones_like(tokens)
        mask[:, -SEQUENCE // 4 :] = 0
        return (tokens, mask, torch.zeros_like(tokens))[: len(self.inputs)]


def _image(make: Callable[[], nn.Module], size: int = 224, output: str = "logits") -> Net:
    return Net(lambda _: make(), IMAGE, ("image",), (output,), (3, size, size))


def _pixels(make: Callable[[str], nn.Module], *, fused: bool = True) -> Net:
    return Net(make, IMAGE, ("pixel_values",), shape=(3, 224, 224), fused=fused)


def _library(make: Callable[[str], nn.Module]) -> Net:
    return _pixels(make, fused=False)


def _text(
    make: Callable[[str], nn.Module], outputs: tuple[str, ...] = ("last_hidden_state",), *, types: bool = False,
    pooled: tuple[str, ...] = (), fused: bool = True,
) -> Net:  # fmt: skip
    inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if types else ()))
    return Net(make, TOKENS, inputs, outputs, dynamic=("batch", "sequence"), pooled=pooled, fused=fused)


def _bert(width: int, layers: int, heads: int) -> Net:
    outputs = ("last_hidden_state", "pooler_output")
    return _text(lambda a: classic.bert(width, layers, heads, a), outputs, types=True, pooled=outputs[1:])


NETS: dict[str, Net] = {
    "resnet18": _image(lambda: classic.ResNet(classic.BasicBlock, [2, 2, 2, 2])),
    "resnet50": _image(lambda: classic.ResNet(classic.Bottleneck, [3, 4, 6, 3])),
    "mobilenet_v2": _image(classic.mobilenet_v2),
    "mobilenet_v3_small": _image(lambda: classic.mobilenet_v3(large=False)),
    "mobilenet_v3_large": _image(lambda: classic.mobilenet_v3(large=True)),
    "efficientnet_b0": _image(classic.efficientnet_b0),
    "vit_small": _pixels(lambda a: classic.vit(384, 6, a)),
    "vit_base": _pixels(lambda a: classic.vit(768, 12, a)),
    "bert_mini": _bert(256, 4, 4),
    "bert_base": _bert(768, 12, 12),
    "gpt2": _text(classic.gpt2, ("logits",)),
    "convnext_tiny": _pixels(sequence.convnext),
    "swin_tiny": _pixels(sequence.swin, fused=False),
    "unet": _image(lambda: dense.UNet(32, 2), 256, "masks"),
    "yolo": _image(dense.Detector, 640, "boxes"),
    "minilm": _bert(384, 6, 12),
    "distilbert": _text(sequence.distilbert),
    "t5_encoder": _text(sequence.t5_encoder, fused=False),
    "whisper_encoder": Net(sequence.whisper_encoder, FLOATS, ("input_features",), ("last_hidden_state",), (80, 3000)),
    "lstm": Net(lambda _: sequence.Recurrent(), FLOATS, ("signal",), shape=(64, 64)),
    "mlp": Net(lambda _: sequence.mlp(), FLOATS, ("features",), shape=(784,)),
    "resnext50": _image(families.resnext50),
    "convmixer": _image(families.convmixer),
    "mixer": _image(families.Mixer),
    "edsr": _image(families.edsr, 96, "enlarged"),
    "fsrcnn": Net(lambda _: families.fsrcnn(), IMAGE, ("luma",), ("enlarged",), (1, 96, 96)),
    "unet_3d": Net(lambda _: families.VolumeUNet(), FLOATS, ("volume",), ("scores",), (1, 32, 48, 48)),
    "graph_net": Net(lambda _: families.GraphConvolutions(), FLOATS, ("features",), shape=(1000, 64), dynamic=()),
    "state_space": Net(lambda _: families.StateSpace(), FLOATS, ("signal",), shape=(128, 128)),
    "crnn": Net(lambda _: families.Gated(), IMAGE, ("line",), shape=(1, 32, 256)),
    "denoiser": Net(lambda _: families.Denoiser(), IMAGE, ("latent",), shape=(4, 32, 32)),
    **{name: _library(partial(library.image, name)) for name in library.IMAGES},
    **{name: _text(partial(library.text, name), fused=False) for name in library.TEXTS},
    **{
        name: Net(partial(library.signal, name), FLOATS, ("input_values",), shape=(16000,), fused=False)
        for name in library.SIGNALS
    },
}
