"""Networks that give an answer for every place of an image: U-Net and a detector of the YOLO family.

Written from the papers and from published descriptions of the architectures, with seeded weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .classic import conv_bn


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015), padded so that the size stays, with batch normalization and `width` channels
    at full resolution, twice as many at each of four halvings."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        channels = [width << level for level in range(5)]
        self.down = nn.ModuleList([self._pair(c_in, c) for c_in, c in zip([3, *channels], channels, strict=False)])
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * c, c, 2, 2) for c in reversed(channels[:-1])])
        self.merge = nn.ModuleList([self._pair(2 * c, c) for c in reversed(channels[:-1])])
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _pair(c_in: int, c_out: int) -> nn.Module:
        return nn.Sequential(conv_bn(c_in, c_out, 3), conv_bn(c_out, c_out, 3))

    def forward(self, image: Tensor) -> Tensor:
        levels: list[Tensor] = []
        x = image
        for stage in self.down:
            x = stage(self.pool(x) if levels else x)
            levels.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(levels[:-1]), strict=True):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


def _conv(c_in: int, c_out: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    return conv_bn(c_in, c_out, kernel, stride, act=nn.SiLU, eps=1e-3)


class Residual(nn.Module):
    """Two 3×3 convolutions, added to their input if `shortcut`."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels, 3), _conv(channels, channels, 3))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


class SplitStage(nn.Module):
    """The stage called C2f: half of the channels goes through a chain of blocks, all results are joined."""

    def __init__(self, c_in: int, c_out: int, depth: int, *, shortcut: bool) -> None:
        super().__init__()
        half = c_out // 2
        self.enter = _conv(c_in, c_out)
        self.blocks = nn.ModuleList([Residual(half, shortcut=shortcut) for _ in range(depth)])
        self.leave = _conv((2 + depth) * half, c_out)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PoolPyramid(nn.Module):
    """The stage called SPPF: three 5×5 maxima in a row, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = _conv(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.leave = _conv(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Detector(nn.Module):
    """A one-stage detector without anchors, of the shape of YOLOv8n: boxes and class scores [N, 4 + classes, places].

    Box sides are expectations over `BINS` distances each (Li et al., "Generalized focal loss", 2020)."""

    BINS = 16
    STRIDES = (8, 16, 32)

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.early = nn.Sequential(
            _conv(3, 16, 3, 2), _conv(16, 32, 3, 2), SplitStage(32, 32, 1, shortcut=True), _conv(32, 64, 3, 2),
            SplitStage(64, 64, 2, shortcut=True),
        )  # fmt: skip
        self.middle = nn.Sequential(_conv(64, 128, 3, 2), SplitStage(128, 128, 2, shortcut=True))
        self.late = nn.Sequential(_conv(128, 256, 3, 2), SplitStage(256, 256, 1, shortcut=True), PoolPyramid(256))
        self.enlarge = nn.Upsample(scale_factor=2, mode="nearest")
        self.up_middle = SplitStage(384, 128, 1, shortcut=False)
        self.up_early = SplitStage(192, 64, 1, shortcut=False)
        self.down_middle = _conv(64, 64, 3, 2)
        self.join_middle = SplitStage(192, 128, 1, shortcut=False)
        self.down_late = _conv(128, 128, 3, 2)
        self.join_late = SplitStage(384, 256, 1, shortcut=False)
        self.boxes = nn.ModuleList([self._head(c, 64, 4 * self.BINS) for c in (64, 128, 256)])
        self.scores = nn.ModuleList([self._head(c, 80, classes) for c in (64, 128, 256)])
        self.expect = nn.Conv2d(self.BINS, 1, 1, bias=False)
        self.expect.fixed = True  # type: ignore[assignment,unused-ignore]  # not random: distances
        with torch.no_grad():
            self.expect.weight.copy_(torch.arange(self.BINS, dtype=torch.float32).reshape(1, -1, 1, 1))

    @staticmethod
    def _head(c_in: int, width: int, c_out: int) -> nn.Module:
        return nn.Sequential(_conv(c_in, width, 3), _conv(width, width, 3), nn.Conv2d(width, c_out, 1))

    def forward(self, image: Tensor) -> Tensor:
        early = self.early(image)
        middle = self.middle(early)
        late = self.late(middle)
        up_middle = self.up_middle(torch.cat([self.enlarge(late), middle], 1))
        first = self.up_early(torch.cat([self.enlarge(up_middle), early], 1))
        second = self.join_middle(torch.cat([self.down_middle(first), up_middle], 1))
        third = self.join_late(torch.cat([self.down_late(second), late], 1))
        levels = (first, second, third)
        sides = torch.cat([head(x).flatten(2) for head, x in zip(self.boxes, levels, strict=True)], 2)
        scores = torch.cat([head(x).flatten(2) for head, x in zip(self.scores, levels, strict=True)], 2)
        places, strides = self._places(levels)
        spread = sides.reshape(sides.shape[0], 4, self.BINS, -1).transpose(1, 2).softmax(1)
        distances = self.expect(spread).reshape(sides.shape[0], 4, -1)
        before, after = distances.chunk(2, 1)
        corner, opposite = places - before, places + after
        boxes = torch.cat([(corner + opposite) / 2, opposite - corner], 1) * strides
        return torch.cat([boxes, scores.sigmoid()], 1)

    def _places(self, levels: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """The middles of all cells [1, 2, places] in units of their strides [1, 1, places]."""
        places, strides = [], []
        for x, stride in zip(levels, self.STRIDES, strict=True):
            height, width = x.shape[2], x.shape[3]
            ys, xs = torch.meshgrid(self._middles(height), self._middles(width), indexing="ij")
            places.append(torch.stack([xs.flatten(), ys.flatten()]))
            strides.append(torch.full((1, height * width), float(stride)))
        return torch.cat(places, 1)[None], torch.cat(strides, 1)[None]

    @staticmethod
    def _middles(count: int) -> Tensor:
        return torch.arange(count, dtype=torch.float32) + 0.5
