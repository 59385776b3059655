"""A store of runs in SQLite and in PostgreSQL: what is in it, that each run is there once, whoever adds it,
and that a process killed at any moment leaves nothing half."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from made_runs import MadeRun, make_run, recorded
from postgres import PASSWORD, Postgres
from recorded_runs import ARM, EMULATED, SME2, X86_64, edit
from said import refused, says
from stand_ins import started, wait_until

from model_profiling import Labels, Store
from model_profiling.config import names
from model_profiling.core.errors import InputError, InUseError
from model_profiling.runs import Run
from model_profiling.store import database
from model_profiling.store.labels import with_commit
from model_profiling.store.store import list_runs
from model_profiling.store.tables import TABLES, TABLES_AND_VIEWS

NO_COMMIT = Labels(commit="")
RECORDED = [ARM, EMULATED, SME2, X86_64]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty place for a store."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: Postgres = request.getfixturevalue("postgres")
    name = f"test_{time.monotonic_ns()}"
    server.run(f"CREATE DATABASE {name}")
    return server.address(name)


def rows_of(store: Store, table: str, home: Path) -> list[dict[str, object]]:
    sql = f"SELECT {table}.* FROM {table} JOIN runs ON runs.run_id = {table}.run_id WHERE run_dir = :home"  # noqa: S608
    return store.rows(sql if table != "runs" else "SELECT * FROM runs WHERE run_dir = :home", home=str(home))


def counts(store: Store) -> dict[str, int]:
    return {name: store.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in TABLES}  # noqa: S608


def test_rows_are_those_of_the_runs_own_files(address: str) -> None:
    store = Store.open(address, make=True)
    added = store.add(RECORDED, Labels(commit="c0ffee", branch="main"))
    assert [run.outcome for run in added.runs] == ["added"] * 4 and not added.refused
    run = Run.open(SME2)
    assert run.metrics is not None
    experiments = {(row["experiment"], row["threads"]): row for row in rows_of(store, "experiments", SME2)}
    assert len(experiments) == len(run.metrics.latencies) == 4
    for latency in run.metrics.latencies:
        row, whole, stats = experiments[latency.experiment, latency.threads], latency.end_to_end_ms, None
        stats = run.robust_stats(latency.series)
        assert whole is not None and stats is not None
        assert (row["median_ms"], row["p95_ms"], row["inferences"]) == (whole.median, whole.p95, whole.count)
        assert row["low_ms"] <= row["median_ms"] <= row["high_ms"]  # type: ignore[operator]
        assert row["latencies_ms"] == [list(latencies) for latencies in stats.end_to_end_rounds_ms]
    summary = json.loads((SME2 / names.ANALYSIS).read_text())
    operators = rows_of(store, "operators", SME2)
    for found in summary["series"]:
        ours = [row for row in operators if row["experiment"] == found["experiment"]]
        ours = [row for row in ours if row["threads"] == found["threads"]]
        assert [(row["name"], row["ms"]) for row in ours] == [
            (one["name"], one["ms"]) for one in found["operators"]
        ]
        assert max(ours, key=lambda row: row["ms"])["place"] == 1  # type: ignore[arg-type,return-value]
    (told,) = rows_of(store, "runs", SME2)
    assert (told["model"], told["dtype"], told["backend"], told["device"]) == (
        "small_cnn", "fp16", "xnnpack", "made-sme2-cpu-2-cores",
    )  # fmt: skip
    assert (told["commit_hash"], told["branch"], told["state"]) == ("c0ffee", "main", "finished")
    assert told["has_sme2"] is True
    assert run.manifest is not None
    assert f"{told['measured_at']:%Y-%m-%dT%H:%M:%S}+0000" == run.manifest.started
    assert not [row for row in rows_of(store, "operators", EMULATED) if row["ms"] is not None or row["place"]]
    untimed = rows_of(store, "experiments", EMULATED)
    assert not [row for row in untimed if row["median_ms"] or row["latencies_ms"]]


def test_a_run_is_there_once_wherever_it_lies(address: str, tmp_path: Path) -> None:
    store = Store.open(address, make=True)
    store.add([X86_64], Labels(commit="", tags=("first",)))
    before = counts(store)
    moved = shutil.copytree(X86_64, tmp_path / "moved")
    (again,) = Store.open(address).add([moved], Labels(commit="", tags=("second",))).runs
    assert again.outcome == "already there" and counts(store) == before
    ((row,), _) = list_runs(store, last=9)
    assert set(row["tags"]) == {"first", "second"}


def test_a_continued_run_replaces_its_earlier_state(address: str, tmp_path: Path) -> None:
    store = Store.open(address, make=True)
    half = make_run(tmp_path / "half", MadeRun(7, rounds=3, state="interrupted"))
    whole = make_run(tmp_path / "whole", MadeRun(7))
    (first,) = store.add([half], Labels(commit="", tags=("kept",))).runs
    (second,) = store.add([whole], NO_COMMIT).runs
    assert (first.outcome, second.outcome, first.run_id) == ("added", "continued", second.run_id)
    assert [run.outcome for run in store.add([half]).runs] == ["an earlier state of one that is there"]
    ((row,), matching) = list_runs(store, last=9)
    assert (matching, row["state"], row["tags"]) == (1, "finished", {"kept": ""})
    assert {len(row["latencies_ms"]) for row in store.rows("SELECT latencies_ms FROM experiments")} == {6}


def test_tags_removing_and_finding(address: str) -> None:
    store = Store.open(address, make=True)
    ids = [run.run_id for run in store.add(RECORDED, NO_COMMIT).runs]
    store.tag(ids[:2], ["good"], note="looks well")
    store.tag(ids[:1], ["good"], remove=True)
    assert [row["run_id"] for row in list_runs(store, tag="good", last=9)[0]] == ids[1:2]
    assert store.find(ids[1][:6]) == ids[1]
    with refused(InputError, "too short", fix="at least 6 letters"):
        store.find(ids[1][:5])
    with refused(InputError, "no run small_cnn_xnnpack_fp16/linux", fix="store list"):
        store.find("small_cnn_xnnpack_fp16/linux")
    for word in ("-bad", "", "two words", "a\x1b[31m", "x" * 300):
        with refused(InputError, "not a valid tag"):
            store.tag(ids, [word])
    with refused(InputError, f"no run {'f' * 32}", fix="store list"):
        store.tag(["f" * 32], ["good"])
    store.remove(ids[:3])
    with refused(InputError, "no run"):
        store.remove(ids[:1])
    store.remove(ids[3:])
    assert set(counts(store).values()) == {0}


def test_what_cannot_be_read_is_refused_and_the_rest_added(address: str, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "runs" / str(number), MadeRun(number)) for number in range(4)]
    (runs[0] / names.METRICS).write_text("{")
    edit(runs[1] / names.ANALYSIS, lambda kept: kept["series"][0]["operators"][0].update(ms="long"))
    edit(runs[2] / names.ANALYSIS, lambda kept: kept["series"][0]["operators"][0].update(name="a\0b"))
    store = Store.open(address, make=True)
    added = store.add([tmp_path / "runs"], NO_COMMIT)
    assert [run.run_dir for run in added.runs] == runs[3:]
    assert [left.run_dir for left in added.refused] == runs[:3] and all(left.fix for left in added.refused)
    assert counts(store)["runs"] == 1
    bare = shutil.copytree(X86_64, tmp_path / "bare")
    (bare / names.ANALYSIS).unlink()
    (left,) = store.add([bare], NO_COMMIT).refused
    assert "no analysis" in left.problem and "sme2prof analyze" in left.fix
    (bare / names.MANIFEST).unlink()
    (left,) = store.add([bare], NO_COMMIT).refused
    assert "where and when it was measured" in left.problem and left.fix
    (tmp_path / "note.txt").write_text("")
    (left,) = store.add([tmp_path / "note.txt"], NO_COMMIT).refused
    assert "note.txt" in left.problem


def test_both_databases_answer_alike(tmp_path: Path, postgres: Postgres) -> None:
    """Every table and view has the columns that it is said to have, and the same rows."""
    postgres.run("CREATE DATABASE alike")
    stores = [Store.open(place, make=True) for place in (tmp_path / "store.db", postgres.address("alike"))]
    for store in stores:
        cut = make_run(tmp_path / store.database.reader.dialect.name, MadeRun(3, state="interrupted"))
        store.add([*RECORDED, cut], NO_COMMIT)
    for name, table in TABLES_AND_VIEWS.items():
        ours, theirs = (store.rows(f"SELECT * FROM {name}") for store in stores)  # noqa: S608
        changing = {"added_at", "run_dir"}
        kept = ([{**row, **dict.fromkeys(changing & row.keys())} for row in rows] for rows in (ours, theirs))
        # PostgreSQL keeps JSON without the order of its keys.
        first, second = (
            sorted(json.dumps(row, default=str, sort_keys=True) for row in rows) for rows in kept
        )
        assert first == second, name
        assert [tuple(store.query(f"SELECT * FROM {name}").columns) for store in stores] == [table.names] * 2  # noqa: S608
        assert ours, name
    assert all(column.meaning for table in TABLES_AND_VIEWS.values() for column in table.columns)


def test_views_tell_the_newest_and_leave_emulated_times_out(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db", make=True)
    store.add(RECORDED, NO_COMMIT)
    store.add([make_run(tmp_path / str(day), MadeRun(day, slower=1 + day)) for day in range(3)], NO_COMMIT)
    gains = {row["verdict"]: row["ratio"] for row in store.rows("SELECT verdict, ratio FROM sme2_gains")}
    assert gains == {"faster": pytest.approx(2.0, abs=0.2), "not comparable": None}
    assert not store.rows("SELECT 1 FROM latencies WHERE device = 'emulated'")
    made = "model = 'small_cnn' AND device = 'made-x86_64-cpu-2-cores'"
    newest = store.rows(f"SELECT DISTINCT measured_at FROM latest_latencies WHERE {made}")  # noqa: S608
    assert newest == store.rows(f"SELECT max(measured_at) AS measured_at FROM runs WHERE {made}")  # noqa: S608
    ages = store.rows(f"SELECT DISTINCT age, measured_at FROM operator_times WHERE {made} ORDER BY age")  # noqa: S608
    assert [row["age"] for row in ages] == [1, 2, 3, 4]
    assert [row["measured_at"] for row in ages] == sorted((row["measured_at"] for row in ages), reverse=True)
    proven = store.rows(
        "SELECT DISTINCT device, proven_by FROM kernels JOIN runs ON runs.run_id = kernels.run_id "
        "WHERE is_sme2"
    )
    assert {(row["device"], row["proven_by"]) for row in proven} == {
        ("emulated", "run"), ("made-sme2-cpu-2-cores", "run"), ("neoverse-n1-2-cores", "evidence"),
        ("made-x86_64-cpu-2-cores", "evidence"),
    }  # fmt: skip


ADD = ("-m", "model_profiling", "store", "add", "--commit", "", "--store")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_four_processes_add_at_once_and_one_is_killed(address: str, tmp_path: Path) -> None:
    source = recorded()
    folders = [tmp_path / str(place) for place in range(4)]
    for number in range(40):  # each folder has ten of its own, and one of its neighbour
        for place in {number // 10, (number + 1) // 10 % 4}:
            make_run(folders[place] / str(number), MadeRun(number), source)
    store = Store.open(address, make=True)
    adding = [started(*ADD, address, folder, stdout=subprocess.DEVNULL) for folder in folders]
    wait_until(lambda: counts(store)["runs"] >= 6, "runs are added", 300)
    adding[0].kill()
    assert [process.wait() for process in adding][1:] == [0, 0, 0]
    assert_whole(store)
    store.add([folders[0]], NO_COMMIT)
    assert counts(store)["runs"] == 40
    assert_whole(store)


def assert_whole(store: Store) -> None:
    """Every run of the store has all its rows."""
    for table, expected in (("experiments", 1), ("operators", 11)):
        rows = store.rows(
            f"SELECT runs.run_id, count({table}.run_id) AS n FROM runs LEFT JOIN {table} "  # noqa: S608
            f"ON {table}.run_id = runs.run_id GROUP BY runs.run_id"
        )
        assert {row["n"] for row in rows} <= {expected}, table
        assert sum(row["n"] for row in rows) == counts(store)[table]


def test_a_reader_never_waits_for_a_writer(address: str) -> None:
    store = Store.open(address, make=True)
    with store.database.writing():
        assert counts(store)["runs"] == 0


def test_a_lock_that_is_not_given_back_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    store = Store.open(address, make=True)
    with store.database.writing(), refused(InUseError, "locked", fix="try again"):
        store.add([X86_64], NO_COMMIT)


# What is no store, or cannot be reached.


def test_a_place_that_is_no_store_is_told_in_one_line(tmp_path: Path, sme2prof, monkeypatch) -> None:
    (tmp_path / "text.db").write_text("not a database, whatever its name says" * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE t (a)")
    store = Store.open(tmp_path / "newer.db", make=True)
    with store.database.writing() as connection:
        connection.exec_driver_sql("UPDATE store_version SET version = 99")
    damaged = Store.open(tmp_path / "damaged.db", make=True)
    damaged.add([X86_64], NO_COMMIT)
    with (tmp_path / "damaged.db").open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 200_000)
    monkeypatch.setenv("SME2PROF_STORE", str(tmp_path / "absent.db"))
    for given, said in (
        (None, ("there is no store", "store add")),
        ("text.db", ("is not a store", "store add")),
        ("other.db", ("is not a store", "store add")),
        ("newer.db", ("another version of the kit", "another store")),
        ("damaged.db", ("is damaged", ".recover")),
        (".", ("is a folder", "name the file")),
        ("s3://bucket/store", ("not the address of a store", "postgresql://USER@HOST/DATABASE")),
        ("postgresql://u:hidden@h:notaport/d", ("not the address of a server",)),
    ):
        place = () if given is None else ("--store", given if "://" in given else tmp_path / given)
        for words in (("list",), ("tag", "abcdef", "good")):
            done = sme2prof("store", *words, *place)
            assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
            says(done.stderr, *said)
            assert "hidden" not in done.stderr
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.slow
def test_a_server_that_refuses_is_told_without_the_password(postgres: Postgres, sme2prof) -> None:
    closed = f"postgresql://kit:{PASSWORD}@127.0.0.1:1/d"
    for address, said in (
        (closed, ("cannot use postgresql://kit:***@127.0.0.1:1/d", "server runs")),
        (postgres.address("postgres", "kit", "wr0ng-one"), ("refuses this user or password", "PGPASSWORD")),
        (postgres.address("absent"), ("absent", "check the address")),
        (postgres.address("postgres"), ("is not a store", "store add")),
    ):
        done = sme2prof("store", "list", "--store", address)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        says(done.stderr, *said)
        assert PASSWORD not in done.stderr and "wr0ng-one" not in done.stderr


def test_from_the_command_line(address: str, tmp_path: Path, sme2prof, monkeypatch) -> None:
    monkeypatch.setenv("SME2PROF_STORE", address)
    runs = [make_run(tmp_path / "runs" / str(number), MadeRun(number)) for number in range(3)]
    (runs[1] / names.METRICS).write_text("{")
    labels = ("--commit", "abc", "--tag", "nightly", "--device", "board-1")
    done = sme2prof("store", "add", tmp_path / "runs", *labels)
    assert done.returncode == 1 and PASSWORD not in done.stdout
    says(done.stdout, "2 runs added")
    says(done.stderr, str(runs[1]), "is not added")
    facts = json.loads(sme2prof("store", "list", "--tag", "nightly", "--json").stdout)
    assert facts["matching"] == 2 and {run["device"] for run in facts["runs"]} == {"board-1"}
    first = facts["runs"][0]["run_id"]
    assert sme2prof("store", "tag", first[:6], "bad", "--note", "it was hot").ok
    says(sme2prof("store", "list", "--last", 1).stdout, "bad nightly", "1 older runs are not shown")
    assert sme2prof("store", "remove", first[:6]).ok
    assert json.loads(sme2prof("store", "list", "--json").stdout)["matching"] == 1
    assert Path(facts["runs"][0]["run_dir"]).is_dir()


def test_where_the_commit_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT", "GITHUB_HEAD_REF"):
        monkeypatch.delenv(name, raising=False)
    assert with_commit(Labels(), tmp_path).commit == ""
    sent = tmp_path / "sent"

    def git(*words: str | Path) -> None:
        subprocess.run(["git", "-C", sent, "-c", "user.name=a", "-c", "user.email=b", *words], check=True)

    # A folder that somebody sent, whose git configuration names programs that would run here.
    subprocess.run(["git", "init", "-q", "-b", "main", sent], check=True)
    (sent / "a.txt").write_text("a")
    (sent / ".gitattributes").write_text("*.txt filter=own\n")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    git("config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    git("config", "filter.own.clean", f"touch {tmp_path}/ran; cat")
    (sent / "a.txt").write_text("b")
    labels = with_commit(Labels(), sent)
    assert len(labels.commit or "") == 40 and labels.branch == "main"
    assert [path.name for path in tmp_path.iterdir()] == ["sent"], "nothing that the folder names ran"
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    monkeypatch.setenv("GITHUB_REF_NAME", "feature/x")
    assert with_commit(Labels(), tmp_path) == Labels(commit="abc123", branch="feature/x")
    assert with_commit(Labels(commit="mine"), tmp_path) == Labels(commit="mine", branch="")
