"""What the test cases share: one export a dtype and one run, made by whichever asks first and kept in
`out_test_cases`, so that all of them together take less than a minute."""

from __future__ import annotations

import argparse
import csv
import functools
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

try:
    from model_profiling.config.new_config import config_template
    from model_profiling.core import files
    from model_profiling.core.errors import ProfilingError
    from model_profiling.export import export_model
    from model_profiling.export.records import ExportResult, read_export
    from model_profiling.models.catalog import load_model
    from model_profiling.runs import Run
    from model_profiling.workflow.measure import RunOptions, run_file
    from model_profiling.workflow.profile import ProfileOptions, find_or_export
except ModuleNotFoundError as missing:
    cure = "run `bash model_profiling/scripts/setup_repo.sh` and use .venv/bin/python"
    sys.stderr.write(f"error: the test cases need the Python module {missing.name}; {cure}\n")
    sys.exit(2)

HERE = "mac" if sys.platform == "darwin" else "linux"
_asked = {"model": "toy_cnn"}


def use_model(name: str) -> None:
    """Test this model instead of the toy network: whatever `sme2prof export` takes."""
    _asked["model"] = name


@functools.cache
def home() -> Path:
    """Where everything of the model is written."""
    return ROOT / "out_test_cases" / load_model(_asked["model"]).name


@functools.cache
def export_anew(dtype: str) -> ExportResult:
    """A new export, whatever is there."""
    return export_model(_asked["model"], dtype=dtype, outdir=home() / "artifacts")


def exported(dtype: str) -> ExportResult:
    """An export that is still good, or a new one."""
    return read_export(find_or_export(_asked["model"], ProfileOptions(dtype=dtype, outdir=home())))


def config() -> Path:
    """A minimal config: SME2 on and off for latency, and both once more for kernels, some seconds in all."""
    program = exported("fp16").pte
    raw: Any = config_template(program, "host", home(), output_root=home() / "run", trace=True)
    raw["schedule"] = {"rounds": 2, "budget_s": 2}
    for experiment in raw["experiments"]:
        experiment.update(runs=2, warmup=1)
    files.write_json(home() / "config.json", raw)
    return home() / "config.json"


@functools.cache
def run_anew() -> Run:
    """A new run of that config on this machine; one that was there is kept under its date."""
    return run_file(config(), RunOptions(force=True)).run


def finished_run() -> Run:
    """The run that is there, if it is finished and of the program that is there; else a new one."""
    place = home() / "run"
    if (place / "manifest.json").is_file():
        run = Run.open(place)
        manifest = run.manifest
        current = manifest is not None and manifest.model_sha256 == exported("fp16").sha256
        if manifest is not None and current and manifest.unfinished is None:
            return run
    return run_anew()


def facts(run: Run, name: str) -> Any:
    """A JSON file of a run, as it is documented."""
    return json.loads((run.path / name).read_text(encoding="utf-8"))


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def main(cases: Mapping[str, object], description: str | None) -> int:
    """Run the `test_` functions of a file without pytest: 0 when all passed, 1 when one failed, 2 when the
    machine or the model is not fit for them."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="toy_cnn", help="what to test: a name, or file.py:factory")
    use_model(parser.parse_args().model)
    tests: dict[str, Callable[[], None]] = {
        name: case for name, case in cases.items() if name.startswith("test_") and callable(case)
    }
    failed = 0
    for name, test in tests.items():
        try:
            test()
        except AssertionError:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}")
        except ProfilingError as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 2
        else:
            print(f"pass  {name}")
    print(f"{len(tests) - failed} of {len(tests)} passed")
    return 1 if failed else 0
