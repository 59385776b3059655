"""The host target: what it knows of the machine, pinning, and what `auto` makes of it."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from model_profiling import targets
from model_profiling.core.errors import InputError, RunError
from model_profiling.runner import features
from model_profiling.runner.machine import cpu_name_from_proc
from model_profiling.targets import Job, TargetChoice, open_target, parse_target, plan_targets
from model_profiling.targets.host import HostTarget


def test_facts_of_this_machine(host) -> None:
    facts = host.facts()
    assert facts.cores == os.cpu_count()
    assert set(facts.features) == features.host_features()
    assert facts.memory_bytes is not None and facts.memory_bytes > 1 << 28
    assert facts.cpu and facts.os and facts.machine
    assert {"python", "executorch", "compiler"} <= set(facts.versions)


def test_cpu_names() -> None:
    big_little = "\n".join(
        f"processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n"
        for cpu, part in enumerate(("0xd80", "0xd80", "0xd81"))
    )
    assert cpu_name_from_proc(big_little) == "Cortex-A520 + Cortex-A720"
    apple = "processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x052\n"
    assert cpu_name_from_proc(apple) == "implementer 0x61 part 0x052"
    assert cpu_name_from_proc("model name\t: AMD EPYC 7B13\n") == "AMD EPYC 7B13"


@pytest.mark.parametrize(
    ("present", "machine", "system", "main", "evidence", "said"),
    [
        ({"sme2", "sme"}, "aarch64", "linux", "host", "host", "has SME2"),
        ({"sme2", "sme"}, "arm64", "darwin", "host", "host", "has SME2"),
        ({"fp16"}, "aarch64", "linux", "host", "emulated", "no SME2"),
        (set(), "aarch64", "linux", "host", "emulated", "no SME2"),
        ({"fp16"}, "arm64", "darwin", "host", "host", "no kernel evidence"),
        (set(), "x86_64", "linux", "emulated", "emulated", "not an Arm CPU"),
    ],
)
def test_what_auto_means(monkeypatch, present, machine, system, main, evidence, said) -> None:
    monkeypatch.setattr(targets, "host_features", lambda: frozenset(present))
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    plan = plan_targets(TargetChoice())
    assert (plan.main, plan.evidence) == (TargetChoice(main), TargetChoice(evidence))
    assert said in plan.reason
    elsewhere = plan.shown_by([Path("there")])
    lacks = main == "host" and "sme2" not in present
    assert elsewhere.evidence == plan.main and ("shown by there" in elsewhere.reason) is lacks
    assert open_target(TargetChoice()).name == main


def test_where_neither_arm_nor_emulation_is_the_user_must_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(targets, "host_features", frozenset)
    with pytest.raises(InputError, match=r"not an Arm CPU.* QEMU") as problem:
        plan_targets(TargetChoice())
    assert "--target host" in problem.value.fix


def test_what_a_choice_opens() -> None:
    emulated = open_target(TargetChoice("emulated"))
    assert (emulated.platform, emulated.place) == ("emulated", "emulated")
    assert not emulated.timings_are_latency
    assert plan_targets(TargetChoice("emulated")).main == TargetChoice("emulated")
    host = open_target(TargetChoice("host"))
    assert host.place == host.platform == ("mac" if sys.platform == "darwin" else "linux")
    phone = open_target(TargetChoice("android", device="SERIAL"))
    assert (phone.platform, phone.place) == ("android", "android-SERIAL"), "it need not be there yet"


def test_the_words_of_the_command_line() -> None:
    assert parse_target("auto") == TargetChoice()
    assert parse_target("android") == TargetChoice("android")
    assert parse_target("android:R5CT1234ABC") == TargetChoice("android", device="R5CT1234ABC")
    assert parse_target("android:192.0.2.7:5555") == TargetChoice("android", remote="192.0.2.7:5555")
    with pytest.raises(InputError, match=r"'phone'; .*auto, host, emulated"):
        parse_target("phone")
    with pytest.raises(InputError, match=r"target host .*'x'"):
        parse_target("host:x")


def test_a_target_exists_once_it_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row gets the whole choice: no setting of the config is lost on the way."""
    opened: list[TargetChoice] = []
    monkeypatch.setitem(targets._KINDS, "android", lambda choice: (opened.append(choice), HostTarget())[1])
    choice = TargetChoice(device="SERIAL", power_mode="boost", device_path="/data/local/tmp/x")
    assert open_target(choice).name == "host"
    assert opened == [
        TargetChoice("android", device="SERIAL", device_path="/data/local/tmp/x", power_mode="boost")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are pinned on Linux only")
def test_pinning(host, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn", "fp32").pte
    pinned = host.execute(Job(pte, cpu_affinity=(0,)), tmp_path, "pinned")
    assert pinned.log.read_text().startswith("$ taskset 1 ")
    with pytest.raises(InputError, match="this machine has no CPU 4096"):
        host.execute(Job(pte, cpu_affinity=(4096,)), tmp_path, "beyond")


def test_a_target_must_be_prepared_first(exported, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the target was not prepared"):
        HostTarget().execute(Job(exported("toy_cnn", "fp32").pte), tmp_path, "job")
