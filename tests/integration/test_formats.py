"""Every number format on a CNN, a transformer and an audio network: exported, compared with PyTorch, run
under emulation, and advised."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.core.number_formats import FORMATS
from model_profiling.export.records import read_export
from model_profiling.targets import TargetChoice
from model_profiling.workflow.profile import ProfileOptions, profile_one

ZOO = Path(__file__).parents[1] / "zoo"
NETS = {"cnn": "toy_cnn", "transformer": f"{ZOO}/distilbert.py:model", "audio": f"{ZOO}/wav2vec2.py:plain"}
QUICK = {("audio", "int8-dynamic"), ("audio", "int4:32")}


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("net", "dtype"),
    [
        pytest.param(net, dtype, marks=[pytest.mark.quick] if (net, dtype) in QUICK else [])
        for net in NETS
        for dtype in (*FORMATS, "int4:32")
    ],
)
def test_each_format_reaches_sme2_where_it_has_kernels(
    net: str, dtype: str, exported: Callable[..., object], tmp_path: Path
) -> None:
    pte = exported(NETS[net], dtype).pte
    accuracy = read_export(pte).accuracy
    assert accuracy.lowering and accuracy.lowering.ok, accuracy
    assert accuracy.precision and accuracy.precision.ok, accuracy
    options = ProfileOptions(target=TargetChoice("emulated"), outdir=tmp_path, quick=True)
    outcome = profile_one(str(pte), options).main
    found = outcome.data.outlook.coverage
    assert found.tested and found.isa == "SME2" and found.proven
    four_bits = [operator for operator in found.ran if "4W" in operator.name]
    assert bool(four_bits) is dtype.startswith("int4")
    assert not any(operator.on_sme for operator in four_bits), "this XNNPACK has no SME2 kernel for them"
    # XNNPACK's own kernels for int8 convolutions have only `QC8` in their names.
    eight_bits = [operator for operator in found.ran if re.search("8W|QC8", operator.name)]
    assert bool(eight_bits) is dtype.startswith("int8")
    missing = {operator.cause for operator in eight_bits if not operator.on_sme}
    assert missing <= {"depthwise", "one input channel"}, missing
    advised = {finding.id for finding in outcome.data.findings}
    assert found.arithmetic_share is not None
    if dtype.startswith("int4") and net != "cnn":
        assert "misses-sme2" in advised, found.arithmetic_share
    assert "misses-sme2" not in advised or found.missing
