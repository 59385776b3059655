"""The host target: what it knows of the machine, pinning, and what `auto` makes of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from model_profiling import targets
from model_profiling.errors import InputError, RunError
from model_profiling.runner import features
from model_profiling.targets import Job, open_target, plan_targets
from model_profiling.targets.host import HostTarget
from model_profiling.targets.machine import cpu_name_from_proc


def test_facts_of_this_machine() -> None:
    target = HostTarget()
    target.prepare()
    facts = target.facts()
    assert facts.cores == os.cpu_count()
    assert set(facts.features) == features.host_features()
    assert facts.memory_bytes is not None and facts.memory_bytes > 1 << 28
    assert facts.cpu and facts.os and facts.machine
    assert {"python", "executorch", "compiler"} <= set(facts.versions)


def test_cpu_names() -> None:
    big_little = "".join(
        f"CPU implementer\t: 0x41\nCPU part\t: {part}\n" for part in ("0xd80", "0xd80", "0xd81")
    )
    assert cpu_name_from_proc(big_little) == "Cortex-A520 + Cortex-A720"
    assert cpu_name_from_proc("CPU implementer\t: 0x61\nCPU part\t: 0x052\n") == "implementer 0x61 part 0x052"
    assert cpu_name_from_proc("model name\t: AMD EPYC 7B13\n") == "AMD EPYC 7B13"


@pytest.mark.parametrize(
    ("present", "system", "timing", "evidence"),
    [
        (frozenset({"sme2", "sme"}), "linux", "host", "host"),
        (frozenset({"sme2", "sme"}), "darwin", "host", "host"),
        (frozenset({"fp16"}), "linux", "host", "emulated"),
        (frozenset(), "linux", "host", "emulated"),
        (frozenset({"fp16"}), "darwin", "host", "host"),
    ],
)
def test_what_auto_means(
    monkeypatch: pytest.MonkeyPatch, present: frozenset[str], system: str, timing: str, evidence: str
) -> None:
    monkeypatch.setattr(targets, "host_features", lambda: present)
    monkeypatch.setattr(sys, "platform", system)
    plan = plan_targets("auto")
    assert (plan.timing, plan.evidence) == (timing, evidence)
    assert plan.reason
    assert open_target("auto").name == timing


def test_names_of_targets() -> None:
    assert open_target("emulated").platform == "emulated"
    assert not open_target("emulated").timings_are_latency
    assert plan_targets("emulated").timing == "emulated"
    with pytest.raises(InputError, match="unknown target 'phone'; choose from auto, host, emulated"):
        open_target("phone")
    for name in ("android", "android:SERIAL"):
        with pytest.raises(InputError, match="target android is not built yet; use host or emulated"):
            open_target(name)


def test_a_target_exists_once_it_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(targets._KINDS, "android", lambda _serial: HostTarget())
    assert open_target("android:SERIAL").name == "host" and targets.why_not_yet("android") is None


@pytest.mark.skipif(sys.platform != "linux", reason="processes are pinned on Linux only")
def test_pinning(exported, tmp_path: Path) -> None:
    target = HostTarget()
    target.prepare()
    pte = exported("toy_cnn", "fp32").pte
    pinned = target.execute(Job(pte, cpu_affinity=(0,)), tmp_path, "pinned")
    assert pinned.log.read_text().startswith("$ taskset --cpu-list 0 ")
    with pytest.raises(InputError, match="there is no CPU 4096"):
        target.execute(Job(pte, cpu_affinity=(4096,)), tmp_path, "beyond")


def test_a_target_must_be_prepared_first(exported, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the target was not prepared"):
        HostTarget().execute(Job(exported("toy_cnn", "fp32").pte), tmp_path, "job")
