"""The networks of the zoo as PyTorch modules with seeded weights.

The convolutional ones follow the papers and the layer order that the common model libraries export; transformers come
from the `transformers` package by configuration, never with downloaded weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn


def conv_bn(
    c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = nn.ReLU,
    eps: float = 1e-5,
) -> nn.Sequential:  # fmt: skip
    """Convolution without bias, batch normalization and, unless None, an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out, eps=eps),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut (He et al. 2015)."""

    expansion = 1

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(c_in, width, 3, stride), conv_bn(width, width, 3, act=None))
        self.shortcut = conv_bn(c_in, width, 1, stride, act=None) if stride > 1 or c_in != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 with the stride on the 3×3 ("v1.5")."""

    expansion = 4

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__()
        c_out = width * self.expansion
        self.body = nn.Sequential(
            conv_bn(c_in, width, 1), conv_bn(width, width, 3, stride), conv_bn(width, c_out, 1, act=None)
        )
        self.shortcut = conv_bn(c_in, c_out, 1, stride, act=None) if stride > 1 or c_in != c_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Deep residual networks: `[2, 2, 2, 2]` basic blocks are ResNet-18, `[3, 4, 6, 3]` bottlenecks are ResNet-50."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], depths: list[int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        blocks: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            for index in range(depth):
                blocks.append(block(channels, width, 2 if index == 0 and stage > 0 else 1))
                channels = width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, 1000)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(image))), 1))


def _eight(channels: float) -> int:
    """The nearest multiple of eight that is not more than a tenth below (the MobileNet papers' rule)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class SqueezeExcite(nn.Module):
    """Channels weighted by a small network on their means."""

    def __init__(self, channels: int, squeezed: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.act = act()
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    """1×1 expansion, depthwise convolution, optional squeeze-and-excite, 1×1 projection without activation."""

    def __init__(
        self, c_in: int, c_mid: int, c_out: int, kernel: int, stride: int, act: type[nn.Module],
        attention: nn.Module | None = None, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = [conv_bn(c_in, c_mid, 1, act=act, eps=eps)] if c_mid != c_in else []
        layers.append(conv_bn(c_mid, c_mid, kernel, stride, groups=c_mid, act=act, eps=eps))
        layers += [attention] if attention else []
        layers.append(conv_bn(c_mid, c_out, 1, act=None, eps=eps))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class Classifier(nn.Module):
    """Features, global average, and a head on the flat channels."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = head

    def forward(self, image: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.features(image)), 1))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 at width 1.0 (Sandler et al. 2018)."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2, act=nn.ReLU6)]
    channels = 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expand, width, depth, stride in stages:
        for index in range(depth):
            layers.append(
                InvertedResidual(channels, channels * expand, width, 3, stride if index == 0 else 1, nn.ReLU6)
            )
            channels = width
    layers.append(conv_bn(channels, 1280, 1, act=nn.ReLU6))
    return Classifier(nn.Sequential(*layers), nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000)))


# kernel, expanded width, output width, squeeze-and-excite, hard-swish, stride
_V3_LARGE = [
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
    (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2),
    (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
]  # fmt: skip
_V3_SMALL = [
    (3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
    (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
    (5, 576, 96, 1, 1, 1),
]  # fmt: skip


def mobilenet_v3(*, large: bool) -> nn.Module:
    """MobileNetV3 (Howard et al. 2019), large or small."""
    norm = partial(conv_bn, eps=1e-3)
    layers: list[nn.Module] = [norm(3, 16, 3, 2, act=nn.Hardswish)]
    channels = 16
    for kernel, middle, width, squeeze, swish, stride in _V3_LARGE if large else _V3_SMALL:
        attention = SqueezeExcite(middle, _eight(middle / 4), nn.ReLU, nn.Hardsigmoid) if squeeze else None
        act = nn.Hardswish if swish else nn.ReLU
        layers.append(InvertedResidual(channels, middle, width, kernel, stride, act, attention, eps=1e-3))
        channels = width
    layers.append(norm(channels, channels * 6, 1, act=nn.Hardswish))
    hidden = 1280 if large else 1024
    head = nn.Sequential(nn.Linear(channels * 6, hidden), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(hidden, 1000))
    return Classifier(nn.Sequential(*layers), head)


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 (Tan and Le 2019)."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2, act=nn.SiLU)]
    channels = 32
    stages = [
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
    ]  # fmt: skip
    for expand, kernel, stride, width, depth in stages:
        for index in range(depth):
            middle = channels * expand
            attention = SqueezeExcite(middle, channels // 4, nn.SiLU, nn.Sigmoid)
            step = stride if index == 0 else 1
            layers.append(InvertedResidual(channels, middle, width, kernel, step, nn.SiLU, attention))
            channels = width
    layers.append(conv_bn(channels, 1280, 1, act=nn.SiLU))
    return Classifier(nn.Sequential(*layers), nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000)))


class Output(nn.Module):
    """A `transformers` model that returns the named fields as a tuple of tensors."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], fields: tuple[str, ...], **fixed: object) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.fields = fields
        self.fixed = fixed

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        result = self.model(**dict(zip(self.inputs, arguments, strict=True)), **self.fixed)
        return tuple(getattr(result, field) for field in self.fields)


def vit(width: int, heads: int, attention: str) -> nn.Module:
    """Vision transformer with 16×16 patches and 12 layers: width 384 is ViT-S, 768 is ViT-B."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width, num_labels=1000,
        attn_implementation=attention,
    )  # fmt: skip
    return Output(ViTForImageClassification(config), ("pixel_values",), ("logits",))


def bert(width: int, layers: int, heads: int, attention: str) -> nn.Module:
    """BERT encoder with its pooler; width 768, 12 layers is BERT-base."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        attn_implementation=attention,
    )  # fmt: skip
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    return Output(BertModel(config), inputs, ("last_hidden_state", "pooler_output"))


def gpt2(attention: str) -> nn.Module:
    """GPT-2 (124M) without a cache: tokens to logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(attn_implementation=attention)
    return Output(GPT2LMHeadModel(config), ("input_ids", "attention_mask"), ("logits",), use_cache=False)


@torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
def build(name: str, attention: str = "eager") -> nn.Module:
    """The network `name` in evaluation mode, with seeded weights that leave nothing trivial.

    Scales, offsets and running statistics that start as ones and zeros are drawn at random, so that folding them is
    really tested; batch statistics are those of a random batch, which keeps the activations near one.
    """
    from ..zoo import NETS

    torch.manual_seed(7)
    model = NETS[name].make(attention)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.bias is None and not getattr(module, "fixed", False):
            nn.init.normal_(module.weight, 0, math.sqrt(2 * module.groups / (module.weight[0].numel() * 1.0)) * 0.7)
        elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.normal_(module.bias, 0, 0.1)
        bias = getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter) and bool((bias == 0).all()):
            nn.init.normal_(bias, 0, 0.02)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if norms:
        _calibrate(model, norms, NETS[name].arguments(batch=4))
    return model.eval()


def _calibrate(model: nn.Module, norms: list[nn.BatchNorm2d], arguments: Sequence[Tensor]) -> None:
    """Take the running statistics from a run on a batch, then shake them."""
    for norm in norms:
        norm.momentum = 1.0
    model.train()
    model(*arguments)
    for norm in norms:
        norm.momentum = 0.1
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.7, 1.4))
        norm.running_mean.add_(torch.randn_like(norm.running_mean) * 0.1 * norm.running_var.sqrt())
