"""What a browser lets a reader sort, search and open: operators, modules, one run's timeline.

Each is data made once, small enough that a page stays below its limit whatever the run holds; what had to be
left out is said.
"""

from model_profiling.report.explorer.modules import explore_modules, explore_timeline
from model_profiling.report.explorer.operators import explore_operators

__all__ = ["explore_modules", "explore_operators", "explore_timeline"]
