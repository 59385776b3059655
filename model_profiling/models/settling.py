"""Random weights that pass a signal on, for networks without trained ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def settle(
    network: torch.nn.Module, inputs: Sequence[object], sizes: Mapping[str, float] | None = None
) -> None:
    """Scale the weights of each convolution so that what it puts out has the root mean square 1 on `inputs`,
    or what `sizes` says for layers whose names end so.

    Trained networks are like that. With PyTorch's first weights a signal fades on its way through a deep
    network to what fp16 and int8 round to zero: nothing would be left to compare outputs by. Layers are
    settled in the order they run, each on what the settled ones before it give. Means are left in: taken out
    of every layer, as batch norm does before training, rounding errors would grow by a fifth from each to
    the next.
    """
    import torch
    from torch import nn

    wanted: dict[torch.nn.Module, float] = {}

    def scaled(layer: torch.nn.Module, _: object, made: torch.Tensor) -> torch.Tensor:
        size = made.square().mean().sqrt() / wanted[layer]
        for weights in layer.parameters():
            weights.div_(size)
        return made / size

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                given = (value for end, value in (sizes or {}).items() if name.endswith(end))
                wanted[layer] = next(given, 1.0)
                hooks.callback(layer.register_forward_hook(scaled).remove)
        network.eval()(*inputs)
