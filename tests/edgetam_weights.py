"""Made-up weights of RepViT-M1 under the names that timm and EdgeTAM give them while training.

Run as a script where timm can be imported, it records those names and what timm's own model answers with the
weights (`tests/data/repvit_m1.json`): `python tests/edgetam_weights.py`.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "data" / "repvit_m1.json"
WIDTHS = (48, 96, 192, 384)
SAMPLES = 12


def trunk_weights() -> dict[str, Tensor]:
    """Made-up weights of timm's model: waves, the same everywhere, of a size that lets a signal through."""
    shapes = json.loads(GOLDEN.read_text(encoding="utf-8"))["shapes"]
    return {key: _wave(key, tuple(shape)) for key, shape in shapes.items()}


def checkpoint_weights() -> dict[str, Tensor]:
    """As `edgetam.pt` holds them, with something of the rest of EdgeTAM beside."""
    held = {f"image_encoder.trunk.body.{key}": value for key, value in trunk_weights().items()}
    for number, width in enumerate(reversed(WIDTHS)):
        for name, shape in (("weight", (256, width, 1, 1)), ("bias", (256,))):
            key = f"image_encoder.neck.convs.{number}.conv.{name}"
            held[key] = _wave(key, shape)
    return held | {"memory_encoder.out_proj.bias": torch.zeros(64)}


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
    facts: dict[str, object] = {
        "made_by": "python tests/edgetam_weights.py",
        "versions": {"timm": timm.__version__, "torch": torch.__version__},
        "shapes": {key: list(value.shape) for key, value in model.state_dict().items()},
    }
    GOLDEN.write_text(json.dumps(facts), encoding="utf-8")
    model.load_state_dict(trunk_weights())
    with torch.no_grad():
        facts["features"] = summary_of(model(image()))
    GOLDEN.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
