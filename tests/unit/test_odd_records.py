"""Odd values in files of a run, in what runners say and on command lines: taken, or refused in one line."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import click
import pytest
from pages import assert_harmless
from recorded_runs import ARM, SME2, dumps_in, edit
from said import refused

from model_profiling.cli.main import COMMANDS, program
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, RunError
from model_profiling.core.process import Completed
from model_profiling.runner.result import read_report, read_result
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.records import read_evidence, read_metrics, read_robust_stats
from model_profiling.targets.job import Job, read_own_times
from model_profiling.tools import etdump_to_csv

Place = tuple[str | int, ...]
ODD = (
    "1" + "0" * 400, "1" + "0" * 5000, "1e999", "NaN", "-Infinity", "-1", "0", "1e300", '"x"', '"\\u0000"',
    '"\\ud800"', "true", "null", "[]", "{}", f'"{"x" * 5000}"', "[" * 500 + "]" * 500,
)  # fmt: skip
READERS: dict[str, Callable[[Path], object]] = {
    "manifest.json": lambda path: read_manifest(path.parent),
    "metrics.json": read_metrics,
    "journal.jsonl": lambda path: Journal(path.parent),
    "evidence.json": lambda path: read_evidence(path.parent),
    "robust_stats.json": read_robust_stats,
}


def places(content: object, at: Place = ()) -> Iterator[Place]:
    """Every place of a value; of a list the first entry stands for all."""
    yield at
    match content:
        case dict():
            for key, value in content.items():
                yield from places(value, (*at, key))
        case list():
            for value in content[:1]:
                yield from places(value, (*at, 0))


def replaced(text: str, at: Place, odd: str) -> str:
    """JSON with `odd`, whatever that is, at one place."""
    if not at:
        return odd
    content = json.loads(text)
    inner = content
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = "@odd@"
    return json.dumps(content).replace('"@odd@"', odd)


@pytest.mark.parametrize("name", READERS)
def test_odd_values_at_each_place_of_a_record(tmp_path: Path, name: str) -> None:
    (found, *_) = [path for run in (SME2, ARM) for path in sorted(run.rglob(f"*{name}"))]
    text = found.read_text().splitlines()[0] if name.endswith("l") else found.read_text()
    odd, taken = cycle(ODD), 0
    for at in places(json.loads(text)):
        for _ in range(2):  # in turn: all at each place would take long
            value = next(odd)
            path = tmp_path / name
            path.write_text(f"{replaced(text, at, value)}\n")
            try:
                READERS[name](path)
                taken += 1
            except ProfilingError as problem:
                assert name in str(problem) and "unexpected" not in str(problem)
                assert "\n" not in str(problem) and problem.fix, (at, value)
    assert taken, "keys that no record names are not looked at"


def test_odd_values_in_what_a_runner_says(tmp_path: Path) -> None:
    whole = json.dumps({
        "schema_version": 1, "flags_present": ["sme2"], "flags_masked": [], "layout_verified": True,
        "executorch": "1.5", "iterations_ns": [1], "threads": 1, "warmup": 0, "load_ns": 1,
    })  # fmt: skip
    path = tmp_path / "runner.json"
    for at in places(json.loads(whole)):
        for odd in ODD:
            path.write_text(replaced(whole, at, odd))
            try:
                times = read_result(path).iterations_ns
                assert all(0 <= time < 1 << 62 for time in times)
            except RunError as problem:
                assert "runner.json" in str(problem) and problem.fix


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("metrics.json", lambda c: c["latencies"][0]["traced_ms"].update(median=0.0)),
        ("metrics.json", lambda c: c["latencies"][0]["end_to_end_ms"].update(minimum=-1.0)),
        ("metrics.json", lambda c: c["comparisons"][0]["speedup"].update(ratio=0.0)),
    ],
)
@pytest.mark.usefixtures("elsewhere")
def test_times_that_no_clock_tells_are_named(sme2prof, tmp_path, name, change):
    run = Path(shutil.copytree(SME2, tmp_path / "run"))
    edit(run / name, change)
    for words in (("report", run), ("compare", run, run), ("analyze", run)):
        done = sme2prof(*words)
        assert done.returncode == 2 and "compute it again" in done.stderr and name in done.stderr
        assert "unexpected" not in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"flags_present": 1}', '{"flags_present": []}', "[" * 100_000]
)
def test_a_report_of_features_that_is_none(text: str) -> None:
    with refused(RunError, "feature"):
        read_report(text)


JOB = Job(Path("x.pte"), runs=2, warmup=0)
ODD_TIMES = (
    "1.2.3", "0.0", "0", "9" * 400, "9" * 5000, "-1.5", "nan", "inf", "1e400", "1e3", "\u0663", "0x10", "1_0",
    "1,5", "\x1b[2J", "",
)  # fmt: skip


@pytest.mark.parametrize("told", ODD_TIMES)
def test_a_time_that_is_none_is_an_error_that_shows_it(told: str) -> None:
    good = "Iteration 1 of 2: 1.5 ms\n"
    assert (
        read_own_times(JOB, f"Model loaded in {told} ms\n{good * 2}", None).iterations_ns == (1_500_000,) * 2
    )
    if told:
        with refused(RunError) as said:
            read_own_times(JOB, f"{good}Iteration 2 of 2: {told} ms\n", None)
        assert len(str(said.value)) < 400 and "\x1b" not in str(said.value)


ROOT = Path(__file__).resolve().parents[2]


Sme2prof = Callable[..., Completed]

PATHS = {
    "too long": "x" * 5000,
    "a name too long": f"runs/{'x' * 256}",
    "deep": "x/" * 3000,
    "NUL": "a\0b",
    "not UTF-8": "caf\udce9.pte",
    "half a character": "\ud800",
    "empty": "",
}
NUMBERS = ("9" * 400, "9" * 5000, "nan", "-nan", "1e400", "-inf", "\u00b2", "x" * 5000, "0x10", "")


def commands() -> Iterator[tuple[list[str], click.Command]]:
    group = program()
    for name in COMMANDS:
        made = group.get_command(click.Context(group), name)
        if isinstance(made, click.Group):
            yield from (([name, inner], command) for inner, command in made.commands.items())
        else:
            yield [name], made


def assert_one_line(done: Completed) -> None:
    assert done.returncode == 2, done.argv
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and ";" in lines[0], done.stderr[-500:]
    assert "unexpected" not in lines[0] and len(lines[0]) < 2500
    assert_harmless(done.stderr)


def words_with(command: click.Command, odd: click.Parameter, value: str) -> list[str]:
    """Words that give `odd` this value, and what must be given besides something."""
    words = []
    for param in command.params:
        if isinstance(param, click.Argument):
            words.append(value if param is odd else "nosuch")
        elif param is odd or param.required:
            words.append(f"{param.opts[0]}={value if param is odd else 'nosuch'}")
    return words


@pytest.mark.parametrize(("words", "command"), commands(), ids=str)
def test_odd_values_at_each_place(sme2prof, monkeypatch, tmp_path, words, command):
    monkeypatch.chdir(tmp_path)
    for param in command.params:
        kind = param.type
        if isinstance(kind, click.Path):
            values = list(PATHS.values())
        elif (
            isinstance(kind, click.types.IntParamType | click.types.FloatParamType) or param.name == "threads"
        ):
            values = list(NUMBERS)
        elif getattr(param, "is_flag", False):
            continue
        else:
            values = [PATHS["NUL"], PATHS["not UTF-8"], PATHS["half a character"]]
        for value in values:
            assert_one_line(sme2prof(*words, *words_with(command, param, value)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("odd", PATHS.values(), ids=PATHS)
def test_odd_paths_from_python(odd: str) -> None:
    with pytest.raises(InputError):
        files.as_path(odd)


def test_what_the_system_refuses_is_said_with_its_cause_and_a_cure(sme2prof, tmp_path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert_one_line(sme2prof("analyze", loop / "run"))
    assert_one_line(sme2prof("config", "check", loop))


@pytest.mark.parametrize("name", ["caf\udce9.etdump", f"{'x' * 240}.etdump"], ids=["not UTF-8", "long"])
def test_odd_names_of_what_is_found_in_a_folder(sme2prof: Sme2prof, tmp_path: Path, name: str) -> None:
    shutil.copy(dumps_in(SME2)[0], tmp_path / name)
    assert_one_line(sme2prof("analyze", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_a_folder_whose_name_is_not_utf_8(sme2prof, tmp_path, monkeypatch):
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    shutil.copytree(SME2, folder / "run")
    monkeypatch.chdir(folder)
    for words in (("analyze", "run"), ("validate", "run"), ("report", "run", "--zip")):
        done = sme2prof(*words)
        assert done.returncode in (0, 1), done.stderr
        assert_harmless(done.stdout)


@pytest.mark.parametrize("odd", ["9" * 5000, "\x1b]0;x\x07", "nan"])
def test_tools_refuse_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, odd: str) -> None:
    for words in (["--run-index", odd], ["--nosuch", odd], ["--etdump", odd]):
        with contextlib.suppress(SystemExit):
            assert etdump_to_csv.main(["--etdump", "x", "--out-dir", str(tmp_path / "new"), *words]) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1 and len(said) < 3000 and "unexpected" not in said
        assert_harmless(said)
