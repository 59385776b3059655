"""The zoo's deep networks with fewer of the same layers: what one export of each kind costs seconds."""

from __future__ import annotations

import torch
from torch import nn

from model_profiling.models.edgetam_image_encoder.model import ImageEncoder, settle_encoder


def edgetam() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """One block a stage, the first gated."""
    network = ImageEncoder(depths=(1, 1, 1, 1))
    settle_encoder(network)
    return network, (torch.randn(1, 3, 64, 64),)
