"""Small networks of the usual kinds, written by hand."""

from typing import Any

from .installed import torch

nn, F = torch.nn, torch.nn.functional


def _convs(inputs: int, outputs: int, stride: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
    )  # fmt: skip


class ResNet(nn.Module):
    """A stem, a residual block, one with a projection, and a classifier: images [N, 3, H, W] to [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        self.first, self.second = _convs(16, 16, 1), _convs(16, 32, 2)
        self.project, self.classify = nn.Conv2d(16, 32, 1, 2), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        x = F.relu_(self.first(x) + x)
        x = F.relu(self.second(x) + self.project(x))
        return self.classify(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Bert(nn.Module):
    """Embeddings and a layer of attention with a mask: tokens and mask [N, T] to states [N, T, 32] and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.register_buffer("position_ids", torch.arange(16)[None])
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down, self.pool = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))

    def forward(self, tokens: Any, mask: Any) -> dict[str, Any]:
        n, t = tokens.shape
        x = self.norms[0](self.words(tokens) + self.places(self.position_ids[:, :t]))
        q, k, v = (part.view(n, t, 4, 8).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, mask[:, None, None].bool())
        x = self.norms[1](x + self.out(y.transpose(1, 2).reshape(n, t, 32)))
        x = self.norms[2](x + self.down(F.gelu(self.up(x))))
        return {"hidden": x, "pool": torch.tanh(self.pool(x[:, 0]))}


class Llama(nn.Module):
    """A decoder layer: RMSNorm, rotary positions, shared keys, a gated unit: tokens [N, T] to logits [N, T, 50]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.q, self.k, self.v = (
            nn.Linear(32, 32, bias=False),
            nn.Linear(32, 16, bias=False),
            nn.Linear(32, 16, bias=False),
        )
        self.o, self.gate, self.up = (nn.Linear(32, n, bias=False) for n in (32, 64, 64))
        self.down, self.head = nn.Linear(64, 32, bias=False), nn.Linear(32, 50, bias=False)
        self.weights = nn.ParameterList(torch.rand(32) + 0.5 for _ in range(3))

    def _norm(self, x: Any, number: int) -> Any:
        return self.weights[number] * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(
            x.dtype
        )

    def forward(self, tokens: Any) -> Any:
        n, t = tokens.shape
        x = self.embed(tokens)
        angles = torch.arange(t)[:, None] * (10000.0 ** (-torch.arange(0, 8, 2) / 8.0))
        cos, sin = (f(torch.cat((angles, angles), -1)).to(x.dtype) for f in (torch.cos, torch.sin))

        def turned(y: Any) -> Any:
            return y * cos + torch.cat((-y[..., 4:], y[..., :4]), -1) * sin

        y = self._norm(x, 0)
        q, k, v = (f(y).view(n, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (part.repeat_interleave(2, 1) for part in (turned(k), v))
        y = F.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, 32))
        y = self._norm(x, 1)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self._norm(x, 2))
