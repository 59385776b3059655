"""What a store of very many runs costs: adding, asking, `history`; beside DuckDB on the same rows.

    python bench/store_scale.py [--runs 10000] [--operators 25] [--folder DIR] [--store URL] [--json FILE]

The store is filled as by a year of nightly runs of ten models on five devices: the rows of one made-up run of
each, with other times and dates. Then runs are added to it by the code of `sme2prof store add`, the five
questions of docs/how-to/query.md are asked, and `history` of one model. If duckdb is installed, it answers
the same questions from the same rows, copied into tables of its own; both must answer alike.

The promises, in processor time, which other programs change little: adding a run at most 50 ms, each question
at most 1 s, `history` at most 0.5 s. That is the command `sme2prof history MODEL --out FILE`, from its start
to the page on the disk, less the same command for a model with one run: less starting Python, click,
SQLAlchemy and numpy, which every command does. Exits with 1 when a promise is not kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from made_runs import BEGINNING, MadeRun, make_run, recorded
from recorded_runs import SME2

from model_profiling import Labels, Limits, Store
from model_profiling.runs import Run
from model_profiling.store.run_rows import rows_of_run, run_row
from model_profiling.store.tables import IN_DATABASE, TABLES, VIEWS, sql_type

ROOT = Path(__file__).resolve().parents[1]
MODELS, DEVICES, DAYS = 10, 5, 365
ADDING_MS, QUESTION_S, HISTORY_S = 50.0, 1.0, 0.5
SINGLE = 50
"""Runs that are added one by one."""
TIMED = ("ms", "median_ms", "low_ms", "high_ms")


def questions() -> list[tuple[str, str]]:
    """The first five questions of the page, in words and in SQL."""
    page = (ROOT / "docs" / "how-to" / "query.md").read_text()
    return re.findall(r"^([^\n]+\?)\n\n```sql\n(.*?)```", page, re.MULTILINE | re.DOTALL)[:5]


def make_runs(folder: Path, numbers: Iterable[int], operators: int) -> list[Path]:
    """One run for each number; runs of the same model and device are fifty numbers apart."""
    source = recorded(SME2)
    return [
        make_run(
            folder / f"{number:06}",
            MadeRun(
                number,
                slower=(1 + number % MODELS) * (1 + number // MODELS % DEVICES / 10),
                model=f"model_{number % MODELS}",
                cpu=f"device {number // MODELS % DEVICES}",
                operators=operators,
            ),
            source,
        )
        for number in numbers
    ]


def fill(store: Store, runs: list[Path], count: int) -> None:
    """Write the rows of `runs` until there are `count`, each time with another date and other times."""
    opened = [Run.open(run) for run in runs]
    patterns = [rows_of_run(run, run_row(run, Labels(commit=""))) for run in opened]
    for first in range(0, count, len(patterns)):
        tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        for place, pattern in enumerate(patterns[: count - first]):
            number = first + place
            own = {"run_id": f"{number:032x}"}
            moment = BEGINNING.replace(tzinfo=None) + timedelta(days=DAYS * number / count)
            slower = 1 + 0.1 * number / count + 0.01 * (number * 7919 % 100) / 100
            for name, rows in pattern.items():
                for row in rows:
                    times = {key: slower * row[key] for key in TIMED if row.get(key) is not None}
                    tables[name].append({**row, **own, **times})
            tables["runs"][-1] |= {"measured_at": moment, "added_at": moment}
        with store.database.writing() as connection:
            for name, rows in tables.items():
                if rows:
                    connection.execute(IN_DATABASE[name].insert(), rows)


def add(store: Store, runs: list[Path]) -> tuple[float, float]:
    """Add runs one by one; return the milliseconds of each, by processor and by clock."""
    began, spent = time.perf_counter(), time.process_time()
    for run in runs:
        added = store.add([run], Labels(commit=""))
        assert len(added.new) == 1, added.refused
    milliseconds = 1e3 / len(runs)
    return milliseconds * (time.process_time() - spent), milliseconds * (time.perf_counter() - began)


def ask(store: Store, sql: str) -> tuple[float, list[tuple[Any, ...]]]:
    """The shortest of three tries in seconds of the processor, and the rows."""
    best, rows = math.inf, []
    for _ in range(3):
        began = time.process_time()
        rows = list(store.query(sql).rows)
        best = min(best, time.process_time() - began)
    return best, rows


def command_seconds(address: str, model: str, page: Path) -> float:
    """The least processor time of three calls of `sme2prof history`."""
    code = "import sys; from model_profiling.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "history", model, "--out", str(page)]
    least = math.inf
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "SME2PROF_STORE": address}
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=600)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


class Duck:
    """DuckDB with the same rows in tables of its own; views in SQLite's text, which DuckDB understands."""

    def __init__(self, store: Store, folder: Path) -> None:
        import duckdb

        self.made = duckdb.connect(str(folder / "duck.db"))
        self.made.execute("SET TimeZone = 'UTC'")
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column.name}" {sql_type(column)}' for column in table.columns)
            self.made.execute(f"CREATE TABLE {name} ({columns})")
            path = folder / "rows.csv"
            answer = store.query(f"SELECT * FROM {name}", Limits(seconds=3600, memory=64 << 30))  # noqa: S608
            with path.open("w", newline="") as stream:
                csv.writer(stream).writerows(answer.rows)
            form = "FORMAT csv, HEADER false, NULL '', DELIM ',', QUOTE '\"', ESCAPE '\"'"
            if answer.rows:
                self.made.execute(f"COPY {name} FROM '{path}' ({form})")
        for view in VIEWS.values():
            self.made.execute(f"CREATE VIEW {view.name} AS {view.select}")

    def ask(self, sql: str) -> tuple[float, list[tuple[Any, ...]]]:
        best, rows = math.inf, []
        for _ in range(3):
            began = time.process_time()
            rows = self.made.execute(sql).fetchall()
            best = min(best, time.process_time() - began)
        return best, rows


def alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Whatever the order of equal rows; numbers to nine digits, missing texts may be empty."""

    def text(cell: Any) -> str:
        if isinstance(cell, float):
            return f"{cell:.9g}"
        return "" if cell is None else str(cell).removesuffix(".000000")

    def plain(rows: list[tuple[Any, ...]]) -> list[str]:
        return sorted(str([text(cell) for cell in row]) for row in rows)

    return plain(ours) == plain(theirs)


def measure(folder: Path, address: str, count: int, operators: int) -> tuple[dict[str, Any], bool]:
    runs, kept = folder / "runs", True

    def judge(what: str, figure: float, unit: str, most: float, more: str = "") -> None:
        nonlocal kept
        kept &= figure <= most
        verdict = "kept  " if figure <= most else "BROKEN"
        print(f"{verdict}  {what}: {figure:.3g} {unit} (at most {most:g}){more}", flush=True)

    store = Store.open(address, make=True)
    facts: dict[str, Any] = {
        "runs": count,
        "operators": operators,
        "database": store.database.reader.dialect.name,
    }
    fill(store, make_runs(runs, range(MODELS * DEVICES), operators), count)
    new = make_runs(runs, range(1000, 1000 + SINGLE), operators)
    facts["adding_ms"], facts["adding_wall_ms"] = add(store, new)
    judge(
        "adding a run", facts["adding_ms"], "ms", ADDING_MS, f"; by the clock {facts['adding_wall_ms']:.0f}"
    )
    if store.database.reader.dialect.name == "sqlite":
        facts["bytes"] = Path(store.address).stat().st_size
        print(f"{facts['bytes'] / 1e6:.0f} MB")
    duck = None
    with contextlib.suppress(ImportError):
        duck = Duck(store, folder)
    facts["questions"] = []
    for words, sql in questions():
        seconds, rows = ask(store, sql)
        question, more = {"question": words, "seconds": seconds, "rows": len(rows)}, f", {len(rows)} rows"
        if duck is not None:
            seconds_of_duck, theirs = duck.ask(sql)
            same = alike(rows, theirs)
            kept &= same
            question |= {"duckdb_seconds": seconds_of_duck, "same": same}
            more += f"; DuckDB {seconds_of_duck:.3g} s{'' if same else ', ANSWERS DIFFER'}"
        facts["questions"].append(question)
        judge(words, seconds, "s", QUESTION_S, more)
    store.add([make_run(runs / "one", MadeRun(2000, model="one_run"))], Labels(commit=""))
    starting, whole = (
        command_seconds(address, model, folder / "page.html") for model in ("one_run", "model_3")
    )
    facts["history_s"], facts["history_process_s"] = whole - starting, whole
    more = f"; the process {whole:.2f} s, that of one run {starting:.2f} s"
    judge(f"history of {count // MODELS} runs", facts["history_s"], "s", HISTORY_S, more)
    return facts, kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--operators", type=int, default=25, help="of each of a run's four experiments")
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
