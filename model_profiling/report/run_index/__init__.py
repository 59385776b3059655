"""A page that lists many runs: one table for each model and format, a line and a link for each run."""

from model_profiling.report.run_index.page import render_index
from model_profiling.report.run_index.rows import IndexRow, damaged_row, index_row

__all__ = ["IndexRow", "damaged_row", "index_row", "render_index"]
