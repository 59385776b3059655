"""What must be true of the model; `sme2prof onboard new_model --check` runs this, too."""

from __future__ import annotations

import torch

from model_profiling.models import load_model


def test_its_output() -> None:
    # Replace: what your model must answer, such as an output that its authors publish.
    model = load_model("new_model").model
    with torch.no_grad():
        output = model.get_eager_model().eval()(*model.get_example_inputs())
    assert output.shape == (1, 10)
