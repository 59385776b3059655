"""`sme2prof query`: what is answered, in every form; what is refused, in one line; what SQL cannot reach."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from documents import blocks_of
from made_runs import MadeRun, make_run
from postgres import Postgres
from recorded_runs import ARM, EMULATED, SME2
from said import refused, says
from stand_ins import started

from model_profiling import Labels, Limits, Store
from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.store.tables import TABLES, TABLES_AND_VIEWS, VIEWS, sql_type

Sme2prof = Callable[..., Completed]
HOSTILE = ROOT / "tests/data/hostile_sql"
ENDLESS = "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x) SELECT {} FROM x"


def fill(store: Store, folder: Path) -> Store:
    twice = [make_run(folder / str(day), MadeRun(day, slower=1 + day)) for day in range(2)]
    added = store.add([ARM, EMULATED, SME2, *twice], Labels(commit="", tags=("release",)))
    assert len(added.new) == 5 and not added.refused
    return store


@pytest.fixture(scope="module")
def in_file(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("query")
    return fill(Store.open(folder / "store.db", make=True), folder)


@pytest.fixture(scope="module")
def on_server(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Store:
    """Opened by a role that may only read, made as the page shows."""
    postgres.run("CREATE DATABASE team")
    fill(Store.open(postgres.address("team"), make=True), tmp_path_factory.mktemp("query"))
    (block,) = (block for block in blocks_of("docs/how-to/query.md") if block.language == "postgresql")
    for statement in block.text.strip().rstrip(";").split(";"):
        postgres.run(statement, "team")
    return Store.open(postgres.address("team", "reader", "choose%20one"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue("in_file" if request.param == "sqlite" else "on_server")
    return found


def test_usual_questions_are_answered(store: Store) -> None:
    questions = [block for block in blocks_of("docs/how-to/query.md") if block.language == "sql"]
    assert len(questions) >= 7
    for block in questions:
        assert len(store.query(block.text)) or "failures" in block.text, block.where


def test_one_answer_in_every_form(in_file: Store, tmp_path: Path, sme2prof: Sme2prof) -> None:
    sql = "SELECT 1.5 AS a, NULL AS b, '=1+1' AS c, x'6162' AS d, 2 AS a, disabled FROM experiments LIMIT 1"
    done = sme2prof("query", sql, "--store", in_file.address, "--json")
    facts = json.loads(done.stdout)
    assert facts["columns"] == ["a", "b", "c", "d", "a_2", "disabled"] and facts["more"] is False
    (row,) = facts["rows"]
    assert (row["a"], row["b"], row["c"], row["d"], row["a_2"]) == (1.5, None, "=1+1", "6162", 2)
    sme2prof("query", sql, "--store", in_file.address, "--csv", tmp_path / "one.csv")
    header, cells = csv.reader(io.StringIO((tmp_path / "one.csv").read_text()))
    by_name = dict(zip(header, cells, strict=True))
    assert (by_name["a"], by_name["b"], by_name["c"]) == ("1.5", "", "'=1+1")
    path = tmp_path / "operators.csv"
    done = sme2prof("query", "SELECT * FROM operators", "--store", in_file.address, "--csv", path)
    says(done.stdout, str(path), f"{len(path.read_text().splitlines()) - 1} rows")
    answer = in_file.query("SELECT name, ms FROM operators ORDER BY ms DESC")
    assert list(answer.to_pandas()["name"]) == [row["name"] for row in answer]


def test_rows_are_bounded_and_endless_answers_end(store: Store) -> None:
    answer = store.query(ENDLESS.format("i"), Limits(rows=1200))
    assert (len(answer), answer.more, answer.rows[-1]) == (1200, True, (1200,))
    exact = store.query(f"{ENDLESS.format('i')} LIMIT 4", Limits(rows=4))
    assert (len(exact), exact.more) == (4, False)


def test_a_question_has_limits(store: Store) -> None:
    began = time.monotonic()
    for sql in (ENDLESS.format("count(*)"), ENDLESS.format("max(i)")):
        with refused(InputError, "longer than 1 s", fix="--time-limit"):
            store.query(sql, Limits(seconds=1))
    with refused(InputError, "32 MB", fix="fewer rows"):
        store.query(ENDLESS.format("i, 'a text of some length, a million times'"), Limits(memory=32 << 20))
    assert time.monotonic() - began < 30
    with refused(InputError, "characters", fix="100,000"):
        store.query(f"SELECT 1 -- {'x' * 100_000}")


@pytest.mark.slow
def test_postgresql_bounds_what_one_value_may_take(on_server: Store) -> None:
    with refused(InputError, "more than 1024 MB of memory", fix="fewer rows or columns"):
        on_server.query("SELECT repeat('a', 1100000000)")


def test_sqlite_bounds_what_one_value_may_take(tmp_path: Path) -> None:
    """In a process of its own: SQLite counts the memory of a whole process."""
    Store.open(tmp_path / "store.db", make=True)
    script = (
        "import sys; from model_profiling import Limits, Store; "
        "Store.open(sys.argv[1]).query(sys.argv[2], Limits(seconds=20, memory=32 << 20))"
    )
    endless = ENDLESS.format("group_concat(i || randomblob(9999))")
    for sql in ("SELECT length(randomblob(900000000))", endless):
        words = [sys.executable, "-c", script, str(tmp_path / "store.db"), sql]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
        says(done.stderr.splitlines()[-1], "InputError", "32 MB of memory")


def test_sql_reaches_nothing_but_the_rows(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret\n")
    whole = [f"SELECT * FROM {name}" for name in TABLES]  # noqa: S608
    before = [store.query(sql).rows for sql in whole]
    files = [HOSTILE / f"{name}.sql" for name in ("any", store.database.reader.dialect.name)]
    for sql in (line for file in files for line in file.read_text().splitlines()):
        with pytest.raises(InputError) as caught:
            store.query(sql.format(outside=outside))
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value), sql
    assert [store.query(sql).rows for sql in whole] == before
    assert list(tmp_path.iterdir()) == [outside] and outside.read_text() == "secret\n"


@pytest.mark.slow
def test_sql_cannot_lift_its_time_limit(on_server: Store) -> None:
    began = time.monotonic()
    lifted = "SELECT set_config('statement_timeout', '0', false), i FROM generate_series(1, 9) AS t(i)"
    for sql in (f"{lifted} UNION ALL SELECT pg_sleep(60)::text, 1", "SELECT pg_sleep(60)"):
        with refused(InputError, "longer than 2 s"):
            on_server.query(sql, Limits(seconds=2))
    assert time.monotonic() - began < 20


def test_what_is_wrong_is_told_in_one_line(store: Store) -> None:
    for sql, facts in {
        "SELECT run_idd FROM runs": ("run_idd", "--views"),
        "SELECT * FROM lattencies": ("lattencies", "--views"),
        "SELECT 1,\n FORM runs x y": ("x", "syntax error"),
        "DELETE FROM runs": ("SELECT",),
    }.items():
        with pytest.raises(InputError) as caught:
            store.query(sql)
        says(str(caught.value), *facts)
        assert "\n" not in str(caught.value)


def test_a_store_in_a_folder_that_cannot_be_written(in_file: Store, request: pytest.FixtureRequest) -> None:
    """Whoever may only read a store can ask it; root may write everywhere, so another user asks. They may not
    enter the folders of tests."""
    folder = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(folder))
    shared = Store.open(shutil.copy(in_file.address, folder / "store.db"))
    for path in folder.iterdir():  # what SQLite made beside it just now
        path.unlink() if path.name != "store.db" else path.chmod(0o444)
    folder.chmod(0o555)
    root = os.getuid() == 0
    if root:
        os.seteuid(65534)
    try:
        assert shared.query("SELECT count(*) FROM runs").rows == ((5,),)
        assert len(shared.rows("SELECT run_id FROM runs")) == 5
        with refused(InputError, "store.db", fix="permissions"):
            shared.remove(["x"])
    finally:
        if root:
            os.seteuid(0)
    assert [path.name for path in folder.iterdir()] == ["store.db"]


def test_ctrl_c_ends_a_question(in_file: Store) -> None:
    words = ["query", ENDLESS.format("count(*)"), "--store", in_file.address]
    with started("-m", "model_profiling", *words, stderr=subprocess.PIPE, text=True) as asking:
        time.sleep(3)
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=60)
    assert asking.returncode == 130 and re.fullmatch(r"error: interrupted.*\n", said)


def test_what_can_be_asked_is_told(sme2prof: Sme2prof) -> None:
    listed = sme2prof("query", "--views")
    assert all(f"\n{name} " in listed.stdout for name in TABLES_AND_VIEWS)
    one = sme2prof("query", "--views", "latencies")
    for column in VIEWS["latencies"].columns:
        assert re.search(rf"\b{column.name} .*{sql_type(column)} ", one.stdout), column.name
    facts = json.loads(sme2prof("query", "--views", "--json").stdout)
    assert [table["name"] for table in facts["rows"]] == [*TABLES, *VIEWS]
    columns = [table["columns"].split(", ") for table in facts["rows"]]
    assert columns == [list(table.names) for table in TABLES_AND_VIEWS.values()]
    assert "did you mean 'latencies'?" in sme2prof("query", "--views", "latncies").stderr
    for words in ((), ("SELECT 1", "--json", "--csv", "x")):
        assert sme2prof("query", *words).returncode == 2
