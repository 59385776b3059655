"""`sme2prof optimize`: rewrites are checked, measured, kept only where they help, and written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ON_ARM
from said import says
from torch import Tensor, nn
from torch.nn import functional

import model_profiling
from model_profiling.cli.main import main
from model_profiling.core.errors import ExportError, InputError
from model_profiling.export import rewrites
from model_profiling.export.exporter import export_model
from model_profiling.models.catalog import given_model
from model_profiling.program.pte import read_program
from model_profiling.targets import TargetChoice
from model_profiling.workflow.optimize import optimize_model
from model_profiling.workflow.profile import ProfileOptions


class Net(nn.Module):
    """A convolution before a call that a made-up rewrite replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x))


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """Registers made-up rewrites, and removes them."""
    catalogue = dict(rewrites.CATALOGUE)
    operators = {name: list(kinds) for name, kinds in rewrites.BY_OPERATOR.items()}

    def add(name: str, operator: str, replacement: Callable[..., Any]) -> None:
        rewrites.rewrite(name, f"aten.{operator}.default", why="why", instead="instead")(replacement)

    yield add
    for kept, now in ((catalogue, rewrites.CATALOGUE), (operators, rewrites.BY_OPERATOR)):
        now.clear()  # type: ignore[attr-defined]
        now.update(kept)  # type: ignore[attr-defined]


def options(tmp_path: Path, target: str) -> ProfileOptions:
    return ProfileOptions(target=TargetChoice(target), outdir=tmp_path, budget_s=2.0)


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_wrong_rewrite_is_dropped_and_the_module_stays_as_it_is(
    register: Any, tmp_path: Path, dtype: str
) -> None:
    register("wrong", "relu", lambda self: self.relu() * 1.15)
    torch.manual_seed(1)
    module = Net().train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    given = given_model(module, (torch.randn(1, 4, 8, 8),))
    wanted = options(tmp_path, "emulated").model_copy(update={"dtype": dtype})
    found = optimize_model(given, wanted, only=("wrong",)).optimization
    (wrong,) = found.rewrites
    assert wrong.decision == "dropped" and not found.helped
    says(wrong.because, "outputs differ")
    after = module.state_dict()
    assert module.training and all(torch.equal(tensor, after[name]) for name, tensor in before.items())


class Broken(Net):
    """In int8 it falls into parts: the quantizer does not know `narrow`, padding is in floating point."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Conv2d(4, 4, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        left, right = x[:, :2], x.narrow(1, 2, 2)
        return self.last(functional.pad(torch.cat((right, left), 1), (1, 1, 1, 1)))


class Pooled(Net):
    """Two images, of which one has one channel, and pools that int8's quantizer knows by their modules."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.AdaptiveAvgPool2d(1))

    def forward(self, x: Tensor, one: Tensor) -> Tensor:
        return self.pools(super().forward(x)) * one


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_channels_last_changes_what_has_channels_and_real_inputs_too(tmp_path: Path, dtype: str) -> None:
    given = [(torch.randn(1, 4, 8, 8), torch.rand(1, 1, 4, 4) + 1) for _ in range(3)]
    chosen = ("channels-last inputs", "adaptive pool")
    made = export_model(Pooled(), given[0], dtype=dtype, outdir=tmp_path, optimize=chosen, calibration=given)
    assert made.rewritten == {"channels-last inputs": 2, "adaptive pool": 1}
    assert made.accuracy.ok and made.coverage.undelegated == ()
    plain = export_model(nn.Linear(4, 4), torch.rand(2, 4), outdir=tmp_path, optimize=chosen)
    assert not plain.rewrites and "channels last" not in str(plain.warnings)


def test_int8_parts_are_not_broken_up(tmp_path: Path) -> None:
    made = export_model(Broken(), torch.randn(1, 4, 8, 8), dtype="int8", outdir=tmp_path, optimize=True)
    assert made.rewritten == {"slices": 1, "padding": 1} and made.accuracy.ok
    method = read_program(made.pte).method("forward")
    assert method is not None and made.coverage.undelegated == ()
    (delegate,) = method.delegates
    inside = ["Conv2d", "StaticSlice", "StaticSlice", "Concatenate2", "Conv2d"]
    assert [node.kind for node in delegate.nodes if node.kind != "StaticTranspose"] == [
        "Convert",
        *inside,
        "Convert",
    ]


class Uneven(Net):
    """Three steps over eight rows, or two, before a pool of eight columns to three."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step, self.last = step, nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(super().forward(x)[:, :, :: self.step])
        return functional.adaptive_avg_pool2d(x, (2, 3))


def test_steps_and_pools_that_do_not_divide_are_one_int8_part(tmp_path: Path) -> None:
    made = export_model(Uneven(3), torch.randn(1, 4, 8, 8), dtype="int8", outdir=tmp_path, optimize=True)
    assert made.rewritten == {"slices": 1, "adaptive pool": 1} and made.accuracy.ok
    assert (made.coverage.undelegated, made.coverage.partitions) == ((), 1)


def test_a_rewrite_that_executorch_cannot_run_is_dropped(register: Any, tmp_path: Path) -> None:
    """XNNPACK fails at a convolution with dynamic ranges behind a change of shape."""
    register("wrong", "relu", lambda self: self.relu() * 1.15)
    image, wanted = torch.randn(1, 4, 8, 8), options(tmp_path, "emulated")
    with pytest.raises(ExportError, match="sme2prof optimize"):
        export_model(Uneven(2), image, dtype="int8-dynamic", outdir=tmp_path, optimize=True)
    wrong = export_model(Net(), image, outdir=tmp_path, optimize=("wrong",))
    says(str(wrong.warnings), "outputs differ from PyTorch", "choose other rewrites (`sme2prof optimize`)")
    wanted = wanted.model_copy(update={"dtype": "int8-dynamic"})
    found = optimize_model(given_model(Uneven(2), (image,)), wanted, only=("slices",)).optimization
    assert [row.decision for row in found.rewrites] == ["dropped"] and not found.helped


def test_from_the_command_line_a_program_is_made_faster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nets.py"
    file.write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = torch.nn.Conv2d(16, 16, 1)\n    def forward(self, x):\n"
        "        return torch.nn.functional.mish(self.conv(x))\n\n"
        "def net():\n    return Net(), (torch.randn(1, 16, 48, 48),)\n"
    )
    here = ["--target", "host", "--outdir", str(tmp_path)]
    assert main(["optimize", f"{file}:net", "--budget", "4", *here, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kept"] == ["mish"]
    assert facts["speedup"]["ratio"] > 1.2 if ON_ARM else "Arm" in facts["not_timed"]
    program = Path(facts["program"])
    assert program.name == "nets_net_xnnpack_fp32-optimized.pte" and program.is_file()
    summary = json.loads(Path(f"{program}.json").read_text())
    (applied,) = summary["rewrites"]
    says(applied["source"], "nets.py:7", "mish")
    home = Path(facts["report"]).parent
    assert json.loads((home / "optimization.json").read_text())["optimized"]["operators_outside"] == 0
    says((home / "optimization.md").read_text(), facts["verdict"], "x * n / (n + 2)", "nets.py:7")
    assert main(["export", f"{file}:net", "--optimize", str(home), "--outdir", str(tmp_path / "again")]) == 0
    says(capsys.readouterr().out, "rewritten", "mish (1)")
    assert (tmp_path / "again" / program.name).read_bytes() == program.read_bytes()
    assert main(["optimize", str(program)]) == 2
    assert not list(home.glob(".candidates*")), "what was only tried is gone"
    assert main(["profile", str(program), "--quick", *here]) == 0
    (manifest,) = (tmp_path / "runs" / "xnnpack_fp32-optimized").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["rewrites"] == {"mish": 1}
    says(manifest.with_name("report.md").read_text(), "Rewritten", "mish (1)")


@pytest.mark.parametrize("setting", ["optimize", "ladder", "sample"])
def test_a_setting_that_it_does_not_have_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match=f"no setting '{setting}'"):
        model_profiling.optimize(Net(), torch.randn(1, 4, 8, 8), **{setting: True})
