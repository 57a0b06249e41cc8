"""Networks of the `transformers` package by configuration, of sizes that run in some ten milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from .classic import Output

# Class of the configuration, class of the model, changes to the default configuration.
IMAGES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "regnet": ("RegNetConfig", "RegNetForImageClassification", {}),
    "poolformer": ("PoolFormerConfig", "PoolFormerForImageClassification", {}),
    "mobilevit": ("MobileViTConfig", "MobileViTForImageClassification", {}),
    "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", {}),
    "levit": ("LevitConfig", "LevitForImageClassification", {}),
    "pvt_v2": ("PvtV2Config", "PvtV2ForImageClassification", {}),
    "dinov2": ("Dinov2Config", "Dinov2ForImageClassification", {"hidden_size": 384, "num_attention_heads": 6}),
    "beit": ("BeitConfig", "BeitForImageClassification", {"hidden_size": 384, "num_attention_heads": 6,
             "intermediate_size": 1536, "num_hidden_layers": 6}),
    "swin_v2": ("Swinv2Config", "Swinv2ForImageClassification", {}),
    "cvt": ("CvtConfig", "CvtForImageClassification", {}),
    "focalnet": ("FocalNetConfig", "FocalNetForImageClassification", {}),
    "convnext_v2": ("ConvNextV2Config", "ConvNextV2ForImageClassification", {}),
    "yolos": ("YolosConfig", "YolosForObjectDetection", {"hidden_size": 192, "num_attention_heads": 3,
              "intermediate_size": 768, "num_hidden_layers": 6, "image_size": (224, 224)}),
}  # fmt: skip
TEXTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "roberta": ("RobertaConfig", "RobertaModel", {"num_hidden_layers": 6}),
    "albert": ("AlbertConfig", "AlbertModel", {"hidden_size": 768, "num_attention_heads": 12,
               "intermediate_size": 3072}),
    "electra": ("ElectraConfig", "ElectraModel", {}),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", {"num_hidden_layers": 6}),
    "deberta": ("DebertaV2Config", "DebertaV2Model", {"hidden_size": 384, "num_attention_heads": 6,
                "intermediate_size": 1536, "num_hidden_layers": 6, "relative_attention": True,
                "pos_att_type": ["p2c", "c2p"], "position_buckets": 64}),
    "mpnet": ("MPNetConfig", "MPNetModel", {"num_hidden_layers": 6}),
    "llama": ("LlamaConfig", "LlamaModel", {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6,
              "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8000}),
    "qwen2": ("Qwen2Config", "Qwen2Model", {"hidden_size": 448, "intermediate_size": 2432, "num_hidden_layers": 6,
              "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 8000}),
    "bloom": ("BloomConfig", "BloomModel", {"hidden_size": 512, "n_layer": 6, "n_head": 8, "vocab_size": 8000}),
    "opt": ("OPTConfig", "OPTModel", {"num_hidden_layers": 6, "ffn_dim": 3072, "vocab_size": 8000}),
}  # fmt: skip
SIGNALS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", {"num_hidden_layers": 4, "apply_spec_augment": False}),
    "conformer": ("Wav2Vec2ConformerConfig", "Wav2Vec2ConformerForCTC", {"num_hidden_layers": 3, "hidden_size": 384,
                  "num_attention_heads": 6, "intermediate_size": 1536, "apply_spec_augment": False, "vocab_size": 32}),
}  # fmt: skip


def image(name: str, attention: str) -> nn.Module:
    """A network of `IMAGES`."""
    fields = ("logits", "pred_boxes") if name == "yolos" else ("logits",)
    return _made(*IMAGES[name], attention, ("pixel_values",), fields)


def text(name: str, attention: str) -> nn.Module:
    """A network of `TEXTS`, without a cache where it is a decoder."""
    decoder = name in ("llama", "qwen2", "bloom", "opt")
    fixed: Mapping[str, object] = {"use_cache": False} if decoder else {}
    return _made(*TEXTS[name], attention, ("input_ids", "attention_mask"), ("last_hidden_state",), fixed)


def signal(name: str, attention: str) -> nn.Module:
    """A network of `SIGNALS`: samples at 16 kHz to scores of letters."""
    return _made(*SIGNALS[name], attention, ("input_values",), ("logits",))


def _made(
    config: str, model: str, changes: Mapping[str, Any], attention: str, inputs: tuple[str, ...],
    fields: tuple[str, ...], fixed: Mapping[str, object] | None = None,
) -> nn.Module:  # fmt: skip
    import transformers

    settings = getattr(transformers, config)(**changes)
    settings._attn_implementation = attention
    return Output(getattr(transformers, model)(settings), inputs, fields, **(fixed or {}))
