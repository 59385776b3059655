"""A run whose dump, kernels, program, machine and folder are named by somebody who means harm: every command
shows it, no terminal obeys it, no page and no spreadsheet makes more of it than text."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from pages import assert_harmless
from recorded_runs import SME2, dumps_in, edit
from rendered_markdown import read_html, rendered

from model_profiling.compat.timelines import analyse_timeline
from model_profiling.core.records import read_table
from model_profiling.runs import Run
from model_profiling.workflow.analyse import write_kernel_view

TOLD = frozenset((
    "cpu", "os", "compiler", "kit_version", "label", "seen", "advice", "module_path", "module_class", "code",
    "call", "node", "notes", "features_note", "kernels_note", "fix",
))  # fmt: skip
"""What is told in words in a run's files."""
WORDS = "=cmd|' /C calc'!A0<img src=x onerror=alert(1)>[a](javascript:x) ![p](https://evil) </script>\x1b[2J"
FORMULA = "=<b>[](a)\x60|"


@dataclass(frozen=True)
class Names:
    """What a run tells instead of words; an operator with SME2 on and off, as long as the word it stands for,
    so that the dump's tables still fit; a kernel."""

    run: str
    words: str
    on: str
    off: str
    kernel: str


HOSTILE = Names("r\x1b[2Jun", WORDS, "\x1b[2J\u202e\x07a\x9b", FORMULA, "kai_run_\x1b]0;x\x07\u202e_matmul")
HARMLESS = Names("run", "words", "Conwolution", "Conwulution", "kai_run_words_matmul")
OPERATOR, KERNEL = b"Convolution", "kai_run_matmul"


def spoilt(folder: Path, told: Names) -> Path:
    """A run of hardware with SME2 that tells these names wherever a run tells words."""
    made = Path(shutil.copytree(SME2, folder / told.run))
    for path in (*made.glob("*.json"), *made.glob("*.jsonl")):
        text = path.read_text().replace(KERNEL, json.dumps(told.kernel)[1:-1])
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        path.write_text("".join(f"{json.dumps(_told(json.loads(line), told.words))}\n" for line in lines))
    for path in made.rglob("*_kernels.csv"):
        path.write_text(path.read_text().replace(KERNEL, told.kernel))
    for dump in dumps_in(made):
        name = (told.on if "_sme2_on" in dump.name else told.off).encode()
        content = dump.read_bytes()
        assert OPERATOR in content and len(name) == len(OPERATOR)
        dump.write_bytes(content.replace(OPERATOR, name))
    model = f"/nowhere/{told.words.replace('/', '')}_xnnpack_fp16.pte"
    edit(made / "manifest.json", lambda manifest: manifest.update(model=model))
    write_kernel_view(Run.open(made))
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


def test_names_are_text_on_terminals_and_in_every_file_that_is_made(sme2prof, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    runs = [spoilt(tmp_path / name, told) for name, told in (("hostile", HOSTILE), ("harmless", HARMLESS))]
    for run in runs:
        monkeypatch.chdir(run)  # where `compare` writes its page
        for words in (
            *([("analyze", run, "--json"), ("validate", run)] if run is runs[0] else []),
            ("analyze", run),
            ("report", run, "--for", "all"),
            ("compare", run, run, "--out", run / "compared.md", "--out", run / "compared.xml"),
        ):
            done = sme2prof(*words)
            assert done.returncode in (0, 1), done.stderr
            assert_harmless(done.stdout)
            assert_harmless(done.stderr)
            if words == ("analyze", runs[0]):
                assert "\\u001b[2J\\u202e\\u0007a\\u009b (NHWC" in done.stdout, "it is there, to be seen"
    hostile, harmless = runs
    assert "kai_run_\\u001b]0;x" in (hostile / "kernel_view.md").read_text()
    missing = sme2prof("analyze", tmp_path / "no\x1b]0;such\x07")
    assert missing.returncode == 2 and "no\\u001b]0;such" in missing.stderr
    assert_harmless(missing.stderr)
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
    timeline = next(path for path in tables if path.name.endswith("_sme2_off_t1_exec_all_runs_timeline.csv"))
    columns, rows = read_table(timeline.read_text(encoding="utf-8"), timeline, "")
    assert "name" in columns
    assert any(row["name"].startswith(FORMULA) for row in rows), "read back as they were"
    assert any(one.name.startswith(FORMULA) for one in analyse_timeline(timeline).operators)
