"""On real dumps every event's count and duration is what ExecuTorch's Inspector says."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from conftest import missing

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.etdump import read_etdump
from model_profiling.targets import Job, TargetChoice, open_target

VIEW = Path(__file__).with_name("executorch_view.py")
RUNS = 3

# What is run: model, dtype, backend, target, CPU features off.
CASES = {
    "toy fp32": ("toy_cnn", "fp32", "xnnpack", "host", ()),
    "toy fp16": ("toy_cnn", "fp16", "xnnpack", "host", ()),
    "toy int8": ("toy_cnn", "int8", "xnnpack", "host", ()),
    "portable only": ("toy_cnn", "fp32", "portable", "host", ()),
    "19 delegates": ("mobilenet_v3_small@hardsigmoid=1", "fp16", "xnnpack", "host", ()),
    "SME2 on": ("toy_cnn", "fp32", "xnnpack", "emulated", ()),
    "SME2 off": ("toy_cnn", "fp32", "xnnpack", "emulated", ("sme2",)),
}


@pytest.fixture(scope="module")
def dumps(exported, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Each case's dump and ETRecord, from real executions."""
    folder = tmp_path_factory.mktemp("dumps")
    made = {}
    for case, (model, dtype, backend, where, off) in CASES.items():
        target = open_target(TargetChoice(where))
        try:
            target.prepare()
        except SetupError as problem:
            missing(f"{where}: {problem}")
        artifact = exported(model, dtype, backend)
        job = Job(artifact.pte, runs=RUNS if where == "host" else 1, warmup=1, etdump=True, disable=off)
        outcome = target.execute(job, folder, case.replace(" ", "_"))
        assert outcome.etdump is not None
        made[case] = (outcome.etdump, artifact.etrecord)
    return made


@pytest.fixture(scope="module")
def inspected(warm_words, dumps) -> dict[str, list[tuple[str, str, int, list[float]]]]:
    """What Inspector says of each dump; of the toy's also when it is given the ETRecord."""
    words = {case: str(dump) for case, (dump, _) in dumps.items()}
    words["toy fp32 with ETRecord"] = "=".join(map(str, dumps["toy fp32"]))
    done = process.run([*warm_words, VIEW, "dumps", *words.values()], timeout=300)
    assert done.ok, done.tail(30)
    views = json.loads(done.stdout)
    return {case: views[word] for case, word in words.items()}


@pytest.mark.quick
@pytest.mark.parametrize("case", [*CASES, "toy fp32 with ETRecord"])
def test_every_event_is_what_inspector_says(case, dumps, inspected) -> None:
    frame = read_etdump(dumps[case.removesuffix(" with ETRecord")][0]).to_pandas()
    ours = defaultdict(list)
    for row in frame.itertuples():
        ours[row.block, row.name, row.instruction_id].append(float(row.duration_ns))
    theirs = {(block, name, instruction): raw for block, name, instruction, raw in inspected[case]}
    assert dict(ours) == theirs
    assert len(frame) > 5 * frame.loc[frame["block"] == "Execute", "run_index"].nunique()


def test_delegates_log_whole_microseconds_back_to_back_inside_their_call(dumps) -> None:
    table = read_etdump(dumps["19 delegates"][0])
    inside = table.is_delegated
    assert inside.sum() == RUNS * 165
    assert not (table.duration_ns[inside] % 1000).any()
    first = np.concatenate([[True], ~inside[:-1]]) & inside
    follows = inside & ~first
    assert np.array_equal(table.start_ns[follows], table.end_ns[np.flatnonzero(follows) - 1])
