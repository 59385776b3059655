"""What a store of very many runs costs: adding, asking, memory; against pandas over the runs' JSON files.

    python bench/store_scale.py [--runs 10000] [--operators 100] [--folder DIR] [--json FILE]

Run directories are made up, as a year of nightly runs of ten models on five devices: a recorded run's own
files with other times, and `--operators` operators each. They are added by the code of `sme2prof store add`
in one process, a tenth at a time; then each usual question is asked in a fresh process, and of pandas, which
reads the `analysis_summary.json`, `metrics.json` and `manifest.json` of every run. Both must answer alike.
The command `sme2prof query` is measured as well, its process start included.

The promises: the last tenths cost at most 1.5 times the first; every question is answered within a second of
processor time, process start and imports included, and within 500 MB, by the command too; adding stays
within 500 MB. What one run costs, added to an empty store and to a full one, stands beside it. Exits with 1
when one is not kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from made_runs import BEGINNING, MadeRun, make_run, recorded

from model_profiling.core import process

MODELS, DEVICES, DAYS = 10, 5, 365
AT_MOST_GROWTH = 1.5
AT_MOST_S = 1.0
AT_MOST_MB = 500
TENTHS = 10
SINGLE = 64
"""Runs that are added one by one, to an empty store and to a full one."""

ADD = """
import json, os, resource, sys, time
from pathlib import Path
from model_profiling.store.store import Store
from model_profiling.store.run_rows import Labels
runs, store, tenths, singles = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def spent(work):
    began, worked = time.perf_counter(), sum(os.times()[:4])
    work()
    return {"seconds": time.perf_counter() - began, "cpu": sum(os.times()[:4]) - worked}
def add(some):
    added = Store.open(store, make=True).add(some, Labels(commit=""))
    assert len(added.new) == len(some) and not added.refused, added.refused[:1]
every = sorted(Path(runs).iterdir())
first, last, rest = every[:singles], every[singles : 2 * singles], every[2 * singles :]
add([rest.pop()])  # what is loaded once is loaded
told = {"single_first": spent(lambda: [add([run]) for run in first])}
size = len(rest) / tenths
told["tenths"] = [
    spent(lambda: add(rest[round(at * size) : round((at + 1) * size)])) for at in range(tenths)
]
told["single_last"] = spent(lambda: [add([run]) for run in last])
told["compact"] = spent(Store.open(store).compact)
told["again"] = spent(lambda: Store.open(store).add(every[:100], Labels(commit="")))
told["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(told))
"""

ASK = """
import json, os, resource, sys
from model_profiling.store.store import Store
found = Store.open(sys.argv[1]).rows(sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"cpu": sum(os.times()[:4]), "peak": peak, "rows": [list(row.values()) for row in found]}))
"""

COMMAND = """
import json, os, resource, subprocess, sys
from pathlib import Path
words = ["query", sys.argv[2], "--store", sys.argv[1], "--json"]
done = subprocess.run([sys.executable, "-m", "model_profiling", *words], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
rows = [list(row.values()) for row in json.loads(done.stdout)["rows"]]
print(json.dumps({"cpu": sum(os.times()[2:4]), "peak": peak, "rows": rows}))
"""

PANDAS = """
import json, os, resource, sys, time
from pathlib import Path
import pandas
runs, operators, categories = [], [], []
for place in sorted(Path(sys.argv[1]).iterdir()):
    manifest = json.loads((place / "manifest.json").read_text())
    metrics = json.loads((place / "metrics.json").read_text())
    summary = json.loads((place / "analysis_summary.json").read_text())
    about = {
        "run": place.name,
        "model": Path(manifest["model"]).stem.removesuffix("_xnnpack_fp16"),
        "cpu": manifest["machine"]["before"]["cpu"],
        "measured": manifest["sessions"][0]["started"],
    }
    runs += [{**about, "median_ms": one["end_to_end_ms"]["median"]} for one in metrics["latencies"]]
    for series in summary["series"]:
        operators += [{"run": place.name, **one} for one in series["operators"]]
        categories += [{"run": place.name, "category": name, "ms": ms} for name, ms in series["ms"].items()]
runs, operators, categories = map(pandas.DataFrame, (runs, operators, categories))
runs["measured"] = pandas.to_datetime(runs["measured"], utc=True)
read = sum(os.times()[:4])
scope = {"runs": runs, "operators": operators, "categories": categories, "pandas": pandas}
answers = []
for question in json.loads(sys.argv[2]):
    began = sum(os.times()[:4])
    found = eval(question, scope)
    answers.append({"cpu": sum(os.times()[:4]) - began, "rows": found.reset_index().values.tolist()})
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"read": read, "peak": peak, "answers": answers}, default=str))
"""


@dataclass(frozen=True, slots=True)
class Question:
    """One that people ask, for DuckDB and for pandas; both give the same rows."""

    asked: str
    sql: str
    frame: str


_ONE = "model = 'model_3' AND cpu = 'device 2'"
QUESTIONS = (
    Question(
        "the newest median of each model on each device",
        """SELECT model, cpu, arg_max(median_ms, measured_at) AS ms FROM runs JOIN experiments USING (run_id)
           GROUP BY ALL ORDER BY ALL""",
        "runs.sort_values('measured').groupby(['model', 'cpu'])['median_ms'].last()",
    ),
    Question(
        "the history of one model on one device, by month",
        f"""SELECT month(measured_at) AS at_month, median(median_ms) AS ms
            FROM runs JOIN experiments USING (run_id) WHERE {_ONE} GROUP BY ALL ORDER BY ALL""",  # noqa: S608
        "runs[(runs['model'] == 'model_3') & (runs['cpu'] == 'device 2')]"
        ".groupby(runs['measured'].dt.month)['median_ms'].median()",
    ),
    Question(
        "the types of operators that take most time, of all runs",
        """SELECT kind, sum(ms) AS ms FROM operators GROUP BY ALL ORDER BY ms DESC""",
        "operators.groupby('kind')['ms'].sum().sort_values(ascending=False)",
    ),
    Question(
        "the slowest operators of a model's newest run",
        f"""SELECT position, ms FROM operators WHERE run_id =
            (SELECT arg_max(run_id, measured_at) FROM runs WHERE {_ONE})
            ORDER BY ms DESC, position LIMIT 10""",  # noqa: S608
        "operators[operators['run'] == runs[(runs['model'] == 'model_3') & (runs['cpu'] == 'device 2')]"
        ".sort_values('measured')['run'].iloc[-1]].sort_values(['ms', 'position'], ascending=[False, True])"
        ".head(10).set_index('position')['ms']",
    ),
    Question(
        "the share of each category on each device",
        """SELECT cpu, category, sum(ms) AS ms FROM categories JOIN runs USING (run_id)
           GROUP BY ALL ORDER BY ALL""",
        "categories.merge(runs[['run', 'cpu']], on='run').groupby(['cpu', 'category'])['ms'].sum()",
    ),
    Question(
        "how much slower operators became from January to December, of one model",
        """SELECT position, median(ms) FILTER (month(measured_at) = 12) /
                  median(ms) FILTER (month(measured_at) = 1) AS slower
           FROM operators JOIN runs USING (run_id) WHERE model = 'model_3'
           GROUP BY ALL ORDER BY position LIMIT 10""",
        "(lambda told: (told[told['measured'].dt.month == 12].groupby('position')['ms'].median()"
        " / told[told['measured'].dt.month == 1].groupby('position')['ms'].median())"
        ".sort_index().head(10))"
        "(operators.merge(runs[runs['model'] == 'model_3'][['run', 'measured']], on='run'))",
    ),
)


def make_runs(folder: Path, count: int, operators: int) -> None:
    source = recorded()
    for number in range(count):
        model, device = number % MODELS, number // MODELS % DEVICES
        at = BEGINNING + timedelta(days=number * DAYS / count, seconds=number % 50)
        drift = 1 + 0.1 * number / count + 0.01 * (number * 7919 % 100) / 100
        made = MadeRun(
            number,
            slower=(1 + model) * (1 + device / 10) * drift,
            model=f"model_{model}",
            cpu=f"device {device}",
            operators=operators,
            started=at.replace(microsecond=0),
        )
        make_run(folder / f"{number:06}", made, source)


def run_python(source: str, *words: object) -> dict:
    """What a fresh process says as JSON."""
    done = process.run([sys.executable, "-c", source, *map(str, words)], timeout=7200)
    if not done.ok:
        raise SystemExit(done.tail())
    return json.loads(done.stdout)


def alike(ours: list, theirs: list) -> bool:
    def close(one: object, other: object) -> bool:
        if isinstance(one, float) and isinstance(other, int | float):
            if math.isnan(one):  # an operator that takes no time at all is not slower by any factor
                return math.isnan(other)
            return abs(one - other) <= 1e-9 * max(abs(one), abs(other))
        return one == other

    same = len(ours) == len(theirs)
    return same and all(all(map(close, one, other)) for one, other in zip(ours, theirs, strict=True))


def _without_nan(rows: list) -> list:
    """JSON of the command has null for it."""
    return [[None if isinstance(one, float) and math.isnan(one) else one for one in row] for row in rows]


class Verdict:
    """What was promised, and whether it is kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kept = True

    def judge(self, what: str, figure: str, kept: bool) -> None:
        self.kept &= kept
        self.lines.append(f"{'kept  ' if kept else 'BROKEN'}  {what}: {figure}")


def measure(folder: Path, count: int, operators: int, say: Callable[[str], None]) -> tuple[dict, Verdict]:
    runs, store = folder / "runs", folder / "store"
    began = time.perf_counter()
    if not runs.is_dir():
        make_runs(runs, count, operators)
        say(f"made {count:,} runs in {time.perf_counter() - began:.0f} s")
    added = run_python(ADD, runs, store, TENTHS, SINGLE)
    verdict = Verdict()
    tenths = [tenth["cpu"] for tenth in added["tenths"]]
    first, last = (added[name]["cpu"] / SINGLE for name in ("single_first", "single_last"))
    each = 1e3 * sum(tenths) * 1.0 / (count - 2 * SINGLE - 1)
    say(f"added in {sum(tenths):.0f} s of processor time, {each:.1f} ms a run; each tenth {_list(tenths)} s")
    again, merged = 10 * added["again"]["cpu"], added["compact"]["cpu"]
    say(f"known again: {again:.1f} ms a run; compacted in {merged:.1f} s")
    growth = max(tenths[-3:]) / min(tenths[:3])
    verdict.judge("the last tenths against the first", f"{growth:.2f} times", growth <= AT_MOST_GROWTH)
    told = f"{1e3 * last:.0f} ms against {1e3 * first:.0f} ms"
    say(f"a single run, added to the full store and to an empty one: {told}")
    verdict.judge("memory of adding", _mb(added["peak"]), added["peak"] / 1024 <= AT_MOST_MB)
    peer = run_python(PANDAS, runs, json.dumps([question.frame for question in QUESTIONS]))
    say(f"pandas reads the JSON files in {peer['read']:.0f} s of processor time, peak {_mb(peer['peak'])}")
    asked = []
    for question, theirs in zip(QUESTIONS, peer["answers"], strict=True):
        ours = min((run_python(ASK, store, question.sql) for _ in range(3)), key=lambda one: one["cpu"])
        same = alike(ours["rows"], theirs["rows"])
        figure = f"{ours['cpu']:.2f} s, {_mb(ours['peak'])}; pandas {peer['read'] + theirs['cpu']:.1f} s"
        kept = same and ours["cpu"] <= AT_MOST_S and ours["peak"] / 1024 <= AT_MOST_MB
        verdict.judge(question.asked, figure if same else f"{figure}; ANSWERS DIFFER", kept)
        told = min((run_python(COMMAND, store, question.sql) for _ in range(3)), key=lambda one: one["cpu"])
        same &= alike(_without_nan(told["rows"]), _without_nan(ours["rows"]))
        kept = same and told["cpu"] <= AT_MOST_S and told["peak"] / 1024 <= AT_MOST_MB
        verdict.judge("  sme2prof query", f"{told['cpu']:.2f} s, {_mb(told['peak'])}", kept)
        command = {"cpu": told["cpu"], "peak": told["peak"]}
        asked.append(
            {
                "question": question.asked,
                "cpu": ours["cpu"],
                "peak": ours["peak"],
                "same": same,
                "command": command,
            }
        )
    kept_bytes = sum(path.stat().st_size for path in (store / "data").rglob("*.parquet"))
    json_bytes = sum(path.stat().st_size for path in runs.rglob("*.json*"))
    say(f"{kept_bytes / 1e6:.0f} MB of Parquet (merged twice), {json_bytes / 1e6:.0f} MB of JSON")
    facts = {"added": added, "asked": asked, "pandas": {"read": peer["read"], "peak": peer["peak"]}}
    return facts, verdict


def _list(figures: list[float]) -> str:
    return " ".join(f"{figure:.1f}" for figure in figures)


def _mb(kib: int) -> str:
    return f"{kib / 1024:.0f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--operators", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where runs are made, and kept; else a temporary one")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        facts, verdict = measure(given.folder or Path(temporary), given.runs, given.operators, print)
    print("\n".join(verdict.lines))
    if given.json:
        given.json.write_text(json.dumps(facts, indent=2))
    return 0 if verdict.kept else 1


if __name__ == "__main__":
    sys.exit(main())
