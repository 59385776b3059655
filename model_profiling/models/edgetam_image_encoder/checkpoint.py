"""Loads EdgeTAM's published training weights into the network that runs on a device.

Training keeps a batch norm `X.bn` beside each convolution `X.c`, and in each token mixer a 3x3 convolution, a
1x1 convolution and the identity; on the device one 3x3 convolution computes their sum.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from model_profiling.core.errors import InputError

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
