"""Stores that several write to at once, whose writers are killed, that were damaged, or made to harm."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import MadeRun, make_run, recorded
from recorded_runs import edit

from model_profiling.cli.main import main
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.files import sha256
from model_profiling.store.data_files import read_index
from model_profiling.store.run_rows import Labels
from model_profiling.store.store import Store

NO_COMMIT = Labels(commit="")

ADDS = """
import os, signal, sys
from pathlib import Path
from model_profiling.store import adding, analysis_rows, maintenance
from model_profiling.store.run_rows import Labels
from model_profiling.store.store import Store
import pyarrow.parquet, pydantic, scipy.special

maintenance.ALIKE = 3

def add(store, runs, kill_at):
    if kill_at > 0:
        seen = 0
        def count(event, words):
            nonlocal seen
            if event in ("open", "os.rename", "os.link", "os.remove", "os.utime") and store in str(words[0]):
                seen += 1
                if seen == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
    for run in runs:
        Store.open(store, make=True).add([run], Labels(commit=""))

started = []
for line in sys.stdin:  # each in a process of its own, which need not load everything anew
    store, kill_at, *runs = line.rstrip("\\n").split("\\t")
    pid = os.fork()
    if pid == 0:
        add(store, runs, int(kill_at))
        os._exit(0)
    started.append(pid)
    if int(kill_at) >= 0:
        print([os.waitpid(pid, 0)[1] for pid in started][-1], flush=True)
        started.clear()
"""


class Adders:
    """Starts processes that add runs one by one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ADDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, store: Path, runs: list[Path], kill_at: int = -1) -> None:
        """One that goes on by itself."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join([str(store), str(kill_at), *map(str, runs)]) + "\n")
        self._process.stdin.flush()

    def ask(self, store: Path, runs: list[Path], kill_at: int = 0) -> int:
        """One more, which kills itself at the `kill_at`-th thing it does with a file of the store: how it
        ended, when all have."""
        self.start(store, runs, kill_at)
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def adders() -> Iterator[Adders]:
    made = Adders()
    yield made
    made.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home, source = tmp_path_factory.mktemp("runs"), recorded()
    return [make_run(home / f"{number:02}", MadeRun(number, turns=2), source) for number in range(10)]


def held(store: Path) -> list[str]:
    rows = Store.open(store).rows("SELECT run_dir FROM runs ORDER BY run_dir")
    return [str(row["run_dir"]) for row in rows]


@pytest.mark.slow
def test_processes_that_add_at_once_lose_nothing(tmp_path: Path, runs: list[Path], adders: Adders) -> None:
    """Each adds all runs, in an order of its own, and merges every now and then."""
    runs = runs[:8]
    orders = [random.Random(number).sample(runs, len(runs)) for number in range(3)]
    for order in orders[1:]:
        adders.start(tmp_path / "store", order)
    assert adders.ask(tmp_path / "store", orders[0]) == 0
    store = Store.open(tmp_path / "store")
    assert held(store.root) == sorted(map(str, runs))
    assert store.rows("SELECT count(*) AS n FROM operators") == [{"n": 11 * len(runs)}]
    assert store.check().ok


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_store_that_reads(
    tmp_path: Path, runs: list[Path], adders: Adders
) -> None:
    """Of all that adding and merging do with files, it dies before the first thing, before the tenth, ..."""
    place, killed, known, runs = tmp_path / "store", 0, set[str](), runs[:8]
    assert adders.ask(place, runs[:2]) == 0
    for kill_at in range(1, 200, 9):
        left = [run_dir for run_dir in runs if str(run_dir) not in known]
        killed += adders.ask(place, left[:3], kill_at) == signal.SIGKILL
        store = Store.open(place)
        listed = held(place)
        assert len(listed) >= len(known), f"killed at {kill_at}"
        if len(listed) > len(known):
            known = set(listed)
            assert len(listed) == len(known), f"killed at {kill_at}"
            assert store.check().ok, f"killed at {kill_at}"
        if len(known) == len(runs):
            break
    assert adders.ask(place, runs) == 0
    assert killed >= 8
    assert held(place) == sorted(map(str, runs))
    store = Store.open(place)
    assert store.check().ok
    store.compact(grace_s=-60)
    named = {found.path for found in read_index(store.root).files}
    on_disk = (path for path in (store.root / "data").rglob("*") if path.is_file())
    # What the dead left is gone.
    assert {path.relative_to(store.root).as_posix() for path in on_disk} == named


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, runs: list[Path]) -> Path:
    store = Store.open(tmp_path_factory.mktemp("sound") / "store", make=True)
    for first in (0, 3, 6):
        store.add(runs[first : first + 3], NO_COMMIT)
    return store.root


def _one(store: Path, table: str) -> Path:
    return sorted((store / "data" / table).rglob("*.parquet"))[0]


def _name(store: Path, name: str, rows: int = 1, size: int = 10, digest: str = "0" * 64) -> None:
    """Let the index name this file in place of one of runs."""
    new = {"path": name, "rows": rows, "bytes": size, "sha256": digest}

    def change(content: dict[str, Any]) -> None:
        first = next(at for at, found in enumerate(content["files"]) if "/runs/" in found["path"])
        content["files"][first] = new

    edit(store / "store.json", change)


def _swap(store: Path) -> None:
    """A file of the right name, size and hash, with columns of another kind."""
    import pyarrow
    import pyarrow.parquet

    name = f"data/runs/month=2026-01/{'a' * 32}.parquet"
    odd = pyarrow.table({"run_id": ["a", "b"], "program_bytes": ["many", "more"]})
    pyarrow.parquet.write_table(odd, store / name)
    _name(store, name, 2, (store / name).stat().st_size, sha256(store / name))


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _linked(path: Path) -> None:
    moved = path.parents[4] / path.name
    path.rename(moved)
    path.symlink_to(moved)


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


NOT_THERE = f"data/runs/month=2026-01/{'0' * 32}.parquet"
DAMAGE: dict[str, Callable[[Path], object]] = {
    "the index names what is not there": lambda store: _name(store, NOT_THERE),
    "a file is cut off": lambda store: _torn(_one(store, "operators")),
    "a file is missing": lambda store: _one(store, "rounds").unlink(),
    "a file is a link": lambda store: _linked(_one(store, "runs")),
    "a file is a pipe": lambda store: _as_pipe(_one(store, "runs")),
    "a file has other columns": _swap,
}
ADDED_AGAIN = ("a file is missing", "a file has other columns")


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_what_is_damaged_is_one_line_and_is_left_out(
    damage: str, tmp_path: Path, sound: Path, runs: list[Path]
) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    DAMAGE[damage](place)
    with pytest.raises(ProfilingError) as told:
        Store.open(place).rows("SELECT * FROM runs, operators, rounds LIMIT 1")
    assert isinstance(told.value, FormatError | InputError)
    assert "\n" not in str(told.value) and told.value.fix
    store = Store.open(place)
    found = store.check()
    assert not found.ok
    store.repair()
    assert store.check().ok
    before = {str(row["run_dir"]) for row in store.rows("SELECT run_dir FROM runs")}
    assert before < set(map(str, runs)), "some are left out"
    if damage not in ADDED_AGAIN:
        return
    assert not store.add(runs[:9], NO_COMMIT).refused
    assert held(place) == sorted(map(str, runs[:9])), "and can be added again"
    assert store.rows("SELECT count(*) AS n FROM operators") == [{"n": 99}]
    assert store.check().ok


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd",
        "/etc/passwd",
        f"data/runs/month=2026-01/{'*' * 32}.parquet",
        f"data/secrets/month=2026-01/{'0' * 32}.parquet",
    ],
)
def test_an_index_names_only_files_of_its_store(name: str, tmp_path: Path, sound: Path) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    _name(place, name)
    with pytest.raises(FormatError, match="not a file of a store"):
        Store.open(place)
    _torn(place / "store.json")
    with pytest.raises(FormatError, match=r"store\.json"):
        Store.open(place)


def test_a_changed_byte_is_found(tmp_path: Path, sound: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    _flipped(_one(place, "operators"))
    assert main(["store", "check", "--store", str(place)]) == 1
    assert "its hash is" in capsys.readouterr().out
    assert main(["store", "check", "--repair", "--store", str(place)]) == 0
    told = capsys.readouterr().out
    assert "left out: data/operators/" in told
    assert "3 runs left out" in told


def test_stores_of_other_kits_and_no_stores(tmp_path: Path, sound: Path) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    mark = place / "store.json"
    for version, said in ((3, "later kit.*update"), (1, "earlier kit.*sme2prof store add")):
        edit(mark, lambda content, version=version: content.update(schema_version=version))
        with pytest.raises(FormatError, match=said):
            Store.open(place)
    edit(mark, lambda content: content.update(schema_version=2))
    folder = _one(place, "operators").parent
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        Store.open(place).rows("SELECT 1")
    mark.write_text(json.dumps({"schema_version": 2, "kind": "a shop"}))
    with pytest.raises(FormatError, match="kind"):
        Store.open(place)
    mark.unlink()
    with pytest.raises(InputError, match="there is no store"):
        Store.open(place)


def test_names_that_a_shell_or_duckdb_would_take_for_something_else(tmp_path: Path, runs: list[Path]) -> None:
    place = tmp_path / "it's [a] *store* {x}?"
    store = Store.open(place, make=True)
    store.add(runs[:1], NO_COMMIT)
    assert len(store.rows("SELECT * FROM operators")) == 11
    assert store.query("SELECT count(*) AS n FROM operators").rows == [(11,)]


@pytest.mark.slow
def test_a_store_at_an_address_is_fetched_once(
    tmp_path: Path, sound: Path, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As s3:// is read, by DuckDB; only what carries the bytes is another."""
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "store [1]"
    shutil.copytree(sound, place)
    address = f"file://{place}"
    assert len(Store.open(address).rows("SELECT * FROM runs")) == 9
    fetched = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.parquet")}
    Store.open(place).add(runs[9:10], NO_COMMIT)
    assert len(Store.open(address).rows("SELECT * FROM operators")) == 110
    assert all(path.stat().st_mtime_ns == at for path, at in fetched.items())
    changes: tuple[Callable[[Store], object], ...] = (
        lambda store: store.add(runs, NO_COMMIT),
        lambda store: store.tag(["0" * 32], ["x"]),
        lambda store: store.compact(),
        lambda store: store.repair(),
    )
    for change in changes:
        with pytest.raises(InputError, match="is read-only"):
            change(Store.open(address))
    shutil.rmtree(place)
    Store.open(place, make=True).add(runs[:1], NO_COMMIT)
    assert len(Store.open(address).rows("SELECT * FROM runs")) == 1, "another store has taken its place"
    _flipped(_one(place, "runs"))
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(FormatError, match="is damaged"):
        Store.open(address)
    with pytest.raises(InputError, match=r"no store at .*/nowhere"):
        Store.open(f"{address}/nowhere")
