"""What one run is in a list of many: its answer from the files that are there, without reading a dump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling.report.compared_runs import date_of, device_of, model_and_format, what_times_are
from model_profiling.report.data import ReportData
from model_profiling.report.pair_words import speedup_text
from model_profiling.report.verdict import outputs_differ, told_pair
from model_profiling.wording import milliseconds


@dataclass(frozen=True, slots=True)
class IndexRow:
    """Texts are as shown; `*_value` is what they are sorted by, None where there is nothing."""

    place: str
    """The run directory, relative to the page."""
    link: str = ""
    """Its report, relative to the page; empty where there is none."""
    model: str = ""
    format: str = ""
    device: str = ""
    date: str = ""
    latency: str = ""
    latency_value: float | None = None
    measured: str = ""
    """Which series the latency is of."""
    speedup: str = ""
    speedup_value: float | None = None
    verdict: str = ""
    problem: str = ""
    """Why the run cannot be read."""


def index_row(data: ReportData, place: str, link: str) -> IndexRow:
    model, exported = model_and_format(data)
    headline = data.headline.summary if data.headline else None
    pair = told_pair(data)
    said = [f"{pair.label}: {pair.speedup.verdict.value}"] if pair else []
    if pair and outputs_differ(data, pair):
        said.append("outputs differ by more than rounding")
    if not pair or data.is_arm is False:
        said.append(what_times_are(data))
    verdict = "; ".join(said)
    state = data.run.manifest.unfinished if data.run.manifest else None
    return IndexRow(
        place=place,
        link=link,
        model=model,
        format=exported,
        device=device_of(data),
        date=date_of(data),
        latency=f"{milliseconds(headline.median)} ms" if headline else "",
        latency_value=headline.median if headline else None,
        measured=str(data.headline.series) if data.headline and headline else "",
        speedup=speedup_text(pair.speedup) if pair else "",
        speedup_value=pair.speedup.ratio if pair else None,
        verdict=f"{verdict} ({state})" if state else verdict,
    )


def damaged_row(place: str, problem: str) -> IndexRow:
    return IndexRow(place=place, model=Path(place).name, problem=problem)
