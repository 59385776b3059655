"""XNNPACK's log, on real logs of source-built trace runners."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import says

from model_profiling.analysis.kernels import kernel_uses, sme_verdict
from model_profiling.runner.xnnpack_log import parse_xnntrace, read_xnntrace

LOGS = Path(__file__).resolve().parents[1] / "data" / "xnntrace"
TOOL = "tools/xnntrace_to_kernels.py"


def logged(name: str) -> str:
    return (LOGS / name).read_text()


@pytest.mark.parametrize(
    ("log", "operators", "announced"),
    [
        ("toy_fp16_sme2on.log", 14, 19),
        ("toy_fp16_sme2off.log", 14, 20),
        ("toy_int8_sme2on.log", 18, 18),
        ("toy_int8_sme2off.log", 18, 19),
    ],
)
def test_real_logs_give_two_inferences_without_what_was_skipped(log, operators, announced):
    trace = read_xnntrace(LOGS / log)
    assert len(trace.operators) == operators and len(trace.configured) == announced
    assert trace.operators[: operators // 2] == trace.operators[operators // 2 :]


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_evidence_of_a_log(dtype: str) -> None:
    on = kernel_uses(parse_xnntrace(logged(f"toy_{dtype}_sme2on.log")))
    off = kernel_uses(parse_xnntrace(logged(f"toy_{dtype}_sme2off.log")))
    assert sme_verdict(on, traced=False).answer == "sme-or-sme2"
    assert sme_verdict(off, traced=False).answer == "none"
    assert all(use.calls is None for use in (*on, *off) if use.evidence == "configured")
    matmuls = [use.kernel for use in on if (use.kernel.library, use.kernel.role) == ("xnnpack", "matmul")]
    assert {kernel.isa for kernel in matmuls} == {"SME2"}
    assert not any(use.kernel.has_sme for use in off)


@given(text=st.text(st.sampled_from("0:9 ()\n,a'") | st.characters(), max_size=400))
def test_whatever_follows_is_read_or_ignored(text: str) -> None:
    for start in ("running operator 0:0 (", "Using gemm microkernel '", "reshaping operator ", ""):
        last = "Debug (XNNPACK): running operator 0:0 (Add (ND))"
        assert parse_xnntrace(f"Debug (XNNPACK): {start}{text}\n{last}").operators[-1] == "Add (ND)"


@pytest.mark.timeout(120)
def test_a_very_long_line_and_several_parts_are_one_operator() -> None:
    """Trying every bracket as the last one would take time that grows with the square of the length."""
    (name,) = parse_xnntrace("Debug (XNNPACK): running operator 0:0 (" + ") (a, b:1) " * 300_000).operators
    assert len(name) > 3_000_000
    place = "(xnn_run_operator_with_index, /a folder (copy)/operator-run.c:9)"
    parts = ("0:0 (Softmax (NC, F32) Default)", "0:1 (Softmax (NC, F32) Default)", "1:0 (Add (ND))")
    text = "\n".join(f"Debug (XNNPACK): running operator {part} {place}" for part in parts)
    assert parse_xnntrace(text).operators == ("Softmax (NC, F32)", "Add (ND)")


def as_logcat(line: str, form: str, pid: int = 4242) -> str:
    level, _, message = line.partition(" (XNNPACK): ")
    letter = {"Note": "I", "Debug": "D"}.get(level)
    if letter is None:
        return f"11-15 01:02:03.456 {pid:5d} {pid:5d} I executorch: {line}"
    return {
        "threadtime": f"11-15 01:02:03.456 {pid:5d} {pid + 1:5d} {letter} XNNPACK : {message}",
        "time": f"11-15 01:02:03.456 {letter}/XNNPACK ( {pid}): {message}",
        "brief": f"{letter}/XNNPACK ( {pid}): {message}",
    }[form]


@pytest.mark.parametrize("form", ["threadtime", "time", "brief"])
def test_logcat_says_the_same_as_a_terminal(form: str) -> None:
    text = logged("toy_fp16_sme2on.log")
    phone = "--------- beginning of main\n" + "\n".join(as_logcat(line, form) for line in text.splitlines())
    assert parse_xnntrace(phone) == parse_xnntrace(text)
    message = "running operator 0:0 (Add (ND)) (f, x.c:1)"
    other = f"11-15 01:02:03.456  11  11 D OTHER   : {message}\n{message}"
    assert parse_xnntrace(other).operators == (), "another tag"


def test_the_tool_writes_the_documented_columns(tmp_path: Path, script) -> None:
    out = tmp_path / "k.csv"
    done = script(TOOL, "--xnntrace", LOGS / "toy_int8_sme2on.log", "--out", out, "--model-id", "toy")
    assert done.returncode == 0, done.stderr
    header, *rows = list(csv.reader(out.read_text().splitlines()))
    kernel = "kernel_name,category,count,dtype,xnn_op,variant,ukernel_shape,arch_chain,has_sme,has_sme2"
    assert ",".join(header) == f"model_id,{kernel},evidence,worked_on"
    table = {row[1]: dict(zip(header, row, strict=True)) for row in rows}
    gemm = table["xnn_pqs8_qc8w_gemm_minmax_ukernel_1x32c4__neonsme2"]
    found = [gemm[column] for column in ("count", "evidence", "has_sme", "has_sme2")]
    assert found == ["", "configured", "1", "1"]
    convolution = table["Convolution (NHWC, PQS8, QS8, QC8W) IGEMM"]
    assert (convolution["count"], convolution["evidence"]) == ("6", "executed")
    assert {row[0] for row in rows} == {"toy"}


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "no such file"), ("nothing of interest\n", "XNNPACK")]
)
def test_the_tool_refuses_bad_input_in_one_line(tmp_path, script, content, problem):
    log = tmp_path / "run.log"
    if content is not None:
        log.write_text(content)
    done = script(TOOL, "--xnntrace", log, "--out", tmp_path / "k.csv")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    says(done.stderr, log, problem)
    assert not (tmp_path / "k.csv").exists()
