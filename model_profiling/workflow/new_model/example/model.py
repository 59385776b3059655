"""A network as it is published, and what is done around it so that it exports well and runs fast.

It works as it stands. Replace the parts marked with "Replace" by those of your model, one after the other,
and run `sme2prof onboard new_model --check` after each: it says what broke, and what stays outside delegates.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model_profiling.models.base import EagerModelBase

# Replace: the one input shape of real use. The exported program takes no other, which is what lets every
# operator below be planned, and memory be laid out, before anything runs.
SIZE = 96
CLASSES = 10
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# Replace: your network. Import it from where it lives, or put a copy with its licence into this folder. Leave
# its code as it is: what has to differ is changed from outside, below, so that its next release still fits.
class SqueezeExcite(nn.Module):
    """Weighs channels by what the whole picture holds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        seen = F.relu(self.reduce(x.mean((2, 3), keepdim=True)))
        weighed: Tensor = x * self.gate(self.expand(seen))
        return weighed


class Network(nn.Module):
    """Takes normalised pictures of any size; returns a dictionary, as research code likes to."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, stride=4, padding=1), nn.ReLU())
        self.position = nn.Parameter(0.1 * torch.randn(1, width, 7, 7))
        self.block = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width),
            nn.Conv2d(width, 2 * width, 1),
            nn.ReLU(),
            SqueezeExcite(2 * width),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, CLASSES)

    def position_for(self, size: torch.Size) -> Tensor:
        """The learnt positions, stretched to the size of what they are added to."""
        return F.interpolate(self.position, size=size, mode="bilinear", align_corners=False)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        x = self.stem(pictures)
        x = self.block(x + self.position_for(x.shape[-2:]))
        return {"features": x, "logits": self.head(x.mean((2, 3), keepdim=True).flatten(1))}


# Operator replacement: `--check` names what XNNPACK leaves outside and what to write instead. A module that
# is replaced as a whole needs no change in the network's own code. Replace: with what `--check` tells you,
# or delete it where nothing is outside.
class GateInside(nn.Module):
    """nn.Hardsigmoid, number for number, in operators that XNNPACK takes; its constants are buffers, so that
    they follow the model into fp16."""

    three: Tensor
    sixth: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("three", torch.tensor(3.0))
        self.register_buffer("sixth", torch.tensor(1 / 6))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x + self.three) * self.sixth


def replace_modules(network: nn.Module) -> None:
    """Put `GateInside` where the network has an nn.Hardsigmoid."""
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Hardsigmoid):
                setattr(parent, name, GateInside())


class Wrapper(nn.Module):
    """What is exported: the network, with everything around it that is part of an inference.

    - Pictures come as they do in use, 0 to 1: normalising them is part of the inference, and so of its time.
    - One tensor goes in and one comes out: no dictionary, and nothing that nobody reads.
    - Shapes are fixed, so what only depends on them is computed once, here, and not in every inference.
    """

    mean: Tensor
    scale: Tensor
    position: Tensor

    def __init__(self, network: Network) -> None:
        super().__init__()
        replace_modules(network)
        self.network = network
        # As one multiplication and one addition, in buffers that take the model's dtype.
        self.register_buffer("scale", 1 / torch.tensor(STD).reshape(1, 3, 1, 1))
        self.register_buffer("mean", -torch.tensor(MEAN).reshape(1, 3, 1, 1) * self.scale)
        with torch.no_grad():
            inner = network.stem(torch.zeros(1, 3, SIZE, SIZE)).shape[-2:]
            self.register_buffer("position", network.position_for(inner))

    def forward(self, picture: Tensor) -> Tensor:
        x = self.network.stem(picture * self.scale + self.mean)
        x = self.network.block(x + self.position)
        logits: Tensor = self.network.head(x.mean((2, 3), keepdim=True).flatten(1))
        return logits


class NewModel(EagerModelBase):
    """What `sme2prof` asks for: the module and the inputs that stand for its real use."""

    def get_eager_model(self) -> nn.Module:
        # Replace: load trained weights here (torch.load(..., weights_only=True)). Random ones do for timing,
        # but whether fp16 and int8 are accurate enough only trained ones tell.
        return Wrapper(Network()).eval()

    def get_example_inputs(self) -> tuple[object, ...]:
        # Replace: one real input, in the shape, dtype and range the model meets in use.
        return (torch.rand(1, 3, SIZE, SIZE),)

    def get_calibration_inputs(self) -> Iterator[tuple[object, ...]]:
        # Replace: a hundred or so real inputs; int8 takes the ranges of its numbers from them.
        for _ in range(4):
            yield (torch.rand(1, 3, SIZE, SIZE),)
