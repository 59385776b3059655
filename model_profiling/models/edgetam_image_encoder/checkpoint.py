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
_FIX = "use checkpoints/edgetam.pt from a clone of EdgeTAM"

Weights = Mapping[str, Tensor]


def load_checkpoint(encoder: nn.Module, path: Path) -> None:
    """Load the image encoder's weights from `path`; the rest of EdgeTAM is ignored."""
    weights = _read(path)
    trunk = {key.removeprefix(TRUNK): value for key, value in weights.items() if key.startswith(TRUNK)}
    neck = {key.removeprefix(NECK): value for key, value in weights.items() if key.startswith(NECK)}
    if not trunk or not neck:
        raise InputError(f"{path} has no weights of EdgeTAM's image encoder", _FIX)
    found = {f"trunk.{key}": value for key, value in fused(trunk).items()}
    found |= {f"neck.{key}": value for key, value in neck.items()}
    _check_fits(encoder, found, path)
    encoder.load_state_dict(found)


def fused(trunk: Weights) -> dict[str, Tensor]:
    """Fuse a RepViT trunk's training weights: one convolution for each group of branches."""
    plain: dict[str, Tensor] = {}
    for written, value in trunk.items():
        # timm spells it `stages.N`, or `stages_N` in its feature extractor.
        key = re.sub(r"^stages[_.]", "stages.", written)
        layer, _, last = key.rpartition(".")
        if last == "weight" and layer.endswith(".c"):
            layer = layer.removesuffix(".c")
            plain[f"{layer}.weight"], plain[f"{layer}.bias"] = _with_batch_norm(
                trunk, _prefix_of(trunk, layer)
            )
        elif not re.search(r"\.(c|bn)\.\w+$", key) and not key.startswith("head"):
            plain[key] = value
    for mixer in [
        key.removesuffix(".conv.weight") for key in plain if key.endswith("token_mixer.conv.weight")
    ]:
        wide, point = plain.pop(f"{mixer}.conv.weight"), plain.pop(f"{mixer}.conv1.weight")
        centre = nn.functional.pad(point + 1.0, [1, 1, 1, 1])
        plain[f"{mixer}.weight"] = wide + centre
        plain[f"{mixer}.bias"] = plain.pop(f"{mixer}.conv.bias") + plain.pop(f"{mixer}.conv1.bias")
    return plain


def _prefix_of(trunk: Weights, layer: str) -> str:
    """`layer` as the checkpoint spells it."""
    return layer if f"{layer}.c.weight" in trunk else layer.replace("stages.", "stages_", 1)


def _with_batch_norm(trunk: Weights, layer: str) -> tuple[Tensor, Tensor]:
    missing = [
        name
        for name in ("weight", "bias", "running_mean", "running_var")
        if f"{layer}.bn.{name}" not in trunk
    ]
    if missing:
        raise InputError(f"the checkpoint has no '{layer}.bn.{missing[0]}'", _FIX)
    weight, bias, mean, variance = (
        trunk[f"{layer}.bn.{name}"] for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight / torch.sqrt(variance + BATCH_NORM_EPS)
    return trunk[f"{layer}.c.weight"] * scale.view(-1, 1, 1, 1), bias - mean * scale


def _read(path: Path) -> Weights:
    """Read the state dict in a file of `torch.save`; nothing in the file is executed."""
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}", _FIX) from problem
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, pickle.UnpicklingError) as problem:
        raise InputError(f"{path} is not a PyTorch checkpoint{_lfs_pointer(path)}", _FIX) from problem
    state = held.get("model", held) if isinstance(held, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} has no state dict", _FIX)
    return {str(key): value.float() if value.is_floating_point() else value for key, value in state.items()}


def _lfs_pointer(path: Path) -> str:
    """Name the most frequent cause: a clone made without git-lfs."""
    with path.open("rb") as file:
        return (
            ": it is a git-lfs pointer; run git lfs pull"
            if file.read(20).startswith(b"version https://git")
            else ""
        )


def _check_fits(encoder: nn.Module, found: Weights, path: Path) -> None:
    wanted = encoder.state_dict()
    for key in [*wanted, *found]:
        if key not in found:
            raise InputError(f"{path} has no weights for '{key}'", _FIX)
        if key not in wanted:
            raise InputError(f"{path} has weights for '{key}', which RepViT-M1 does not have", _FIX)
        if found[key].shape != wanted[key].shape:
            shapes = f"{tuple(found[key].shape)} instead of {tuple(wanted[key].shape)}"
            raise InputError(f"'{key}' in {path} has the shape {shapes}", _FIX)
