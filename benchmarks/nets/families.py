"""Networks of further families, written from the papers: mixers, grouped convolutions, super-resolution, volumes,
graphs, state spaces, recurrent networks and a step of a diffusion model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .classic import Bottleneck, Classifier, ResNet, conv_bn


class GroupedBottleneck(Bottleneck):
    """A bottleneck whose 3×3 convolution has 32 groups of twice the width (ResNeXt 32x4d, Xie et al. 2017)."""

    def __init__(self, c_in: int, width: int, stride: int) -> None:
        super().__init__(c_in, width, stride)
        wide, c_out = 2 * width, width * self.expansion
        self.body = nn.Sequential(
            conv_bn(c_in, wide, 1), conv_bn(wide, wide, 3, stride, groups=32), conv_bn(wide, c_out, 1, act=None)
        )


def resnext50() -> nn.Module:
    """ResNeXt-50 32x4d."""
    return ResNet(GroupedBottleneck, [3, 4, 6, 3])


class Skip(nn.Module):
    """`x + body(x)`."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def convmixer(width: int = 256, depth: int = 8, kernel: int = 9, patch: int = 7) -> nn.Module:
    """ConvMixer-256/8 (Trockman and Kolter 2022)."""

    def after(layer: nn.Module) -> nn.Module:
        return nn.Sequential(layer, nn.GELU(), nn.BatchNorm2d(width))

    layers: list[nn.Module] = [after(nn.Conv2d(3, width, patch, patch))]
    for _ in range(depth):
        layers.append(Skip(after(nn.Conv2d(width, width, kernel, padding="same", groups=width))))
        layers.append(after(nn.Conv2d(width, width, 1)))
    return Classifier(nn.Sequential(*layers), nn.Linear(width, 1000))


class MixerBlock(nn.Module):
    """Two-layer networks over the places and over the channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm_places, self.norm_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.places = nn.Sequential(nn.Linear(places, width // 2), nn.GELU(), nn.Linear(width // 2, places))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.places(self.norm_places(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_channels(x))


class Mixer(nn.Module):
    """MLP-Mixer S/16 (Tolstikhin et al. 2021)."""

    def __init__(self, width: int = 512, depth: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*[MixerBlock(196, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(image).flatten(2).transpose(1, 2))).mean(1))


def fsrcnn(wide: int = 56, narrow: int = 12, scale: int = 3) -> nn.Module:
    """FSRCNN (Dong et al. 2016) on one channel; it ends in a transposed 9×9 convolution."""
    layers: list[nn.Module] = [nn.Conv2d(1, wide, 5, padding=2), nn.PReLU(wide), nn.Conv2d(wide, narrow, 1)]
    layers.append(nn.PReLU(narrow))
    for _ in range(4):
        layers += [nn.Conv2d(narrow, narrow, 3, padding=1), nn.PReLU(narrow)]
    layers += [nn.Conv2d(narrow, wide, 1), nn.PReLU(wide)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(wide, 1, 9, scale, 4, output_padding=scale - 1))


def edsr(width: int = 48, depth: int = 6, scale: int = 2) -> nn.Module:
    """EDSR baseline (Lim et al. 2017), small: residual blocks without normalization and sub-pixel convolution."""

    def block() -> nn.Module:
        return Skip(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)))

    body = Skip(nn.Sequential(*[block() for _ in range(depth)], nn.Conv2d(width, width, 3, padding=1)))
    tail = [nn.Conv2d(width, width * scale**2, 3, padding=1), nn.PixelShuffle(scale), nn.Conv2d(width, 3, 3, padding=1)]
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), body, *tail)


class VolumeUNet(nn.Module):
    """3-D U-Net (Çiçek et al. 2016) with `width` channels at full resolution and two halvings."""

    def __init__(self, width: int = 16, classes: int = 3) -> None:
        super().__init__()
        self.enter, self.first = self._pair(1, width), self._pair(width, 2 * width)
        self.second = self._pair(2 * width, 4 * width)
        self.pool = nn.MaxPool3d(2)
        self.up_second = nn.ConvTranspose3d(4 * width, 2 * width, 2, 2)
        self.up_first = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.join_second, self.join_first = self._pair(4 * width, 2 * width), self._pair(2 * width, width)
        self.head = nn.Conv3d(width, classes, 1)

    @staticmethod
    def _pair(c_in: int, c_out: int) -> nn.Module:
        def half(c: int) -> list[nn.Module]:
            return [nn.Conv3d(c, c_out, 3, padding=1), nn.InstanceNorm3d(c_out, affine=True), nn.LeakyReLU(0.01)]

        return nn.Sequential(*half(c_in), *half(c_out))

    def forward(self, volume: Tensor) -> Tensor:
        top = self.enter(volume)
        middle = self.first(self.pool(top))
        x = self.up_second(self.second(self.pool(middle)))
        x = self.join_second(torch.cat([middle, x], 1))
        return self.head(self.join_first(torch.cat([top, self.up_first(x)], 1)))


class GraphConvolutions(nn.Module):
    """Three layers of messages along 8,000 edges between 1,000 nodes, added up where they arrive (GraphSAGE, Hamilton
    et al. 2017, with sums)."""

    edges: Tensor

    def __init__(self, width: int = 64, nodes: int = 1000, edges: int = 8000) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.register_buffer("edges", torch.randint(0, nodes, (2, edges), generator=generator))
        self.own = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.sent = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, features: Tensor) -> Tensor:
        x = features[0]
        index = self.edges[1].unsqueeze(1).expand(-1, x.shape[1])
        for own, sent in zip(self.own, self.sent, strict=True):
            arrived = torch.zeros_like(x).scatter_add(0, index, sent(x)[self.edges[0]])
            x = torch.relu(own(x) + arrived)
        return x


class StateSpace(nn.Module):
    """Four gated blocks of diagonal state-space layers whose recurrence is summed by a kernel (S4D, Gu et al. 2022)."""

    def __init__(self, width: int = 128, length: int = 128, states: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([StateSpaceBlock(width, length, states) for _ in range(depth)])

    def forward(self, signal: Tensor) -> Tensor:
        for block in self.blocks:
            signal = block(signal)
        return signal


class StateSpaceBlock(nn.Module):
    """One block of `StateSpace`: [N, T, C] to the same."""

    lag: Tensor
    past: Tensor

    def __init__(self, width: int, length: int, states: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.enter, self.leave = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.rate = nn.Parameter(torch.linspace(0.01, 1, states).repeat(width, 1))
        self.mix = nn.Parameter(torch.randn(width, states) / states)
        lag = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        self.register_buffer("lag", lag.clamp(min=0).float())
        self.register_buffer("past", (lag >= 0).float())

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.enter(self.norm(x)).chunk(2, -1)
        decay = torch.exp(-self.rate[:, :, None, None] * self.lag)  # channels, states, to, from
        kernel = (decay * self.mix[:, :, None, None]).sum(1) * self.past
        summed = torch.einsum("cts,nsc->ntc", kernel, value)
        return x + self.leave(summed * torch.sigmoid(gate) * gate)


class Gated(nn.Module):
    """Two bidirectional GRU layers on features of a convolution: the shape of a small text recognizer (CRNN)."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(1, 32, 3, 2), conv_bn(32, 64, 3, 2), conv_bn(64, width, 3), nn.AdaptiveAvgPool2d((1, None))
        )
        self.gru = nn.GRU(width, 128, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, 96)

    def forward(self, line: Tensor) -> Tensor:
        steps, _ = self.gru(self.features(line).squeeze(2).transpose(1, 2))
        return self.head(steps).log_softmax(-1)


class DiffusionBlock(nn.Module):
    """Group normalization, SiLU and 3×3 convolution, twice, around an added embedding of the time."""

    def __init__(self, c_in: int, c_out: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, c_in), nn.SiLU(), nn.Conv2d(c_in, c_out, 3, padding=1))
        self.time = nn.Linear(time, c_out)
        self.second = nn.Sequential(nn.GroupNorm(8, c_out), nn.SiLU(), nn.Conv2d(c_out, c_out, 3, padding=1))
        self.shortcut = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.shortcut(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Denoiser(nn.Module):
    """A step of a small diffusion model: a U-Net with group normalization and attention at the lowest resolution."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.register_buffer("time", torch.linspace(-1, 1, 128)[None])
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList([DiffusionBlock(width, width, 128), DiffusionBlock(width, 2 * width, 128)])
        self.reduce = nn.ModuleList([nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, 2, 1)])
        self.middle = DiffusionBlock(2 * width, 2 * width, 128)
        self.norm, self.attention = nn.GroupNorm(8, 2 * width), nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.ModuleList([DiffusionBlock(4 * width, 2 * width, 128), DiffusionBlock(3 * width, width, 128)])
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, latent: Tensor) -> Tensor:
        x, levels = self.enter(latent), []
        for block, reduce in zip(self.down, self.reduce, strict=True):
            x = block(x, self.time)
            levels.append(x)
            x = reduce(x)
        x = self.middle(x, self.time)
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block, level in zip(self.up, reversed(levels), strict=True):
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), level], 1), self.time)
        return self.leave(x)
