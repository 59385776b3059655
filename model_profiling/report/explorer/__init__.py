"""Data that a reader sorts, searches and opens in a browser: operators, modules, one run's timeline.

It is kept small enough for the page's limit, whatever the run holds; the page says what was left out.
"""

from model_profiling.report.explorer.modules import explore_modules, explore_timeline
from model_profiling.report.explorer.operators import explore_operators

__all__ = ["explore_modules", "explore_operators", "explore_timeline"]
