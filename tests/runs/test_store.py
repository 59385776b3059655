"""A store of runs: what is in it, that each run is there once, and what continuing and merging change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import MadeRun, make_run
from recorded_runs import ARM, EMULATED, OLD, SME2, X86_64, edit, load
from said import refused, says

from model_profiling.cli.main import main
from model_profiling.core.errors import InputError, SetupError
from model_profiling.run import Run, names
from model_profiling.run.comparability import device_of
from model_profiling.run.manifest import Manifest, TargetFacts
from model_profiling.runner.machine import DeviceState
from model_profiling.store.data_files import read_index
from model_profiling.store.places import Places
from model_profiling.store.run_rows import Labels, with_commit
from model_profiling.store.store import Store
from model_profiling.store.tables import TABLES
from model_profiling.workflow.analyse import analyse

NO_COMMIT = Labels(commit="")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """With recorded runs of four machines, and one of kit 0.1.0."""
    made = Store.open(tmp_path_factory.mktemp("store") / "store", make=True)
    added = made.add([ARM, EMULATED, SME2, X86_64, OLD / "linux"], Labels(commit="c0ffee", branch="main"))
    assert not added.refused
    # What an analysis wrote is taken from its files; only 0.1.0 wrote too little.
    assert [run.analysed for run in added.runs] == [False, False, False, False, True]
    return made


def test_an_analysis_of_as_many_other_dumps_is_made_again(tmp_path: Path) -> None:
    home = shutil.copytree(ARM, tmp_path / "run")
    edit(home / names.ANALYSIS, lambda kept: kept["per_etdump"][0].update(etdump="on/another.etdump"))
    (added,) = Store.open(tmp_path / "store", make=True).add([home], NO_COMMIT).runs
    assert added.analysed


def of_run(store: Store, table: str, home: Path) -> list[dict[str, object]]:
    return store.rows(
        f"SELECT t.* EXCLUDE (run_id) FROM {table} t JOIN runs USING (run_id) WHERE run_dir = ?",  # noqa: S608
        [str(home)],
    )


@pytest.mark.parametrize("home", [ARM, EMULATED], ids=lambda home: home.name)
def test_the_rows_of_a_run_are_those_of_its_analysis(store: Store, home: Path) -> None:
    run = analyse(home)
    for table, records in (
        ("operators", run.operators),
        ("categories", run.categories),
        ("speedups", run.speedups),
    ):
        wanted = [{name: row[name] for name in TABLES[table].names[1:]} for row in records]
        found = of_run(store, table, home)
        if table == "operators" and home == EMULATED:
            wanted = [{**row, "runs": None} for row in wanted]
        assert len(found) == len(wanted) > 0
        for ours, theirs in zip(found, wanted, strict=True):
            for name, value in theirs.items():
                near = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
                assert ours[name] == near, (table, name)


def test_experiments_and_rounds_are_those_of_the_runs_own_files(store: Store) -> None:
    run = Run.open(SME2)
    assert run.metrics is not None
    rows = {(row["experiment"], row["threads"]): row for row in of_run(store, "experiments", SME2)}
    assert len(rows) == len(run.metrics.latencies) == 4
    for latency in run.metrics.latencies:
        row, whole = rows[latency.experiment, latency.threads], latency.end_to_end_ms
        assert whole is not None
        assert (row["median_ms"], row["p95_ms"], row["inferences"]) == (whole.median, whole.p95, whole.count)
        assert row["low_ms"] <= row["median_ms"] <= row["high_ms"] < 1.1 * row["low_ms"]
        stats = run.robust_stats(latency.series)
        assert stats is not None
        kept = [
            tuple(one["latencies_ms"])
            for one in of_run(store, "rounds", SME2)
            if (one["experiment"], one["threads"]) == (latency.experiment, latency.threads)
        ]
        assert kept == list(stats.end_to_end_rounds_ms)
    on = [row for row in of_run(store, "kernels", SME2) if row["is_sme2"]]
    assert {row["experiment"] for row in on} == {"linux_sme2_on"}
    assert all(row["proven_by"] == "run" and row["evidence"] == "executed" for row in on)
    assert {row["proven_by"] for row in of_run(store, "kernels", ARM) if row["is_sme2"]} == {"evidence"}


def test_emulated_times_are_nowhere(store: Store) -> None:
    (run,) = store.rows("SELECT * FROM runs WHERE run_dir = ?", [str(EMULATED)])
    assert (run["times"], run["device"], run["has_sme2"]) == ("emulated", "emulated", True)
    assert of_run(store, "rounds", EMULATED) == []
    for table in ("experiments", "operators", "categories"):
        numbers = [column.name for column in TABLES[table].columns if column.kind == "number"]
        rows = of_run(store, table, EMULATED)
        assert rows
        assert all(row[name] is None for row in rows for name in numbers), table


def test_what_is_known_of_a_run(store: Store) -> None:
    (run,) = store.rows("SELECT * FROM runs WHERE run_dir = ?", [str(SME2)])
    assert (run["model"], run["dtype"], run["backend"]) == ("small_cnn", "fp16", "xnnpack")
    assert (run["commit"], run["branch"], run["state"]) == ("c0ffee", "main", "finished")
    assert run["device"] == "made-sme2-cpu-2-cores"
    assert run["name"] == "small_cnn_xnnpack_fp16/linux"
    facts = {row["name"]: row for row in of_run(store, "environment", SME2) if row["taken"] == "before"}
    assert facts["memory_bytes"]["number"] == load(SME2 / names.MANIFEST)["machine"]["before"]["memory_bytes"]
    assert facts["versions.executorch"]["value"] == "1.5.1+cpu"


def test_every_column_can_be_asked_for_by_its_bare_name(store: Store) -> None:
    with store.connection() as asked:
        for table in TABLES.values():
            asked.execute(f"SELECT {', '.join(table.names)} FROM {table.name} LIMIT 1")  # noqa: S608
    for table in TABLES.values():
        assert all(column.meaning and column.meaning[-1] not in ".;" for column in table.columns)


def test_the_page_has_every_table() -> None:
    page = (ROOT / "docs" / "reference" / "store.md").read_text()
    listed = page.partition("| table |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE) == list(TABLES)


def test_a_run_is_known_wherever_it_lies(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", make=True)
    shutil.copytree(X86_64, tmp_path / "elsewhere")
    (first,) = store.add([X86_64], replace(NO_COMMIT, tags=("a",))).runs
    (again,) = store.add([tmp_path / "elsewhere"], replace(NO_COMMIT, tags=("b",))).runs
    assert (first.outcome, again.outcome) == ("added", "already there")
    assert again.run_id == first.run_id
    assert [row["tag"] for row in store.rows("SELECT tag FROM tags ORDER BY tag")] == ["a", "b"]
    edit(tmp_path / "elsewhere" / names.MANIFEST, lambda content: content["schedule"].update(seed=99))
    (other,) = store.add([tmp_path / "elsewhere"], NO_COMMIT).runs
    assert (other.outcome, other.run_id != first.run_id) == ("added", True)


def test_a_run_that_was_continued_replaces_what_it_was(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", make=True)
    steps = [
        make_run(tmp_path / f"after {rounds}", MadeRun(1, rounds=rounds, state=state))
        for rounds, state in ((2, "interrupted"), (4, "interrupted"), (6, "finished"))
    ]
    (first,) = store.add([steps[0]], replace(NO_COMMIT, tags=("kept",))).runs
    (second,) = store.add([steps[1]], NO_COMMIT).runs
    (third,) = store.add([steps[2]], NO_COMMIT).runs
    assert [run.outcome for run in (first, second, third)] == ["added", "continued", "continued"]
    assert third.supersedes == second.run_id
    for _ in range(2):  # before and after what was replaced is gone for good
        assert store.rows("SELECT run_id, supersedes, state FROM runs") == [
            {"run_id": third.run_id, "supersedes": second.run_id, "state": "finished"}
        ]
        counted = store.rows("SELECT count(*) AS n, count(DISTINCT round) AS r FROM rounds")
        assert counted == [{"n": 6, "r": 6}]
        assert store.rows("SELECT run_id, tag FROM tags") == [{"run_id": third.run_id, "tag": "kept"}]
        (late,) = Store.open(store.root).add([steps[1]], NO_COMMIT).runs
        assert (late.outcome, late.run_id) == ("an earlier state of one that is there", third.run_id)
        assert store.check().ok
        store.compact(grace_s=0)
    both = Store.open(tmp_path / "both", make=True).add([steps[2], steps[0]], NO_COMMIT)
    assert [run.outcome for run in both.runs] == ["added", "an earlier state of one that is there"]
    both = Store.open(tmp_path / "other way", make=True).add([steps[0], steps[2]], NO_COMMIT)
    assert [run.outcome for run in both.runs] == ["an earlier state of one that is there", "added"]


def test_many_small_files_become_few_and_nothing_is_lost(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("model_profiling.store.maintenance.ALIKE", 4)
    store = Store.open(tmp_path / "store", make=True)
    runs = [make_run(tmp_path / "runs" / str(number), MadeRun(number)) for number in range(10)]
    reader = Store.open(store.root)
    for number, run_dir in enumerate(runs):
        assert len(Store.open(store.root).add([run_dir], NO_COMMIT).new) == 1
        if number == 2:
            asked = reader.connection()
    assert len(read_index(store.root).of_table("operators")) == 4, "4, 4 and two of one run each"
    for _ in range(2):
        found = store.rows("SELECT count(*) AS n, count(DISTINCT run_id) AS r FROM operators")
        assert found == [{"n": 110, "r": 10}]
        assert asked.execute("SELECT count(*) FROM runs").fetchone() == (3,), "who reads is not disturbed"
        assert store.check().ok
        done = store.compact()
        assert (done.files_after, done.removed) == (len(TABLES) - 3, 0), "no kernels, speedups and tags"
    asked.close()
    orphan = store.root / "data" / "runs" / "month=2026-01" / f"{'0' * 64}.parquet"
    orphan.write_bytes(b"of a killed process")
    half = store.root / ".store.json.0123abcd.part"
    half.write_bytes(b"{")
    before = len(list(store.root.rglob("*.parquet")))
    assert store.compact(grace_s=3600).removed == 0
    assert not half.exists(), "only one writes it at a time"
    old = time.time() - 7200
    for path in store.root.rglob("*"):
        os.utime(path, (old, old))
    gone = store.compact(grace_s=3600)
    left = list(store.root.rglob("*.parquet"))
    assert not orphan.exists()
    assert len(left) == gone.files_after
    assert gone.removed >= before - len(left)
    assert store.check().ok
    (again,) = Store.open(store.root).add([runs[7]], NO_COMMIT).runs
    assert again.outcome == "already there"


def test_tags_the_later_wins(store: Store) -> None:
    run_id = store.find("small_cnn_xnnpack_fp16/emulated")
    store.tag([run_id], ["good", "fast"], note="looks well")
    store.tag([run_id], ["good"], remove=True, note="it does not")
    told = store.rows("SELECT tag, note FROM tags WHERE run_id = ?", [run_id])
    assert told == [{"tag": "fast", "note": "looks well"}]
    store.tag([run_id], ["good"])
    assert store.rows("SELECT count(*) AS n FROM tags WHERE run_id = ?", [run_id]) == [{"n": 2}]
    for word in ("-bad", "", "two words", "a\x1b[31m", "x" * 300):
        with pytest.raises(InputError, match="not a valid tag"):
            store.tag([run_id], [word])
    with pytest.raises(InputError, match=r"store list --store "):
        store.tag(["f" * 32], ["good"])
    with pytest.raises(InputError, match=r"4 runs .*small_cnn_xnnpack_fp16/linux"):
        store.find("small_cnn_xnnpack_fp16/linux")
    assert store.find(run_id[:8]) == run_id


def test_where_the_commit_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT", "GITHUB_HEAD_REF"):
        monkeypatch.delenv(name, raising=False)
    assert with_commit(Labels(), tmp_path).commit == ""
    here = with_commit(Labels(), Path(__file__).parent)
    if here.commit:  # not where the tests came without their history
        assert len(here.commit) == 40
        assert here.dirty is not None
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
    assert (with_commit(Labels(), sent).branch, with_commit(Labels(), sent).dirty) == ("main", False)
    (sent / "a.txt").write_text("b")
    assert with_commit(Labels(), sent).dirty is True
    git("config", "filter.own.clean", f"touch {tmp_path}/ran; cat")
    assert with_commit(Labels(), sent).dirty is None
    assert [path.name for path in tmp_path.iterdir()] == ["sent"], "nothing that the folder names ran"
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    monkeypatch.setenv("GITHUB_REF_NAME", "feature/x")
    assert with_commit(Labels(), tmp_path) == Labels(commit="abc123", branch="feature/x")
    assert with_commit(Labels(commit="mine"), tmp_path) == Labels(commit="mine", branch="")
    with pytest.raises(InputError, match="not a valid label"):
        Labels(commit="a\nb")


def test_devices_are_told_apart() -> None:
    manifest = Run.open(ARM).manifest
    assert manifest is not None
    assert device_of(manifest).name == "neoverse-n1-2-cores"
    assert device_of(manifest).title == "Neoverse-N1, 2 cores"
    assert device_of(_at(manifest, "ssh:me@board", "linux")).name == "ssh-me-board"
    phones = [device_of(_at(manifest, f"android:{serial}", "android")) for serial in ("SERIAL1", "SERIAL2")]
    assert phones[0].name.startswith("pixel-10-") and phones[0] != phones[1]
    assert all("SERIAL" not in f"{phone}" for phone in phones), "a serial is private"
    assert device_of(None).name == "unknown"


def _at(manifest: Manifest, target: str, platform: str) -> Manifest:
    before = manifest.machine.before
    assert before is not None
    phone = DeviceState(model="Pixel 10", soc="G5") if platform == "android" else None
    machine = replace(manifest.machine, before=replace(before, device=phone))
    return replace(manifest, machine=machine, target=TargetFacts(target, platform, manifest.target.times))


def test_from_the_command_line(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("SME2PROF_STORE", str(tmp_path / "store"))
    assert main(["store", "list"]) == 2
    says(capsys.readouterr().err, f"no store in {tmp_path / 'store'}", "store add")
    (tmp_path / "a file").write_text("")
    assert main(["store", "list", "--store", str(tmp_path / "a file")]) == 2
    assert "is not a folder" in (said := capsys.readouterr().err) and "store add" not in said
    runs = [make_run(tmp_path / "runs" / str(number), MadeRun(number)) for number in range(3)]
    (runs[1] / names.METRICS).write_text("{")
    assert main(["store", "add", str(tmp_path / "runs"), "--tag", "night", "--commit", "c0ffee"]) == 1
    told = capsys.readouterr()
    says(told.out, "2 runs added")
    says(told.err, str(runs[1]), "not added", names.METRICS)
    assert main(["store", "add", *map(str, runs[::2]), "--json"]) == 0
    added = json.loads(capsys.readouterr().out)
    assert [run["outcome"] for run in added["runs"]] == ["already there"] * 2
    run_id = added["runs"][0]["run_id"]
    assert main(["store", "tag", run_id[:8], "bad", "--note", "hot"]) == 0
    assert main(["store", "list", "--tag", "bad", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert listed["matching"] == 1
    assert (listed["runs"][0]["run_id"], listed["runs"][0]["tags"]) == (run_id, ["bad", "night"])
    assert main(["store", "list", "--last", "1"]) == 0
    assert "1 older" in capsys.readouterr().out
    assert main(["store", "compact"]) == 0
    assert main(["store", "check"]) == 0
    assert "2 runs" in capsys.readouterr().out


def test_a_folder_of_other_things_becomes_no_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=rf"{tmp_path} .*not a store"):
        Store.open(tmp_path, make=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_dumps_that_no_record_speaks_for_have_the_name_beside_them_or_none(tmp_path: Path) -> None:
    programs = ROOT / "tests" / "data" / "runs" / "programs"
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(programs / "small_cnn_xnnpack_int8.etdump", alone / "other.etdump")
    made = Store.open(tmp_path / "store", make=True)
    made.add([programs], NO_COMMIT)
    (row,) = made.rows("SELECT name, model, dtype, backend FROM runs")
    assert tuple(row.values()) == ("small_cnn_xnnpack_int8/unknown", "small_cnn", "int8", "xnnpack")
    other = Store.open(tmp_path / "other", make=True)
    other.add([alone], NO_COMMIT)
    assert other.rows("SELECT name, model FROM runs") == [{"name": "unknown/unknown", "model": "unknown"}]


def test_files_beside_runs_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `runs/*` names them; what is all that was named, or not there, is an error."""
    page, home = tmp_path / "index.html", tmp_path / "store"
    page.write_text("x")
    words = ["store", "add", str(page), str(SME2), "--store", str(home), "--commit", ""]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "1 run added" in told.out
    assert re.fullmatch(rf"warning: {page}: left out.*\n", told.err)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_left_out"] == [str(page)]
    assert main(["store", "add", str(page), "--store", str(home)]) == 1
    says(capsys.readouterr().err, f"{page} is a file", "run directory")
    assert main(["store", "add", str(SME2), str(tmp_path / "typo"), "--store", str(home)]) == 1


def test_runs_are_found_where_they_are_today(tmp_path: Path) -> None:
    home = tmp_path / "team"
    run = home / "out" / "linux"
    make_run(run, MadeRun(1))
    made = Store.open(home / "store", make=True)
    made.add([run], NO_COMMIT)
    asked = "SELECT run_dir, run_dir_from_store AS moved, measured_at AS at FROM runs"
    (row,) = made.rows(asked)
    assert (row["run_dir"], row["moved"]) == (str(run), "../out/linux")

    def found(root: Path, run_dir: str = row["run_dir"], moved: str = row["moved"]) -> Path | None:
        return Places(root).find(run_dir, moved, row["at"])

    assert found(made.root) == run
    home.rename(tmp_path / "moved")
    run = tmp_path / "moved" / "out" / "linux"
    root = Store.open(tmp_path / "moved" / "store").root
    assert found(root) == run
    # Another run takes its folder, and it is kept beside that.
    kept = names.earlier_name(run, row["at"].isoformat())
    run.rename(kept)
    make_run(run, MadeRun(2))
    assert found(root) == kept
    shutil.rmtree(kept)
    assert found(root) is None
    for odd in ("javascript:alert(1)", "", "/", "a\0b", "/a\0b", "//elsewhere/x", "..", "/dev/stdin"):
        assert found(root, odd, odd) is None


def test_without_its_packages_no_store_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused(SetupError, "pyarrow", fix="pip install"):
        Store.open(tmp_path / "store", make=True)
    assert not (tmp_path / "store").exists()
