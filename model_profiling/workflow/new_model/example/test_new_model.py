"""The wrapper computes what the network computes, and the model exports; run it with `python -m pytest`."""

from __future__ import annotations

from pathlib import Path

import torch

from model_profiling import export_model
from model_profiling.models import load_model

from . import model


def test_the_wrapper_computes_what_the_network_does() -> None:
    """Replace: compare with the network as its authors use it. It tells which change was one too many."""
    torch.manual_seed(0)
    network = model.Network().eval()
    (picture,) = model.NewModel().get_example_inputs()
    assert isinstance(picture, torch.Tensor)
    mean, std = (torch.tensor(numbers).reshape(1, 3, 1, 1) for numbers in (model.MEAN, model.STD))
    normalised = (picture - mean) / std
    with torch.no_grad():
        expected = network(normalised)["logits"]
        found = model.Wrapper(network).eval()(picture)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_it_is_registered() -> None:
    assert load_model("new_model").name == "new_model"


def test_it_exports_whole(tmp_path: Path) -> None:
    """Replace: with a lower share, where you decide to leave something outside the delegate."""
    exported = export_model("new_model", dtype="fp32", outdir=tmp_path)
    assert exported.accuracy.ok, exported.accuracy.problem
    assert exported.coverage.share == 1.0, [group.text for group in exported.coverage.outside]
