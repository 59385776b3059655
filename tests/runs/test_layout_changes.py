"""What is said of layout changes that lowering added."""

from __future__ import annotations

from dataclasses import replace

from recorded_runs import ARM

from model_profiling.analysis.causes.context import FindingContext, flows_of
from model_profiling.analysis.causes.movement import layout_changes
from model_profiling.workflow.analyse import analyse


def test_constants_that_are_turned_in_no_time_are_not_counted() -> None:
    series = analyse(ARM).series[0]
    before = layout_changes(FindingContext(series, timed=True, flows=flows_of(series)))
    assert before is not None and before.evidence["added_by_lowering"] == len(before.concerns)
    one = before.concerns[0].operators[0]
    tiny = [
        replace(one, position=1000 + place, times=replace(one.times, typical_ns=20.0)) for place in range(54)
    ]
    more = replace(series, operators=(*series.operators, *tiny))
    after = layout_changes(FindingContext(more, timed=True, flows=flows_of(series)))
    assert after is not None and after.title == before.title
    assert after.evidence["added_by_lowering"] == len(before.concerns) + 54
