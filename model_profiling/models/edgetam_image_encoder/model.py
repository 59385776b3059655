"""EdgeTAM's image encoder in plain PyTorch, in the form that runs on a device.

After `sam2/configs/edgetam.yaml` of EdgeTAM (Zhou et al., 2025) and "RepViT: Revisiting Mobile CNN From ViT
Perspective" (Wang et al., 2024): a RepViT-M1 trunk with strides 4, 8, 16 and 32, and a feature pyramid of 256
channels. As its authors deploy it, the three branches of each token mixer and all batch norms are merged into
one convolution each; `fused` does the same to a checkpoint's weights. Modules keep their names.

EdgeTAM also returns position encodings: they do not depend on the image, so a device computes them once.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from model_profiling.core.errors import InputError
from model_profiling.models.base import EagerModelBase, settle

WIDTHS = (48, 96, 192, 384)
DEPTHS = (2, 2, 14, 2)
MLP_RATIO = 2
SQUEEZE_RATIO = 4
NECK_WIDTH = 256
LARGEST_STRIDE = 32
TOGETHER = 16


class Gelu(nn.Module):
    """GELU; in fp16 its tanh form, x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x^3)).

    XNNPACK has no GELU in fp16: as one operator it would stay outside the delegate 24 times. The two forms
    differ by less than 0.0005, half of what fp16 resolves at 1. The constants are buffers, which take the
    model's dtype; a number in the code would be lifted as float32.
    """

    cubic: Tensor
    linear: Tensor

    def __init__(self) -> None:
        super().__init__()
        slope = 2 * math.sqrt(2 / math.pi)
        self.register_buffer("linear", torch.full((1, 1, 1, 1), slope), persistent=False)
        self.register_buffer("cubic", torch.full((1, 1, 1, 1), slope * 0.044715), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float16:
            return nn.functional.gelu(x)
        return x * torch.sigmoid(x * (self.linear + self.cubic * (x * x)))


class RepViTGate(nn.Module):
    """Scales each channel by a gate computed from the pooled image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = math.floor(channels / SQUEEZE_RATIO / 8 + 0.5) * 8
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.fc2(nn.functional.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(gate)


class ChannelMixer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, MLP_RATIO * channels, 1)
        self.act = Gelu()
        self.conv2 = nn.Conv2d(MLP_RATIO * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.conv2(self.act(self.conv1(x)))
        return x + mixed


class RepViTBlock(nn.Module):
    """Mix the pixels of each channel, gate in every second block, mix the channels of each pixel."""

    def __init__(self, channels: int, *, gated: bool) -> None:
        super().__init__()
        self.token_mixer = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        with torch.no_grad():
            self.token_mixer.weight[:, :, 1, 1] += 1.0  # the identity branch
        self.se = RepViTGate(channels) if gated else nn.Identity()
        self.channel_mixer = ChannelMixer(channels)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.channel_mixer(self.se(self.token_mixer(x)))
        return mixed


class Downsample(nn.Module):
    """Halve height and width, and add channels."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.pre_block = RepViTBlock(inside, gated=False)
        self.spatial_downsample = nn.Conv2d(inside, inside, 3, stride=2, padding=1, groups=inside)
        self.channel_downsample = nn.Conv2d(inside, out, 1)
        self.ffn = ChannelMixer(out)

    def forward(self, x: Tensor) -> Tensor:
        halved = self.channel_downsample(self.spatial_downsample(self.pre_block(x)))
        mixed: Tensor = self.ffn(halved)
        return mixed


class Stage(nn.Module):
    def __init__(self, inside: int, out: int, depth: int) -> None:
        super().__init__()
        self.downsample = Downsample(inside, out) if inside != out else nn.Identity()
        self.blocks = nn.Sequential(*(RepViTBlock(out, gated=place % 2 == 0) for place in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.downsample(x))
        return features


class Stem(nn.Module):
    """Reduce height and width to a quarter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0] // 2, 3, stride=2, padding=1)
        self.act = Gelu()
        self.conv2 = nn.Conv2d(WIDTHS[0] // 2, WIDTHS[0], 3, stride=2, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        features: Tensor = self.conv2(self.act(self.conv1(image)))
        return features


class Trunk(nn.Module):
    """RepViT-M1 without its classifier; returns the features after each stage."""

    def __init__(self, depths: Sequence[int] = DEPTHS) -> None:
        super().__init__()
        self.stem = Stem()
        before = (WIDTHS[0], *WIDTHS[:-1])
        self.stages = nn.ModuleList(
            Stage(inside, out, depth) for inside, out, depth in zip(before, WIDTHS, depths, strict=True)
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        features = [self.stem(image)]
        for stage in self.stages:
            features.append(stage(features[-1]))
        return features[1:]


class Twice(nn.Module):
    """Nearest interpolation by 2: every pixel four times.

    Written as a transposed convolution that copies each channel, because XNNPACK runs that but not nearest
    interpolation. Groups have 16 channels, as many as its kernels compute at once: with one channel per group
    it took six times as long, longer than nearest interpolation outside the delegate.
    """

    same: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = channels // TOGETHER
        same = torch.eye(TOGETHER).reshape(TOGETHER, TOGETHER, 1, 1).repeat(self.groups, 1, 2, 2)
        self.register_buffer("same", same, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.conv_transpose2d(x, self.same, stride=2, groups=self.groups)


class Neck(nn.Module):
    """Bring each level to 256 channels, the coarsest first in `convs`. The coarsest is added to the level
    below it and is not returned; the two finest levels stand alone."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Sequential() for _ in WIDTHS)
        for lateral, width in zip(self.convs, reversed(WIDTHS), strict=True):
            assert isinstance(lateral, nn.Sequential)
            lateral.add_module("conv", nn.Conv2d(width, NECK_WIDTH, 1))
        self.twice = Twice(NECK_WIDTH)

    def forward(self, levels: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        coarsest, third, second, finest = (
            lateral(level) for lateral, level in zip(self.convs, reversed(levels), strict=True)
        )
        return finest, second, third + self.twice(coarsest)


class ImageEncoder(nn.Module):
    """Returns EdgeTAM's `backbone_fpn`, at strides 4, 8 and 16; the last is its `vision_features`."""

    def __init__(self, depths: Sequence[int] = DEPTHS) -> None:
        super().__init__()
        self.trunk = Trunk(depths)
        self.neck = Neck()

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features: tuple[Tensor, Tensor, Tensor] = self.neck(self.trunk(image))
        return features


def settle_encoder(network: ImageEncoder) -> None:
    """Make each block add less than what passes it by, as in trained networks."""
    settle(network, (torch.randn(1, 3, 256, 256),), {"channel_mixer.conv2": 0.3, "ffn.conv2": 0.3})


# The published training weights: a batch norm `X.bn` beside each convolution `X.c`, and in each token mixer a
# 3x3 convolution, a 1x1 convolution and the identity; on the device one 3x3 convolution computes their sum.

TRUNK = "image_encoder.trunk.body."
NECK = "image_encoder.neck."
BATCH_NORM_EPS = 1e-5
_FIX = "use checkpoints/edgetam.pt from a clone of EdgeTAM (`git lfs pull` fetches it)"
_UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(RuntimeError, ValueError, LookupError, TypeError, AttributeError),
)


def load_checkpoint(encoder: nn.Module, path: Path) -> None:
    """Load the image encoder's weights from `path`; the rest of EdgeTAM is ignored, and nothing in the file
    is executed."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        weights = {key: value.float() for key, value in content["model"].items()}
    except _UNREADABLE as problem:
        raise InputError(f"{path} is not a PyTorch checkpoint", _FIX) from problem
    trunk = {key.removeprefix(TRUNK): value for key, value in weights.items() if key.startswith(TRUNK)}
    neck = {key.removeprefix(NECK): value for key, value in weights.items() if key.startswith(NECK)}
    try:
        state = {f"trunk.{key}": value for key, value in fused(trunk).items()}
        encoder.load_state_dict(state | {f"neck.{key}": value for key, value in neck.items()})
    except (KeyError, RuntimeError) as problem:
        reason = " ".join(str(problem).split()[:12])
        raise InputError(f"{path} does not fit EdgeTAM's image encoder: {reason}", _FIX) from problem


def fused(trunk: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fuse a RepViT trunk's training weights: one convolution for each group of branches."""
    plain: dict[str, Tensor] = {}
    for key, value in trunk.items():
        name = key.replace("stages_", "stages.", 1)  # as timm's feature extractor spells it
        layer, _, last = key.rpartition(".c.")
        if layer and last == "weight":
            mean, variance, weight, bias = (
                trunk[f"{layer}.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
            )
            scale = weight / torch.sqrt(variance + BATCH_NORM_EPS)
            name = name.removesuffix(".c.weight")
            plain[f"{name}.weight"] = value * scale.view(-1, 1, 1, 1)
            plain[f"{name}.bias"] = bias - mean * scale
        elif not re.search(r"\.(c|bn)\.\w+$", key):
            plain[name] = value
    suffix = ".conv.weight"
    for mixer in [key.removesuffix(suffix) for key in plain if key.endswith(f"token_mixer{suffix}")]:
        wide, point = plain.pop(f"{mixer}.conv.weight"), plain.pop(f"{mixer}.conv1.weight")
        plain[f"{mixer}.weight"] = wide + nn.functional.pad(point + 1.0, [1, 1, 1, 1])
        plain[f"{mixer}.bias"] = plain.pop(f"{mixer}.conv.bias") + plain.pop(f"{mixer}.conv1.bias")
    return plain


class EdgeTAMImageEncoder(EagerModelBase):
    def __init__(self, size: int = 1024, checkpoint: Path | None = None) -> None:
        if size % LARGEST_STRIDE:
            raise InputError(
                f"edgetam_image_encoder does not take images of {size}x{size}",
                f"give a multiple of {LARGEST_STRIDE}",
            )
        self.size, self.checkpoint = size, checkpoint

    def get_eager_model(self) -> nn.Module:
        network = ImageEncoder()
        if self.checkpoint is None:
            settle_encoder(network)
        else:
            load_checkpoint(network, self.checkpoint)
        return network

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(1, 3, self.size, self.size),)
