"""Which rewrites `sme2prof optimize` keeps (exports and times are made up, the decisions are not), and which
`--optimize` applies: those that were saved for this model and format, else by structure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from said import refused, says

from model_profiling.cli.main import main
from model_profiling.core.errors import FormatError, InputError
from model_profiling.export.catalogue import CACHE, CHANNELS_LAST
from model_profiling.export.records import Accuracy, Applied, DelegationCoverage, Deviation, ExportResult
from model_profiling.export.rewrites import chosen_rewrites, names
from model_profiling.report.document import render_markdown
from model_profiling.report.dtypes import OnSme2
from model_profiling.report.optimization import Optimization, optimization_document
from model_profiling.runs.times import Timed, compare_timed
from model_profiling.targets import TargetChoice, TargetPlan
from model_profiling.targets.host import HostTarget
from model_profiling.workflow import optimize, profile
from model_profiling.workflow.optimize import optimize_model
from model_profiling.workflow.profile import ProfileOptions, ProgramCase

KINDS = ("attention", "glu", "mish")
"""Kinds of the catalogue, which all fit the made-up model."""


def exported(_: object, *, outdir: Path, optimize: tuple[str, ...] | bool, **__: object) -> ExportResult:
    rewrites = optimize if isinstance(optimize, tuple) else ()
    pte = Path(outdir) / f"net_xnnpack_fp32{'-optimized' if rewrites else ''}.pte"
    pte.parent.mkdir(parents=True, exist_ok=True)
    # Leaving `glu` out changes nothing in the program.
    content = str(sorted(set(rewrites) - {"glu"}))
    for name in ("", ".etrecord", ".json"):
        Path(f"{pte}{name}").write_text(content)
    return ExportResult(
        model="net", source="net", dtype="fp32", backend="xnnpack", seed=0, pte=pte,
        etrecord=Path(f"{pte}.etrecord"), graph=None, summary=Path(f"{pte}.json"), sha256=content,
        size_bytes=1, inputs=(), outputs=(), coverage=DelegationCoverage(9, 4 - len(rewrites), (), 0),
        accuracy=Accuracy(Deviation(0.0, 0.0, 1e-4, None, "identical", ())), seconds=0.0, versions={},
        calibration="", warnings=(),
        rewrites=tuple(Applied(name, "aten.op", "layer", "net.py:3: line") for name in sorted(rewrites)),
    )  # fmt: skip


def timed(ms: float, seed: int) -> Timed:
    noise = np.random.default_rng(seed).standard_normal((12, 4))
    launches = {str(n): [[ms * (1 + 0.01 * each)] for each in row] for n, row in enumerate(noise)}
    return Timed(rounds=[[turn[0] for turn in turns] for turns in launches.values()], launches=launches)


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Milliseconds: original, all, and all without each kind; what the kept ones take when measured again."""
    times: dict[str, float] = {"original": 10.0, "all": 8.0, "again": 8.0}

    def in_turns(_: object, programs: list[Path]) -> list[Timed]:
        assert len(set(programs)) == len(programs)
        ms = [times["original"], times["all"], *(times[kind] for kind in KINDS if kind in times)]
        return [timed(each, seed) for seed, each in enumerate(ms[: len(programs)])]

    def confirm(original: Path, program: Path, *_: object, **__: object) -> Any:
        assert original.is_file() and program.is_file()
        speedup = compare_timed(timed(times["original"], 6), timed(times["again"], 7), same_run=False)
        comparison = SimpleNamespace(series=[SimpleNamespace(end_to_end=speedup)])
        return SimpleNamespace(comparison=comparison, a=None, b=None, warnings=())

    monkeypatch.setattr(profile, "export_model", exported)
    monkeypatch.setattr(optimize, "one_case", lambda *_: ProgramCase())
    monkeypatch.setattr(optimize, "compare_programs", confirm)
    # The runs of the two programs are made up, and prove nothing.
    proven = optimize.on_sme2
    monkeypatch.setattr(optimize, "gather_report", lambda _: None)
    monkeypatch.setattr(optimize, "on_sme2", lambda data: proven(data) if data else None)
    monkeypatch.setattr(optimize._Search, "_in_turns", in_turns)
    monkeypatch.setattr(optimize._Search, "_why_not_timed", lambda _: "")
    return times


def optimized(tmp_path: Path) -> tuple[Optimization, dict[str, str]]:
    options = ProfileOptions(target=TargetChoice("host"), outdir=tmp_path)
    outcome = optimize_model("net", options, only=KINDS)
    programs = sorted((tmp_path / "artifacts").glob("*-optimized.pte*"))
    assert len(programs) == (3 if outcome.program else 0), "with its companions, or not at all"
    render_markdown(optimization_document(outcome.optimization))
    return outcome.optimization, {each.name: each.decision for each in outcome.optimization.rewrites}


def test_what_is_slower_or_makes_no_difference_is_dropped(takes: dict[str, float], tmp_path: Path) -> None:
    takes |= {"attention": 10.0, "mish": 7.0}
    found, decided = optimized(tmp_path)
    assert decided == {"attention": "kept", "glu": "dropped", "mish": "dropped"}
    because = {each.name: each.because for each in found.rewrites}
    says(because["glu"], "the same without it")
    says(because["mish"], "faster without it")
    assert found.kept == ("attention",)
    says(found.verdict, "as fast", "outputs agree", "1 rewrite kept of 3")


def test_noise_that_looked_like_a_gain_is_not_reported(takes: dict[str, float], tmp_path: Path) -> None:
    takes |= {"attention": 10.0, "mish": 8.0, "again": 10.0}
    found, decided = optimized(tmp_path)
    assert decided["mish"] == "dropped"
    assert not found.helped and found.optimized is None and found.kept == ()
    says(found.verdict, "Nothing helped")


def test_a_program_of_an_earlier_choice_goes_with_it(takes: dict[str, float], tmp_path: Path) -> None:
    takes |= {"attention": 10.0, "mish": 10.0}
    assert optimized(tmp_path)[0].helped
    takes["all"] = 11.0
    assert not optimized(tmp_path)[0].helped  # `optimized` looks for the files


@pytest.mark.usefixtures("takes")
@pytest.mark.parametrize(("not_timed", "code"), [("", 1), ("this CPU is not an Arm CPU", 0)])
def test_that_nothing_helps_is_an_answer_where_times_are_measured(not_timed, code, tmp_path, monkeypatch):
    monkeypatch.setattr(optimize._Search, "_why_not_timed", lambda _: not_timed)
    words = ["optimize", "net", "--target", "host", "--only", "glu", "--outdir", str(tmp_path), "--json"]
    assert main(words) == code


def test_a_choice_whose_confirmation_is_interrupted_leaves_no_program(takes, tmp_path, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(optimize, "compare_programs", interrupted)
    takes |= {"attention": 10.0, "mish": 10.0}
    with pytest.raises(KeyboardInterrupt):
        optimized(tmp_path)
    assert [path.name for path in (tmp_path / "artifacts").glob("*.pte")] == ["net_xnnpack_fp32.pte"]


def test_what_helps_only_together_is_kept_together_and_the_unknown_is_refused(takes, tmp_path):
    takes |= {"attention": 8.0, "mish": 8.0}
    found, decided = optimized(tmp_path)
    assert set(decided.values()) == {"kept"} and found.helped
    with pytest.raises(InputError, match=r"there is no rewrite 'atention'.*attention"):
        optimize_model("toy_cnn", ProfileOptions(), only=("atention",))


@pytest.mark.usefixtures("takes")
@pytest.mark.parametrize("not_timed", ["", "this CPU is not an Arm CPU"])
def test_what_fits_only_without_a_cache_in_place_is_tried_without_it(not_timed, tmp_path, monkeypatch):
    def fitting(model: object, *, optimize: tuple[str, ...] | bool, **more: Any) -> ExportResult:
        if isinstance(optimize, tuple) and CACHE in optimize:
            optimize = tuple(name for name in optimize if name != "attention")
        return exported(model, optimize=optimize, **more)

    def in_turns(_: object, programs: list[Path]) -> list[Timed]:
        held = [program.read_text() for program in programs]
        return [timed(10 - 2 * ("attention" in each) - ("mish" in each), at) for at, each in enumerate(held)]

    monkeypatch.setattr(profile, "export_model", fitting)
    monkeypatch.setattr(optimize._Search, "_in_turns", in_turns)
    monkeypatch.setattr(optimize._Search, "_why_not_timed", lambda _: not_timed)
    monkeypatch.setattr(HostTarget, "libraries_with", lambda *_: ("library",))
    options = ProfileOptions(target=TargetChoice("host"), outdir=tmp_path)
    found = optimize_model("net", options, only=(CACHE, "attention", "mish")).optimization
    kept = "not measured" if not_timed else "kept"
    assert {each.name: each.decision for each in found.rewrites} == {
        CACHE: "dropped", "attention": kept, "mish": kept,
    }  # fmt: skip


def test_what_makes_outputs_right_is_kept_though_it_is_slower(takes, tmp_path, monkeypatch):
    wrong = Accuracy(Deviation(1.0, 1.0, 1e-2, None, "mismatch", ()))

    def right_with_mish(*given: Any, **more: Any) -> ExportResult:
        made = exported(*given, **more)
        return made if "mish" in made.rewritten else replace(made, accuracy=wrong)

    monkeypatch.setattr(profile, "export_model", right_with_mish)
    takes |= {"all": 11.0, "attention": 11.0, "mish": 10.0, "again": 11.0}
    found, decided = optimized(tmp_path)
    assert decided == {"attention": "dropped", "glu": "dropped", "mish": "kept"} and found.kept == ("mish",)
    says({each.name: each.because for each in found.rewrites}["mish"], "agree with PyTorch only with it")
    says(found.verdict, "outputs now agree with PyTorch")


@pytest.mark.parametrize("main_target", ["host", "emulated"])
def test_what_loses_sme2_arithmetic_is_dropped(main_target, takes, tmp_path, monkeypatch):
    takes |= {"attention": 9.0, "mish": 10.0}
    main, emulated = TargetChoice(main_target), TargetChoice("emulated")
    monkeypatch.setattr(optimize, "plan_targets", lambda _: TargetPlan(main, emulated, "no SME2 here"))
    not_timed = "times are emulated" if main == emulated else ""
    monkeypatch.setattr(optimize._Search, "_why_not_timed", lambda _: not_timed)

    def proven(_: object, program: Path) -> OnSme2:
        flops = 500 if "mish" in program.read_text() else 1000
        return OnSme2("executed", "emulated", 1, 1, flops / 1000, flops)

    monkeypatch.setattr(optimize._Proof, "_proven", proven)
    found, decided = optimized(tmp_path)
    others = ("not measured", "not measured") if not_timed else ("kept", "dropped")
    assert decided == dict(zip(KINDS, (*others, "dropped"), strict=True))
    says(found.rewrites[-1].because, "SME2")
    assert found.optimized is not None and found.optimized.sme2 is not None
    assert found.optimized.sme2.arithmetic_share == 1.0


SAVED = {"schema_version": 1, "model": "net", "source": "net.py:make", "kept": ["attention", "layer norm"]}


def saved(folder: Path, **changed: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "optimization.json").write_text(json.dumps(SAVED | changed))
    return folder


def chosen(optimize: object, home: Path, model: str = "net", dtype: str = "fp16") -> tuple[str, ...] | None:
    program = home / "artifacts" / f"{model}_xnnpack_{dtype}-optimized.pte"
    return chosen_rewrites(optimize, model, "net.py:make", program, dtype)  # type: ignore[arg-type]


def test_a_saved_choice_is_applied_by_its_file_and_by_its_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "elsewhere")
    for named in (folder, folder / "optimization.json", str(folder)):
        assert chosen(named, tmp_path) == ("attention", "layer norm")
    assert chosen(folder, tmp_path, "renamed") == ("attention", "layer norm"), "its source is the same"
    assert chosen(saved(tmp_path / "nothing", kept=[]), tmp_path) == ()


def test_without_a_file_the_choice_for_this_format_is_found_or_structure_chooses(tmp_path: Path) -> None:
    by_structure = chosen(True, tmp_path)
    assert by_structure == tuple(name for name in names() if name not in (CACHE, CHANNELS_LAST))
    assert set(by_structure) - set(chosen(True, tmp_path, dtype="fp32") or ()) == {"layer norm", "group norm"}
    saved(tmp_path / "runs" / "xnnpack_fp32-optimized")
    assert chosen(True, tmp_path) == by_structure
    saved(tmp_path / "runs" / "xnnpack_fp16-optimized", model="other", source="other.py:make")
    assert chosen(True, tmp_path) == by_structure
    saved(tmp_path / "runs" / "xnnpack_fp16-optimized")
    assert chosen(True, tmp_path) == ("attention", "layer norm")
    assert chosen(False, tmp_path) is None and chosen((), tmp_path) is None


def test_a_file_that_holds_no_choice_for_this_model_is_refused(tmp_path: Path) -> None:
    with refused(InputError, "gone.json", fix="optimization.json"):
        chosen("gone.json", tmp_path)
    with refused(InputError, "other", "net", fix="this model"):
        chosen(saved(tmp_path, model="other", source="other.py:make"), tmp_path)
    with refused(InputError, "faster maths", fix="sme2prof optimize"):
        chosen(saved(tmp_path, kept=["faster maths"]), tmp_path)
    for damaged in ("{", "[]", "{}", json.dumps(SAVED | {"kept": "attention"}), '{"schema_version": 2}'):
        (tmp_path / "optimization.json").write_text(damaged)
        with refused(FormatError, "optimization.json", fix="sme2prof optimize"):
            chosen(tmp_path, tmp_path)
