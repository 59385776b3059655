import torch
from torch import nn


class Paths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.depthwise7 = nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.depthwise3 = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.large = nn.Conv2d(16, 16, 9, padding=4)
        self.point = nn.Conv2d(16, 32, 1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.q = nn.Linear(16, 16)
        self.k = nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, image):
        x = torch.relu(self.stem(image))
        x = torch.relu(self.grouped(x))
        x = self.depthwise7(x)
        x = self.depthwise3(x)
        x = torch.relu(self.large(x))
        x = self.up(torch.relu(self.point(x)))
        tokens = torch.flatten(x, 2).transpose(1, 2)
        tokens = tokens[:, :64]
        scores = torch.softmax(torch.matmul(self.q(tokens), self.k(tokens).transpose(1, 2)), -1)
        tokens = torch.matmul(scores, tokens)
        return self.head(tokens.mean(1))


def paths():
    torch.manual_seed(0)
    return Paths().eval(), (torch.randn(1, 3, 32, 32),)
