"""The run directory: its records and their JSON, its file names, and the decisions made about it.

The run stores which series exist, which pairs are compared, whether they are comparable and what their times
mean. Other packages open the run and read these answers.
"""

from model_profiling.run.comparability import why_not_comparable
from model_profiling.run.evidence import Evidence
from model_profiling.run.manifest import Manifest, Result
from model_profiling.run.metrics import Latency, Metrics, PairSpeedup
from model_profiling.run.run import Run
from model_profiling.run.series import Pair, Series
from model_profiling.run.times import Times

__all__ = [
    "Evidence",
    "Latency",
    "Manifest",
    "Metrics",
    "Pair",
    "PairSpeedup",
    "Result",
    "Run",
    "Series",
    "Times",
    "why_not_comparable",
]
