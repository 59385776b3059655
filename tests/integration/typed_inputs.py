"""A model with inputs of the types the runner fills differently, and outputs that divide by one of them."""

from __future__ import annotations

import torch

from model_profiling.models.base import EagerModelBase


class _Echo(torch.nn.Module):
    def forward(
        self, half: torch.Tensor, byte: torch.Tensor, index: torch.Tensor, flag: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return half + 0, byte + 0, index + 0, torch.logical_not(flag), half / half, 1 / half


class TypedInputs(EagerModelBase):
    def get_eager_model(self) -> torch.nn.Module:
        return _Echo()

    def get_example_inputs(self) -> tuple[object, ...]:
        return (
            torch.ones(4, 5, dtype=torch.float16),
            torch.zeros(4, 5, dtype=torch.int8),
            torch.zeros(4, 5, dtype=torch.int64),
            torch.zeros(4, 5, dtype=torch.bool),
        )
