"""Where the threads of a series were seen: the file beside its dumps."""

from __future__ import annotations

from model_profiling.json_record import read_record
from model_profiling.run import names
from model_profiling.run.opened import Run
from model_profiling.run.series import Series
from model_profiling.runner.samples import Samples


def read_series_samples(run: Run, series: Series) -> Samples | None:
    """None where the series was not sampled."""
    result = run.result(series)
    path = run.path / result.samples if result and result.samples else None
    if path is None or not path.is_file():
        return None
    return read_record(Samples, path, f"sample it again, or remove the file *{names.SAMPLES}")
