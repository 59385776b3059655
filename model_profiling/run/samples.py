"""Reading a series' stack samples from the file beside its dumps."""

from __future__ import annotations

from model_profiling.core.errors import FormatError
from model_profiling.core.records import read_record
from model_profiling.core.safe_read import is_there
from model_profiling.run import names
from model_profiling.run.run import Run
from model_profiling.run.series import Series
from model_profiling.runner.samples import Samples


def read_series_samples(run: Run, series: Series) -> Samples | None:
    result = run.result(series)
    path = run.path / result.samples if result and result.samples else None
    if path is None or not is_there(path):
        return None
    fix = f"sample it again, or remove the file *{names.SAMPLES}"
    samples = read_record(Samples, path, fix)
    if not _fits(samples):
        raise FormatError(f"{path}: what was seen does not fit the functions and files it names", fix)
    return samples


def _fits(samples: Samples) -> bool:
    return all(
        call >= -1 and operator >= -1 and thread >= 0 and 0 <= function < len(samples.functions) and count > 0
        for call, operator, thread, function, count in samples.seen
    ) and all(-1 <= function.file < len(samples.files) for function in samples.functions)
