"""The runner takes operators' true boundaries from the backend's clock calls, in traced runs alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from model_profiling.analysis.operators import analyse_dump
from model_profiling.config.series import Series
from model_profiling.core import process
from model_profiling.etdump import read_boundaries, read_etdump
from model_profiling.etdump.reader import CUT, EXACT, read_timed
from model_profiling.runs import run
from model_profiling.targets import Job, Outcome
from model_profiling.targets.host import HostTarget

OPERATORS = f"{Path(__file__).parents[1] / 'models' / 'operators.py'}:operators"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the backend's clock calls are seen with glibc"
)


@pytest.fixture(scope="module")
def traced(host: HostTarget, exported, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One of nearly every operator, most of them shorter than a microsecond; one is of several parts."""
    job = Job(exported(OPERATORS, "fp32").pte, runs=30, warmup=2, threads=2, etdump=True)
    return host.execute(job, tmp_path_factory.mktemp("traced"), "job")


def test_every_operator_of_every_run_has_its_nanoseconds(traced: Outcome) -> None:
    assert traced.etdump is not None and traced.boundaries is not None
    assert traced.result.boundaries_unavailable is None
    told, exact = read_etdump(traced.etdump), read_boundaries(traced.boundaries)
    ours = told.is_delegated
    assert len(exact.times_ns) == ours.sum() + exact.invocations
    # A concatenation of three is three copies for XNNPACK, each with a look at the clock.
    assert 3 in exact.looks and exact.looks.min() == 1
    found = read_timed(traced.etdump)
    assert found.clock == EXACT and not found.misfit
    lost = found.table.duration_ns[ours] - told.duration_ns[ours]
    assert lost.min() >= 0 and lost.max() < 1000 * exact.looks.max() and np.median(lost) > 100


def test_the_whole_inference_is_accounted_for(traced: Outcome) -> None:
    assert traced.etdump is not None
    named = run.Dump(traced.etdump, Series("x"))
    dump, alone = (analyse_dump(read(traced.etdump), named) for read in (read_timed, read_etdump))
    parts, cut = dump.breakdown, alone.breakdown
    assert parts.closes and not dump.warnings and dump.clock == EXACT
    unattributed, without = (each.unattributed.sum() / each.e2e.sum() for each in (parts, cut))
    assert unattributed < 0.05 < without
    assert (parts.e2e == cut.e2e).all() and (parts.tracing > 0).all()
    assert (parts.tracing < parts.framework).all()
    for group in dump.attribution.groups:
        ends = group.start_ns + group.duration_ns
        for node in (node for node in group.operators if node.delegated):
            assert (group.start_ns[:, node.parent] <= group.start_ns[:, node.column]).all()
            assert (ends[:, node.column] <= ends[:, node.parent]).all()


def test_without_a_trace_nothing_is_asked_for_and_nothing_kept(host: HostTarget, exported, tmp_path) -> None:
    outcome = host.execute(Job(exported(OPERATORS, "fp32").pte, runs=2), tmp_path, "job")
    assert outcome.boundaries is None and outcome.result.boundaries_unavailable == "not asked for"
    assert "--boundaries" not in outcome.log.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"job.log", "job_runner.json"}
    assert host.build is not None
    words = [host.build.path, "--model", exported(OPERATORS, "fp32").pte, "--boundaries", tmp_path / "x"]
    refused = process.run(words, timeout=60)
    assert refused.returncode == 2 and "name it with --etdump" in refused.stderr


def test_only_a_warm_up_tells_an_operators_parts(host: HostTarget, exported, tmp_path: Path) -> None:
    parts, plain = exported(OPERATORS, "fp32").pte, exported("toy_cnn", "fp32").pte
    without = host.execute(Job(parts, runs=2, warmup=0, etdump=True), tmp_path / "parts", "job")
    assert without.boundaries is None and without.etdump is not None
    assert "warm-up" in (without.result.boundaries_unavailable or "")
    assert read_timed(without.etdump).clock == CUT
    simple = host.execute(Job(plain, runs=2, warmup=0, etdump=True), tmp_path / "plain", "job")
    assert simple.etdump is not None and read_timed(simple.etdump).clock == EXACT
