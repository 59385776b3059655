"""Makes the run directories beside this file again; README.md says what each is.

    python tests/data/runs/record.py programs      exports small_cnn.py
    python tests/data/runs/record.py recorded      runs it here and under QEMU; wants an Arm CPU without SME2
    python tests/data/runs/record.py measured      only what is measured here; best on a quiet machine
    python tests/data/runs/record.py again         writes again what follows from the recorded measurements
    python tests/data/runs/record.py made          makes x86_64 and sme2_hardware of them

Everything happens in an empty home, whose path is cut off what is kept.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from model_profiling.runs.metrics import read_metrics  # noqa: E402
from recorded_runs import ARM, EMULATED, ROUNDS, RUNS, dumps_in, make_config, pair  # noqa: E402
from replay import ReplayTarget  # noqa: E402

from model_profiling.config import names  # noqa: E402
from model_profiling.config.series import Switch  # noqa: E402
from model_profiling.config.settings import ProfileConfig  # noqa: E402
from model_profiling.core.records import write_record  # noqa: E402
from model_profiling.runner.cache import cache_root  # noqa: E402
from model_profiling.runner.features import FEATURES  # noqa: E402
from model_profiling.runs.journal import Entry, Journal  # noqa: E402
from model_profiling.runs.manifest import read_manifest  # noqa: E402
from model_profiling.targets import Job, Target, TargetChoice, open_target  # noqa: E402
from model_profiling.validation.validate import validate  # noqa: E402
from model_profiling.workflow.measure import RunOptions, run_config  # noqa: E402

MODEL = "small_cnn"
PROGRAM = f"{MODEL}_xnnpack_fp16.pte"
MEASURED = HERE / "measured_on_arm"
TWICE = ("first", "second")
"""The same code measured twice side by side: what becomes SME2 on and off in the made run."""
ATTEMPTS, BUDGET_S = 8, 6.0
MEMBERS = ("ETRECORD_V0", "edge_dialect_exported_program/forward", "debug_handle_map")
FASTER = {"Convolution": 2.8, "Fully Connected": 1.6}
"""How much faster operators on SME2 are in the made run; no measurement is behind these figures."""


@contextmanager
def home() -> Iterator[Path]:
    """An empty home with the network's source in it, to work in."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch).resolve() / "home" / "user"
        place.mkdir(parents=True)
        shutil.copy(HERE / f"{MODEL}.py", place)
        if (HERE / "programs").is_dir():
            artifacts = place / f"out_{MODEL}" / "artifacts"
            shutil.copytree(HERE / "programs", artifacts)
            for kept in HERE.glob("programs/*.etrecord"):
                _rewritten(kept, artifacts / kept.name, lambda text: _at_home(text, place))
        os.chdir(place)
        try:
            yield place
        finally:
            os.chdir(before)


def _at_home(text: bytes, place: Path) -> bytes:
    """`text` with the source where it lies now, so that its lines are found."""
    return text.replace(b"/home/user", bytes(place))


def neutral(text: bytes, place: Path) -> bytes:
    """`text` without what is only this machine's: where the home, the kit, its cache and Python lie."""
    for here, there in (
        (str(place), "/home/user"),
        (str(cache_root()), "/home/user/.cache/sme2prof"),
        (str(ROOT), "/home/user/sme2-profiling-kit"),
        (sys.prefix, "/home/user/.venv"),
        (f"kernel {platform.release()}", "kernel 6.1.0"),
    ):
        text = text.replace(here.encode(), there.encode())
    return text


def keep(run_dir: Path, name: str, place: Path, note: str = "") -> None:
    """Keep a run directory under `name`, if it is whole."""
    found = validate(run_dir)
    assert found.ok, found.as_text()
    kept = HERE / name
    shutil.rmtree(kept, ignore_errors=True)
    # Pages and pictures are made of what is kept, and are large.
    shutil.copytree(run_dir, kept, ignore=shutil.ignore_patterns(f"*{names.HTML}", f"*{names.PICTURES}"))
    for path in kept.rglob("*"):
        if path.is_file() and path.suffix not in (*names.DUMPS, ".bin"):
            path.write_bytes(neutral(path.read_bytes(), place))
    if note:
        (kept / "MADE_FROM").write_text(f"{note}\n")


def config_of(
    place: Path, kind: str, threads: list[int], *, twice: bool = False, **more: object
) -> ProfileConfig:
    """SME2 on and off, and what more threads bring where there are more; or the same code `twice`."""
    on, off = TWICE if twice else (f"{kind}_sme2_on", f"{kind}_sme2_off")
    emulated = kind == "emulated"
    settings = {"runs": 1 if emulated else RUNS, "warmup": 0 if emulated else 1, "threads": threads}
    switches = ({}, {}) if twice else ({"sme2": "on"}, {"sme2": "off"})
    experiments = [{"name": name, **settings, **own} for name, own in zip((on, off), switches, strict=True)]
    pairs = [pair(off, on, "SME2"), pair(on, on, "threads", (1, 2))] if threads[1:] and not twice else []
    asked = {
        "target": {"name": "emulated" if emulated else "host"},
        "schedule": {"rounds": ROUNDS, "seed": 3, "budget_s": BUDGET_S},
        **more,
    }
    runs, program = (place / f"out_{MODEL}" / part for part in ("runs/xnnpack_fp16", f"artifacts/{PROGRAM}"))
    return make_config(runs / kind, experiments, pairs=pairs, program=program, **asked)


def measured(config: ProfileConfig, target: Target) -> Path:
    outcome = run_config(config, target=target)
    assert not outcome.failed, outcome.failed
    return outcome.run_dir


def export_programs() -> None:
    with home() as place:
        artifacts = place / "artifacts"
        for dtype in ("fp16", "int8"):
            words = ("--dtype", dtype, "--name", MODEL, "--outdir", str(artifacts))
            argv = [sys.executable, "-m", "model_profiling", "export", f"{MODEL}.py:{MODEL}", *words]
            subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        shutil.rmtree(HERE / "programs", ignore_errors=True)
        (HERE / "programs").mkdir()
        for path in sorted(artifacts.iterdir()):
            kept = HERE / "programs" / path.name
            if path.suffix == ".etrecord":
                _rewritten(path, kept, lambda text: neutral(text, place))
            else:
                kept.write_bytes(neutral(path.read_bytes(), place))


def _rewritten(record: Path, kept: Path, change: Callable[[bytes], bytes]) -> None:
    """The record without weights and example inputs, which are most of it and which the kit never reads."""
    members = {name: change(zipfile.ZipFile(record).read(name)) for name in MEMBERS}
    with zipfile.ZipFile(kept, "w") as slim:
        for name, content in members.items():
            slim.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def record_runs() -> None:
    with home() as place:
        host = open_target(TargetChoice("host"))
        record_int8(host, place)
        emulated = measured(config_of(place, "emulated", [1]), open_target(TargetChoice("emulated")))
        keep(emulated, EMULATED.name, place)
    record_measured()


def record_measured() -> None:
    with home() as place:
        host = open_target(TargetChoice("host"))
        runs = place / f"out_{MODEL}" / "runs" / "xnnpack_fp16"
        places = [str(runs / f"try{number}") for number in range(ATTEMPTS)]
        configs = [config_of(place, "linux", [1, 2], twice=True, output_root=root) for root in places]
        quietest = min((measured(config, host) for config in configs), key=_noise)
        keep(quietest.rename(quietest.with_name("linux")), MEASURED.name, place)
        _only_measurements(MEASURED)
    write_again()


def _only_measurements(run_dir: Path) -> None:
    """What is replayed is kept; what follows from it is not read."""
    wanted = [path for name in (names.MANIFEST, names.JOURNAL) for path in run_dir.glob(name)]
    wanted += [*dumps_in(run_dir), *run_dir.rglob("*.bin")]
    for path in sorted(run_dir.rglob("*")):
        if path.is_file() and path not in wanted:
            path.unlink()


def write_again() -> None:
    """After a change of formats: every file that is made of the journal, the dumps and the outputs."""
    with home() as place:
        config = config_of(place, "emulated", [1])
        shutil.copytree(EMULATED, config.output_root)
        outcome = run_config(config, RunOptions(analysis_only=True))
        keep(outcome.run_dir, EMULATED.name, place)
    _make(ARM.name, [1, 2], ReplayTarget(MEASURED))


def record_int8(host: Target, place: Path) -> None:
    """One dump of the other program."""
    host.prepare()
    program = place / f"out_{MODEL}" / "artifacts" / f"{MODEL}_xnnpack_int8.pte"
    made = host.execute(Job(program, runs=RUNS, warmup=1, etdump=True), place, program.stem)
    assert made.etdump is not None
    shutil.copy(made.etdump, HERE / "programs")


def _noise(run_dir: Path) -> float:
    metrics = read_metrics(run_dir / names.METRICS)
    assert metrics is not None
    found = [latency.end_to_end_ms for latency in metrics.latencies if latency.end_to_end_ms]
    return max(summary.p95 / summary.p5 for summary in found)


def make_runs() -> None:
    recorded = ReplayTarget(MEASURED).facts()
    note = "Made, not measured: latencies and dumps of measured_on_arm under the name of an x86_64 machine."
    intel = replace(
        recorded,
        cpu="made x86_64 CPU",
        machine="x86_64",
        features=(),
        features_source="x86_64 CPU: no Arm features",
    )
    _make("x86_64", [1], ReplayTarget(MEASURED, intel), note)
    note = (
        "Made, not measured: measured_on_arm, and with SME2 on the kernels and outputs of emulated_sme2, "
        "the times of measured_on_arm with convolutions 2.8 and linear layers 1.6 times as fast."
    )
    arm = replace(recorded, cpu="made SME2 CPU", features=tuple(sorted(FEATURES)), features_source="made")
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        _with_sme2(source)
        _make("sme2_hardware", [1, 2], ReplayTarget(source, arm), note)


def _make(name: str, threads: list[int], target: ReplayTarget, note: str = "") -> None:
    with home() as place:
        shutil.copytree(EMULATED, place / f"out_{MODEL}" / "runs" / "xnnpack_fp16" / "emulated")
        keep(measured(config_of(place, "linux", threads, notes=note), target), name, place, note)


def _with_sme2(source: Path) -> None:
    """A copy of the Arm run in `source` as if SME2 had been there: the journal of a run that never was."""
    shutil.copytree(MEASURED, source)
    manifest = read_manifest(source)
    assert manifest is not None
    switches: dict[str, Switch] = dict(zip(TWICE, ("on", "off"), strict=True))
    results = tuple(replace(result, sme2=switches[result.experiment]) for result in manifest.results)
    write_record(source / names.MANIFEST, replace(manifest, results=results))
    entries = Journal(source).entries()
    proof = next(entry for entry in Journal(EMULATED).entries() if entry.experiment == "emulated_sme2_on")
    renamed = _operator_names(EMULATED / (proof.etdump or ""))
    (source / names.JOURNAL).unlink()
    journal, ratios = Journal(source), {}
    for entry in entries:
        if entry.experiment == TWICE[0] and entry.kind == "traced":
            saved = sum(_faster(source / (entry.etdump or ""), renamed))
            whole = sum(map(sum, entry.turns_ns))
            ratios[entry.threads, entry.round] = (whole - saved) / whole
    for entry in entries:
        ratio = ratios.get((entry.threads, entry.round), 1.0)
        journal.append(_sme2_entry(entry, proof, ratio, source) if entry.experiment == TWICE[0] else entry)


def _sme2_entry(entry: Entry, proof: Entry, ratio: float, source: Path) -> Entry:
    if entry.kind != "evidence":
        wall, cpu = (
            tuple(tuple(round(ns * ratio) for ns in turn) for turn in turns)
            for turns in (entry.turns_ns, entry.turns_cpu_ns)
        )
        use = entry.use and replace(entry.use, cpu_ns=round(entry.use.cpu_ns * ratio))
        return replace(entry, turns_ns=wall, turns_cpu_ns=cpu, use=use)
    for ours, theirs in zip(entry.outputs, proof.outputs, strict=True):
        shutil.copy(EMULATED / theirs.file, source / ours.file)
    outputs = tuple(
        replace(theirs, file=ours.file) for ours, theirs in zip(entry.outputs, proof.outputs, strict=True)
    )
    return replace(entry, kernels=proof.kernels, outputs=outputs)


def _operator_names(dump: Path) -> list[str]:
    return [event.delegate_debug_id_str for event in _profile_events(dump)[1][0]]


def _faster(dump: Path, renamed: list[str]) -> list[int]:
    """Rewrite `dump` with SME2's operators and their shorter times; returns what each run saves, in ns."""
    from executorch.devtools.etdump.serialize import serialize_to_etdump_flatcc

    content, runs = _profile_events(dump)
    saved = []
    for block, operators in zip(content.run_data, runs, strict=True):
        less = {}
        for event, name in zip(operators, renamed, strict=True):
            factor = next((FASTER[kind] for kind in FASTER if name.startswith(kind)), 1.0)
            # XNNPACK counts whole microseconds.
            less[event.end_time] = int((event.end_time - event.start_time) * (1 - 1 / factor)) // 1000 * 1000
            event.delegate_debug_id_str = name
        saved.append(sum(less.values()))
        for event in (each.profile_event for each in block.events if each.profile_event):
            event.start_time -= _until(event.start_time, less)
            event.end_time -= _until(event.end_time, less)
    dump.write_bytes(serialize_to_etdump_flatcc(content))
    return saved


def _until(moment: int, less: dict[int, int]) -> int:
    return sum(ns for end, ns in less.items() if end <= moment)


def _profile_events(dump: Path):  # type: ignore[no-untyped-def]
    """The dump as ExecuTorch's writer takes it, and the delegate's operators of every run."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    content = deserialize_from_etdump_flatcc(dump.read_bytes())
    runs = []
    for block in content.run_data:
        events = [event.profile_event for event in block.events if event.profile_event]
        runs.append([event for event in events if event.delegate_debug_id_str])
    return content, runs


STEPS: dict[str, Callable[[], None]] = {
    "programs": export_programs, "recorded": record_runs, "measured": record_measured, "again": write_again,
    "made": make_runs,
}  # fmt: skip

if __name__ == "__main__":
    STEPS[sys.argv[1]]()
