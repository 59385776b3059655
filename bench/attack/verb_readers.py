"""Readers of what is not a run: stores, sweeps, language models, caches, phones, builds."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

from attack.reader import DATA, RUN, Reader, at, beside, found, named, replaced
from model_profiling.config import names
from model_profiling.config.reading import RECORD, build_record
from model_profiling.config.sweep import SweepConfig, load_sweep
from model_profiling.core.records import read_record, write_record
from model_profiling.doctor.checks import phone_settings
from model_profiling.export.records import (
    Accuracy,
    DelegationCoverage,
    Deviation,
    ExportedMethod,
    ExportResult,
    read_export,
)
from model_profiling.export.rewrites import OPTIMIZATION, chosen_rewrites
from model_profiling.models.transformers_folder import choose_folder
from model_profiling.program.graph_file import Undelegated
from model_profiling.report.data import report_data
from model_profiling.report.document import render_markdown
from model_profiling.report.language import (
    Language,
    LanguageCase,
    PhaseLatency,
    ReadPerToken,
    language_document,
)
from model_profiling.runner import features, fetching
from model_profiling.runner.machine import FILES, MachineAnswers
from model_profiling.runs import Run
from model_profiling.store.store import Store, list_runs
from model_profiling.store.tables import TABLES_AND_VIEWS
from model_profiling.sweep.cells import (
    CELLS,
    SweepRecord,
    all_cells,
    jobs,
    open_sweep,
    read_sweep_record,
)
from model_profiling.sweep.dispatch import write_sweep_report
from model_profiling.targets.power_mode import parse_settings
from model_profiling.targets.remote.android import COMMANDS, device_id, read_device
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.report import parse_tools, write_for_tools
from model_profiling.workflow.share import share_report

_SWEEP = {
    "name": "s",
    "models": ["toy_cnn", "tiny_llama"],
    "targets": ["emulated", "ssh:lab"],
    "dtypes": ["fp16", "int8"],
    "threads": [1, 2],
    "rungs": ["on", {"name": "own", "disable": ["sme2"]}],
    "cases": {"tiny_llama": [{"method": "prefill", "sizes": {"tokens": [1, 4]}}]},
    "schedule": {"rounds": 2},
}


def _json(content: object) -> list[bytes]:
    return [json.dumps(content).encode()]


@lru_cache
def _home() -> Path:
    """Where whole folders are made, once for each process; `bench` leaves nothing behind."""
    import atexit

    home = Path(tempfile.mkdtemp(prefix="attack-whole-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home


# A store whose file is damaged.


@lru_cache
def _whole_store() -> bytes:
    store = Store.open(_home() / "store.db", make=True)
    store.add([RUN, DATA / "runs" / "x86_64"])
    return Path(store.address).read_bytes()


def _store(data: bytes, folder: Path) -> None:
    path = folder / "store.db"
    for old in folder.glob("store.db*"):
        old.unlink()
    path.write_bytes(data)
    store = Store.open(path)
    list_runs(store, last=5)
    for name in TABLES_AND_VIEWS:
        store.query(f"SELECT * FROM {name}")  # noqa: S608  names of our own


def _added(data: bytes, folder: Path) -> None:
    for old in folder.glob("store.db*"):
        old.unlink()
    Store.open(folder / "store.db", make=True).add([replaced(data, RUN, folder)])


# A sweep: its file and its folder. What workers send is not damaged: Dask runs their code anyway.


@lru_cache
def _whole_sweep() -> Path:
    folder = _home() / "sweep"
    shutil.copytree(RUN, folder / "runs" / "one" / "emulated")
    sweep = SweepConfig.model_validate(_SWEEP)
    cells = [replace(each, state="done", run_dir="runs/one/emulated") for each in all_cells(sweep)[:3]]
    cells += [replace(each, reason="no worker offers it", fix="start one") for each in all_cells(sweep)[3:]]
    write_record(folder / CELLS, SweepRecord(name="s", began="2026-11-17T19:00:00+0000", cells=tuple(cells)))
    (folder / "sweep.json").write_text(json.dumps(sweep.model_dump(mode="json", exclude_none=True)))
    return folder


def _sweep_files() -> list[bytes]:
    whole = _whole_sweep()
    return [f"{name}\0".encode() + (whole / name).read_bytes() for name in ("cells.json", "sweep.json")]


def _sweep_file(path: Path) -> None:
    sweep = load_sweep(path)
    jobs(sweep)


def _sweep_folder(data: bytes, folder: Path) -> None:
    path = replaced(data, _whole_sweep(), folder)
    record = read_sweep_record(path)
    write_sweep_report(path, record)
    with open_sweep(path, SweepConfig.model_validate(_SWEEP), resume=True) as opened:
        opened.end()


# Records that one command leaves for another.


def _languages() -> list[bytes]:
    latency = PhaseLatency("linux", 1, True, 3.0, 2.9, 3.1)
    prompt = LanguageCase("prompt", "prefill", 4, 0, "run", (latency,), parts={"GEMM": 0.7})
    steps = [replace(prompt, phase="answer", method="decode", tokens=1, position=at) for at in (0, 9)]
    whole = Language(
        model="m", program="m.pte", sha256="", size_bytes=1, cpu="CPU", has_sme2=None, is_arm=True,
        context=32, cases=(prompt, *steps), read=ReadPerToken(400_000, 10, {"int4": 100_000}),
        bandwidth=4e10, warnings=("busy",),
    )  # fmt: skip
    return _json(whole.facts())


def _language(path: Path) -> None:
    known = read_record(Language, path, "profile it again")
    known.facts()
    render_markdown(language_document(known), "pictures")


def _for_tools(data: bytes, folder: Path) -> None:
    run = Run.open(replaced(data, RUN, folder))
    tools = parse_tools("perfetto,model-explorer")
    write_for_tools(report_data(run, analyse(run) if run.dumps else None, None), tools)


def _shared(data: bytes, folder: Path) -> None:
    share_report(replaced(data, RUN, folder), folder / "shared.zip", archive=True)


_OUTSIDE = Undelegated(
    *("aten.mean.dim", "mean", "", "no rule", "no rule"),
    call="mean",
    source="net.py:2",
    replacement="x.flatten(1)",
)


def _exports() -> list[bytes]:
    close = Deviation(1e-7, 1e-7, 1e-4, 2.0, "identical", ())
    whole = ExportResult(
        model="m", source="/m.py:m", dtype="fp32", backend="xnnpack", seed=0, pte=Path("m.pte"),
        etrecord=Path("m.pte.etrecord"), graph=None, summary=Path("m.pte.json"), sha256="0", size_bytes=1,
        inputs=("1x3 float32",), outputs=("1x3 float32",), coverage=DelegationCoverage(3, 1, (_OUTSIDE,), 0),
        accuracy=Accuracy(close, close), seconds=1.0, versions={"torch": "2"}, calibration="",
        warnings=("w",), methods=(ExportedMethod("forward", {"x": "1x3 float32"}, 3, 4, 1),),
    )  # fmt: skip
    return _json(whole.as_dict())


def _exported(path: Path) -> None:
    names.computes_in(path.with_suffix(""), "int8")
    read_export(path.with_suffix(""))


def _chosen(path: Path) -> None:
    chosen_rewrites(path, "m", "m.py:make", path, "fp32")


def _built(folder: Path) -> None:
    build_record(folder / "runner")


def _left_set(data: bytes, folder: Path) -> None:
    """What a run that was killed left set on a phone, as the doctor tells it."""
    devices = folder / "sme2prof" / "devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / "one.json").write_bytes(data)
    with patch.dict(os.environ, XDG_STATE_HOME=str(folder)):
        tuple(phone_settings())


_BEFORE = {"low_power": None}
_LEFT = {"device": "one", "mode": "boost", "since": "2026-11-17", "before": _BEFORE, "schema_version": 1}


def _machine(data: bytes, folder: Path) -> None:
    """What a system, its packages and a phone say of themselves."""
    del folder
    text = data.decode("utf-8", "replace")
    fetching.configured_archive(text, "debian")
    features.from_proc_cpuinfo(text)
    features.from_sysctl(text)
    parse_settings(text)
    texts = {name: dict.fromkeys((FILES | COMMANDS).values(), text) for name in (FILES | COMMANDS)}
    for use in (read_device, device_id):
        use(MachineAnswers(texts))


_PHONE = b"""level: 87\nvoltage: 4100\ntemperature: 291\nstatus: 3\nAC powered: false\nlow_power=0
Temperature{mValue=41.5, mType=0, mName=cpu0, mStatus=0}\n1805000\n-350000\n"""
_FOUND_OF_MACHINES = found("cpuinfo/*.txt", "distributions/*", "macos/*/*.txt")
_CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 64}
_CHOICE = {"schema_version": 1, "model": "m", "source": "m.py:make", "kept": ["attention", "constants"]}
OF_VERBS: tuple[Reader, ...] = (
    Reader("store", "named", 10, lambda: [_whole_store()], _store),
    Reader("store add", "named", 10, lambda: named(RUN, ".json", ".jsonl", ".csv"), _added),
    Reader("sweep", "json", 100, lambda: _json(_SWEEP), at("s.json", _sweep_file)),
    Reader("sweep folder", "named", 20, _sweep_files, _sweep_folder),
    Reader("llm", "json", 100, _languages, at(names.LANGUAGE, _language)),
    Reader("for tools", "named", 10, lambda: named(RUN, ".json", ".csv", ".etdump"), _for_tools),
    Reader("share", "named", 10, lambda: named(RUN, ".json", ".jsonl", ".csv", ".log"), _shared),
    Reader("export", "json", 50, _exports, at("m.pte.json", _exported)),
    Reader("folder", "json", 30, lambda: _json(_CONFIG),
           at("config.json", lambda path: choose_folder(str(path.parent)))),
    Reader("choice", "json", 50, lambda: _json(_CHOICE), at(OPTIMIZATION, _chosen)),
    Reader("build", "json", 50, lambda: _json({"inputs": {"a": "b"}}), beside(RECORD, _built)),
    Reader("power mode", "json", 50, lambda: _json(_LEFT), _left_set),
    Reader("machine", "text", 50, lambda: [_PHONE, *_FOUND_OF_MACHINES()], _machine),
)  # fmt: skip
