"""Every replacement that the kit names was tried: before, an operator is outside; after, nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models import replaceable
from said import says
from torch import nn

from model_profiling.core.number_formats import parse_format
from model_profiling.export import rewrites
from model_profiling.export.accuracy import quietly
from model_profiling.export.catalogue import CHANNELS_LAST
from model_profiling.export.exporter import export_model
from model_profiling.export.formats import trace
from model_profiling.export.lowering import lower
from model_profiling.export.outside import REPLACEMENTS
from model_profiling.export.records import DelegationCoverage
from model_profiling.export.tracing import eager_model
from model_profiling.models.catalog import load_model
from model_profiling.program.graph_file import COMPUTED_ONCE

MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(scope="module")
def covered() -> dict[str, DelegationCoverage]:
    """The coverage of each factory of `replaceable.py`."""
    found = {}
    for factory in ("before", "after", "half_before", "half_after"):
        dtype = "fp16" if factory.startswith("half_") else "fp32"
        with quietly():
            named = load_model(f"{MODELS / 'replaceable.py'}:{factory}")
            eager = eager_model(named.name, named.model)
            traced = trace(named.name, eager, parse_format(dtype), None).program
            found[factory] = lower(named.name, {"forward": traced}, "xnnpack").coverage
    return found


@pytest.mark.parametrize("prefix", ["", "half_"])
def test_what_stays_outside_names_what_helps_and_that_helps(covered, prefix) -> None:
    before, after = covered[f"{prefix}before"], covered[f"{prefix}after"]
    cases = replaceable.HALF_CASES if prefix else replaceable.CASES
    outside: dict[int, set[str]] = {}
    for left in before.undelegated:
        outside.setdefault(int(left.module_path.split(".")[1]), set()).add(left.replacement)
    assert set(outside) == set(range(len(cases))), "every case leaves something outside"
    assert all(len(named) == 1 and "" not in named for named in outside.values())
    assert after.undelegated == ()
    assert after.partitions == 1 < before.partitions


def test_every_replacement_was_tried(covered: dict[str, DelegationCoverage]) -> None:
    tried = {left.replacement for name in ("before", "half_before") for left in covered[name].undelegated}
    # The test below tries those that the kit rewrites itself.
    assert {row.instead for row in REPLACEMENTS if not row.rewrite} <= tried


@pytest.mark.parametrize(("factory", "dtype"), [("whole", "fp32"), ("half", "fp16")])
def test_what_a_rewrite_answers_is_in_the_delegate_with_it(factory: str, dtype: str, tmp_path: Path) -> None:
    model = f"{MODELS / 'rewritable.py'}:{factory}"
    before = export_model(model, dtype=dtype, outdir=tmp_path)
    assert before.coverage.undelegated and all(left.rewrite for left in before.coverage.undelegated)
    chosen = tuple(name for name in rewrites.names() if name != CHANNELS_LAST)
    after = export_model(model, dtype=dtype, outdir=tmp_path, optimize=chosen)
    assert (after.coverage.undelegated, after.coverage.partitions) == ((), 1)
    assert after.accuracy.ok and after.pte.name.endswith(f"_{dtype}-optimized.pte")
    assert {left.rewrite for left in before.coverage.undelegated} <= {each.rewrite for each in after.rewrites}
    # What is a function of torch itself is called on a line of `replaceable.py`.
    assert all("able.py:" in each.source for each in after.rewrites)


def test_a_finding_names_rewrites_of_the_catalogue_only() -> None:
    assert {row.rewrite for row in REPLACEMENTS} - {""} <= set(rewrites.names())


def test_what_is_written_instead_computes_the_same() -> None:
    """But for the approximation of GELU, which is called one."""
    for before, after in (
        (replaceable.before, replaceable.after),
        (replaceable.half_before, replaceable.half_after),
    ):
        (old, inputs), (new, _) = before(), after()
        new.load_state_dict(old.state_dict(), strict=False)
        with torch.no_grad():
            pairs = zip(new.eval()(*inputs), old.eval()(*inputs), strict=True)
            for number, (got, wanted) in enumerate(pairs):
                gelu = before is replaceable.half_before and number == 0
                assert torch.allclose(got, wanted, atol=1e-3 if gelu else 1e-5), (before, number)


def test_each_reason_says_its_kind_and_place(covered: dict[str, DelegationCoverage]) -> None:
    outside = {left.call: left for left in covered["before"].undelegated}
    assert outside["expand"].why == "no rule"
    assert outside["conv2d"].why == "refused"
    assert outside["conv2d"].reason == "Expected weight to be a static param"
    assert outside["mean"].dtype == "float32"
    assert outside["mean"].source.startswith("replaceable.py:")
    attention = next(
        group for group in covered["before"].outside if group.call == "scaled_dot_product_attention"
    )
    assert attention.count > 10
    says(attention.text, "scaled_dot_product_attention", "no rule")


def test_what_no_input_reaches_is_known_behind_a_delegate_that_inputs_do_reach() -> None:
    """A mask that is subtracted in the delegate which also works on the input, and compared outside."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("places", torch.arange(8.0))
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            apart = self.places.reshape(1, 8) - self.places.reshape(8, 1)
            mask = apart.masked_fill(apart != 0, -100.0)
            return self.second(x + mask) * (x > 0)

    with quietly():
        traced = torch.export.export(Masked().eval(), (torch.randn(8, 8),))
        coverage = lower("masked", {"forward": traced}, "xnnpack").coverage
    said = {left.operator: left for left in coverage.undelegated}
    assert said["aten.ne.Scalar"].constant and not said["aten.gt.Scalar"].constant
    assert said["aten.where.self"].replacement == COMPUTED_ONCE == said["aten.ne.Scalar"].replacement
