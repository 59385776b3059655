"""kernels.csv and kernel_view.md, written and read back."""

import itertools
from pathlib import Path

import pytest
from said import refused, says_together

from model_profiling.analysis.kernels import (
    KernelUse,
    configured_kernels,
    executed_kernels,
    operator_kernels,
    read_kernels_csv,
    write_kernels_csv,
)
from model_profiling.config import names
from model_profiling.config.series import Pair, Series
from model_profiling.core.errors import FormatError
from model_profiling.core.records import write_record
from model_profiling.report.document import render_markdown
from model_profiling.report.run_report import KernelSection, evidence_of_file, kernel_document
from model_profiling.runner.result import OutputFacts
from model_profiling.runs import Manifest, Result, Run
from model_profiling.workflow.analyse import write_kernel_view

LOGS = Path(__file__).resolve().parents[1] / "data" / "xnntrace"
TOOL = "tools/generate_kernel_view.py"
MOPA = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
GEMM = "xnn_f16_gemm_minmax_ukernel_1x16__neonfp16arith_ld64"
PACK = "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"
ON = (*executed_kernels({MOPA: 12, PACK: None}), *operator_kernels(["Convolution (NHWC, PF16) IGEMM #1"]))
OFF = (
    *configured_kernels([GEMM, "xnn_new_thing_ukernel__magic"]),
    *operator_kernels(["Convolution (NHWC, F16) IGEMM #1", "Convolution (NHWC, F16) IGEMM #2"]),
)


@pytest.mark.parametrize("uses", [ON, OFF, ()], ids=["on", "off", "empty"])
def test_a_csv_reads_back_as_it_was(tmp_path: Path, uses: tuple[KernelUse, ...]) -> None:
    path = tmp_path / "deep" / "k.csv"
    write_kernels_csv(path, "toy, with a comma", uses)
    assert read_kernels_csv(path) == uses


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "",
        "kernel_name,count,evidence\nx,many,executed\n",
        "kernel_name,count,evidence\nx,-1,executed\n",
        "kernel_name,count,evidence\nx,1,guessed\n",
    ],
)
def test_a_csv_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k.csv"
    path.write_text(text)
    with refused(FormatError, path):
        read_kernels_csv(path)


FILES = KernelSection("", evidence_of_file(Series("SME2 on"), ON), evidence_of_file(Series("SME2 off"), OFF))


def view(*sections: KernelSection, filter_op: str = "") -> str:
    return render_markdown(kernel_document(sections, filter_op=filter_op))


def row(text: str, kernel: str) -> list[str]:
    """The cells beside a kernel's name: with SME2 on, off, its instructions, kind and type."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| `{kernel}` |")]
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_the_view_separates_what_ran_from_what_was_configured() -> None:
    text = view(FILES)
    says_together(text, "SME2 on", "1 SME2 kernel ran", "12 times")
    says_together(text, "1 of 1 operators", "SME path")
    says_together(text, "SME2 off", "no operator", "SME2 kernel")
    executed, configured = text.split("## Configured only")
    assert row(executed, MOPA) == ["12 calls", "-", "SME2", "matmul", "f16"]
    assert row(executed, PACK) == ["ran", "-", "SME", "packing", "x16"]
    assert row(executed, "Convolution (NHWC, F16) IGEMM") == ["-", "2 calls", "-", "matmul", "F16"]
    assert row(configured, GEMM) == ["-", "configured", "fp16", "matmul", "f16"]
    assert "\n- `xnn_new_thing_ukernel__magic`" in configured
    text = view(FILES, filter_op="packing")
    assert PACK in text and "IGEMM" not in text
    assert "SME2 kernel ran" in text
    assert "No kernel matches `nothing`" in view(FILES, filter_op="nothing")


def ladder(run_dir: Path) -> Path:
    """Three rungs, each compared with the next; with SME2 on in one of them only."""
    rungs = ("upto_sme2", "upto_i8mm", "upto_neon")
    own = {"threads": 1, "runner_path": "builtin", "outputs": (OutputFacts(file=Path("out")),)}
    results = []
    for name, uses in zip(rungs, (ON, OFF, ()), strict=True):
        listed, sme2 = f"{name}/{name}_kernels.csv", "on" if name == "upto_sme2" else "off"
        write_kernels_csv(run_dir / listed, "toy", uses)
        results.append(Result(experiment=name, sme2=sme2, kernels=listed, **own))
    pairs = [
        Pair(f"what {better} buys", Series(worse, 1), Series(better, 1), "emulated")
        for better, worse in itertools.pairwise(rungs)
    ]
    write_record(run_dir / names.MANIFEST, Manifest(results=tuple(results), pairs=tuple(pairs)))
    return run_dir


def test_a_ladder_has_a_section_for_each_rung(tmp_path: Path) -> None:
    write_kernel_view(Run.open(ladder(tmp_path)))
    text = (tmp_path / "kernel_view.md").read_text()
    first, second = text.split("## what upto_sme2 buys")[1].split("## what upto_i8mm buys")
    assert row(first, MOPA)[:3] == ["12 calls", "-", "SME2"] and MOPA not in second
    # Calls were counted in every rung: that none ran is a fact, even where nothing is listed.
    assert second.count("no SME or SME2 kernel ran") == 2
    assert "no operator in the dump" not in text


def test_the_tool_over_two_real_logs(script) -> None:
    logs = ("--sme2-on", LOGS / "toy_fp16_sme2on.log", "--sme2-off", LOGS / "toy_fp16_sme2off.log")
    done = script(TOOL, *logs, "--filter-op", "gemm")
    assert done.returncode == 0, done.stderr
    cells = ["6 calls", "-", "SME or SME2", "matmul", "PF16"]
    assert row(done.stdout, "Convolution (NHWC, PF16) IGEMM") == cells


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sme2-on", "nowhere.csv", "--sme2-off", "nowhere.csv"),
        (),
        ("--sme2-on", "x.csv"),
    ],
)
def test_the_tool_refuses_bad_input(arguments: tuple[str, ...], script) -> None:
    done = script(TOOL, *arguments)
    assert done.returncode == 2
    assert "error: " in done.stderr and "Traceback" not in done.stderr
