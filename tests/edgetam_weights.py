"""The weights of RepViT-M1 as timm and EdgeTAM name them while training, written out from the architecture.

Run as a script where timm can be imported, it records what timm's own model answers with them
(`tests/data/repvit_m1.json`): `python tests/edgetam_weights.py`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "data" / "repvit_m1.json"
WIDTHS, DEPTHS = (48, 96, 192, 384), (2, 2, 14, 2)
SAMPLES = 12


def trunk_shapes(stages: str = "stages_") -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each weight's name and shape; timm calls a stage `stages_0` where it gives out features, else
    `stages.0`."""
    yield from _normed("stem.conv1", 24, 3, 3)
    yield from _normed("stem.conv2", 48, 24, 3)
    for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        place = f"{stages}{stage}"
        if stage:
            before = WIDTHS[stage - 1]
            yield from _block(f"{place}.downsample.pre_block", before, gated=False)
            yield from _normed(f"{place}.downsample.spatial_downsample", before, 1, 3)
            yield from _normed(f"{place}.downsample.channel_downsample", width, before, 1)
            yield from _mixer(f"{place}.downsample.ffn", width)
        for number in range(depth):
            yield from _block(f"{place}.blocks.{number}", width, gated=number % 2 == 0)


def checkpoint_weights() -> dict[str, Tensor]:
    """As `edgetam.pt` holds them, with something of the rest of EdgeTAM beside."""
    held = {f"image_encoder.trunk.body.{key}": value for key, value in made_up(trunk_shapes()).items()}
    for number, width in enumerate(reversed(WIDTHS)):
        shapes = [("weight", (256, width, 1, 1)), ("bias", (256,))]
        laterals = made_up((f"image_encoder.neck.convs.{number}.conv.{key}", shape) for key, shape in shapes)
        held |= laterals
    return held | {"memory_encoder.out_proj.bias": torch.zeros(64)}


def made_up(shapes: Iterator[tuple[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """Weights that are the same everywhere: waves, of a size that lets a signal through."""
    return {key: _wave(key, shape) for key, shape in shapes}


def image(size: int = 64) -> Tensor:
    return torch.sin(torch.arange(3 * size * size, dtype=torch.float64) * 0.7).float().view(1, 3, size, size)


def summary_of(features: list[Tensor]) -> list[dict[str, object]]:
    """Shape, mean, deviation and a few values of each."""
    return [
        {
            "shape": list(each.shape),
            "mean": float(each.double().mean()),
            "deviation": float(each.double().std()),
            "values": each.flatten()[:: each.numel() // SAMPLES][:SAMPLES].tolist(),
        }
        for each in features
    ]


def keys_digest(shapes: Iterator[tuple[str, tuple[int, ...]]]) -> str:
    lines = sorted(f"{key} {shape}" for key, shape in shapes)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _normed(layer: str, out: int, inside: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{layer}.c.weight", (out, inside, kernel, kernel)
    for name in ("weight", "bias", "running_mean", "running_var"):
        yield f"{layer}.bn.{name}", (out,)
    yield f"{layer}.bn.num_batches_tracked", ()


def _mixer(layer: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _normed(f"{layer}.conv1", 2 * width, width, 1)
    yield from _normed(f"{layer}.conv2", width, 2 * width, 1)


def _block(layer: str, width: int, *, gated: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _normed(f"{layer}.token_mixer.conv", width, 1, 3)
    yield from _normed(f"{layer}.token_mixer.conv1", width, 1, 1)
    if gated:
        squeezed = {48: 16, 96: 24, 192: 48, 384: 96}[width]
        for name, out, inside in (("fc1", squeezed, width), ("fc2", width, squeezed)):
            yield f"{layer}.se.{name}.weight", (out, inside, 1, 1)
            yield f"{layer}.se.{name}.bias", (out,)
    yield from _mixer(f"{layer}.channel_mixer", width)


def _wave(key: str, shape: tuple[int, ...]) -> Tensor:
    if not shape:
        return torch.tensor(1000)
    count = torch.Size(shape).numel()
    places = torch.arange(count, dtype=torch.float64)
    # Not periodic over a row of weights: neighbours must not be alike.
    wave = torch.sin(places * places * 0.013 + zlib.crc32(key.encode()) % 997).float().view(shape)
    if key.endswith(("running_var", "bn.weight")):
        return 1.0 + 0.4 * wave
    if len(shape) == 1:
        return 0.1 * wave
    fan_in = torch.Size(shape[1:]).numel()
    return wave * (0.5 / fan_in) ** 0.5


def _record() -> None:
    import timm

    model = timm.create_model(
        "repvit_m1", pretrained=False, features_only=True, out_indices=(0, 1, 2, 3)
    ).eval()
    theirs = [(key, tuple(value.shape)) for key, value in model.state_dict().items()]
    model.load_state_dict(made_up(trunk_shapes()))
    with torch.no_grad():
        features = model(image())
    facts = {
        "made_by": "python tests/edgetam_weights.py",
        "versions": {"timm": timm.__version__, "torch": torch.__version__},
        "keys": len(theirs),
        "keys_sha256": keys_digest(iter(theirs)),
        "features": summary_of(features),
    }
    GOLDEN.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
