"""The lines that tests/data/mistakes.md shows come when their command is typed."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from documents import Block, blocks_of, missing_line

PAGE = "tests/data/mistakes.md"
PROGRAMS = Path(__file__).parents[1] / "data/runs/programs"
PROGRAM = "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"


def _typed() -> list[tuple[str, Block]]:
    """Commands of ours with the block they stand in; phones are for the tests that have one."""
    blocks = [block for block in blocks_of(PAGE) if block.language == "text"]
    found = [(block.text.partition("\n")[0], block) for block in blocks]
    return [
        (line.removeprefix("$ "), block)
        for line, block in found
        if line.startswith("$ ") and " sme2prof " in f" {line} " and "android" not in line
    ]


@pytest.fixture
def page_folder(arm_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page's commands were typed in: a program, a cut one, two runs, a config with a wrong word."""
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS / "small_cnn_xnnpack_fp16.pte"
    Path(PROGRAM).parent.mkdir(parents=True)
    shutil.copy(program, PROGRAM)
    shutil.copytree(arm_home / "runs", "out_toy_cnn/runs")
    Path("cut.pte").write_bytes(program.read_bytes()[:1000])
    experiments = [{"name": f"linux_sme2_{side}", "sme2": side, "warmups": 3} for side in ("on", "off")]
    config = {"model": PROGRAM, "output_root": "out_toy_cnn/run", "experiments": experiments}
    Path("misspelt.json").write_text(json.dumps(config))
    sides = [{"name": f"linux_sme2_{side}", "sme2": side} for side in ("on", "off")]
    Path("configs").mkdir()
    gone = config | {"model": PROGRAM.replace("fp16", "fp99"), "experiments": sides}
    Path("configs/run.json").write_text(json.dumps(gone))
    shutil.copy("/bin/true", "executor_runner")
    own = [side | {"runner_path": "executor_runner"} for side in sides]
    Path("one_runner.json").write_text(json.dumps(config | {"experiments": own}))
    shutil.copytree("out_toy_cnn/runs/xnnpack_fp16/linux", "damaged")
    (dump,) = Path("damaged/linux_baseline").glob("*_t1.etdump")
    Path("bare").mkdir()
    shutil.copy(dump, "bare")
    dump.write_bytes(dump.read_bytes()[:3000])


@pytest.mark.skipif(sys.platform != "linux", reason="the lines shown are those of Linux")
@pytest.mark.usefixtures("page_folder")
@pytest.mark.parametrize(("typed", "block"), _typed(), ids=[typed for typed, _ in _typed()])
def test_the_line_shown_is_the_line_that_comes(typed: str, block: Block, sme2prof, monkeypatch) -> None:
    words = shlex.split(typed)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    done = sme2prof(*words[1:])
    shown = block.text.partition("\n")[2]
    assert done.returncode in ((0,) if shown.startswith("warning:") else (1, 2))
    assert not missing_line(shown, done.stdout + done.stderr), done.stdout + done.stderr


def test_most_lines_are_typed() -> None:
    assert len(_typed()) >= 18
