"""`sme2prof clean`: what is kept is shown with its size and trimmed; what is not the kit's is not touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorded_runs import ARM, DATA
from said import refused, says

from model_profiling.cli.clean import _moment
from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import cache
from model_profiling.runner.cache import RECORD, cache_entries, cached, remove_whole, size_below
from model_profiling.runs.folders import locked

ROOT = Path(__file__).resolve().parents[2]
Clean = Callable[..., process.Completed]
DAY = 86_400
HOLD = """\
import sys, pathlib
from model_profiling.runner.cache import cached
cached(pathlib.Path(sys.argv[1]), None, "a thing", fetch=False)
print("held", flush=True)
sys.stdin.read()
"""


def filled(size: int) -> Callable[[Path], None]:
    def make(into: Path) -> None:
        (into / "bin").mkdir(parents=True)
        (into / "bin/program").write_bytes(bytes(size))

    return make


def aged(home: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in (home / RECORD, home):
        if path.exists():
            os.utime(path, (then, then))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache with four entries of 1, 2, 3 and 4 MB, the largest used longest ago."""
    root = tmp_path / "cache"
    monkeypatch.setenv("SME2PROF_CACHE", str(root))
    kinds = (("runners", "0" * 16), ("wheels", "executorch-1"), ("qemu", "qemu-user"))
    for number, (kind, name) in enumerate((*kinds, ("compilers", "ziglang-0.17"))):
        home = cached(root / kind / name, filled((number + 1) * 1_000_000), "a thing", fetch=True)
        os.close(cache._held.pop(home))  # as if the process that made it had ended
        aged(home, number * 10)
    yield root


@pytest.fixture
def clean(sme2prof: Clean) -> Callable[..., dict[str, object]]:
    def call(*words: object) -> dict[str, object]:
        done = sme2prof("clean", *words, "--json")
        assert done.returncode == 0, done.stderr
        facts: dict[str, object] = json.loads(done.stdout)
        return facts

    return call


def chosen(facts: dict[str, object]) -> list[str]:
    kept = facts["kept"]
    return [Path(entry["name"]).name for entry in kept if entry["chosen"]]


def test_everything_is_shown_with_its_size_the_largest_first(root: Path, sme2prof: Clean) -> None:
    done = sme2prof("clean")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0] == str(root)
    assert [line.split()[-1] for line in lines[1:5]] == [
        "compilers/ziglang-0.17",
        "qemu/qemu-user",
        "wheels/executorch-1",
        f"runners/{'0' * 16}",
    ]
    assert lines[1].split()[:2] == ["4.0", "MB"] and lines[5] == "4 in the cache, 10.0 MB"
    assert len(list(root.glob("*/*"))) == 4, "looking removes nothing"


def test_what_was_used_longest_ago_goes_until_the_rest_fits(root: Path, clean) -> None:
    assert chosen(clean("--keep", "4MB", "--dry-run")) == ["ziglang-0.17", "qemu-user"]
    assert len(list(root.glob("*/*"))) == 4
    facts = clean("--keep", "4 MB")
    assert chosen(facts) == ["ziglang-0.17", "qemu-user"] and facts["removed"] is True
    assert sorted(path.name for path in root.glob("*/*")) == ["0" * 16, "executorch-1"]
    assert chosen(clean("--older-than", "9d")) == ["executorch-1"]
    assert chosen(clean("--older-than", "9d", "--keep", "1GB")) == []
    assert chosen(clean("--keep", "0")) == ["0" * 16] and not list(root.glob("*/*"))


def test_what_the_kit_has_not_made_stays_and_no_link_is_followed(root, tmp_path, clean, sme2prof):
    mine = tmp_path / "mine"
    shutil.copytree(root / "qemu/qemu-user", mine / "one")  # a record does not make a link's target ours
    (root / "runners/linked").symlink_to(mine / "one")
    (root / "photos").symlink_to(mine)
    (root / "wheels/holiday.jpg").write_bytes(b"x" * 100)
    (root / "wheels/executorch-1.5.1-aarch64").write_bytes(b"x" * 100)  # the kit's own are folders
    (root / "wheels/executorch-source").mkdir()
    (root / "wheels/executorch-source/work").write_bytes(b"x" * 100)
    (root / "music").mkdir()
    (root / "music/song").write_bytes(b"x" * 100)
    (root / "notes.txt").write_text("mine")
    shown = sme2prof("clean").stdout
    assert (
        shown.count("(a link, not written by the kit)") == 2 and shown.count("(not written by the kit)") == 5
    )
    clean("--keep", "0")
    left = sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()
    )
    wheels = ["executorch-1.5.1-aarch64", "executorch-source/work", "holiday.jpg"]
    others = ["music/song", "notes.txt", "photos", "runners/linked"]
    assert left == others + [f"wheels/{name}" for name in wheels]
    assert size_below(mine) > 3_000_000


def test_what_a_process_uses_stays_and_killing_it_frees_it(root: Path, clean) -> None:
    words = [sys.executable, "-c", HOLD, str(root / "compilers/ziglang-0.17")]
    (root / "compilers/zig-cache").mkdir()
    (root / "compilers/zig-cache/object").write_bytes(b"x")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as user:
        assert user.stdout is not None and user.stdout.readline() == b"held\n"
        facts = clean("--keep", "0")
        assert sorted(chosen(facts)) == ["0" * 16, "executorch-1", "qemu-user"]
        stays = {entry.name: entry.stays for entry in cache_entries()}
        assert stays == {"ziglang-0.17": "in use", "zig-cache": "in use"}, "its own cache is used, too"
        user.kill()
    assert sorted(chosen(clean("--keep", "0"))) == ["zig-cache", "ziglang-0.17"]


def test_what_a_killed_build_left_goes_after_a_day(root: Path, clean) -> None:
    for name, days in ((".fetch.new", 0.5), (".fetch.old", 1.5)):
        (root / "runners" / name).mkdir()
        (root / "runners" / name / "half").write_bytes(b"x")
        aged(root / "runners" / name, days)
    assert ".fetch.old" in chosen(clean("--keep", "0"))
    assert [path.name for path in (root / "runners").iterdir()] == [".fetch.new"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, `c` measured last."""
    for number, (name, recorded) in enumerate((("c", ARM), ("b", DATA / "emulated_sme2"), ("a", ARM))):
        place = tmp_path / "runs" / name
        shutil.copytree(recorded, place)
        for path in (place / "manifest.json", place / "journal.jsonl"):
            os.utime(path, (time.time() - (40 * number + 1) * DAY,) * 2)
    return tmp_path / "runs"


def test_runs_are_shown_and_trimmed_where_they_are_named(root, runs, clean, sme2prof):
    shown = sme2prof("clean", runs)
    assert shown.returncode == 0 and shown.stdout.splitlines()[-1].startswith("3 runs, ")
    assert chosen(clean(runs, "--older-than", "30d", "--dry-run")) == ["a", "b"]
    keep = size_below(runs / "c") + 10
    assert sorted(chosen(clean(runs, "--keep", f"{keep}"))) == ["a", "b"]
    assert [path.name for path in runs.iterdir() if path.is_dir()] == ["c"]
    assert len(list(root.glob("*/*"))) == 4, "the cache is another matter"


def test_runs_in_use_or_with_files_of_somebody_stay(runs: Path, clean, tmp_path: Path) -> None:
    (runs / "a/my notes.txt").write_text("worth keeping")
    (tmp_path / "elsewhere").mkdir()
    (runs / "b/more").symlink_to(tmp_path / "elsewhere")
    shutil.copytree(ARM, runs / "outer/inner")
    shutil.copy(ARM / "manifest.json", runs / "outer")
    shutil.copytree(ARM, runs / "torn")
    (runs / "torn/manifest.json").write_text("{")
    with locked(runs / "c"):
        facts = clean(runs, "--keep", "0")
    assert chosen(facts) == ["inner"]
    kept = facts["kept"]
    stays = {Path(entry["name"]).name: entry["stays"] for entry in kept}
    reasons = {"a": "my notes.txt", "b": "more", "c": "in use", "outer": "other runs", "torn": "manifest"}
    assert stays.keys() == {*reasons, "inner"} and stays["inner"] == ""
    for name, reason in reasons.items():
        says(stays[name], reason)
    assert (runs / "a/my notes.txt").is_file() and (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize(
    "words",
    [
        ["--keep", "many"],
        ["--keep", "-1"],
        ["--keep", "9" * 400],
        ["--older-than", "soon"],
        ["--older-than", "1e9d"],
        ["--dry-run"],
        ["--device-path", "/x"],
        ["--device", "X", "--host", "Y"],
        ["--target", "android:X", "--host", "Y"],
        ["--target", "host"],
        ["--target", "android:X", "--keep", "0"],
        ["nowhere"],
    ],
)
def test_words_that_make_no_sense_are_one_line(sme2prof: Clean, words: list[str]) -> None:
    done = sme2prof("clean", *words)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2prof: Clean) -> None:
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "none"))
    done = sme2prof("clean", "--keep", "0")
    assert done.returncode == 0 and "0 in the cache" in done.stdout and not (tmp_path / "none").exists()


def test_nothing_half_removed_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "entry/deep").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / "entry/deep/link").symlink_to(outside)
    remove_whole(tmp_path / "entry")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"] and (outside / "file").exists()


def test_what_lies_in_two_runs_is_counted_once(runs: Path, clean) -> None:
    """Else a limit that everything fits into removes runs."""
    shutil.rmtree(runs / "a")
    shutil.rmtree(runs / "b")
    shutil.copytree(ARM, runs / "c/inner")
    facts = clean(runs, "--keep", f"{size_below(runs) + 10}")
    assert facts["bytes"] == size_below(runs) and chosen(facts) == []


def test_the_run_one_stands_in_goes_like_any_other(runs, clean, monkeypatch):
    long = runs / ("n" * 240)
    (runs / "b").rename(long)
    monkeypatch.chdir(runs / "a")
    with locked(runs / "a"):
        assert chosen(clean(".", "--keep", "0")) == [], "its lock is the one that everybody takes"
    assert len(chosen(clean(".", long, "--keep", "0"))) == 2
    assert not (runs / "a").exists() and not long.exists()


def test_what_cannot_be_removed_is_never_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entry/closed").mkdir(parents=True)
    (tmp_path / "entry/closed/file").touch()
    (tmp_path / "entry/closed").chmod(0o555)
    unlink = os.unlink

    def refusing(*_words: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refusing)
    with refused(SetupError, tmp_path / "entry", "operation not permitted") as caught:
        remove_whole(tmp_path / "entry")
    monkeypatch.setattr(os, "unlink", unlink)
    (left,) = tmp_path.iterdir()
    says(caught.value.fix, left)
    assert (left / "entry/closed/file").exists()
    remove_whole(left)
    remove_whole(left)  # as if another process had been quicker
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_nothing_half_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entry/deep").mkdir(parents=True)
    remove = shutil.rmtree

    def interrupted(path: Path) -> None:
        signal.raise_signal(signal.SIGINT)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_whole(tmp_path / "entry")
    assert not list(tmp_path.iterdir())


def test_a_time_that_no_calendar_has_is_shown_as_the_nearest() -> None:
    """Memory file systems keep every time that a file is given."""
    years = [_moment(stamp).tm_year for stamp in (-(2.0**62), 0.0, 2.0**62)]
    assert years[0] in (1969, 1970) and years[0] == years[1] and years[2] == 9987
