"""Which dtype to ship: the verdict follows the evidence on every kind of machine; the page says the same."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import says, says_together

from model_profiling.config.series import Series
from model_profiling.core.records import read_record, write_record
from model_profiling.export.records import EXAMPLE_INPUTS
from model_profiling.program.graph_file import Undelegated, group_outside
from model_profiling.report import dtypes
from model_profiling.report.document import render_markdown, render_terminal
from model_profiling.report.dtypes import dtypes_document, dtypes_table
from model_profiling.statistics.speedup import Speedup, Verdict

BASELINE = Series("linux_baseline", 1)
GELU = Undelegated(
    "aten.gelu.default", "aten_gelu_default", "mlp", "GELU does not support fp16", "refused", call="gelu",
    source="model.py:7", code="return F.gelu(x)", replacement="x * torch.sigmoid(1.702 * x)",
)  # fmt: skip


def side(dtype: str, ms: float | None = None, **more: object) -> dtypes.DtypeSide:
    error = {"fp32": 1e-7, "fp16": 2e-3, "int8": 0.02}[dtype]
    known = dtypes.DtypeSide(
        dtype=dtype, program=f"../artifacts/m_xnnpack_{dtype}.pte", sha256="5" * 64,
        size_bytes={"fp32": 4_000_000, "fp16": 2_000_000, "int8": 1_000_000}[dtype],
        runs=(f"xnnpack_{dtype}/linux",), delegates=1, operators_inside=9,
        latency=dtypes.DtypeLatency(BASELINE, ms, ms * 0.9, ms * 1.1) if ms else None,
        sme2=dtypes.OnSme2("executed", "SME2 kernels were called", 4, 4, 1.0),
        accuracy=dtypes.DtypeAccuracy(error, EXAMPLE_INPUTS if dtype == "int8" else ""),
    )  # fmt: skip
    return replace(known, **more)  # type: ignore[arg-type]


def pair(dtype: str, against: str, verdict: Verdict, ratio: float = 2.0) -> dtypes.DtypePair:
    low, high = (ratio * 0.9, ratio * 1.1) if verdict is not Verdict.NOT_COMPARABLE else (None, None)
    known = None if verdict is Verdict.NOT_COMPARABLE else ratio
    speedup = Speedup(verdict, "they differ", known, low, high, 0.01, 0.95, 6, 2.0, 1.0, "t")
    return dtypes.DtypePair(dtype, against, speedup)


def made(machine: str, *sides: dtypes.DtypeSide, pairs: tuple[dtypes.DtypePair, ...] = ()) -> dtypes.Dtypes:
    found = dtypes.Dtypes(model="m", cpu="CPU X", machine=machine, sides=sides, pairs=pairs)  # type: ignore[arg-type]
    return dtypes.decide(found)


def said(found: dtypes.Dtypes) -> str:
    return "\n".join(found.sentences)


THREE = (side("fp32", 8.0), side("fp16", 4.0), side("int8", 3.9))


def test_accuracy_on_real_inputs_and_kept_layers_stand_beside_the_latency() -> None:
    measured = dtypes.DtypeAccuracy(0.02, "data.npz", real_inputs=32, top1="31 of 32")
    int8 = side("int8", 2.0, accuracy=measured, keep=("head", "stem"))
    pairs = (pair("int8", "fp32", Verdict.FASTER),)
    found = made("arm", side("fp32", 8.0), int8, pairs=pairs)
    says_together(said(found), "On this CPU", "int8 with head and stem in fp32", "2.000 ms")
    assert "example inputs" not in said(found)
    page = render_markdown(dtypes_document(found))
    says_together(page, "error against float32", "0.02")
    says(page, "32 calibration inputs")
    says_together(page, "same top-1 as float32", "31 of 32")
    says(page, "int8: head, stem in fp32", "int8: ranges come from data.npz")


def test_the_fastest_beyond_noise_is_shipped_else_outputs_decide() -> None:
    pairs = (pair("int8", "fp32", Verdict.FASTER), pair("int8", "fp16", Verdict.FASTER, 1.3))
    found = made("sme2", *THREE, pairs=pairs)
    assert found.ship == "int8"
    says_together(said(found), "int8", "3.900 ms", "CPU X", "SME2")
    says_together(said(found), "2.00x", "1.80", "2.20", "fp32")
    says_together(render_terminal([dtypes_table(found)]), "int8 compared with it", "2.00x", "1.30x")
    assert not found.with_sme2, "the first answer has SME2"
    says_together(said(found), "int8 calibration", "example inputs")
    assert "projection" not in said(found)
    pairs = (pair("int8", "fp32", Verdict.FASTER), pair("int8", "fp16", Verdict.NO_CHANGE, 1.02))
    found = made("sme2", *THREE, pairs=pairs)
    assert found.ship == "fp16"
    says(said(found), "int8 may be as fast", "--budget", "fp16 is nearer to PyTorch")
    assert "as fast as" not in found.on_this_cpu, "no ratio of another format beside the one to ship"
    found = made("sme2", *THREE[1:], pairs=(pair("int8", "fp16", Verdict.SLOWER, 0.8),))
    assert found.ship == "fp16"
    says_together(said(found), "int8", "lower median", "fp16", "faster")


def test_what_cannot_be_judged_or_is_too_far_off_is_not_shipped() -> None:
    pairs = (pair("fp16", "fp32", Verdict.NOT_COMPARABLE),)
    found = made("sme2", *THREE[:2], pairs=pairs)
    assert found.ship == "fp16"
    says_together(said(found), "fp16", "fp32", "not", pairs[0].speedup.reason)
    assert "as fast as" not in said(found)
    untested = dtypes.OnSme2("not tested", "there is no emulator")
    found = made("emulated", side("fp32", sme2=untested), side("fp16", sme2=untested))
    assert "matrix arithmetic" not in said(found)
    assert "not tested" in render_terminal([dtypes_table(found)])
    wrong = "PyTorch in float32 by 0.4 of their range (accepted 0.25)"
    off = dtypes.DtypeAccuracy(0.4, EXAMPLE_INPUTS, wrong=wrong)
    pairs = (pair("int8", "fp16", Verdict.FASTER), pair("int8", "fp32", Verdict.FASTER))
    found = made("sme2", side("fp16", 4.0), side("int8", 2.0, accuracy=off), pairs=pairs)
    assert found.ship == "fp16"
    says_together(said(found), "int8", "PyTorch", "float32", "0.4", "0.25")
    says(said(found), "calibrate")
    alone = made("sme2", side("int8", 2.0, accuracy=off))
    assert alone.ship is None and alone.on_this_cpu.startswith("none")
    says_together(said(alone), "int8", "0.4", "0.25")


def test_on_arm_without_sme2_it_is_a_baseline_and_a_projection() -> None:
    figures = (("fp16", 4.0, 1.0, 2.0), ("fp32", 8.0, 3.0, 6.0), ("int8", 5.0, 0.4, 0.9))
    sides = [side(name, ms, projected=dtypes.Projected(*ends, "published")) for name, ms, *ends in figures]
    pairs = (pair("fp16", "fp32", Verdict.FASTER), pair("fp16", "int8", Verdict.FASTER, 1.25))
    found = made("arm", *sides, pairs=pairs)
    assert found.ship == "fp16"
    says_together(found.on_this_cpu, "fp16", "2.00x", "fp32", "no SME2")
    assert found.with_sme2.startswith("probably int8")
    both = ("int8 0.400 to 0.900 ms", "fp16 1.000 to 2.000 ms")
    says_together(found.with_sme2, "projected", "not measured", *both)
    near = replace(sides[0], projected=dtypes.Projected(0.8, 2.0, "published"))
    says_together(made("arm", near, *sides[1:], pairs=pairs).with_sme2, "int8 and fp16", "equally fast")


@pytest.mark.parametrize("machine", ["other", "emulated", "unknown"])
def test_without_latencies_of_an_arm_cpu_nothing_is_called_faster(machine: str) -> None:
    sides = (side("fp32"), side("fp16"), side("int8", sme2=dtypes.OnSme2("executed", "r", 2, 4, 0.4)))
    if machine == "other":
        sides = (replace(sides[0], latency=dtypes.DtypeLatency(BASELINE, 1.0, 1.0, 1.0)), *sides[1:])
    found = made(machine, *sides)
    assert found.ship is None and found.on_this_cpu == "no recommendation: no Arm latency."
    says_together(found.with_sme2, "fp32 100.0%", "fp16 100.0%", "int8 40.0%", "SME2")
    assert " ms" not in said(found) and "as fast as" not in said(found)


def test_a_format_that_misses_sme2_is_said_with_those_that_reach_it() -> None:
    none = dtypes.OnSme2("executed", "no kernel", 0, 7, 0.0)
    ahead = pair("fp16", "fp32", Verdict.FASTER)
    found = made("sme2", side("fp32", 8.0), side("fp16", 4.0, sme2=none), pairs=(ahead,))
    assert found.ship == "fp16"
    says(said(found), "0.0% of the matrix arithmetic of fp16 reaches SME2", "fp32 does better")
    found = made("sme2", side("fp32", 8.0), side("fp16", 4.0), pairs=(ahead,))
    assert "reaches SME2" not in said(found)


def test_a_format_that_does_not_suit_or_failed_is_told_with_its_reason() -> None:
    found = replace(made("emulated", side("fp32")), left_out={"int4": "'m' has no linear layer to quantize"})
    assert "int4 was left out: 'm' has no linear layer to quantize." in dtypes.decide(found).notes
    failed = dtypes.DtypeSide(dtype="fp16", problem="'m' overflows in fp16", fix="export fp32")
    found = made("sme2", side("fp32", 8.0), failed)
    assert found.ship == "fp32"
    table = dtypes_table(found)
    assert table.headers == ("number format", "fp32", "fp16")
    page = render_markdown(dtypes_document(found))
    assert any(line.startswith("- fp16") and failed.fix in line for line in page.splitlines())
    says(page, failed.problem)
    says_together(said(found), "fp16", "failed", failed.problem)


def test_what_stays_outside_is_explained_once_by_call_and_line() -> None:
    copies = [replace(GELU, operator="aten._to_copy.default", reason=reason) for reason in ("to", "fro")]
    other = replace(GELU, operator="aten.elu.default", call="elu", reason="none", replacement="")
    assert group_outside(()) == (), "everything was delegated"
    lines = [(group.text, group.details) for group in group_outside([GELU, other, other, *copies])]
    told = [(1, GELU), (1, copies[0]), (1, copies[1]), (2, other)]
    for (text, _), (count, what) in zip(lines, told, strict=True):
        says(text, count, what.operator, what.reason)
    # Copies stand with the call that made them.
    assert ["gelu" in text for text, _ in lines] == [True, True, True, False]
    says("\n".join(lines[2][1]), "mlp", GELU.source, GELU.code, GELU.replacement)
    says("\n".join(lines[3][1]), "mlp", other.source, other.code, "no cure")
    below = replace(GELU, source="model.py:9", code="x = F.gelu(x)", module_path="head")
    index = replace(GELU, operator="aten.add.Tensor", call="add", dtype="int64", replacement="")
    lines = [(group.text, group.details) for group in group_outside([GELU, below, below, index])]
    for (text, details), (count, what) in zip(lines, [(2, below), (1, GELU), (1, index)], strict=True):
        says(text, count, what.operator, what.reason)
        says("\n".join(details), what.module_path, what.source, what.code)
    assert [GELU.replacement in "\n".join(details) for _, details in lines] == [True, True, False]
    says("\n".join(lines[2][1]), "no cure", "XNNPACK", "integers")


@settings(deadline=None, max_examples=60)
@given(
    machine=st.sampled_from(["sme2", "arm", "other", "emulated", "unknown"]),
    times=st.lists(st.none() | st.floats(0.01, 1e4), min_size=3, max_size=3),
    verdicts=st.lists(st.sampled_from(list(Verdict)), min_size=6, max_size=6),
    failed=st.sets(st.sampled_from(["fp32", "fp16", "int8"]), max_size=2),
)
def test_whatever_is_known_one_verdict_and_the_record_reads_back(
    tmp_path_factory, machine, times, verdicts, failed
):
    names = ("fp32", "fp16", "int8")
    broken = {name: dtypes.DtypeSide(dtype=name, problem="broken", fix="mend it") for name in failed}
    sides = tuple(broken.get(name) or side(name, ms) for name, ms in zip(names, times, strict=True))
    combos = itertools.permutations(names, 2)
    pairs = tuple(pair(*combo, verdict) for combo, verdict in zip(combos, verdicts, strict=True))
    found = made(machine, *sides, pairs=pairs)
    assert found.ship not in failed
    assert found.on_this_cpu.startswith(found.ship or "no recommendation: no Arm latency.")
    if "as fast as" in said(found):
        assert machine in ("sme2", "arm")
    path = tmp_path_factory.getbasetemp() / "dtypes.json"
    write_record(path, found)
    assert read_record(dtypes.Dtypes, path, "make it again") == found
    render_markdown(dtypes_document(found))
