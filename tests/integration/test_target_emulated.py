"""SME2 without SME2 hardware: real kernels under a real QEMU, and what happens when there is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from stand_ins import Routed

from model_profiling.core.errors import SetupError
from model_profiling.etdump import read_etdump
from model_profiling.runner import features, fetching
from model_profiling.runner.build import installed_sdk
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import AARCH64_LINUX
from model_profiling.runner.result import OutputFacts, read_result
from model_profiling.runs.figures import compare_outputs
from model_profiling.targets import Job
from model_profiling.targets import emulated as qemu
from model_profiling.targets.emulated import EmulatedTarget, aarch64_sdk, build_cross_runner
from model_profiling.targets.execution import Route, Transport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")


def of(kernels: Mapping[str, int | None], isa: str) -> list[str]:
    return [name for name in kernels if f"_{isa}_" in f"{name}_"]


def saved_outputs(result: Path) -> list[OutputFacts]:
    return [
        replace(output, file=result.parent / output.file.name)
        for output in read_result(result).outputs
        if output.file is not None
    ]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8"])
def test_sme2_kernels_run_when_on_and_none_when_off(emulated, exported, tmp_path, dtype) -> None:
    pte = exported("toy_cnn", dtype).pte
    keep = {"warmup": 0, "kernels": True, "etdump": True, "save_outputs": True}
    on = emulated.execute(Job(pte, **keep), tmp_path, "on")
    off = emulated.execute(Job(pte, disable=("sme2",), **keep), tmp_path, "off")
    ran, ran_off = on.result, off.result

    matmuls = [name for name in of(ran.kernels, "sme2") if "matmul_clamp" in name]
    assert matmuls and all((ran.kernels[name] or 0) > 0 for name in matmuls)
    assert ran_off.kernels_note is None, "nothing ran because nothing was chosen, not because nobody looked"
    assert not of(ran_off.kernels, "sme2") and not of(ran_off.kernels, "sme")
    assert ran.features_masked == () and ran_off.features_masked == ("sme2", "sme")

    parity = compare_outputs(
        saved_outputs(tmp_path / "on_runner.json"),
        saved_outputs(tmp_path / "off_runner.json"),
        quantized=dtype == "int8",
    )
    assert parity.verdict != "mismatch", parity
    assert parity.outputs[0].rms_of_rms < 0.01 and not parity.outputs[0].top1_differs

    assert on.etdump is not None and off.etdump is not None
    packed = {"fp32": "PF32", "fp16": "PF16", "int8": "PQS8"}[dtype]
    assert read_etdump(on.etdump).to_pandas()["name"].str.contains(packed).any()
    assert not read_etdump(off.etdump).to_pandas()["name"].str.contains(packed).any()


def test_counts_follow_the_executions(emulated: EmulatedTarget, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn", "int8").pte
    once = emulated.execute(Job(pte, warmup=0, runs=1, kernels=True), tmp_path, "once").result
    thrice = emulated.execute(Job(pte, warmup=2, runs=3, threads=2, kernels=True), tmp_path, "thrice").result
    assert once.kernels
    assert {name: 3 * (calls or 0) for name, calls in once.kernels.items()} == dict(thrice.kernels)
    untouched = emulated.execute(Job(pte, warmup=0), tmp_path, "untouched").result
    assert untouched.kernels == {}
    assert untouched.outputs[0].checksum == once.outputs[0].checksum


def test_the_ladder_reaches_sme_between_sme2_and_neon(emulated: EmulatedTarget, exported, tmp_path) -> None:
    pte = exported("toy_cnn", "int8").pte
    seen = []
    for number, rung in enumerate(features.ladder(emulated.facts().features)[:3]):
        outcome = emulated.execute(
            Job(pte, warmup=0, disable=rung.disable, kernels=True), tmp_path, f"rung{number}"
        )
        seen.append((bool(of(outcome.result.kernels, "sme2")), bool(of(outcome.result.kernels, "sme"))))
    assert [sme2 for sme2, _ in seen] == [True, False, False]
    assert [sme for _, sme in seen] == [True, True, False]


def test_facts_say_it_is_emulated(emulated: EmulatedTarget) -> None:
    facts = emulated.facts()
    assert facts.cpu.startswith("QEMU ") and facts.machine == "aarch64" and facts.has_sme2
    assert facts.versions["qemu"]


def test_the_qemu_of_an_older_debian_is_refused_for_lack_of_sme2(emulated, tmp_path, monkeypatch) -> None:
    try:
        archive = fetching.own_archive("")
        if archive.suite != "bookworm":
            pytest.skip(f"{archive.origin} {archive.suite} has another QEMU than the one this test is about")
        with fetching.packages_of(archive, "") as packages:
            assert str(packages.version("qemu-user-static")).startswith("7.2")
            (deb,) = packages.download("qemu-user-static")
            packages.unpack(deb, tmp_path, member="usr/bin/qemu-aarch64-static")
    except SetupError as problem:
        missing(f"Debian's QEMU: {problem}")
    old = tmp_path / "usr/bin"
    assert emulated.build is not None
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SME2PROF_QEMU", raising=False)
    monkeypatch.setenv("PATH", str(old))
    with pytest.raises(SetupError, match=r"QEMU 7\.2\.\d+ .*no SME2; .*install.*SME2PROF_QEMU"):
        qemu.find_qemu(emulated.build.path, emulated.sysroot, fetch=False)
    monkeypatch.setenv("SME2PROF_QEMU", str(old / "qemu-aarch64-static"))
    with pytest.raises(SetupError, match=r"no SME2; .*SME2PROF_QEMU"):
        qemu.find_qemu(emulated.build.path, emulated.sysroot)


def test_no_qemu_and_no_way_to_get_one(emulated: EmulatedTarget, tmp_path, monkeypatch) -> None:
    assert emulated.build is not None
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SME2PROF_QEMU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert qemu.qemu_source() is None
    with pytest.raises(SetupError, match=r"no qemu-aarch64.*; .*install.*\b10\.1\b.*SME2PROF_QEMU"):
        qemu.find_qemu(emulated.build.path, fetch=False)
    with pytest.raises(SetupError, match=r"no apt-get; .*install.*\b10\.1\b"):
        qemu.find_qemu(emulated.build.path)


def test_offline(emulated: EmulatedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Debian client is real; the proxy it is told to use does not answer."""
    assert emulated.build is not None
    if shutil.which("apt-get") is None:
        missing("apt-get")
    settings = tmp_path / "offline.conf"
    settings.write_text(
        'Acquire::http::Proxy "http://127.0.0.1:9"; Acquire::https::Proxy "http://127.0.0.1:9";'
    )
    monkeypatch.setenv("APT_CONFIG", str(settings))
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SetupError, match=r"mirror .*: .*; .*install.*\b10\.1\b"):
        qemu.fetch_qemu()
    assert not list((tmp_path / "cache").rglob("*qemu-aarch64*"))


def test_something_that_is_not_qemu(emulated: EmulatedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    assert emulated.build is not None
    monkeypatch.setenv("SME2PROF_QEMU", "/bin/true")
    with pytest.raises(SetupError, match=r"/bin/true .*QEMU; .*SME2PROF_QEMU"):
        qemu.find_qemu(emulated.build.path)


def test_the_way_of_a_machine_that_is_not_arm(
    emulated: EmulatedTarget, exported, lend_objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything an x86_64 host fetches and builds, run wherever the test runs: the aarch64 wheel through
    pip, a compiler for aarch64 and its C library, and QEMU with `-L`."""
    assert emulated.qemu is not None
    sdk = installed_sdk() if ON_ARM else aarch64_sdk(installed_sdk())
    lend_objects(tmp_path / "cache", sdk, find_compiler(AARCH64_LINUX))
    monkeypatch.setenv("SME2PROF_QEMU", str(emulated.qemu.path))
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    try:
        build, sysroot = build_cross_runner()
    except SetupError as problem:
        missing(f"an aarch64 wheel and C library: {problem}")
    assert str(tmp_path) in str(build.library_path)
    found = qemu.find_qemu(build.path, sysroot)
    assert "-L" in found.prefix
    job = Job(exported("toy_cnn", "int8").pte, warmup=0, kernels=True)
    runner, transport = (str(build.path),), Transport(found.prefix)
    outcome = Routed(Route(runner, transport)).execute(job, tmp_path, "cross")
    assert of(outcome.result.kernels, "sme2")
