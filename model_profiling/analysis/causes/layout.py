"""Layout changes in delegates: those that lowering put there and, where they are timed, the model's."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import Concern, Finding, source_line, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.wording import plural

_INPUT, _OUTPUT = "the call's input", "the call's output"


def layout_changes(seen: Seen) -> Finding | None:
    series, timed = seen.series, seen.timed
    moving = seen.largest(
        lambda operator: (
            operator.delegated
            and operator.category is Category.DATA_MOVEMENT
            and (operator.origin == "lowering" or (timed and operator.kind == "transpose"))
        ),
    )
    if not moving:
        return None
    concerns = tuple(_layout_change(series, operator) for operator in moving)
    inserted = [concern for concern in concerns if concern.operator.origin == "lowering"]
    added = f", {len(inserted)} of them added by lowering" if 0 < len(inserted) < len(moving) else ""
    all_added = " that lowering added" if len(inserted) == len(moving) else ""
    return Finding(
        "layout-changes",
        f"Remove {plural(len(moving), 'layout change')}{all_added}{added}",
        _one_layout(inserted, len(moving)),
        series,
        concerns,
        {"added_by_lowering": len(inserted)},
        seen.gain_pct(series.spent_by(moving).ms),
    )


def _layout_change(series: SeriesAnalysis, operator: Operator) -> Concern:
    if operator.origin != "lowering":
        return Concern((operator,), where(operator))
    before, after = _between(series, operator)
    return Concern((operator,), f"between {before} and {after}", "", {"between": [before, after]})


def _one_layout(inserted: Sequence[Concern], count: int) -> str:
    ways = []
    if any(concern.where.startswith(f"between {_INPUT}") for concern in inserted):
        ways.append("export with channels-last input")
    if inserted:
        ways.append(
            "replace an operator that wants channels-first data between convolutions, or move it to the "
            "model's edge"
        )
    if count > len(inserted):
        ways.append("drop permutes and transposes of the model that undo each other")
    return "keep one layout through the model: " + "; ".join(ways)


def _between(series: SeriesAnalysis, operator: Operator) -> tuple[str, str]:
    """Where the nearest operators before and after it in its call come from that the model has."""
    place = operator.method, operator.call
    call = [near for near in series.operators if (near.method, near.call) == place and near.origin == "model"]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    return (
        _named(before[-1]) if before else _INPUT,
        _named(after[0]) if after else _OUTPUT,
    )


def _named(operator: Operator) -> str:
    """`features.0 (model.py:12)`, `the reshape at model.py:12`."""
    module, line = operator.source.module_path, source_line(operator, short=True)
    if module:
        return f"{module} ({line})" if line else module
    return f"the {operator.kind} at {line}" if line else operator.name
