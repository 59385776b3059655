"""The page of a store of runs: models and devices, every latency over the runs, what changed, each report."""

from model_profiling.report.store_index.page import render_store
from model_profiling.report.store_index.records import (
    Change,
    Kernels,
    Mark,
    Method,
    Point,
    SeriesHistory,
    StoreContents,
    StoredRun,
)

__all__ = [
    "Change",
    "Kernels",
    "Mark",
    "Method",
    "Point",
    "SeriesHistory",
    "StoreContents",
    "StoredRun",
    "render_store",
]
