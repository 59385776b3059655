"""A trace runner's log beside a dump the kit makes now: the same model runs the same operators in order."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from said import says

from model_profiling.targets import Job, TargetChoice, open_target

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "data" / "xnntrace"
TOOL = ROOT / "model_profiling" / "tools" / "xnntrace_to_kernels.py"


def convert(log: str, dump: Path, into: Path) -> subprocess.CompletedProcess[str]:
    written = ("--out", into / "k.csv", "--operators", into / "o.csv")
    words = ("--xnntrace", LOGS / log, "--etdump", dump, *written)
    command = [sys.executable, str(TOOL), *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_log_s_operators_match_a_dump_made_now(exported: Callable[..., object], tmp_path: Path) -> None:
    model = exported("toy_cnn", "int8").pte
    target = open_target(TargetChoice("host"))
    target.prepare()
    job = Job(model=model, runs=2, warmup=0, disable=("sme2",), etdump=True)
    dump = target.execute(job, tmp_path, "toy").etdump
    assert dump is not None

    same = convert("toy_int8_sme2off.log", dump, tmp_path)
    assert same.returncode == 0, same.stderr
    assert "20 operators match" in same.stdout
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert [row["delegate_call"] for row in rows] == ["0"] * 10 + ["1"] * 10
    assert rows[7]["skipped"] == "1" and rows[7]["event"] == "Static Reshape (NC) #1"

    other = convert("toy_int8_sme2on.log", dump, tmp_path)
    assert other.returncode == 1
    says(other.stderr, "differ", "operator 2 ", "Convolution (NHWC, PQS8, QS8, QC8W) IGEMM")
