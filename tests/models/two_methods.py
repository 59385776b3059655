"""A model with two methods that use one buffer: `write` leaves in it what `read` finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase, ModelMethod

if TYPE_CHECKING:
    from model_profiling.models.base import Constants


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(1, 32))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.seen
        self.seen.add_(out.mean(0, keepdim=True))
        return out


class TwoMethods(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        return Remembering()

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(8, 32),)

    def get_methods(self) -> Mapping[str, ModelMethod]:
        rows = torch.export.Dim("rows", max=16)
        return {
            "write": ModelMethod(self.get_example_inputs(), ({0: rows},)),
            "read": ModelMethod((torch.randn(1, 32),)),
        }

    def get_constant_methods(self) -> Constants:
        return {"get_width": 32, "get_ends": [3, 5]}
