"""Compares two profiles of a language model (`sme2prof llm`), case by case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_profiling.analysis.structure import Aspect
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import inside
from model_profiling.report.comparison_document import Comparison
from model_profiling.report.language import case_name
from model_profiling.workflow.compare import compare

_FIX = "profile it again with `sme2prof llm`"


def language_folders(a: Path, b: Path) -> tuple[Path, Path] | None:
    """Return the folders of `llm.json` if both are profiles of a language model; None if neither is."""
    ours, theirs = _home(a), _home(b)
    if ours and theirs:
        return ours, theirs
    if ours or theirs:
        with_one, without = (a, b) if ours else (b, a)
        raise InputError(
            f"{with_one} has an {names.LANGUAGE}, {without} has not",
            "name two folders of `sme2prof llm`, or two runs",
        )
    return None


def _home(path: Path) -> Path | None:
    if path.name == names.LANGUAGE and path.is_file():
        return path.parent
    return next((home for home in (path, path / "runs") if (home / names.LANGUAGE).is_file()), None)


def compare_language(
    a: Path,
    b: Path,
    *,
    limit: float | None = None,
    across_machines: bool = False,
    fail_on: Iterable[Aspect] = (),
) -> Comparison:
    """Judge each case of the `llm` profile in B against the same case in A; each is a row of the result."""
    (ours, before), (theirs, after) = _language_cases(a), _language_cases(b)
    both = [name for name in ours if name in theirs]
    if not both:
        raise InputError(f"{a} and {b} have no case in common", "give both the same --prompt and --context")
    for home, runs in ((a, ours), (b, theirs)):
        if gone := next((runs[name] for name in both if not runs[name].is_dir()), None):
            raise InputError(
                f"{home / names.LANGUAGE} names {gone.relative_to(home)}, which is not there",
                f"copy it, too, or {_FIX}",
            )
    gated = tuple(fail_on)
    cases = {
        name: compare(ours[name], theirs[name], limit=limit, across_machines=across_machines, fail_on=gated)
        for name in both
    }
    first = cases[both[0]]
    return replace(
        first,
        a=replace(first.a, name=str(a), model=before or first.a.model),
        b=replace(first.b, name=str(b), model=after or first.b.model),
        series=tuple(
            replace(row, case=f"{name}, {row.name}" if len(case.series) > 1 else name)
            for name, case in cases.items()
            for row in case.series
        ),
        only_a=tuple(Series(name) for name in ours if name not in theirs),
        only_b=tuple(Series(name) for name in theirs if name not in ours),
        differences=tuple(
            replace(found, name=f"{name}: {found.name}")
            for name, case in cases.items()
            for found in case.differences
        ),
    )


def _language_cases(home: Path) -> tuple[dict[str, Path], str]:
    """Return the run of each case, by the case's name, and the name of the program."""
    path = home / names.LANGUAGE
    try:
        profile: Any = read_json_object(path, _FIX)
        cases = {
            case_name(case["phase"], case["tokens"], case["position"]): inside(
                home, case["run"], f"{path}: run"
            )
            for case in profile["cases"]
        }
    except (KeyError, TypeError) as problem:
        raise FormatError(f"{path} is damaged ({problem})", _FIX) from problem
    return cases, str(profile.get("program", ""))
