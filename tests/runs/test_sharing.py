"""What is sent away is made of the allowed fields alone: nothing else of a run is in it, figures are."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import re
import shutil
import string
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pages import headings, section, tables
from recorded_runs import ARM, EMULATED, PROGRAM, SME2, X86_64, dumps_in, edit, load

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError
from model_profiling.core.records import read_record, record_json, write_record
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.report.run_report import run_document
from model_profiling.report.verdict import answers
from model_profiling.runner.samples import Samples
from model_profiling.runs import Evidence, Manifest, Run
from model_profiling.runs.journal import Entry, Journal
from model_profiling.runs.records import Metrics, RobustStats
from model_profiling.runs.shared_fields import _KEYS, _RULES, SharedFields
from model_profiling.workflow.report import gather_report
from model_profiling.workflow.share import Shared, share_report

RECORDS = (Manifest, Metrics, RobustStats, Evidence, ProgramGraph, Entry, Samples)
FIGURES = ("Latency", "Operators", "SME2", "How sure")
FOLDERS = "=(/home/CANARY/x y)['clients/CANARY/net.py', --token=CANARY]:C:\\CANARY\\y"
KEPT = (
    "experiment", "experiments", "names", "etdump", "etdump_rounds", "boundaries", "log", "latency",
    "kernels", "samples", "xnntrace_log", "told", "model_sha256", "sha256", "runner_path",
)  # fmt: skip
"""Fields that a run cannot be read without: files, experiments (renamed as a whole), what ties records."""
PROGRAM_NAMES = {
    "Instruction_name", "Delegate_backend", "GraphNode_kind", "SourceRef_target",
    "SourceRef_module_path", "SourceRef_module_class", "SourceRef_call", "EtRecord_inputs",
    "Undelegated_operator", "Undelegated_module_path", "Undelegated_module_class", "Undelegated_call",
    "MatrixOperator_name", "MatrixOperator_kind", "MatrixOperator_backend", "MatrixOperator_module_path",
    "MatrixOperator_precision",
}  # fmt: skip
MACHINE_AND_KERNELS = {
    "MachineFacts_cpu", "Evidence_cpu", "KernelCall_name",
    "Entry_kernels", "Entry_kernel_sizes",
}  # fmt: skip


def spoilt(value: Any, mark: str, kind: str = "", field: str = "") -> Any:
    """`value` with `mark` in every text of it, keys too, where the type of its field allows any text."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return f"{value}{mark.replace('FIELD', f'{kind}_{field}')}"
    if isinstance(value, Mapping):
        return {
            spoilt(key, mark, kind, field) if isinstance(key, str) else key: spoilt(each, mark, kind, field)
            for key, each in value.items()
        }
    if isinstance(value, tuple | list):
        return type(value)(spoilt(each, mark, kind, field) for each in value)
    if dataclasses.is_dataclass(value):
        of, hints = type(value).__name__, get_type_hints(type(value))
        own = {each.name: hints[each.name] for each in dataclasses.fields(value) if each.name not in KEPT}
        free = [name for name, hint in own.items() if Literal not in map(get_origin, (hint, *get_args(hint)))]
        changed = {name: spoilt(getattr(value, name), mark, of, name) for name in free}
        return dataclasses.replace(value, **changed)  # type: ignore[type-var]
    return value


def spoil(run_dir: Path, mark: str) -> None:
    """Put `mark` into every text of a run's records, and into its logs, pages and settings."""
    for path in sorted(run_dir.rglob("*")):
        if path.suffix in (".log", ".md", ".txt") or path.name in ("MADE_FROM", names.CONFIG):
            path.write_text(f"{path.read_text()}\n{FOLDERS} CANARY\n")
        kind = {
            names.MANIFEST: Manifest, names.METRICS: Metrics, names.EVIDENCE: Evidence,
            names.GRAPH: ProgramGraph,
        }.get(path.name) or (RobustStats if path.name.endswith(names.ROBUST_STATS) else None)  # fmt: skip
        if kind:
            write_record(path, spoilt(read_record(kind, path, ""), mark))
    entries = [spoilt(entry, mark) for entry in Journal(run_dir).entries()]
    lines = (json.dumps(record_json(entry)) for entry in entries)
    (run_dir / names.JOURNAL).write_text("".join(f"{line}\n" for line in lines))
    for record in (*run_dir.rglob("*.json"), run_dir / names.JOURNAL):
        record.write_text(record.read_text().replace('"linux_', '"CANARYcorp linux_'))
    edit(run_dir / names.MANIFEST, _own_names)
    for folder in run_dir.glob("linux_*"):
        folder.rename(run_dir / f"CANARYcorp {folder.name}")


def _own_names(manifest: dict[str, Any]) -> None:
    manifest["model"] = f"/home/CANARY/clients/CANARY_{PROGRAM.name}"
    manifest["target"]["name"] = "android:CANARY"
    manifest["sessions"][0]["command_line"] = ["sme2prof", "profile", f"clients/CANARY/net.py{FOLDERS}"]


def shared_files(shared: Shared) -> dict[str, str]:
    """Every file that was written, by its name: of an archive, those in it."""
    if shared.files:
        with zipfile.ZipFile(shared.path) as archive:
            return {name: archive.read(name).decode() for name in archive.namelist()}
    folder = shared.path.parent
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def both_ways(run_dir: Path, to: Path, **how: Any) -> Iterator[tuple[str, str]]:
    """Each file of a shared page and of a shared archive, with its name."""
    for name, archive in (("page/page.md", False), ("zip/run.zip", True)):
        (to / name).parent.mkdir(parents=True)
        yield from shared_files(share_report(run_dir, to / name, archive=archive, **how)).items()


def canaries(files: Iterable[tuple[str, str]]) -> set[str]:
    found = set()
    for name, text in files:
        found |= set(re.findall(r"CANARY_?(?:[A-Z]\w+?_[a-z_]+)?", f"{name} {text}".replace("<wbr>", "")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [SME2, X86_64])
def test_no_text_of_a_run_gets_into_what_is_shared(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "CANARYscratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    run_dir = shutil.copytree(recorded, tmp_path / "CANARYfolder" / "android-CANARYserial")
    spoil(run_dir, f" CANARY {FOLDERS}")
    assert canaries(both_ways(run_dir, tmp_path / "out")) == set()
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [SME2, X86_64])
def test_names_of_the_program_and_the_machine_are_shared_and_no_other_words(
    recorded: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(recorded, tmp_path / "run")
    spoil(run_dir, "_CANARY_FIELD")
    found = {name.removeprefix("CANARY_") for name in canaries(both_ways(run_dir, tmp_path / "out"))}
    assert found <= PROGRAM_NAMES | MACHINE_AND_KERNELS, found
    assert {"SourceRef_module_path", "MachineFacts_cpu"} <= found


def test_every_rule_is_about_a_field_that_exists() -> None:
    known: set[type] = set()

    def learn(hint: Any) -> None:
        if dataclasses.is_dataclass(hint) and hint not in known:
            known.add(hint)  # type: ignore[arg-type]
            for each in get_type_hints(hint).values():
                learn(each)
        for inner in get_args(hint):
            learn(inner)

    for record in RECORDS:
        learn(record)
    fields = {
        f"{base.__name__}.{field.name}"
        for kind in known
        for base in kind.__mro__
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    assert set(_RULES) | set(_KEYS) <= fields


def made(hint: Any, within: tuple[Any, ...] = ()) -> Any:
    """A value of this type with as many texts in it as it can hold, all of them private."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints, own = get_type_hints(hint), (field.name for field in dataclasses.fields(hint))
        fields = {name: made(hints[name], (*within, hint)) for name in own}
        return hint(**fields)  # type: ignore[operator]
    if origin in (Literal, Union, UnionType):
        return inner[0] if origin is Literal else None if inner[0] in within else made(inner[0], within)
    if origin is tuple:
        return tuple(made(each, within) for each in inner if each is not Ellipsis)
    if origin in (dict, Mapping):
        return {made(inner[0], within): made(inner[1], within)}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return {str: f"CANARY {FOLDERS}", object: f"CANARY {FOLDERS}", Path: Path("CANARY")}.get(hint) or hint(1)


@pytest.mark.parametrize("kind", RECORDS)
def test_no_text_of_any_record_is_shared_unless_it_fits_the_rule_of_its_field(kind: type) -> None:
    record = made(kind)
    assert "CANARY" in json.dumps(record_json(record))
    assert "CANARY" not in json.dumps(record_json(SharedFields().of(record)))


def hostile_names() -> list[str]:
    """300 names that would lead elsewhere, or be obeyed by something that reads them."""
    chance = random.Random(39)
    pieces = (
        "%2F", "%2f", "..", "../", "/", "\\", "..\\", "%2E%2E%2F", "~", "$HOME", "\x1b[31m", "\n", "\r", "\0",
        "C:", "//", "etc", "victim", "settings.json", "{}", "|", ";", "\u202e", "\uff0f", "\u2215", " ",
    )  # fmt: skip
    known = ["%2Ftmp%2Fv%2Fsettings.json", "..", "../../victim", "/victim", "..\\victim", "a\0b", ""]
    while len(known) < 300:
        known.append("".join(chance.choices(pieces + tuple(string.ascii_letters), k=chance.randint(1, 9))))
    return known


def test_hostile_names_of_experiments_and_models_are_replaced(tmp_path: Path) -> None:
    fields = SharedFields()
    for name in hostile_names():
        program, series = fields.program(name), fields.of(Series(name, 1))
        assert program in ("", "model.pte") and re.fullmatch(r"experiment_\d+", series.experiment), name
        place = names.RunFiles(tmp_path, Path(program).stem)
        assert place.dump(series, 1).resolve().is_relative_to(tmp_path / series.experiment)


@pytest.mark.parametrize("recorded", [SME2, ARM])
def test_a_shared_page_has_the_same_figures(recorded: Path, tmp_path: Path) -> None:
    shared = share_report(recorded, tmp_path / "page.md")
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".md", ".html"}
    original = gather_report(recorded)
    own, copied = (run_document(data) for data in (original, shared.data))
    assert headings(own)[1:2] == headings(copied)[1:2]

    def numbers(page: Any) -> list[str]:
        rows = (row for heading in FIGURES for table in tables(section(page, heading)) for row in table)
        return [cell for row in rows for cell in row if re.fullmatch(r"[-+]?[\d.]+(?:%|x| ms)?", cell)]

    assert numbers(own) == numbers(copied) != []


def test_an_archive_holds_records_and_tables_and_no_dumps(tmp_path: Path) -> None:
    shared = share_report(SME2, tmp_path / "run.zip", archive=True)
    held = {Path(name).name for name in shared.files}
    records = {names.MANIFEST, names.METRICS, names.ANALYSIS, names.JOURNAL}
    assert {"shared_report.html", *records} <= held
    for ending in (names.STATS_CSV, names.KERNELS_CSV, names.ROBUST_STATS):
        assert any(name.endswith(ending) for name in held), ending
    assert not [name for name in held if names.DUMP in name or name.endswith((".bin", ".log", ".pte"))]
    again = share_report(SME2, tmp_path / "again.zip", archive=True)
    assert again.path.read_bytes() == shared.path.read_bytes()
    with zipfile.ZipFile(shared.path) as archive:
        archive.extractall(tmp_path)
    unpacked = tmp_path / "shared_run" / "RUN_DIR"
    assert load(unpacked / names.ANALYSIS)["run_dir"] == "RUN_DIR"
    own, copied = Run.open(SME2).metrics, Run.open(unpacked).metrics
    assert own and copied
    assert [each.end_to_end_ms for each in own.latencies] == [each.end_to_end_ms for each in copied.latencies]
    ours, theirs = ([each.speedup.ratio for each in metrics.comparisons] for metrics in (own, copied))
    assert ours == theirs


def test_experiments_of_the_kit_keep_their_names_and_others_get_new_ones(tmp_path: Path) -> None:
    fields = SharedFields()
    kept = ("linux_sme2_on", "emulated_sme2_off", "mac_baseline", "android_sme2_on_trace")
    assert [fields.experiment(name) for name in kept] == list(kept)
    assert fields.experiment("acme_sme2_off") == "experiment_5_sme2_off" == fields.experiment("acme_sme2_off")
    assert fields.program("/x/acme_xnnpack_int4-32.pte") == "model_xnnpack_int4-32.pte"
    assert fields.program("acme_xnnpack_own-acme.pte") == "model_xnnpack_own-quantizer.pte"
    run_dir = shutil.copytree(SME2, tmp_path / "run")
    for path in (*run_dir.rglob("*.json"), run_dir / names.JOURNAL):
        path.write_text(path.read_text().replace('"linux_sme2_off"', '"acme_off"'))
    shared = share_report(run_dir, tmp_path / "page.html")
    assert shared.renamed == {"acme_off": "experiment_2"}
    assert answers(shared.data).sentences[1] == answers(gather_report(SME2)).sentences[1]


def test_why_two_series_are_not_comparable_is_told_from_what_is_shared(tmp_path: Path) -> None:
    (pair,) = share_report(EMULATED, tmp_path / "page.html").data.run.pairs
    assert pair.not_comparable and "emulated run" in pair.not_comparable


def test_dumps_alone_keep_their_meaning(tmp_path: Path) -> None:
    folder = tmp_path / "emulated"
    folder.mkdir()
    for dump in dumps_in(EMULATED):
        shutil.copy(dump, folder)
    shared = share_report(folder, tmp_path / "run.zip", archive=True)
    assert shared.data.times == gather_report(folder).times == "emulated"
    assert len(shared.data.run.series) == 2


def test_a_damaged_dump_is_refused_and_named(tmp_path: Path) -> None:
    run_dir = shutil.copytree(X86_64, tmp_path / "run")
    first = dumps_in(run_dir)[0]
    first.write_bytes(first.read_bytes()[:500])
    with pytest.raises(FormatError, match=re.escape(str(first))):
        share_report(run_dir, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_command_says_what_it_did(tmp_path: Path, sme2prof) -> None:
    run_dir = shutil.copytree(X86_64, tmp_path / "run")
    for path in (*run_dir.rglob("*.json"), run_dir / names.JOURNAL):
        path.write_text(path.read_text().replace('"linux_baseline"', '"acme"'))
    page = sme2prof("report", run_dir, "--share")
    assert page.ok and "acme" in page.stdout and (run_dir / "shared_report.html").is_file()
    packed = sme2prof("report", run_dir, "--zip", "--json")
    facts = json.loads(packed.stdout)
    assert facts["zip"] == str(run_dir / "shared_run.zip") and "shared_report.html" in facts["files"]
    with zipfile.ZipFile(io.BytesIO(Path(facts["zip"]).read_bytes())) as archive:
        assert archive.testzip() is None
    wrong = sme2prof("report", run_dir, "--zip", "--for", "perfetto")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1
    several = sme2prof("report", run_dir, X86_64, "--share")
    assert several.returncode == 2 and "take one run" in several.stderr
    assert sme2prof("bundle", run_dir).returncode == 2
