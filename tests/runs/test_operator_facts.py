"""A fact of an operator is one line of `facts/operators.py`: every file, table and answer has it then."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from conftest import ROOT
from recorded_runs import SME2

from model_profiling.core import process

ADDED = """
import json, sys
from pathlib import Path
from model_profiling.facts import operators as facts
facts.OPERATOR_FACTS += (
    facts.Fact("twice_its_place", "whole", "its position, doubled", lambda row: 2 * row.operator.position),
)
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.report import write_report
from model_profiling.store.store import Store
from model_profiling.report.tools.perfetto import arguments
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.tools import RunTools

run = Path(sys.argv[1])
found = analyse(run)
write_analysis(found)
write_report(run)
store = Store.open(run.parent / "store", make=True)
store.add([run])
answer = RunTools(Root.at(run.parent)).top_operators(run.name)
print(json.dumps({
    "python": list(found.operators.columns),
    "trace": list(arguments(found.series[0].operators[0])),
    "store": store.query("SELECT max(twice_its_place) FROM operators").rows[0][0],
    "assistant": answer.operators[0].twice_its_place,
}))
"""


def test_a_new_fact_of_an_operator_is_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SME2, run)
    done = process.run([sys.executable, "-c", ADDED, str(run)], timeout=120, env={"PYTHONPATH": str(ROOT)})
    assert done.ok, done.stderr
    said = json.loads(done.stdout)
    assert "twice_its_place" in said["python"] and "twice its place" in said["trace"]
    assert said["store"] > 0 and said["assistant"] >= 0
    summary = json.loads((run / "analysis_summary.json").read_text())
    assert {"twice_its_place"} <= summary["series"][0]["operators"][0].keys()
    details = next(run.rglob("*_exec_operator_details.csv"))
    assert "twice_its_place" in details.read_text().partition("\n")[0].split(",")
    assert "twice its place" in (run / "report.html").read_text()
