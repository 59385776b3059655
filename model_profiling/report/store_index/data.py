"""A store's contents as the data that the page's script draws: columns of numbers, each text once."""

from __future__ import annotations

from urllib.parse import quote

from model_profiling.report.store_index.records import SeriesHistory, StoreContents, StoredRun


class _Texts:
    """Each text once, known by its place."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def page_data(contents: StoreContents) -> dict[str, object]:
    """The runs in their order; histories name them by their place."""
    texts = _Texts()
    places = {run.id: place for place, run in enumerate(contents.runs)}
    latency = {
        point.run: point.ms for history in contents.histories if history.headline for point in history.points
    }
    return {
        "runs": [_run(run, latency.get(run.id), texts) for run in contents.runs],
        "histories": [_history(history, places) for history in contents.histories],
        "texts": list(texts.places),
    }


def _run(run: StoredRun, latency: float | None, texts: _Texts) -> list[object]:
    """In the order that `store.js` names."""
    told = (run.model, run.format, run.device, run.kernels.value, _state(run), run.commit, run.branch)
    return [
        run.id,
        run.measured[:16].replace("T", " "),
        _short(latency),
        quote(run.report),
        *(texts.place(text) for text in (*told, ", ".join(run.tags), run.no_report)),
    ]


def _state(run: StoredRun) -> str:
    """What became of it, and what its times are where they are no latencies."""
    return run.state if run.times.are_latencies else f"{run.state}, {run.times.value}: no latencies"


def _history(history: SeriesHistory, places: dict[str, int]) -> dict[str, object]:
    at = {point.run: place for place, point in enumerate(history.points)}
    return {
        "model": history.model,
        "format": history.format,
        "device": history.device,
        "experiment": history.experiment,
        "threads": history.threads,
        "headline": history.headline,
        "judged": history.judged,
        "left": history.left_out,
        "runs": [places[point.run] for point in history.points],
        "ms": [_short(point.ms) for point in history.points],
        "low": [_short(point.low_ms) for point in history.points],
        "high": [_short(point.high_ms) for point in history.points],
        "changes": [
            [
                at[change.drawn_from[0] if change.drawn_from else change.run],
                _short(change.drawn_from[1] if change.drawn_from else change.before_ms),
                _short(change.after_ms),
                _short(change.share),
                at[change.until] if change.until else None,
            ]
            for change in history.changes
        ],
        "marks": [[at[mark.run], mark.text] for mark in history.marks],
    }


def _short(value: float | None) -> float | None:
    """With the digits that can be seen."""
    return None if value is None else float(f"{value:.5g}")
