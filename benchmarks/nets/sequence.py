"""More transformers, by configuration, and two small networks on vectors and sequences."""

from __future__ import annotations

from torch import Tensor, nn

from .classic import Output


def distilbert(attention: str) -> nn.Module:
    """DistilBERT base: six layers of width 768."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(attn_implementation=attention)
    return Output(DistilBertModel(config), ("input_ids", "attention_mask"), ("last_hidden_state",))


def t5_encoder(attention: str) -> nn.Module:
    """The encoder of T5-small: six layers of width 512 with relative positions."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(attn_implementation=attention)
    return Output(T5EncoderModel(config), ("input_ids", "attention_mask"), ("last_hidden_state",))


def whisper_encoder(attention: str) -> nn.Module:
    """The encoder of Whisper tiny: 3000 frames of 80 mel bands to 1500 vectors of width 384."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(attn_implementation=attention)
    return Output(WhisperEncoder(config), ("input_features",), ("last_hidden_state",))


def swin(attention: str) -> nn.Module:
    """Swin-T: windows of 7×7, depths 2, 2, 6, 2."""
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(num_labels=1000, attn_implementation=attention)
    return Output(SwinForImageClassification(config), ("pixel_values",), ("logits",))


def convnext(attention: str) -> nn.Module:
    """ConvNeXt-T: depths 3, 3, 9, 3; it has no attention."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return Output(ConvNextForImageClassification(ConvNextConfig(num_labels=1000)), ("pixel_values",), ("logits",))


class Recurrent(nn.Module):
    """Two LSTM layers and a head on the last step: [N, T, 64] to [N, 32]."""

    def __init__(self, width: int = 64, hidden: int = 128, layers: int = 2, classes: int = 32) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, signal: Tensor) -> Tensor:
        steps, _ = self.lstm(signal)
        return self.head(steps[:, -1])


def mlp() -> nn.Module:
    """Three hidden layers of 1024 on 784 numbers."""
    return nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.GELU(),
        nn.Linear(1024, 10),
    )  # fmt: skip
