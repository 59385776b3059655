"""Every command, script and tool, each odd value at each place of its command line: one line, exit code 2."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from pages import assert_harmless
from recorded_runs import SME2, dumps_in

from model_profiling.cli.main import COMMANDS, program
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.tools import etdump_to_csv

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
        assert made is not None
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


def placed(command: click.Command, odd: click.Parameter, value: str) -> list[str]:
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
            assert_one_line(sme2prof(*words, *placed(command, param, value)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("odd", PATHS.values(), ids=PATHS)
def test_odd_paths_from_python(odd: str) -> None:
    with pytest.raises(InputError):
        files.as_path(odd)


def test_what_the_system_refuses_is_said_with_its_cause_and_a_cure(sme2prof, tmp_path):
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
    for words in (("analyze", "run"), ("validate", "run"), ("bundle", "run")):
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
