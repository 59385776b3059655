"""SME2 ExecuTorch Profiling Kit: where the time goes, what SME2 changes, what to do next.

The names in `__all__` are the public API; each is loaded when first used, so importing the package costs
nothing. Everything else is private and may change. From here on, `import executorch` finds the installed
wheel.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# A script of a clone that a Python outside of any environment started continues in the clone's .venv. Whether
# a Python can install the kit is asked of that Python itself.
if (
    Path(sys.argv[0]).is_file()
    and Path(__file__).resolve().parent in Path(sys.argv[0]).resolve().parents
    and sys.prefix == sys.base_prefix
    and "--prerequisites" not in sys.argv
    and (_OWN := Path(__file__).resolve().parents[1] / ".venv" / "bin" / "python").is_file()
    and _OWN.parent != Path(sys.executable).parent
):
    os.execv(_OWN, [str(_OWN), *sys.argv])  # noqa: S606

# Before anything is imported that an older Python cannot read.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.stderr.write(
        f"error: this is Python {sys.version.split()[0]}; the kit needs 3.10 to 3.13: install one (brew "
        "install python@3.12, apt install python3 python3-venv), then setup_repo.sh --python python3.12\n"
    )
    sys.exit(2)

from model_profiling._version import __version__ as __version__
from model_profiling.core.hints import import_only_the_wheel

if TYPE_CHECKING:
    from model_profiling.analysis.run import RunAnalysis
    from model_profiling.core.errors import ProfilingError
    from model_profiling.etdump import EventTable, read_etdump
    from model_profiling.export import ExportResult, export_model
    from model_profiling.export import export_model as export
    from model_profiling.models import EagerModelBase, register_model
    from model_profiling.report.comparison import Comparison
    from model_profiling.report.tables import AnalysedRun, Records
    from model_profiling.store.database import Limits
    from model_profiling.store.labels import Labels
    from model_profiling.store.store import Answer, Store
    from model_profiling.targets import TargetChoice
    from model_profiling.workflow.analyse import analyse, write_analysis
    from model_profiling.workflow.compare import compare
    from model_profiling.workflow.dtypes import DtypesOutcome
    from model_profiling.workflow.language import LanguageOutcome
    from model_profiling.workflow.measure import RunOutcome
    from model_profiling.workflow.optimize import OptimizeOutcome
    from model_profiling.workflow.profile import ProfileOutcome
    from model_profiling.workflow.python_api import optimize, profile, profile_llm

__all__ = [
    "AnalysedRun",
    "Answer",
    "Comparison",
    "DtypesOutcome",
    "EagerModelBase",
    "EventTable",
    "ExportResult",
    "Labels",
    "LanguageOutcome",
    "Limits",
    "OptimizeOutcome",
    "ProfileOutcome",
    "ProfilingError",
    "Records",
    "RunAnalysis",
    "RunOutcome",
    "Store",
    "TargetChoice",
    "analyse",
    "compare",
    "export",
    "export_model",
    "optimize",
    "profile",
    "profile_llm",
    "read_etdump",
    "register_model",
    "write_analysis",
]

_ROOMS = {
    "analysis.run": "RunAnalysis",
    "core.errors": "ProfilingError",
    "etdump": "EventTable read_etdump",
    "export": "ExportResult export_model",
    "models": "EagerModelBase register_model",
    "report.comparison": "Comparison",
    "report.tables": "AnalysedRun Records",
    "store.database": "Limits",
    "store.labels": "Labels",
    "store.store": "Answer Store",
    "targets": "TargetChoice",
    "workflow.analyse": "analyse write_analysis",
    "workflow.compare": "compare",
    "workflow.dtypes": "DtypesOutcome",
    "workflow.language": "LanguageOutcome",
    "workflow.measure": "RunOutcome",
    "workflow.optimize": "OptimizeOutcome",
    "workflow.profile": "ProfileOutcome",
    "workflow.python_api": "optimize profile profile_llm",
}
_PLACES = {name: room for room, names in _ROOMS.items() for name in names.split()}

import_only_the_wheel()


def __getattr__(name: str) -> object:
    if name == "export":  # a room that is callable: importing anything in it gives it this name, too
        return importlib.import_module(f"{__name__}.export")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
