"""A run whose dump, kernels, program, machine and folder are named by somebody who means harm: every command
shows it, no terminal obeys it, no page and no spreadsheet makes more of it than text."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import assert_harmless
from recorded_runs import EMULATED, PROGRAM, SME2, Json, dumps_in, emulated_experiments, replay
from rendered_markdown import read_html, rendered

from model_profiling.compat.timelines import analyse_timeline
from model_profiling.core.records import read_table

# As long as the word it stands for, so that the dump's tables still fit.
OPERATOR, EVENT = b"Convolution", "\x1b[2J\u202e\x07a\x9b"
KERNEL, NAMED = "kai_run_matmul", "kai_run_\x1b]0;x\x07\u202e_matmul"


def recorded(folder: Path) -> Path:
    """What was recorded, as a device would have told it that lies."""
    made = Path(shutil.copytree(EMULATED, folder / "recorded"))
    assert len(EVENT.encode()) == len(OPERATOR)
    for dump in dumps_in(made):
        content = dump.read_bytes()
        assert OPERATOR in content
        dump.write_bytes(content.replace(OPERATOR, EVENT.encode()))
    for path in made.glob("*.json*"):
        path.write_text(path.read_text().replace(KERNEL, json.dumps(NAMED)[1:-1]))
    return made


@pytest.mark.usefixtures("elsewhere")
def test_no_command_and_no_page_passes_hostile_names_on(sme2prof, tmp_path: Path) -> None:
    run_dir = tmp_path / "r\x1b[2Jun"
    replay(recorded(tmp_path), run_dir, emulated_experiments(), program=PROGRAM)
    for words in (("analyze",), ("report",), ("validate",), ("analyze", "--json"), ("compare", run_dir)):
        done = sme2prof(*words, run_dir)
        assert done.returncode in (0, 1), done.stderr
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
    shown = sme2prof("analyze", run_dir).stdout
    assert "\\u001b[2J\\u202e\\u0007a\\u009b (NHWC" in shown, "the name is there, to be seen"
    pages = list(run_dir.rglob("*.md"))
    assert {page.name for page in pages} >= {"report.md", "kernel_view.md"}
    for page in pages:
        assert_harmless(page.read_text())
    assert "kai_run_\\u001b]0;x" in (run_dir / "kernel_view.md").read_text()
    missing = sme2prof("analyze", tmp_path / "no\x1b]0;such\x07")
    assert missing.returncode == 2 and "no\\u001b]0;such" in missing.stderr
    assert_harmless(missing.stderr)


TOLD = frozenset((
    "cpu", "os", "compiler", "kit_version", "label", "seen", "advice", "module_path", "module_class", "code",
    "call", "node", "notes", "features_note", "kernels_note", "fix",
))  # fmt: skip
"""What is told in words in a run's files."""
WORDS = "=cmd|' /C calc'!A0<img src=x onerror=alert(1)>[a](javascript:x) ![p](https://evil) </script>\x1b[2J"
FORMULA, PLAIN = b"=<b>[](a)\x60|", b"Conwolution"


def spoilt(folder: Path, words: str, event: bytes) -> Path:
    """A run of hardware with SME2 that tells `words` wherever a run tells words."""
    made = Path(shutil.copytree(SME2, folder / "run"))
    for path in (*made.glob("*.json"), *made.glob("*.jsonl")):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        path.write_text("".join(f"{json.dumps(_told(json.loads(line), words))}\n" for line in lines))
    assert len(event) == len(OPERATOR)
    for dump in dumps_in(made):
        dump.write_bytes(dump.read_bytes().replace(OPERATOR, event))
    manifest: Json = json.loads((made / "manifest.json").read_text())
    manifest["model"] = f"/nowhere/{words.replace('/', '')}_xnnpack_fp16.pte"
    (made / "manifest.json").write_text(json.dumps(manifest))
    return made


def _told(content: object, words: str) -> object:
    match content:
        case dict():
            return {
                key: words if key in TOLD and isinstance(value, str) and value else _told(value, words)
                for key, value in content.items()
            }
        case list():
            return [_told(each, words) for each in content]
    return content


@pytest.fixture
def everything(
    sme2prof: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, bytes], Path]:
    """`everything("name", words, event)`: a spoilt run, rendered to everything there is."""

    def render(name: str, words: str, event: bytes) -> Path:
        run = spoilt(tmp_path / name, words, event)
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.chdir(run)  # where `compare` writes its page
        hostile = event is FORMULA
        for command in (
            *([("analyze", run)] if hostile else []),
            ("report", run, *(("--for", "all") if hostile else ())),
            ("compare", run, run, "--out", run / "compared.md", "--out", run / "compared.xml"),
        ):
            done = sme2prof(*command)
            assert done.returncode in (0, 1), done.stderr
            assert_harmless(done.stdout)
            assert_harmless(done.stderr)
        return run

    return render


def test_names_are_text_in_every_file_that_is_made(everything: Callable[[str, str, bytes], Path]) -> None:
    hostile, harmless = everything("hostile", WORDS, FORMULA), everything("harmless", "words", PLAIN)
    pages = sorted(path.relative_to(harmless) for path in harmless.rglob("*.md"))
    assert {path.name for path in pages} >= {"report.md", "kernel_view.md", "compared.md"}
    for path in pages:
        page = rendered((hostile / path).read_text())
        assert page.shape == rendered((harmless / path).read_text()).shape, path
        assert not page.links, path
        assert_harmless((hostile / path).read_text())
    assert "<img src=x" in rendered((hostile / "report.md").read_text()).text, "the words are there"
    ours, theirs = (
        [
            (tag, sorted(name for name, _ in attributes if (tag, name) != ("td", "class")))
            for tag, attributes in read_html(page.read_text()).shape
            if tag != "wbr"
        ]
        for page in (hostile / "report.html", harmless / "report.html")
    )
    assert ours == theirs, "elements and the names of their attributes, but for what follows from lengths"
    for path in (*hostile.rglob("*.svg"), hostile / "compared.xml"):
        for element in ElementTree.fromstring(path.read_text(encoding="utf-8")).iter():
            assert not element.tag.endswith(("script", "foreignObject", "}a"))
            assert not any(name.lower().startswith("on") or "href" in name for name in element.attrib)
    for path in hostile.rglob("*.json"):
        json.loads(path.read_bytes())
    tables = list(hostile.rglob("*.csv"))
    assert len(tables) >= 12
    for path in tables:
        with path.open(encoding="utf-8", newline="") as stream:
            for cell in (cell for row in csv.reader(stream) for cell in row):
                assert not re.match(r"\s*[=+@\t\r]|\s*-(?!\d)", cell) or len(cell) == 1, path
    timeline = next(path for path in tables if path.name.endswith("_sme2_on_t1_exec_all_runs_timeline.csv"))
    columns, rows = read_table(timeline.read_text(encoding="utf-8"), timeline, "")
    assert "name" in columns
    assert any(row["name"].startswith(FORMULA.decode()) for row in rows), "read back as they were"
    assert any(one.name.startswith(FORMULA.decode()) for one in analyse_timeline(timeline).operators)
