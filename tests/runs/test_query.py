"""`sme2prof query`: what is answered, in every form; what is refused, in one line; what cannot be reached."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from conftest import ROOT
from documents import blocks_of
from recorded_runs import ARM, EMULATED, SME2
from said import says

from model_profiling import Limits, Store
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.process import Completed
from model_profiling.store.confined import ask_confined
from model_profiling.store.tables import TABLES, TABLES_AND_VIEWS, VIEWS

Sme2prof = Callable[..., Completed]
ENDLESS = "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x) SELECT {} FROM x"
EVERY_KIND = """
    SELECT 'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS inf, NULL AS nothing, '=1+1' AS formula, true AS flag,
           [1.5, NULL, 'nan'::DOUBLE] AS list, {'a': [1]} AS struct, MAP {'k': 2} AS map, sum(i) AS huge,
           1.25::DECIMAL(5, 2) AS exact, 'x'::ENUM ('x', 'y') AS enum, 'ab'::BLOB AS bytes,
           DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS moment, now() > '2026-01-01' AS later,
           TIMESTAMPTZ '2026-01-02 03:04:05+01' AS zoned, INTERVAL 3 DAY AS while, 1 AS twice, 2 AS twice,
           DATE '0044-03-15 (BC)' AS ides
    FROM range(4) t(i)"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store.open(tmp_path_factory.mktemp("query") / "store", make=True)
    added = made.add([ARM, EMULATED, SME2])
    assert len(added.new) == 3 and not added.refused
    made.tag([added.runs[0].run_id], ["release"])
    return made


def test_every_view_is_as_it_says_and_answers(store: Store) -> None:
    page = (ROOT / "docs" / "how-to" / "query.md").read_text()
    with store.connection() as made:
        for found in TABLES_AND_VIEWS.values():
            described = made.execute(f'DESCRIBE "{found.name}"').fetchall()
            told = [(column.name, column.sql_type) for column in found.columns]
            assert [(name, kind) for name, kind, *_ in described] == told, found.name
            assert all(column.meaning for column in found.columns)
        empty = [name for name in VIEWS if not made.execute(f'FROM "{name}" LIMIT 1').fetchall()]
    assert empty == ["failures"]
    assert all(f"| `{view.name}` | {view.meaning} |" in page for view in VIEWS.values())


def test_views_tell_the_newest_and_leave_emulated_times_out(store: Store) -> None:
    with store.connection() as made:
        gains = dict(made.execute("SELECT verdict, ratio FROM sme2_gains").fetchall())
        assert gains == {"faster": pytest.approx(2.0, abs=0.2), "not comparable": None}
        assert not made.execute("FROM latencies WHERE device LIKE '%emulated%'").fetchall()
        emulated = "SELECT count(*), count(ms), count(place) FROM operator_times WHERE times = 'emulated'"
        ((count, timed, placed),) = made.execute(emulated).fetchall()
        assert count and not timed and not placed
        longest = (
            "SELECT max(ms) = any_value(ms) FILTER (WHERE place = 1) FROM operator_times "
            "GROUP BY run_id, experiment, threads"
        )
        assert {same for (same,) in made.execute(longest).fetchall()} <= {True, None}


def test_usual_questions_are_answered(store: Store) -> None:
    asked = [block for block in blocks_of("docs/how-to/query.md") if block.language == "sql"]
    assert len(asked) >= 10
    with store.connection() as made:
        for block in asked:
            rows = made.execute(block.text).fetchall()
            # Nothing has failed, and nothing was measured twice.
            assert rows or "failures" in block.text or "age = 2" in block.text, block.where


def test_one_answer_in_every_form(store: Store, tmp_path: Path, sme2prof: Sme2prof) -> None:
    told = sme2prof("query", EVERY_KIND, "--store", store.root, "--json")
    assert told.ok, told.stderr
    facts = json.loads(told.stdout, parse_constant=pytest.fail)
    (row,) = facts["rows"]
    assert {column["name"]: column["type"] for column in facts["columns"]}["huge"] == "HUGEINT"
    assert (row["nan"], row["inf"], row["nothing"], row["list"]) == (None, None, None, [1.5, None, None])
    assert (row["struct"], row["map"], row["huge"], row["exact"]) == ({"a": [1]}, [["k", 2]], 6, 1.25)
    assert (row["moment"], row["zoned"]) == ("2026-01-02 03:04:05", "2026-01-02 02:04:05")
    assert (row["day"], row["while"], row["bytes"]) == ("2026-01-02", "0 months 3 days 0 seconds", "6162")
    assert (row["twice"], row["twice_2"], row["enum"], row["later"]) == (1, 2, "x", True)

    done = sme2prof("query", EVERY_KIND, "--store", store.root, "--csv", "-")
    header, cells = csv.reader(io.StringIO(done.stdout))
    by_name = dict(zip(header, cells, strict=True))
    assert (by_name["nan"], by_name["inf"], by_name["nothing"]) == ("nan", "-inf", "")
    assert (by_name["formula"], by_name["list"], by_name["flag"]) == ("'=1+1", "[1.5, null, null]", "true")

    path = tmp_path / "rounds.parquet"
    done = sme2prof("query", "FROM rounds", "--store", store.root, "--parquet", path)
    table = pyarrow.parquet.read_table(path)
    says(done.stdout, str(path), f"{table.num_rows} rows")
    assert str(table.schema.field("latencies_ms").type.value_type) == "double"
    odd = ("SELECT INTERVAL 1 DAY AS i", "--store", store.root, "--parquet", tmp_path / "no")
    done = sme2prof("query", *odd)
    assert done.returncode == 2 and '"i"::VARCHAR' in done.stderr
    assert not (tmp_path / "no").exists()


def test_rows_are_bounded_and_endless_answers_end(store: Store, sme2prof: Sme2prof) -> None:
    endless = ENDLESS.format("i, repeat('x', 100) AS text")
    done = sme2prof("query", endless, "--store", store.root, "--rows", 3)
    assert done.ok and done.stdout.splitlines()[3].split() == ["3", f"{'x' * 57}..."]
    says(done.stdout, "3 rows", "--rows N", "--csv FILE")
    answer = store.query("SELECT $n AS n, * FROM range(5)", {"n": "a'b"}, Limits(rows=4))
    assert (len(answer), answer.more, answer[-1], answer[1:2]) == (
        4, True, {"n": "a'b", "range": 3}, [{"n": "a'b", "range": 1}],
    )  # fmt: skip
    assert list(answer.to_pandas()["range"]) == [0, 1, 2, 3]


def test_a_question_has_limits_and_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"longer than 1 s\b"):
        store.query(ENDLESS.format("count(*)"), limits=Limits(seconds=1))
    out = tmp_path / "out.csv"
    # Rows by the million: the recursion gives one at a time, with DuckDB 1.5 a hundred in a second.
    words = ["query", "FROM range(1_000_000_000_000)", "--store", str(store.root), "--csv", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "model_profiling", *words], stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as asking:
        until = time.monotonic() + 60
        while not any(part.stat().st_size for part in tmp_path.glob(".out.csv.*")):
            assert time.monotonic() < until and asking.poll() is None
            time.sleep(0.05)
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=60)
    assert asking.returncode == 130 and re.fullmatch(r"error: interrupted.*\n", said)
    assert not list(tmp_path.iterdir())


WRONG = {
    "SELECT run_idd FROM runs": ("column 'run_idd'", "'run_id'?"),
    "SELECT r.modell FROM runs r": ("column 'modell'", "'model'?"),
    "FROM lattencies": ("table or view 'lattencies'", "'latencies'?"),
    "FROM elsewhere.runs": ("table or view 'elsewhere.runs'",),
    "SELECT sum(run_id) FROM runs": ("'sum(VARCHAR)'",),
    "SELECT 'x'::INTEGER": ("'x'", "INT32", "correct the SQL"),
    "SELECT ?": ("DuckDB", "Values were not provided"),
    "FROM read_csv('/etc/hostname')": ("tables of the store", "not other files"),
    "SELECT length(repeat('x', 3_000_000_000))": ("1024 MB of memory",),
}
"""Questions, and what is made of what DuckDB says of them. The last takes far more than DuckDB counts: there
the system's limit is what holds."""
ATTACKS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import duckdb
from model_profiling.store import confined
from model_profiling.store.query import asking

file, outside, wrong = sys.argv[2:]
memory = 256 << 20
locked = confined.open_mapped({"runs": [file]}, memory)
trusting = duckdb.connect(":memory:")
trusting.execute("SELECT 1").fetchall()
confined.open_nothing_more(memory)
asked = [
    f"FROM read_csv('{outside}')", f"FROM '{outside}'", f"FROM read_text('{outside}')", "FROM glob('/*')",
    f"FROM read_parquet('{file}')", "FROM read_parquet('http://127.0.0.1:9/x')", f"ATTACH '{outside}.db'",
    f"COPY (SELECT 1) TO '{outside}.csv'",
    f"WITH a AS (COPY (SELECT 1) TO '{file}' (use_tmp_file false)) FROM a",
    f"WITH a AS (COPY (SELECT 1) TO '{outside}' (use_tmp_file false)) FROM a",
    f"FROM query('WITH a AS (COPY (SELECT 1) TO ''{outside}'' (use_tmp_file false)) FROM a')",
    f"EXPORT DATABASE '{outside}.folder'", "INSTALL httpfs", "LOAD httpfs", "SET memory_limit = '9GB'",
    "SET enable_external_access = true", "PRAGMA enable_profiling = 'json'", "FROM outside", "FROM wrong",
    "CREATE SECRET (TYPE s3)", "SET lock_configuration = false",
]

def tried(made, sql):
    try:
        return made.execute(sql).fetchall()
    except Exception as problem:
        return type(problem).__name__

def refusal(sql):
    try:
        with asking(locked, sql) as coming:
            coming.whole()
    except Exception as problem:
        return str(problem)

def opened(path):
    try:
        open(path).close()
    except OSError as problem:
        return problem.strerror
    return "done"

print(json.dumps({
    "locked": {sql: tried(locked, sql) for sql in asked},
    "trusting": {sql: tried(trusting, sql) for sql in asked[:11]},
    "wrong": {sql: refusal(sql) for sql in json.loads(wrong)},
    "python": opened(outside),
    "still": locked.execute("SELECT run_id FROM runs").fetchall(),
}))
"""


def test_nothing_but_the_store_can_be_reached(store: Store, tmp_path: Path) -> None:
    """By DuckDB's locks, and where those have gaps, or are none, by the system."""
    (file,) = store.files()["runs"]
    outside = tmp_path / "outside"
    outside.write_text("secret\n")
    before = Path(file).read_bytes()
    argv = [sys.executable, "-c", ATTACKS, str(ROOT), file, str(outside), json.dumps([*WRONG])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert all(isinstance(refused, str) for refused in found["locked"].values()), found["locked"]
    # What DuckDB may read, but the system does not let it, is empty to a glob.
    assert all(isinstance(got, str) or got == [] for got in found["trusting"].values()), found["trusting"]
    for sql, said in WRONG.items():
        says(found["wrong"][sql], *said)
        assert "\n" not in found["wrong"][sql]
    assert found["python"] == "Too many open files" and len(found["still"]) == 3
    assert Path(file).read_bytes() == before and outside.read_text() == "secret\n"
    assert list(tmp_path.iterdir()) == [outside]


def test_what_cannot_be_asked_is_one_line(store: Store, sme2prof: Sme2prof) -> None:
    for sql, said in (
        ("COPY runs TO 'x.csv'", ("COPY", "SELECT, FROM, WITH")),
        ("SELECT 1,\n FORM runs x y", ("line 2", "syntax error")),
    ):
        done = sme2prof("query", sql, "--store", store.root)
        assert (done.returncode, done.stdout) == (2, "")
        says(done.stderr, *said)
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_what_an_assistant_asks_is_answered_alike(store: Store) -> None:
    """In a process of its own, with the same answers and the same words."""
    for sql in (EVERY_KIND, "FROM latest_latencies ORDER BY ALL", "FROM tags"):
        ours, theirs = store.query(sql), ask_confined(store, sql, Limits())
        assert (ours.columns, ours.types) == (theirs.columns, theirs.types)
        assert repr(ours.rows) == repr(theirs.rows), "NaN is not NaN"
    few = ask_confined(store, "FROM range(5)", Limits(rows=4))
    assert (few.rows, few.more) == ([(0,), (1,), (2,), (3,)], True)
    for sql, said in (
        ("FROM lattencies", "did you mean 'latencies'"),
        ("SELECT 1; SELECT 2", "this has 2 statements"),
        (f"COPY runs TO '{store.root}/x.csv'", "COPY is not read-only"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            ask_confined(store, sql, Limits())
    with pytest.raises(InputError, match=r"longer than 1 s\b"):
        ask_confined(store, ENDLESS.format("count(*)"), Limits(seconds=1))


def test_what_can_be_asked_is_told(sme2prof: Sme2prof) -> None:
    listed = sme2prof("query", "--views")
    assert all(f"{name}: " in listed.stdout for name in (*TABLES, *VIEWS))
    one = sme2prof("query", "--views", "latencies")
    for column in VIEWS["latencies"].columns:
        assert re.search(rf"\b{column.name} .*{re.escape(column.sql_type)} ", one.stdout), column.name
    facts = json.loads(sme2prof("query", "--views", "--json").stdout)
    assert [table["name"] for table in facts["tables"]] == [*TABLES, *VIEWS]
    assert "did you mean 'latencies'?" in sme2prof("query", "--views", "latncies").stderr
    for words in ((), ("FROM runs", "--json", "--csv", "x")):
        assert sme2prof("query", *words).returncode == 2


def test_a_damaged_file_is_named(store: Store, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    spoilt = Store.open(copy)
    (file,) = map(Path, spoilt.files()["runs"])
    file.write_bytes(bytes(file.stat().st_size))
    for ask in (spoilt.query, lambda sql: ask_confined(spoilt, sql, Limits())):
        with pytest.raises(FormatError, match=r"runs.*sme2prof store check"):
            ask("FROM runs")


def test_damage_inside_a_file_is_no_fault_of_the_question(store: Store, tmp_path: Path) -> None:
    """The compressed rows are damaged, the list of columns is not: only reading them shows it."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    spoilt = Store.open(copy)
    (file,) = map(Path, spoilt.files()["runs"])
    content = bytearray(file.read_bytes())
    content[8:400] = bytes(392)
    file.write_bytes(content)
    for ask in (spoilt.query, spoilt.rows):
        with pytest.raises(FormatError) as caught:
            ask("SELECT * FROM runs")
        says(str(caught.value), file.name, "is damaged", "--repair")
        assert "\n" not in str(caught.value)


def test_the_command_loads_nothing_that_takes_longer_than_a_question(store: Store) -> None:
    """Half of what it took was numpy, pandas and pydantic."""
    script = (
        "import sys; from model_profiling.cli.main import main; code = main(sys.argv[1:]); "
        "print([name for name in ('numpy', 'pandas', 'pydantic') if name in sys.modules], code)"
    )
    words = ["query", "SELECT count(*) AS n FROM runs", "--store", str(store.root)]
    argv = [sys.executable, "-c", script, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[] 0"
