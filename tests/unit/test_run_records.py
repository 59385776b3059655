"""manifest.json, metrics.json and evidence.json: both ways, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused

from model_profiling.config.series import Diagnostic, Pair, Series
from model_profiling.core.errors import FormatError
from model_profiling.core.records import write_record
from model_profiling.runner.result import OutputFacts
from model_profiling.runs import Evidence, Latency, Manifest, Metrics, PairSpeedup, Result, Times
from model_profiling.runs.manifest import Machine, Session, TargetFacts, read_manifest
from model_profiling.runs.records import (
    KernelCall,
    KernelList,
    PairParity,
    proving_run,
    read_evidence,
    read_metrics,
)
from model_profiling.statistics.measure import summarize
from model_profiling.statistics.parity import Parity
from model_profiling.statistics.speedup import compare_rounds
from model_profiling.targets import MachineFacts

ON, OFF = Series("on", 1), Series("off", 1)
BUSY, HOT = Diagnostic(None, "load", "busy", "wait"), Diagnostic(ON, "hot", "it stayed hot")


def written(run_dir: Path, **content: object) -> Path:
    (run_dir / "manifest.json").write_text(json.dumps({"schema_version": 3, "results": [], **content}))
    return run_dir


FACTS = MachineFacts("N1", "aarch64", ("fp16",), 2, "linux", None, 2**34)
WHOLE = Manifest(
    model="a/toy_xnnpack_fp16.pte", model_sha256="aa", quantized=False, state="interrupted",
    settings={"experiments": [{"name": "trace"}]}, experiments=("on", "off", "trace"),
    target=TargetFacts("host", "linux", Times.HARDWARE), machine=Machine(FACTS, None),
    sessions=(
        Session(1, ("sme2prof", "run", "time.json"), "2026-01-01T00:00:00+0000"),
        Session(2, ("sme2prof", "run", "trace.json"), "2026-01-02T00:00:00+0000", problem="the disk is full"),
    ),
    warnings=(BUSY, HOT),
    results=(
        Result(experiment="on", threads=1, sme2="on", outputs=(OutputFacts(Path("o"), "f", (1, 2)),)),
        Result(experiment="off", threads=1, sme2="off", disable=("sme2",)),
        Result(experiment="trace", threads=1, mode="xnntrace"),
    ),
    pairs=(Pair("on vs off", OFF, ON, "this CPU has no SME2"),),
)  # fmt: skip


def test_what_a_manifest_omits_is_empty_and_what_it_answers(tmp_path: Path) -> None:
    results = [
        {"experiment": "a", "sme2": "off", "etdump_rounds": ["x"]},
        {"experiment": "b", "disable": ["sme2"], "threads": None, "a key of a newer kit": {}},
    ]
    manifest = read_manifest(written(tmp_path, results=results))
    first, second = manifest.results
    assert (first.sme2_left_on, first.dumps, first.outputs) == (False, ("x",), ())
    assert (second.sme2, second.sme2_left_on, second.series) == (None, False, Series("b"))
    assert manifest.target.times is manifest.times(first) is Times.UNKNOWN, "unknown is never hardware"
    assert manifest.pairs is None and manifest.has_sme2 is None and manifest.started == ""
    assert WHOLE.started.startswith("2026-01-01"), "the run began with its first session"
    assert WHOLE.unfinished == "interrupted" and not WHOLE.has_ended
    assert WHOLE.why_unfinished is WHOLE.sessions[-1]
    assert replace(WHOLE, state="finished").why_unfinished is None
    assert [WHOLE.times(result) for result in WHOLE.results] == [Times.HARDWARE, Times.HARDWARE, Times.TRACED]
    emulated = replace(WHOLE, target=TargetFacts("emulated", "emulated", Times.EMULATED))
    assert {emulated.times(result) for result in emulated.results} == {Times.EMULATED}
    assert WHOLE.has_sme2 is False
    saw = replace(WHOLE, results=(replace(WHOLE.results[0], features_present=("fp16", "sme2")),))
    assert saw.has_sme2 is True
    assert replace(WHOLE, machine=Machine()).has_sme2 is None


@pytest.mark.parametrize("version", [1, 2, 4, "3", None])
def test_another_version_is_refused_and_both_are_named(tmp_path: Path, version: object) -> None:
    with refused(FormatError, "manifest.json", f"schema_version {json.dumps(version)}", "reads 3"):
        read_manifest(written(tmp_path, schema_version=version))


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"results": [{"threads": 1}]}, ("results.0.experiment", "required")),
        ({"results": [{"experiment": "a", "threads": True}]}, ("results.0.threads", "integer")),
        ({"results": [{"experiment": "a", "sme2": "maybe"}]}, ("results.0.sme2", "'on'", "'off'")),
        ({"results": [{"experiment": "a", "outputs": [{}]}]}, ("results.0.outputs.0.file", "required")),
        ({"target": {"times": True}}, ("target.times", "'hardware'")),
        ({"machine": {"before": {"cpu": 1}}}, ("machine.before.cpu", "string")),
    ],
)
def test_a_field_that_does_not_fit_is_named(tmp_path, content, place):
    field, *wanted = place
    with refused(FormatError, f"manifest.json: {field}:", *wanted) as problem:
        read_manifest(written(tmp_path, **content))
    assert "remove" not in problem.value.fix, "without a manifest emulated times would pass for latencies"


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    assert read_metrics(path) is read_manifest(tmp_path) is read_evidence(tmp_path) is None
    write_record(tmp_path / "manifest.json", WHOLE)
    write_record(tmp_path / "evidence.json", EVIDENCE)
    assert read_manifest(tmp_path) == WHOLE and read_evidence(tmp_path) == EVIDENCE
    metrics = Metrics(
        model="m",
        times=Times.HARDWARE,
        latencies=(Latency(experiment="on", threads=1, rounds=8, end_to_end_ms=summarize([1.0, 1.5, 1.2])),),
        stability=(Diagnostic(None, "load", "busy", "wait"), Diagnostic(ON, "drift", "it drifts")),
        comparisons=(PairSpeedup("p", OFF, ON, compare_rounds([[2.0]] * 8, [[1.0]] * 8)),),
        parity=(PairParity("p", OFF, ON, Parity((), "identical")), PairParity("q", OFF, ON, None, "why")),
    )
    write_record(path, metrics)
    assert read_metrics(path) == metrics
    assert metrics.latency(ON) is metrics.latencies[0] and metrics.latency(OFF) is None


KERNELS = (KernelList(ON, True, (KernelCall("kai_x", "executed", 3),), counted=True),)
EVIDENCE = Evidence(model_sha256="aa", place="emulated", cpu="max", times=Times.EMULATED, kernels=KERNELS)


def test_only_a_finished_emulated_run_of_the_same_program_proves_anything(tmp_path: Path) -> None:
    def neighbour(name: str, **changes: object) -> None:
        started = (Session(1, (), f"2026-01-0{len(list(tmp_path.iterdir())) + 1}"),)
        emulated = TargetFacts(times=Times.EMULATED)
        base = Manifest(model_sha256="aa", target=emulated, sessions=started, results=())
        write_record(tmp_path / name / "manifest.json", replace(base, **changes))  # type: ignore[arg-type]

    here = tmp_path / "linux"
    neighbour("linux")

    def proof(**of: str) -> Path | None:
        return proving_run(here, Manifest(results=(), **of))  # type: ignore[arg-type]

    assert proof(model_sha256="aa") is None, "a run does not prove itself"
    neighbour("z-older")
    neighbour("emulated")
    neighbour("emulated-of-another", model_sha256="bb")
    neighbour("hardware", target=TargetFacts(times=Times.HARDWARE))
    neighbour("unfinished", state="running")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    assert proof(model_sha256="aa") == tmp_path / "emulated", "the newest of those that fit"
    neighbour("other-method", method="decode")
    neighbour("other-inputs", fed="tokens_32")
    assert proof(model_sha256="aa", method="forward") is None
    assert proof(model_sha256="aa", method="decode") == tmp_path / "other-method"
    assert proof(model_sha256="aa", fed="tokens_32") == tmp_path / "other-inputs"
    assert proof(model_sha256="cc") is proof() is None
