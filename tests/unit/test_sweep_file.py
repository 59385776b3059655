"""A sweep file: what it may say, which cells and jobs it comes to, what they cost, the folder they fill."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recorded_runs import INT8, PROGRAM
from said import has, refused, says

from model_profiling.config.new_config import sweep_schema
from model_profiling.config.reading import ConfigError
from model_profiling.config.sweep import load_sweep, parse_sweep
from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError
from model_profiling.core.process import Completed
from model_profiling.core.records import parse_record, record_json
from model_profiling.sweep import cells as sweep_cells
from model_profiling.sweep.cells import Cell, open_sweep

CONFIGS = Path(__file__).resolve().parents[2] / "model_profiling" / "configs"
Sme2prof = Callable[..., Completed]
Raw = dict[str, Any]
GOOD: Raw = {
    "name": "nightly",
    "models": ["toy_cnn"],
    "dtypes": ["fp32", "int8"],
    "threads": [1, 2],
    "targets": ["host", "emulated"],
}


def sweep_of(tmp_path: Path, **changed: Any) -> Any:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(GOOD | changed))
    return load_sweep(path)


def cells_of(sweep: Any) -> list[Cell]:
    """The cells that are measured."""
    return [cell for job in sweep_cells.jobs(sweep) for cell in job.cells]


def test_every_combination_is_a_cell_once(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    found = sweep_cells.all_cells(sweep)
    assert len(found) == 16 and len({each.cell.id for each in found}) == 16
    names = ("toy_cnn_xnnpack_fp32", "toy_cnn_xnnpack_int8")
    assert [(job.id, len(job.cells)) for job in sweep_cells.jobs(sweep)] == [
        (f"{name}/{target}", 4) for name in names for target in ("host", "emulated")
    ]
    assert tuple(dict.fromkeys(cell.program.name for cell in cells_of(sweep))) == names
    record = sweep_cells.SweepRecord(name="nightly", began="now", cells=found)
    assert parse_record(sweep_cells.SweepRecord, record_json(record), "here", "fix") == record


CASES = [{"method": "prefill"}, {"method": "decode", "values": {"input_pos": [64]}}]


def test_each_case_of_a_model_is_a_run_of_its_own(tmp_path: Path, sme2prof: Sme2prof) -> None:
    asked = {"models": ["toy_cnn", "tiny_llama"], "cases": {"tiny_llama": CASES}, "dtypes": ["fp32"]}
    sweep = sweep_of(tmp_path, **asked)
    llama, both = "tiny_llama_xnnpack_fp32", ("host", "emulated")
    names = ("toy_cnn_xnnpack_fp32", f"{llama}_prefill", f"{llama}_decode_input_pos_64")
    dirs = [f"runs/{name}/{target}" for name in names for target in both]
    assert [job.run_dir for job in sweep_cells.jobs(sweep)] == dirs
    told = json.loads(sme2prof("sweep", tmp_path / "sweep.json", "--dry-run", "--json").stdout)
    assert {cell["case"] for cell in told["cells"]} == {"", "prefill", "decode_input_pos_64"}
    for changed, said in (
        ({"cases": {"unet": CASES}}, ("cases names 'unet'", "a model of the sweep")),
        ({"cases": {"tiny_llama": CASES * 2}}, ("models", "tiny_llama_xnnpack_fp32_prefill twice")),
    ):
        with pytest.raises(InputError) as problem:
            sweep_of(tmp_path, **{**asked, **changed})
        says(str(problem.value), *said)


def test_a_program_has_its_dtype_and_a_model_what_it_supports(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "elsewhere.pte")
    models = [str(INT8), "elsewhere.pte", "edgetam_image_encoder"]
    measured = cells_of(sweep_of(tmp_path, models=models))
    found = tuple(dict.fromkeys(cell.program for cell in measured))
    known = {program.name: (program.dtype, program.backend) for program in found}
    assert known[INT8.stem] == ("int8", "xnnpack") and known["elsewhere"] == (None, None)
    assert [name for name in known if name.startswith("edge")] == ["edgetam_image_encoder_xnnpack_fp32"]
    every = sweep_cells.all_cells(sweep_of(tmp_path, models=models))
    left_out = {each.reason for each in every if each.state == "left out"}
    assert any(has(reason, "edgetam_image_encoder") and has(reason, "int8") for reason in left_out)


def test_formats_layers_and_inputs_of_your_own(tmp_path: Path) -> None:
    for name in ("own.py", "optimization.json"):
        (tmp_path / name).write_text("")
    changed: Raw = {
        "models": ["toy_cnn", "own.py:make"],
        "dtypes": ["fp32", "fp16", "int4:32", "own.py:quantizer"],
        "keep": {"toy_cnn": ["features.0"]},
        "calibrate": {"own.py:make": "own.py:inputs"},
        "optimize": {"own.py:make": "optimization.json", "toy_cnn": True},
    }
    jsonschema.validate(GOOD | changed, sweep_schema())
    measured = cells_of(sweep_of(tmp_path, **changed))
    programs = {cell.program.name: cell.program for cell in measured}
    assert list(programs) == [
        "toy_cnn_xnnpack_fp32-optimized",  # all of it is in fp32
        "toy_cnn_xnnpack_fp16-kept-optimized",
        "toy_cnn_xnnpack_int4-32-kept-optimized",
        "toy_cnn_xnnpack_own-quantizer-kept-optimized",
        *(f"own_make_xnnpack_{word}-optimized" for word in ("fp32", "fp16", "int4-32", "own-quantizer")),
    ]
    kept = programs["toy_cnn_xnnpack_fp16-kept-optimized"]
    own = programs["own_make_xnnpack_own-quantizer-optimized"]
    assert (kept.optimize, own.optimize) == (True, f"{tmp_path}/optimization.json")
    assert (kept.keep, kept.calibration) == (("features.0",), None)
    assert (own.keep, own.calibration) == ((), f"{tmp_path}/own.py:inputs")
    assert own.dtype == f"{tmp_path}/own.py:quantizer" and own.model == f"{tmp_path}/own.py:make"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"keep": {"toy": ["a"]}}, "keep 'toy'"),
        ({"optimize": {"toy_cnn": "gone.json"}}, "optimize.toy_cnn gone.json optimization.json"),
        ({"dtypes": ["a.py:q", "b.py:q"]}, "models toy_cnn_xnnpack_own-q twice rename"),
        ({"budget_s": 3}, "budget_s schedule"),
        ({"disable": ["i8mm"]}, "disable rungs"),
        ({"cases": {"toy_cnn": [{"metod": "decode"}]}}, "cases.toy_cnn[0].metod 'method'"),
        ({"models": ["toy_cn"]}, "models[0] 'toy_cnn'"),
        ({"models": ["gone.pte"]}, "models[0] gone.pte"),
        ({"models": ["gone.py:make"]}, "models[0] gone.py"),
        ({"models": ["toy_cnn", "toy_cnn"]}, "models toy_cnn twice"),
        ({"models": ["toy_cnn", "toy_cnn@size=32"]}, "models[1] 'toy_cnn@size=32'"),
        ({"dtypes": ["fp8"]}, "dtypes[0] fp8 int8-dynamic"),
        ({"rungs": ["ladder", "on"]}, 'rungs "ladder" alone'),
        ({"rungs": [{"name": "no_sme2", "disable": ["i8mm"]}]}, "rungs[0].name 'no_sme2' SME2"),
        ({"targets": ["auto"]}, "targets[0] auto"),
        ({"targets": ["android"]}, 'targets[0] android "android:SERIAL"'),
        ({"targets": ["ssh:a@b", "ssh:a-b"]}, "targets ssh-a-b twice"),
        ({"threads": [*range(1, 200)], "targets": [f"ssh:h{n}" for n in range(60)]}, "cells at most"),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_cure(tmp_path: Path, changed: Raw, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sweep(GOOD | changed, folder=tmp_path)
    lines = [f"{problem.text}; {problem.fix}" for problem in caught.value.problems]
    assert any(all(has(line, word) for word in said.split()) for line in lines), lines


def test_paths_start_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(PROGRAM, home / "own.pte")
    (home / "make.py").write_text("def model(): ...\n")
    monkeypatch.chdir(tmp_path)
    sweep = sweep_of(home, models=["own.pte", "make.py:model"], store="kept")
    assert sweep.models == (str(home / "own.pte"), f"{home / 'make.py'}:model")
    assert sweep.store == str(home / "kept")
    names = {cell.program.name for cell in cells_of(sweep)}
    assert names == {"own", "make_model_xnnpack_fp32", "make_model_xnnpack_int8"}


def test_schema_and_template_that_ship_are_current(tmp_path: Path, sme2prof: Sme2prof) -> None:
    shipped = json.loads((CONFIGS / "sweep_schema.json").read_text())
    assert shipped == sweep_schema()
    for content in (json.loads((CONFIGS / "sweep_template.json").read_text()), GOOD):
        jsonschema.validate(content, shipped)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(GOOD | {"rungs": ["nothing"]}, shipped)
    checked = sme2prof("config", "check", CONFIGS / "sweep_template.json")
    assert checked.returncode == 0
    says(checked.stdout, "fine", "--dry-run")
    listed = sme2prof("sweep", CONFIGS / "sweep_template.json", "--dry-run").stdout
    says(listed, "24 cells", "6 runs")
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(GOOD | {"models": [], "x": 1}))
    said = sme2prof("config", "check", wrong)
    assert said.returncode == 1 and said.stdout.count("\n") == 2
    assert f"use `sme2prof sweep {wrong}`" in sme2prof("run", wrong).stderr


def test_cost_is_said_as_far_as_it_is_known(tmp_path: Path, sme2prof: Sme2prof) -> None:
    shutil.copy(PROGRAM, tmp_path / PROGRAM.name)
    models, targets = ["toy_cnn", PROGRAM.name], ["host", "emulated", "android:S"]
    sweep = sweep_of(tmp_path, models=models, targets=targets, dtypes=["fp32"])
    planned = sweep_cells.jobs(sweep)
    assert {(job.target, job.seconds) for job in planned} == {
        ("host", 30.0), ("android:S", 30.0), ("emulated", None),
    }  # fmt: skip
    assert sweep_cells.sweep_seconds(planned) == 2 * 30, "targets beside each other"
    sweep_of(tmp_path, models=[PROGRAM.name], targets=["emulated"])
    words = ("sweep", tmp_path / "sweep.json", "--outdir", tmp_path / "out")
    shown = sme2prof(*words, "--dry-run")
    assert shown.returncode == 0 and shown.stdout.rstrip().endswith(f"--outdir {tmp_path / 'out'}")
    says(shown.stdout, "4 cells in 1 run on emulated", "not known")
    for wrong, *said in (
        (("--store", "x", "--no-store"), "--store", "--no-store"),
        (("--scheduler", "nowhere:x", "--no-store"), "nowhere:x", "scheduler"),
    ):
        done = sme2prof(*words, *wrong)
        assert done.returncode == 2
        says(done.stderr, *said)
    assert not (tmp_path / "out").exists()
    assert "docs/how-to/sweeps.md" in sme2prof("sweep", tmp_path / "none.json").stderr
    facts = json.loads(sme2prof("sweep", tmp_path / "sweep.json", "--dry-run", "--json").stdout)
    assert len(facts["cells"]) == 4 and facts["runs"][0]["seconds"] is None


def test_a_sweep_is_continued_kept_aside_or_refused(tmp_path: Path) -> None:
    sweep, out = sweep_of(tmp_path), tmp_path / "out"
    first, second, *_ = sweep_cells.jobs(sweep)
    with open_sweep(out, sweep) as folder:
        with refused(InUseError, out), open_sweep(out, sweep):
            pass
        folder.fail(first, "the phone is gone", "connect it")
        folder.conclude(second)  # it has no run
        assert folder.record.counts() == {"failed": 8, "waiting": 8}
        assert sweep_cells.read_sweep_record(out) == folder.record
        assert {job.id for job in folder.waiting_jobs()}.isdisjoint({first.id, second.id})
    with refused(InputError, "settings (its sweep.json)"):
        open_sweep(out, sweep_of(tmp_path, runs=3), resume=True).__enter__()
    with open_sweep(out, sweep_of(tmp_path, notes="later"), resume=True) as folder:
        assert folder.record.counts() == {"waiting": 16}, "what failed is tried again"
        for job in folder.waiting_jobs():
            folder.fail(job, "no")
        folder.end()
    with open_sweep(out, sweep) as folder:
        assert folder.moved is not None and sweep_cells.read_sweep_record(folder.moved).ended
        assert folder.record.counts() == {"waiting": 16}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with refused(InputError, tmp_path / "other", "no sweep"):
        open_sweep(tmp_path / "other", sweep).__enter__()


def test_a_sweep_that_could_not_write_its_settings_continues(tmp_path, monkeypatch) -> None:
    """A disk was full after the first file: the folder held files, but no sweep, and all was refused."""
    sweep, out = sweep_of(tmp_path), tmp_path / "out"

    def full(*_: object) -> None:
        raise OSError("full")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="full"):
        disk.setattr(files, "write_json", full)
        open_sweep(out, sweep).__enter__()
    with open_sweep(out, sweep, resume=True) as folder:
        assert (folder.path / "sweep.json").is_file()
