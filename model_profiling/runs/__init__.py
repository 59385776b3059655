"""The run directory: its records and their JSON, its file names, and the decisions made about it.

The run stores which series exist, which pairs are compared, whether they are comparable and what their times
mean. Other packages open the run and read these answers.
"""

from model_profiling.config.series import Pair, Series
from model_profiling.runs.manifest import Manifest, Result
from model_profiling.runs.records import Evidence, Latency, Metrics, PairSpeedup
from model_profiling.runs.run import Run
from model_profiling.runs.times import Times, why_not_comparable

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
