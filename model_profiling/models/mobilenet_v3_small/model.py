"""MobileNetV3-small in plain PyTorch, after table 2 of "Searching for MobileNetV3" (Howard et al., 2019).
Layers are created in forward order, so that weights of other implementations can be copied by position."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase


class BottleneckSizes(NamedTuple):
    """One row of the paper's table: a bottleneck."""

    kernel: int
    expanded: int
    out: int
    squeeze_excite: bool
    hard_swish: bool
    stride: int


STEM_WIDTH = 16
HEAD_WIDTH = 576
CLASSIFIER_WIDTH = 1024
BLOCKS = (
    BottleneckSizes(3, 16, 16, True, False, 2),
    BottleneckSizes(3, 72, 24, False, False, 2),
    BottleneckSizes(3, 88, 24, False, False, 1),
    BottleneckSizes(5, 96, 40, True, True, 2),
    BottleneckSizes(5, 240, 40, True, True, 1),
    BottleneckSizes(5, 240, 40, True, True, 1),
    BottleneckSizes(5, 120, 48, True, True, 1),
    BottleneckSizes(5, 144, 48, True, True, 1),
    BottleneckSizes(5, 288, 96, True, True, 2),
    BottleneckSizes(5, 576, 96, True, True, 1),
    BottleneckSizes(5, 576, 96, True, True, 1),
)


def convolution(
    inside: int, out: int, kernel: int, *activation: nn.Module, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution without bias, batch norm, and the given activations."""
    return nn.Sequential(
        nn.Conv2d(inside, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=0.001, momentum=0.01),
        *activation,
    )


class Gate(nn.Module):
    """PyTorch's hardsigmoid; in fp16 by ReLU6 and the same two numbers, because hardsigmoid is lowered to
    fp32 and back there, outside the delegate. Buffers, because a number in the code would be fp32, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("three", torch.tensor(3.0), persistent=False)
        self.register_buffer("sixth", torch.tensor(1 / 6), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        if features.dtype != torch.float16:
            return nn.functional.hardsigmoid(features)
        return nn.functional.relu6(features + self.three) * self.sixth


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate computed from the pooled image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate: nn.Module = Gate()
        squeezed = max(8, (channels // 4 + 4) // 8 * 8)  # the nearest multiple of 8
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.excite = nn.Conv2d(squeezed, channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        squeezed = nn.functional.relu(self.squeeze(self.pool(features)))
        scaled: Tensor = self.gate(self.excite(squeezed)) * features
        return scaled


class Bottleneck(nn.Module):
    """Expand, filter each channel, gate, project; with a shortcut if the shape stays the same."""

    def __init__(self, inside: int, block: BottleneckSizes) -> None:
        super().__init__()
        activation = nn.Hardswish if block.hard_swish else nn.ReLU
        wide, stride = block.expanded, block.stride
        layers: list[nn.Module] = []
        if wide != inside:
            layers.append(convolution(inside, wide, 1, activation()))
        layers.append(convolution(wide, wide, block.kernel, activation(), stride=stride, groups=wide))
        if block.squeeze_excite:
            layers.append(SqueezeExcite(wide))
        layers.append(convolution(wide, block.out, 1))
        self.layers = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inside == block.out

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = self.layers(features)
        return features + result if self.shortcut else result


class MobileNetV3SmallNetwork(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        stages: list[nn.Module] = [convolution(3, STEM_WIDTH, 3, nn.Hardswish(), stride=2)]
        channels = STEM_WIDTH
        for block in BLOCKS:
            stages.append(Bottleneck(channels, block))
            channels = block.out
        stages.append(convolution(channels, HEAD_WIDTH, 1, nn.Hardswish()))
        self.features = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(HEAD_WIDTH, CLASSIFIER_WIDTH),
            nn.Hardswish(),
            nn.Dropout(p=0.2),
            nn.Linear(CLASSIFIER_WIDTH, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.05)
                nn.init.zeros_(module.bias)

    def forward(self, image: Tensor) -> Tensor:
        pooled = self.pool(self.features(image))
        logits: Tensor = self.classifier(torch.flatten(pooled, 1))
        return logits


def settle_batch_norm(network: nn.Module) -> None:
    """Give batch norm the statistics of seeded noise, as training would have. With untrained statistics the
    signal fades to 1e-8, which fp16 and int8 round to zero: nothing is left to compare."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # plain average over all batches
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(torch.randn(2, 3, 224, 224))
    network.eval()


class MobileNetV3Small(EagerModelBase):
    def __init__(self, hardsigmoid: int = 0) -> None:
        self._hardsigmoid = hardsigmoid

    def get_eager_model(self) -> nn.Module:
        network = MobileNetV3SmallNetwork()
        for module in network.modules():
            if self._hardsigmoid and isinstance(module, SqueezeExcite):
                module.gate = nn.Hardsigmoid()
        settle_batch_norm(network)
        return network

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(1, 3, 224, 224),)
