"""What goes off together, what the ladder peels, and what the operating systems' listings say."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from said import refused

from model_profiling.core.errors import InputError
from model_profiling.runner import features

NEOVERSE_N1 = """\
processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc asimddp
CPU implementer\t: 0x41
"""
# The lines an M4 prints for the features the kit knows, and some it does not.
APPLE_M4 = """\
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_SME: 1
hw.optional.arm.FEAT_SME2: 1
hw.optional.arm.FEAT_SME2p1: 0
hw.optional.arm.sme_max_svl_b: 64
"""


def test_sme2_off_means_sme2_and_sme_off() -> None:
    assert features.closure(["sme2"]) == ("sme2", "sme")
    assert features.closure(["sme"]) == ("sme2", "sme")
    assert {"sme2", "sme2p1", "sme", "sme_f16f16"} <= set(features.cpuinfo_flags(["sme2"]))


def test_sme2_only_leaves_sme() -> None:
    assert features.cpuinfo_flags([features.SME2_ONLY]) == ("sme2", "sme2p1")
    assert features.closure([features.SME2_ONLY, "sme2"]) == ("sme2", "sme")


def test_older_version_takes_the_newer_along() -> None:
    assert features.closure(["sve"]) == ("sve2", "sve")
    assert features.closure(["sve2"]) == ("sve2",)
    assert features.closure(["dotprod"]) == ("i8mm", "dotprod")


def test_unknown_feature_names_the_choices() -> None:
    with refused(InputError, "'avx512'", fix=", ".join(features.FEATURES)):
        features.closure(["avx512"])


@given(st.lists(st.sampled_from((*features.FEATURES, features.SME2_ONLY))))
def test_closure_is_idempotent_and_only_grows(asked: list[str]) -> None:
    once = features.closure(asked)
    assert features.closure(once) == once
    assert set(features.cpuinfo_flags(asked)) == set(features.cpuinfo_flags(once))
    assert set(asked) - {features.SME2_ONLY} <= set(once)


@given(st.sets(st.sampled_from(features.FEATURES)))
def test_ladder_goes_from_everything_to_nothing_one_at_a_time(present: set[str]) -> None:
    rungs = features.ladder(present)
    assert set(rungs[0].left) == present and rungs[0].disable == ()
    assert rungs[-1].left == ()
    for above, below in itertools.pairwise(rungs):
        assert len(above.left) == len(below.left) + 1
        cleared = set(features.cpuinfo_flags(below.disable))
        assert set(features.features_of_flags(cleared)) >= present - set(below.left)
        assert not set(features.features_of_flags(cleared)) & set(below.left)


def test_ladder_has_a_rung_with_sme_alone() -> None:
    rungs = features.ladder({"sme2", "sme", "i8mm"})
    assert [rung.left for rung in rungs] == [("sme2", "sme", "i8mm"), ("sme", "i8mm"), ("i8mm",), ()]


def test_linux_listing() -> None:
    assert features.from_proc_cpuinfo(NEOVERSE_N1) == {"dotprod", "fp16"}
    assert features.from_proc_cpuinfo("model name : Some x86\nflags : avx2\n") == frozenset()


def test_linux_listing_counts_only_what_every_core_has() -> None:
    little = NEOVERSE_N1.replace("asimddp", "").replace("processor\t: 0", "processor\t: 1")
    assert features.from_proc_cpuinfo(NEOVERSE_N1 + little) == {"fp16"}


def test_macos_listing() -> None:
    assert features.from_sysctl(APPLE_M4) == {"sme2", "sme", "i8mm", "bf16", "dotprod", "fp16"}


def test_host_is_read_from_a_named_place() -> None:
    detected = features.detect_host()
    assert detected.names <= set(features.FEATURES)
    assert detected.source
