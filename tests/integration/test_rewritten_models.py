"""Every replacement that the kit writes itself was tried: the patched file leaves nothing outside the
delegate and computes the same; calls that only look alike stay."""

from __future__ import annotations

from pathlib import Path

import torch

from model_profiling.core.number_formats import parse_format
from model_profiling.export.accuracy import quietly
from model_profiling.export.formats import trace
from model_profiling.export.lowering import lower
from model_profiling.export.outside import REPLACEMENTS
from model_profiling.export.records import Coverage
from model_profiling.export.rewriting import read_source
from model_profiling.export.tracing import Eager, eager_model
from model_profiling.models.catalog import load_model

REWRITABLE = Path(__file__).parents[1] / "models" / "rewritable.py"


def lowered(file: Path, factory: str, dtype: str = "fp32") -> tuple[Coverage, Eager]:
    with quietly():
        named = load_model(f"{file}:{factory}")
        eager = eager_model(named.name, named.model)
        traced = trace(named.name, eager, parse_format(dtype), None)
        return lower(named.name, {"forward": traced.program}, "xnnpack").coverage, eager


def test_a_patched_file_leaves_nothing_outside_and_computes_the_same(tmp_path: Path) -> None:
    tried = set()
    for factory, dtype in (("whole", "fp32"), ("half", "fp16")):
        before, old = lowered(REWRITABLE, factory, dtype)
        made = {left.rewrite.start: left.rewrite for left in before.undelegated if left.rewrite}
        tried |= {
            next(row for row in REPLACEMENTS if row.write and row.fits(left, frozenset()))
            for left in before.undelegated
        }
        patched = tmp_path / f"patched_{factory}.py"
        patched.write_text(read_source(REWRITABLE).replaced(list(made.values())), encoding="utf-8")
        after, new = lowered(patched, factory, dtype)
        assert (after.undelegated, after.partitions) == ((), 1)
        assert before.partitions > 1
        new.module.load_state_dict(old.module.state_dict())
        for number, (got, wanted) in enumerate(zip(new.run(), old.run(), strict=True)):
            assert torch.allclose(got, wanted, atol=1e-5), (factory, number)
    assert tried == {row for row in REPLACEMENTS if row.write}


def test_what_only_looks_alike_is_not_rewritten() -> None:
    left = lowered(REWRITABLE, "others")[0].undelegated
    assert not any(each.rewrite for each in left)
    said = {each.module_path.split(".")[1]: each.replacement for each in left}
    assert [said[str(number)] for number in (0, 1, 2)] == ["", "", ""], "no wrong advice either"
    # In words for a person, where the line does not have the call itself.
    assert said["7"] == "x.mean((2, 3), keepdim=True)"


def test_a_replacement_has_the_arguments_of_the_call(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    file.write_text(
        "import torch\nclass Parts(torch.nn.Module):\n    def forward(self, x):\n"
        "        q, k, v = x.chunk(3, dim=-1)\n        return q + k * v\n\n"
        "def parts():\n    return Parts(), (torch.ones(1, 5, 192),)\n"
    )
    (left,) = lowered(file, "parts")[0].undelegated
    assert left.replacement == "(x[..., :64], x[..., 64:128], x[..., 128:192])"
