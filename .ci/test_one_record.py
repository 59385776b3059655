"""A setting is one field and one option: it arrives in the manifest and in jobs with no other edit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from model_profiling.core import process

# The settings' own module with one line more is what everyone imports.
_WITH_ONE_MORE = """
import importlib.util, json, sys
from pathlib import Path

spec = importlib.util.find_spec("model_profiling.config.settings")
module = importlib.util.module_from_spec(spec)
source = Path(spec.origin).read_text()
before = "    sample: Annotated[bool, Field(strict=True)] = False"
assert source.count(before) == 1
sys.modules[spec.name] = module
source = source.replace(before, f"    patience_s: Duration = 0.5\\n{before}")
exec(compile(source, spec.origin, "exec"), module.__dict__)

sys.path.insert(0, sys.argv[1])
from recorded_runs import PROGRAM, SME2
from replay import ReplayTarget
from model_profiling.runs.begin import Start
from model_profiling.runs.measuring import Measuring
from model_profiling.runs.measure import measure_runs
from model_profiling.workflow.profile import ProfileOptions, make_config

arrived, make_job = set(), Measuring.job
def job(run, step):
    arrived.add(run.config.schedule.patience_s)
    return make_job(run, step)
Measuring.job = job
import click
from model_profiling.cli import profile as command
given = []
def stop(_model, options, *_, **__):
    given.append(options)
    raise click.Abort
command.profile_one = stop
command.profile_command.params.append(click.Option(["--patience", "patience_s"], type=float))
try:
    command.profile_command.main([str(PROGRAM), "--quiet", "--patience", "2.5"], standalone_mode=False)
except click.Abort:
    (options,) = given
target, options = ReplayTarget(SME2), ProfileOptions(**options.model_dump(exclude_unset=True) | {"rounds": 1})
config = make_config(target, PROGRAM, Path(sys.argv[2]), options)
measure_runs([config], target, Start())
print(json.dumps([*arrived]))
"""


def test_a_new_setting_is_one_field(tmp_path: Path) -> None:
    run_dir, tests = tmp_path / "run", Path(__file__).resolve().parents[1] / "tests"
    done = process.run([sys.executable, "-c", _WITH_ONE_MORE, str(tests), str(run_dir)], timeout=120)
    assert done.ok, done.tail(20)
    assert json.loads(done.stdout) == [2.5]
    settings = json.loads((run_dir / "manifest.json").read_text())["settings"]
    assert settings["schedule"]["patience_s"] == 2.5
