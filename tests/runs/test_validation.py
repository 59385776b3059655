"""`sme2prof validate`: a real run passes, and every promise broken on purpose is found, with its cure."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import INT8, PROGRAM, Json, edit, put
from said import says

from model_profiling.core.errors import SetupError
from model_profiling.core.records import Check
from model_profiling.etdump import boundaries_beside, read_etdump
from model_profiling.runner import build
from model_profiling.validation.validate import validate

CHECKS = [
    "manifest", "JSON files", "state", "files", "program", "comparisons", "kernels", "outputs",
    "dumps", "closure", "analysis",
]  # fmt: skip


def failed(run_dir: Path) -> dict[str, Check]:
    return {check.name: check for check in validate(run_dir).checks if check.status == "fail"}


def only(run_dir: Path, pattern: str) -> Path:
    return sorted(run_dir.rglob(pattern))[0]


def skipped(run_dir: Path) -> set[str]:
    return {check.name for check in validate(run_dir).checks if check.status == "skipped"}


def test_a_real_run_is_valid(sme2_home: Path, arm_home: Path) -> None:
    runs = arm_home / "runs" / "xnnpack_fp16"
    for run_dir, left_out in (
        (sme2_home / "runs" / "xnnpack_fp16" / "linux", set()),
        (runs / "linux", set()),
        (runs / "emulated", {"comparisons"}),
    ):
        validation = validate(run_dir)
        assert validation.ok, validation.as_text()
        assert [check.name for check in validation.checks] == CHECKS
        assert skipped(run_dir) == left_out


def in_json(pattern: str, change: Callable[[Json], object]) -> Callable[[Path], None]:
    return lambda run_dir: edit(only(run_dir, pattern), change)


def in_bytes(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(run_dir: Path) -> None:
        path = only(run_dir, pattern)
        path.write_bytes(change(path.read_bytes()))

    return apply


def removed(pattern: str) -> Callable[[Path], None]:
    return lambda run_dir: only(run_dir, pattern).unlink()


def other_program(run_dir: Path) -> None:
    with next(run_dir.parents[2].glob("artifacts/*_fp16.pte")).open("ab") as stream:
        stream.write(b"\0")


def backwards_time(run_dir: Path) -> None:
    """Make the first inference that counts in a dump end before it began."""
    path = only(run_dir, "*_t1.etdump")
    table = read_etdump(path)
    event = int((table.name == table.name_index("Method::execute")).nonzero()[0][1])
    end, start = int(table.end_ns[event]), int(table.start_ns[event])
    content = path.read_bytes()
    assert content.count(struct.pack("<Q", end)) == 1
    path.write_bytes(content.replace(struct.pack("<Q", end), struct.pack("<Q", start)))


NO_INVOCATIONS = b"SME2PBND" + struct.pack("<IIQ", 1, 0, 0)
UNSURE = {"verdict": "faster", "ratio": 1.01, "low": 0.9, "high": 1.2}

# The file, the place of it that is given another value, the check that must find it, what that must name.
EDITED = [
    ("manifest.json", "schema_version", 7, "manifest", "schema_version"),
    ("manifest.json", "state", "interrupted", "state", "interrupted"),
    ("manifest.json", "pairs.0.not_comparable", "the CPUs differ", "comparisons", "not comparable when"),
    ("program_graph.json", "sha256", "0" * 64, "program", "program_graph.json"),
    ("metrics.json", "comparisons.0.baseline.threads", 3, "comparisons", "SME2"),
    ("analysis_summary.json", "per_etdump.0.e2e_ms", 1e-3, "analysis", "e2e_ms"),
    ("analysis_summary.json", "per_etdump.0.categories_ms.Data Movement", 99.0, "analysis", "e2e_ms"),
    ("analysis_summary.json", "per_etdump.0", 7, "analysis", "per_etdump"),
]


@pytest.mark.parametrize(("pattern", "place", "value", "check", "names"), EDITED)
def test_what_was_edited_is_found_with_its_cure(
    sme2_run: Path, pattern: str, place: str, value: object, check: str, names: str
) -> None:
    put(only(sme2_run, pattern), place, value)
    assert_found(sme2_run, check, names)


def assert_found(run_dir: Path, check: str, names: str) -> None:
    found = failed(run_dir)
    assert check in found, found
    assert names in found[check].found and found[check].fix


# What is spoilt, the check that must find it, and what that must name.
BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a manifest cut short": (in_bytes("manifest.json", lambda raw: raw[:-9]), "manifest", "manifest.json"),
    "an experiment that failed": (
        in_json("manifest.json", lambda made: made["results"][1].update(state="failed", problem="crashed")),
        "state", "crashed",
    ),
    "a missing log": (removed("*_t1.log"), "files", "_t1.log"),
    "a missing dump": (removed("*_r3.etdump*"), "files", "_r3.etdump"),
    "a missing output": (removed("*_output0.bin"), "files", "_output0.bin"),
    "a missing journal": (removed("journal.jsonl"), "files", "journal.jsonl"),
    "a missing summary": (removed("analysis_summary.json"), "analysis", "analysis_summary.json"),
    "a missing CSV file": (removed("*_ops_stats.csv"), "analysis", "_ops_stats.csv"),
    "a program exported again": (other_program, "program", "small_cnn_xnnpack_fp16.pte"),
    "a dump cut short": (in_bytes("*_r2.etdump*", lambda raw: raw[: len(raw) // 2]), "dumps", "_r2.etdump"),
    "an empty dump": (in_bytes("*_t1.etdump", lambda raw: raw[:0]), "dumps", "_t1.etdump"),
    "the boundaries of another dump": (
        lambda run_dir: boundaries_beside(only(run_dir, "*_r2.etdump*")).write_bytes(NO_INVOCATIONS),
        "dumps", "_r2.etdump_round.boundaries has 0 delegate calls",
    ),
    "damaged boundaries": (
        lambda run_dir: boundaries_beside(only(run_dir, "*_t1.etdump")).write_bytes(NO_INVOCATIONS[:-3]),
        "dumps", "_t1.etdump.boundaries is damaged",
    ),
    "time that runs backwards": (backwards_time, "closure", "_t1.etdump"),
    "a verdict its interval does not give": (
        in_json("metrics.json", lambda metrics: metrics["comparisons"][0]["speedup"].update(UNSURE)),
        "comparisons", "faster",
    ),
    "outputs that differ": (
        in_json("metrics.json", lambda metrics: metrics["parity"][0]["parity"].update(verdict="mismatch")),
        "outputs", "linux_sme2_on",
    ),
    "a CSV file that was edited": (
        in_bytes("*_ops_stats.csv", lambda raw: raw.replace(b",1,0.", b",1,9.", 1)),
        "analysis", "adds up to",
    ),
    "a JSON file without its version": (
        in_json("*_pipeline_summary.json", lambda summary: summary.pop("schema_version")),
        "JSON files", "_pipeline_summary.json",
    ),
    "a damaged journal": (in_bytes("journal.jsonl", lambda raw: b"{}\n" + raw), "comparisons", "l, line 1"),
    "SME2 kernels where it was off": (
        lambda run_dir: shutil.copy(
            only(run_dir, "linux_sme2_on/*_kernels.csv"), only(run_dir, "linux_sme2_off/*_kernels.csv")
        ),
        "kernels", "linux_sme2_off",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_with_its_cure(sme2_run: Path, name: str) -> None:
    spoil, check, names = BROKEN[name]
    spoil(sme2_run)
    assert_found(sme2_run, check, names)


def test_a_dump_of_another_program_is_found(sme2_run: Path) -> None:
    dump = only(sme2_run, "linux_sme2_off/*_t1.etdump")
    shutil.copy(INT8.with_suffix(".etdump"), dump)
    assert dump.name in failed(sme2_run)["program"].found


def test_a_damaged_journal_is_found_where_nothing_was_timed(emulated_run: Path) -> None:
    in_bytes("journal.jsonl", lambda raw: b"{}\n" + raw)(emulated_run)
    assert "journal.jsonl, line 1" in failed(emulated_run)["comparisons"].found


def test_metrics_that_are_missing_are_a_remark(sme2_run: Path) -> None:
    (sme2_run / "metrics.json").unlink()
    found = validate(sme2_run)
    (files,) = (check for check in found.checks if check.name == "files")
    assert found.ok and files.status == "optional" and "no metrics.json" in files.found and files.fix


def test_dumps_alone_promise_only_themselves(sme2_home: Path, tmp_path: Path) -> None:
    shutil.copy(only(sme2_home, "*_t1.etdump"), tmp_path / "a_t1.etdump")
    assert validate(tmp_path).ok
    (tmp_path / "b_t1.etdump").write_bytes(b"ED00")
    assert list(failed(tmp_path)) == ["dumps"]


def test_the_command_and_the_script_exit_with_0_1_or_2(
    sme2_run: Path, tmp_path: Path, sme2prof, script
) -> None:
    done = sme2prof("validate", sme2_run)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("\nvalid")
    (sme2_run / "journal.jsonl").unlink()
    done = sme2prof("validate", sme2_run, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and facts["ok"] is False and facts["schema_version"] == 1
    done = script("scripts/validate_results.py", "--results", sme2_run)
    fix = failed(sme2_run)["files"].fix
    assert done.returncode == 1 and "FAIL  files" in done.stdout and fix in done.stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    for place in (tmp_path / "none", empty):
        done = sme2prof("validate", place)
        assert done.returncode == 2 and done.stderr.startswith("error: ")


def write(folder: Path, **more: object) -> Path:
    experiment = {"name": "linux_sme2_on", "sme2": "on", "runs": 10, "warmup": 3, "threads": [1]}
    content = {"model": str(PROGRAM), "output_root": "run", "experiments": [experiment], **more}
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_the_script_checks_a_config_then_its_results(script, sme2_run: Path, tmp_path: Path) -> None:
    config = write(tmp_path)
    done = script("scripts/validate_pipeline.py", "--config", config)
    assert done.returncode == 0 and "is fine" in done.stdout and "valid" not in done.stdout
    shutil.copytree(sme2_run, tmp_path / "run")
    done = script("scripts/validate_pipeline.py", "--config", config)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("\nvalid")
    (tmp_path / "run" / "journal.jsonl").unlink()
    done = script("scripts/validate_pipeline.py", "--config", config)
    assert done.returncode == 1 and "FAIL  files" in done.stdout
    done = script("scripts/validate_pipeline.py", "--config", write(tmp_path, model="nowhere.pte"), "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["ok"] is False
    absent = script("scripts/validate_pipeline.py", "--config", tmp_path / "absent.json")
    assert absent.returncode == 2
    says(absent.stderr, "error: ", "absent.json")


def test_the_runner_is_built_or_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.runner_check().status == "pass"
    broken = tmp_path / "sme2prof-runner"
    monkeypatch.setattr(build, "built_runner", lambda *_: broken)
    assert "not built yet" in build.runner_check().found
    broken.write_text("#!/bin/sh\necho 'a library is missing' >&2\nexit 127\n")
    broken.chmod(0o755)
    check = build.runner_check()
    assert check.status == "fail" and "a library is missing" in check.found

    def no_compiler(*_: object, **__: object) -> None:
        raise SetupError("no g++", "install one")

    monkeypatch.setattr(build, "find_compiler", no_compiler)
    check = build.runner_check()
    assert (check.status, check.found) == ("skipped", "not built yet: no g++"), "which has its own check"

    def no_sdk() -> None:
        raise SetupError("the wheel is not installed", "pip install it")

    monkeypatch.setattr(build, "installed_sdk", no_sdk)
    assert "the wheel is not installed" in build.runner_check().found
