"""A setting is one field and one option, a fact one line: each arrives wherever it belongs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from recorded_runs import SME2, load

from model_profiling.config import names
from model_profiling.core import process

ROOT = Path(__file__).resolve().parents[1]

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


ADDED = """
import json, sys
from pathlib import Path
from model_profiling import facts
facts.OPERATOR_FACTS += (
    facts.Fact("twice_its_place", "whole", "its position, doubled", lambda row: 2 * row.operator.position),
)
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.report import write_report
from model_profiling.store.store import Store
from model_profiling.report.tools import operator_arguments

run = Path(sys.argv[1])
found = analyse(run)
write_analysis(found)
write_report(run)
store = Store.open(run.parent / "store", make=True)
store.add([run])
print(json.dumps({
    "python": list(found.operators.columns),
    "trace": list(operator_arguments(found.series[0].operators[0])),
    "store": store.query("SELECT max(twice_its_place) FROM operators").rows[0][0],
}))
"""


def test_a_new_fact_of_an_operator_is_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SME2, run)
    done = process.run([sys.executable, "-c", ADDED, str(run)], timeout=120, env={"PYTHONPATH": str(ROOT)})
    assert done.ok, done.stderr
    said = json.loads(done.stdout)
    assert "twice_its_place" in said["python"] and "twice its place" in said["trace"]
    assert said["store"] > 0
    assert "twice_its_place" in load(run / names.ANALYSIS)["series"][0]["operators"][0]
    details = next(run.rglob("*_exec_ops_stats.csv"))
    assert "twice_its_place" in details.read_text().partition("\n")[0].split(",")
    assert "twice its place" in (run / "report.html").read_text()
