"""The shipped example for a phone, run as its documents say, and the same config under emulation: whichever
machine ran the program, the same files, operators, categories and source lines."""

from __future__ import annotations

import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ON_ARM, ROOT
from virtual_phone import VirtualPhone

from model_profiling.runner.features import host_features

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="virtual phones are Linux's")
EXAMPLE = ROOT / "model_profiling/configs/examples/android_mobilenet_fp16.json"
# A phone that is no Arm machine itself runs on QEMU's CPU, which has SME2.
HAS_SME2 = not ON_ARM or "sme2" in host_features()
ON, OFF = ("android_sme2_on", "android_sme2_on_trace"), ("android_sme2_off", "android_sme2_off_trace")
MEASURED = {"_evidence.log", "_robust_stats.json"}
"""What only a run has whose times are latencies: they are measured apart from what is counted."""


@dataclass(frozen=True)
class Found:
    """What one run says of its program."""

    folder: Path

    def facts(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_file()}

    @property
    def experiments(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_dir()} - {"report_files", "launches"}

    def endings(self, experiment: str) -> set[str]:
        named = (path.name.partition(f"{experiment}_t1")[2] for path in (self.folder / experiment).iterdir())
        return {ending for ending in named if ending}

    def table(self, experiment: str, ending: str, *columns: str) -> list[tuple[str, ...]]:
        (path,) = (self.folder / experiment).glob(f"*_t1{ending}.csv")
        with path.open(newline="") as stream:
            return sorted(tuple(row[column] for column in columns) for row in csv.DictReader(stream))

    def dump(self, experiment: str) -> dict[str, Any]:
        summary = self.facts("analysis_summary")
        both = zip(summary["per_etdump"], summary["series"], strict=True)
        (found,) = ({**dump, "times": series["times"]} for dump, series in both if _is(dump, experiment))
        return found

    def sme2_calls(self, experiment: str) -> int:
        rows = self.table(experiment, "_kernels", "has_sme2", "count", "evidence")
        assert {evidence for _, _, evidence in rows} == {"executed"}
        return sum(int(count) for has_sme2, count, _ in rows if has_sme2 == "1")


def _is(entry: dict[str, Any], experiment: str) -> bool:
    return bool(entry["experiment"] == experiment)


@pytest.fixture
def found(arm_phone: VirtualPhone, exported, script, tmp_path: Path) -> tuple[Found, Found]:
    """The example's run on a phone, and the same experiments under emulation, both made at once."""
    raw = json.loads(EXAMPLE.read_text())
    raw |= {"model": str(exported("toy_cnn", "fp32").pte)}
    raw["schedule"] = {"rounds": 2, "budget_s": 1}
    before = arm_phone.settings()

    def run(name: str, name_of_script: str, changed: dict[str, Any]) -> Found:
        # Apart, so that neither finds the other as evidence beside it.
        config, folder = tmp_path / f"{name}.json", tmp_path / name / "run"
        config.write_text(json.dumps({**raw, **changed, "output_root": str(folder)}))
        env = {**arm_phone.server.environment, "XDG_STATE_HOME": str(tmp_path / "state")}
        done = script(f"scripts/{name_of_script}", "--config", config, **env)
        assert done.ok, done.tail(20)
        return Found(folder)

    short = [{**each, "runs": 1, "warmup": 0} for each in raw["experiments"]]
    phone = {"target": {**raw["target"], "remote": arm_phone.serial}, "experiments": short}
    emulated = {"target": {"name": "emulated"}}
    with ThreadPoolExecutor() as pool:
        there = pool.submit(run, "phone", "android_pipeline.py", phone)
        here = pool.submit(run, "emulated", "linux_pipeline.py", emulated)
    assert arm_phone.settings() == before, "the example's power mode was put back"
    return there.result(), here.result()


@pytest.mark.usefixtures("emulated")
def test_the_example_gives_on_a_phone_what_it_gives_under_emulation(found: tuple[Found, Found]) -> None:
    phone, emulated = found
    assert emulated.experiments == {*ON, *OFF}
    manifest = emulated.facts("manifest")
    repeated = {(each["runs"], each["warmup"]) for each in manifest["results"]}
    assert repeated == {(1, 0)}, "the config says more"
    times = phone.facts("manifest")["target"]["times"]
    assert times == ("hardware" if ON_ARM else "emulated")
    # Where nothing can be switched, the baseline is what off is elsewhere.
    same = {name: name for name in (*ON, *OFF)}
    if not HAS_SME2:
        same = {"android_baseline": OFF[0], "android_baseline_trace": OFF[1]}
    assert phone.experiments == set(same)
    only_emulated = set() if HAS_SME2 else {"kernel_view.md"}  # of a pair, which a baseline is not
    assert phone.files == emulated.files - only_emulated
    for there, here in same.items():
        measured = times == "hardware" and not there.endswith("_trace")
        assert phone.endings(there) == emulated.endings(here) | (MEASURED if measured else set())
        for ending, columns in (
            ("_exec_ops_stats", ("name", "type", "delegate_backend", "count", *DETAILS)),
            ("_exec_run0_timeline", ("name", "type", "delegate_backend", "node_id", "block")),
        ):
            assert phone.table(there, ending, *columns) == emulated.table(here, ending, *columns), ending
        mine, theirs = phone.dump(there), emulated.dump(here)
        assert mine.keys() == theirs.keys() and theirs["times"] == "emulated"
        traced = "traced" if there.endswith("_trace") else "hardware"
        assert mine["times"] == (traced if times == "hardware" else "emulated")
        assert _with_time(mine) == _with_time(theirs) >= {"Convolution", "GEMM"}
        assert bool(phone.sme2_calls(there)) is (there in ON), "executed SME2 kernels on, and none off"
        if times == "emulated":
            kernels = ("_kernels", "kernel_name", "count", "has_sme2", "evidence")
            assert phone.table(there, *kernels) == emulated.table(here, *kernels)
    assert any(line for *_, line in phone.table(next(iter(same)), "_exec_ops_stats", *DETAILS))


DETAILS = (
    "call",
    "position",
    "name",
    "category",
    "input_shapes",
    "output_shape",
    "source_file",
    "source_line",
)


def _with_time(dump: dict[str, Any]) -> set[str]:
    return {category for category, ms in dump["categories_ms"].items() if ms}
