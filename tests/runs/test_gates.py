"""Gates of `sme2prof compare` that are not about time: kernels, operators, delegation, SME2 evidence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from recorded_runs import ARM, EMULATED, INT8, X86_64, Json, edit, load

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.structure import operator_changes
from model_profiling.core.errors import InputError
from model_profiling.program.category import Category
from model_profiling.report.comparison import Comparison, headline
from model_profiling.workflow.compare import compare, load_measurement

pytestmark = pytest.mark.usefixtures("elsewhere")
BOTH = ("--fail-on-change", "kernels", "--fail-on-change", "structure")
ON = "emulated_sme2_on"
MOPA = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"


@pytest.fixture
def emulated(emulated_run: Path) -> tuple[Path, Path]:
    """An emulated run and a copy of it to change."""
    return EMULATED, emulated_run


@pytest.fixture
def linux(arm_run: Path) -> tuple[Path, Path]:
    """The same of a run on a CPU without SME2, which keeps what emulation proved."""
    return ARM, arm_run


def judged(a: Path, b: Path) -> Comparison:
    return compare(a, b, fail_on=("kernels", "structure"))


def edit_kernels(run_dir: Path, change: Callable[[str], str], experiment: str = ON) -> None:
    (path,) = run_dir.glob(f"{experiment}/*_kernels.csv")
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))


def test_emulated_runs_pass_where_nothing_changed(emulated: tuple[Path, Path], sme2prof) -> None:
    done = sme2prof("compare", *emulated, *BOTH)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Structure and kernels .*not change\.\n$", done.stdout)
    assert not re.search(r"\d ms", done.stdout)


def test_every_output_says_the_same(emulated: tuple[Path, Path], sme2prof, tmp_path: Path) -> None:
    """On against off: five operators change their kernel, four kernels appear, SME2 runs."""
    (off,), (on,) = (emulated[0].glob(f"*_{switch}/*.etdump") for switch in ("off", "on"))
    junit, page = tmp_path / "j.xml", tmp_path / "s.md"
    done = sme2prof("compare", off, on, *BOTH, "--out", junit, "--out", page)
    found = judged(off, on)
    assert done.returncode == 1 and found.answer == "failed"
    ((aspect, differences),) = found.changed
    changes = differences.of("kernels")
    assert aspect == "kernels" and len(changes) == 10 and differences.changes == changes
    told = headline(found)
    assert re.match(r"Kernels changed: 10 .*Structure .*not change\.$", told)
    for text in (done.stdout, page.read_text()):
        assert told.replace("_", "\\_") in text or told in text
        assert all(change.subject.replace("_", "\\_") in text or change.subject in text for change in changes)
    facts = json.loads(sme2prof("compare", off, on, *BOTH, "--json").stdout)
    assert facts["headline"] == told and facts["answer"] == "failed" and facts["unanswered"] == []
    (differing,) = (found["changes"] for found in facts["differences"] if found["changes"])
    assert [change["subject"] for change in differing] == [change.subject for change in changes]
    (suite,) = ElementTree.parse(junit).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "change" and (failure.text or "").splitlines() == list(map(str, changes))
    # The same difference fails no gate that did not ask for it.
    assert sme2prof("compare", off, on, "--fail-on-change", "structure").returncode == 0
    assert sme2prof("compare", off, on).returncode == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: re.sub(f".*{MOPA}.*\n", "", text), ["no longer runs"]),
        (lambda text: text.replace("sme2_mopa", "neon_mopa"), ["runs now", "no longer runs"]),
        (lambda text: re.sub(".*kai_run.*\n", "", text), ["changed", *["no longer runs"] * 4]),
    ],
)
def test_each_change_of_kernels_is_named(
    emulated: tuple[Path, Path], change: Callable[[str], str], what: list[str]
) -> None:
    a, b = emulated
    edit_kernels(b, change)
    found = judged(a, b)
    ((_, differences),) = found.changed
    assert found.answer == "failed" and differences.name.startswith(ON)
    assert sorted(change.what for change in differences.changes) == sorted(what)


def test_kernels_that_were_not_counted_give_no_answer(
    emulated: tuple[Path, Path], sme2prof, tmp_path: Path
) -> None:
    a, b = emulated

    def uncount(manifest: Json) -> None:
        manifest["results"][0]["kernels_note"] = "no table of symbols"

    edit(b / "manifest.json", uncount)
    junit = tmp_path / "j.xml"
    done = sme2prof("compare", a, b, "--fail-on-change", "kernels", "--out", junit)
    assert done.returncode == 2 and "no table of symbols" in done.stderr
    assert done.stderr.count("\n") == 1
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("errors") == "1" and suite.get("failures") == "0"
    # Structure is told by the dumps alone.
    assert sme2prof("compare", a, b, "--fail-on-change", "structure").returncode == 0


def test_what_emulation_proved_for_a_run_is_gated_too(linux: tuple[Path, Path]) -> None:
    a, b = linux
    assert judged(a, b).answer == "passed"

    def forget(evidence: Json) -> None:
        for series in evidence["kernels"]:
            series["kernels"] = [call for call in series["kernels"] if "sme" not in call["name"]]

    kept = load(b / "evidence.json")
    edit(b / "evidence.json", forget)
    ((aspect, found),) = judged(a, b).changed
    assert aspect == "kernels" and found.only_kernels and found.changes[0].subject == "SME2"
    # Lost evidence is no proof of anything.
    (b / "evidence.json").write_text(json.dumps({**kept, "kernels": []}))
    lost = judged(a, b)
    assert lost.answer == "no answer" and all("emulated evidence" in what for what, _ in lost.unanswered)


def test_an_x86_64_run_is_judged_by_what_emulation_counted(tmp_path: Path) -> None:
    """KleidiAI has no kernels there: nothing of the host's own is to be counted."""
    found = judged(X86_64, X86_64)
    assert found.answer == "passed"
    assert any("Arm only" in note for each in found.differences for note in each.notes)
    bare = tmp_path / "x"
    shutil.copytree(X86_64, bare, ignore=shutil.ignore_patterns("evidence.json"))
    assert judged(bare, bare).answer == "no answer"
    assert compare(bare, bare, fail_on=["structure"]).answer == "passed"


def test_another_program_fails_by_what_is_different_in_it(emulated: tuple[Path, Path]) -> None:
    (fp16,) = emulated[0].glob(f"{ON}/*.etdump")
    ((_, found),) = compare(fp16, INT8.with_suffix(".etdump"), fail_on=["structure"]).changed
    what = {change.what for change in found.of("structure")}
    assert what == {"appeared", "computes in another precision"}
    assert all(change.before == "none" for change in found.changes if change.what == "appeared")


def test_each_change_of_structure_is_named(emulated: tuple[Path, Path]) -> None:
    (series,) = (found for found in load_measurement(emulated[0]).series if found.series.experiment == ON)
    assert series.dumps
    first = next(each for each in series.dumps.operators if each.category is Category.CONV)

    def became(**changed: object) -> list[str]:
        after = replace(first, **changed)  # type: ignore[arg-type]
        return [change.what for change in operator_changes([((first,), (after,))])]

    def elsewhere(**changed: object) -> Operator:
        return replace(first, source=replace(first.source, **changed))  # type: ignore[arg-type]

    assert became() == []
    left = became(delegated=False, backend="portable", type="aten::convolution.out")
    assert left == ["left the delegate", "changed in number"]
    assert became(backend="OtherBackend") == ["moved to another backend"]
    assert became(kind="Depthwise") == ["became another kind"]
    assert became(precision="fp32") == ["computes in another precision"]
    assert became(source=elsewhere(output_shape=(1, 2, 3, 4)).source) == ["has other shapes"]
    assert became(type="Convolution (NHWC, F32) IGEMM") == ["changed its kernel"]
    for pair, what in (
        (((first,), ()), "vanished"),
        (((), (first,)), "appeared"),
        (((first,), (first, first)), "became several operators"),
        (((first, first), (first,)), "became fewer operators"),
    ):
        assert next(iter(operator_changes([pair]))).what == what


def test_runs_without_dumps_have_no_structure(emulated: tuple[Path, Path]) -> None:
    a, b = emulated
    for dump in b.rglob("*.etdump"):
        dump.unlink()
    found = compare(a, b, fail_on=["structure"])
    assert found.answer == "no answer" and "no dump of B" in found.unanswered[0][1]


def test_a_gate_that_does_not_exist_is_refused(emulated: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="unknown kind of change 'tea'"):
        compare(*emulated, fail_on=["tea"])  # type: ignore[list-item]


def test_memory_and_loading_may_grow_up_to_their_limits(linux: tuple[Path, Path], sme2prof) -> None:
    a, b = linux

    def grow(metrics: Json) -> None:
        for latency in metrics["latencies"]:
            latency["peak_memory_bytes"] = latency["peak_memory_bytes"] * 11 // 10

    edit(b / "metrics.json", grow)
    done = sme2prof("compare", a, b, "--fail-on-memory", "5", "--fail-on-load", "5")
    assert done.returncode == 1 and "Memory changed: 2 differences in 2" in done.stdout, done.stderr
    changed = compare(a, b, memory_limit=0.05, load_limit=0).changed
    assert [aspect for aspect, _ in changed] == ["memory", "memory"]
    assert {change.what for _, found in changed for change in found.of("memory")} == {"grew by 10.0%"}
    assert compare(a, b, memory_limit=0.15).answer == "passed"


def test_an_emulated_run_has_no_memory_to_judge(emulated: tuple[Path, Path], sme2prof) -> None:
    done = sme2prof("compare", *emulated, "--fail-on-memory", "5")
    assert done.returncode == 2 and "no measured memory" in done.stderr
