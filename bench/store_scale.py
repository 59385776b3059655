"""What a store of very many runs costs: adding, asking, `history`; beside DuckDB on the same rows.

    python bench/store_scale.py [--runs 10000] [--operators 100] [--folder DIR] [--store URL] [--json FILE]

Run directories are made up, as a year of nightly runs of ten models on five devices: a recorded run's own
files with other times, and `--operators` operators each. They are added by the code of `sme2prof store add`;
then the five questions of docs/how-to/query.md are asked, each by `sme2prof query` in a fresh process, and
`sme2prof history` of one model. If duckdb is installed, it answers the same questions from the same rows,
copied into tables of its own; both must answer alike.

The promises: adding a run takes at most 50 ms, also to the full store; each question at most 1 s, `history`
at most 0.5 s, both without the start of the process. Exits with 1 when one is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from made_runs import BEGINNING, MadeRun, make_run, recorded

from model_profiling import Labels, Store
from model_profiling.core import process
from model_profiling.store.tables import TABLES, VIEWS
from model_profiling.workflow.history import HistoryQuestion, load_history

ROOT = Path(__file__).resolve().parents[1]
MODELS, DEVICES, DAYS = 10, 5, 365
ADDING_MS, QUESTION_S, HISTORY_S = 50.0, 1.0, 0.5
SINGLE = 50
"""Runs that are added last, one by one."""


def questions() -> list[tuple[str, str]]:
    """The first five questions of the page, in words and in SQL."""
    page = (ROOT / "docs" / "how-to" / "query.md").read_text()
    return re.findall(r"^(.+\?)\n\n```sql\n(.*?)```", page, re.MULTILINE | re.DOTALL)[:5]


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


def add(store: Store, runs: list[Path]) -> float:
    """Add runs and return the milliseconds of each."""
    began = time.perf_counter()
    added = store.add(runs, Labels(commit=""))
    assert len(added.new) == len(runs) and not added.refused, added.refused[:1]
    return 1e3 * (time.perf_counter() - began) / len(runs)


def ask(store: Store, sql: str) -> tuple[float, list[tuple[Any, ...]]]:
    """The shortest of three tries in seconds, and the rows."""
    best, rows = math.inf, []
    for _ in range(3):
        began = time.perf_counter()
        rows = list(store.query(sql).rows)
        best = min(best, time.perf_counter() - began)
    return best, rows


def command_seconds(*words: str) -> float:
    began = time.perf_counter()
    done = process.run([sys.executable, "-m", "model_profiling", *words], timeout=600)
    if not done.ok:
        raise SystemExit(done.tail())
    return time.perf_counter() - began


class Duck:
    """DuckDB with the same rows in tables of its own; views in SQLite's text, which DuckDB understands."""

    def __init__(self, store: Store, folder: Path) -> None:
        import duckdb

        self.made = duckdb.connect(str(folder / "duck.db"))
        self.made.execute("SET TimeZone = 'UTC'")
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column.name}" {column.sql_type}' for column in table.columns)
            self.made.execute(f"CREATE TABLE {name} ({columns})")
            path = folder / "rows.csv"
            answer = store.query(f"SELECT * FROM {name}")  # noqa: S608  names of our own
            answer.to_pandas().to_csv(path, index=False)
            self.made.execute(f"COPY {name} FROM '{path}' (HEADER, NULL '')")
        for view in VIEWS.values():
            if view.name != "kernels_seen":  # its JSON is taken apart by functions of SQLite
                self.made.execute(f"CREATE VIEW {view.name} AS {view.sql('sqlite')}")

    def ask(self, sql: str) -> tuple[float, list[tuple[Any, ...]]]:
        best, rows = math.inf, []
        for _ in range(3):
            began = time.perf_counter()
            rows = self.made.execute(sql).fetchall()
            best = min(best, time.perf_counter() - began)
        return best, rows


def alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Whatever the order of equal rows; numbers to nine digits, missing texts may be empty."""

    def plain(rows: list[tuple[Any, ...]]) -> list[str]:
        return sorted(
            str(
                [
                    "" if cell is None else f"{cell:.9g}" if isinstance(cell, float) else str(cell)
                    for cell in row
                ]
            )
            for row in rows
        )

    return plain(ours) == plain(theirs)


def measure(folder: Path, address: str, count: int, operators: int) -> tuple[dict[str, Any], bool]:
    runs, kept = folder / "runs", True

    def judge(what: str, figure: float, unit: str, most: float, more: str = "") -> None:
        nonlocal kept
        kept &= figure <= most
        verdict = "kept  " if figure <= most else "BROKEN"
        print(f"{verdict}  {what}: {figure:.3g} {unit} (at most {most:g}){more}", flush=True)

    if not runs.is_dir():
        make_runs(runs, count, operators)
    every = sorted(runs.iterdir())
    store = Store.open(address, make=True)
    facts: dict[str, Any] = {"runs": count, "operators": operators, "database": store.database.dialect}
    facts["adding_ms"] = add(store, every[:-SINGLE])
    judge("adding a run", facts["adding_ms"], "ms", ADDING_MS)
    facts["adding_last_ms"] = sum(add(store, [run]) for run in every[-SINGLE:]) / SINGLE
    judge("adding one more to all others", facts["adding_last_ms"], "ms", ADDING_MS)
    if store.path is not None:
        facts["bytes"] = store.path.stat().st_size
        print(f"{facts['bytes'] / 1e6:.0f} MB")
    duck = None
    with contextlib.suppress(ImportError):
        duck = Duck(store, folder)
    facts["questions"] = []
    for words, sql in questions():
        seconds, rows = ask(store, sql)
        told, more = {"question": words, "seconds": seconds, "rows": len(rows)}, f", {len(rows)} rows"
        if duck is not None:
            told["duckdb_seconds"], theirs = duck.ask(sql)
            told["same"] = alike(rows, theirs)
            kept &= told["same"]
            more += f"; DuckDB {told['duckdb_seconds']:.3g} s{'' if told['same'] else ', ANSWERS DIFFER'}"
        facts["questions"].append(told)
        judge(words, seconds, "s", QUESTION_S, more)
    facts["command_s"] = command_seconds("query", questions()[0][1], "--store", address)
    print(f"the first by `sme2prof query`, with the start of its process: {facts['command_s']:.2f} s")
    began = time.perf_counter()
    load_history(store, HistoryQuestion(model="model_3"))
    facts["history_s"] = time.perf_counter() - began
    judge(f"history of {count // MODELS} runs", facts["history_s"], "s", HISTORY_S)
    return facts, kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--operators", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where runs are made, and kept; else a temporary one")
    parser.add_argument("--store", help="postgresql://... of an empty database; else a file in that folder")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        address = given.store or str(folder / "store.db")
        facts, kept = measure(folder, address, given.runs, given.operators)
    if given.json:
        given.json.write_text(json.dumps(facts, indent=2))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
