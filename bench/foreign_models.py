"""Fourteen architectures as PyPI's `transformers` builds them, and an LSTM: small, without weights.

    pip install transformers
    python bench/zoo_campaign.py bench/foreign_models.py:* --dtypes fp32,fp16,int8,int8-dynamic
    python bench/optimize_zoo.py --structure

`zoo_campaign.py` exports and runs each of them, `optimize_zoo.py` rewrites their graphs; `*` stands for all.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers as hf
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Tensor, ...]]

_TEXT = {"vocab_size": 2000, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}


class Called(nn.Module):
    """Calls a model with its inputs by name, and returns its first output."""

    def __init__(self, model: nn.Module, *names: str, **fixed: object) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.names, inputs, strict=True))
        return self.model(**named, **self.fixed, return_dict=False)[0]


def _seeing(model: nn.Module, side: int) -> Made:
    """A model of an image. Batch norms scale by 1 and have the statistics of a pass: with what they begin
    with, outputs of deep models vanish, and nothing could be compared."""
    made, norms = Called(model, "pixel_values"), [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if norms:
        for norm in norms:
            norm.momentum = 1.0
            nn.init.ones_(norm.weight)
        with torch.no_grad():
            made.train()(torch.randn(4, 3, side, side))
    return made.eval(), (torch.randn(1, 3, side, side),)


def _tokens(count: int = 64) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 2000, (1, count)), torch.ones(1, count, dtype=torch.long)


def vit() -> Made:
    config = hf.ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768)
    return _seeing(hf.ViTForImageClassification(config), 224)


def swin() -> Made:
    config = hf.SwinConfig(embed_dim=48, depths=[2, 2, 2], num_heads=[2, 4, 8])
    return _seeing(hf.SwinForImageClassification(config), 224)


def distilbert() -> Made:
    config = hf.DistilBertConfig(vocab_size=2000, dim=256, n_layers=4, n_heads=4, hidden_dim=1024)
    model = hf.DistilBertForSequenceClassification(config)
    return Called(model, "input_ids", "attention_mask"), _tokens()


def mobilebert() -> Made:
    config = hf.MobileBertConfig(vocab_size=2000, num_hidden_layers=4)
    model = hf.MobileBertForSequenceClassification(config)
    return Called(model, "input_ids", "attention_mask"), _tokens()


def wav2vec2() -> Made:
    config = hf.Wav2Vec2Config(**{**_TEXT, "vocab_size": 32}, hidden_size=256, conv_dim=[128] * 7)
    return Called(hf.Wav2Vec2ForCTC(config), "input_values"), (torch.randn(1, 16000),)


def whisper_encoder() -> Made:
    config = hf.WhisperConfig(d_model=192, encoder_layers=4, encoder_attention_heads=4, encoder_ffn_dim=768)
    encoder = hf.WhisperForConditionalGeneration(config).model.encoder
    return Called(encoder, "input_features"), (torch.randn(1, 80, 3000),)


def sam_vision() -> Made:
    config = hf.SamVisionConfig(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=4, image_size=256, mlp_dim=768,
        output_channels=64, global_attn_indexes=[1, 3], window_size=7, initializer_range=0.02,
    )  # fmt: skip
    return _seeing(hf.SamVisionModel(config), 256)


def llama() -> Made:
    config = hf.LlamaConfig(**_TEXT, hidden_size=256, num_key_value_heads=2, use_cache=False)
    return Called(hf.LlamaForCausalLM(config), "input_ids", use_cache=False), _tokens()[:1]


def efficientnet() -> Made:
    config = hf.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280
    )
    return _seeing(hf.EfficientNetForImageClassification(config), 224)


def convnext() -> Made:
    config = hf.ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2])
    return _seeing(hf.ConvNextForImageClassification(config), 224)


def mobilenet_v2() -> Made:
    return _seeing(hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), 224)


def resnet() -> Made:
    config = hf.ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    return _seeing(hf.ResNetForImageClassification(config), 224)


def segformer() -> Made:
    return _seeing(hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), 256)


def mobilevit() -> Made:
    return _seeing(hf.MobileViTForImageClassification(hf.MobileViTConfig()), 256)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(40, 128, num_layers=2, batch_first=True), nn.Linear(128, 30)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.cells(frames)[0])


def lstm() -> Made:
    return Recurrent(), (torch.randn(1, 16, 40),)


MODELS: tuple[Callable[[], Made], ...] = (
    vit, swin, distilbert, mobilebert, wav2vec2, whisper_encoder, sam_vision, llama, efficientnet, convnext,
    mobilenet_v2, resnet, segformer, mobilevit, lstm,
)  # fmt: skip
