"""Lowers PyTorch models to ExecuTorch programs; the only package that loads torch, and only when called.

`model_profiling.export(module, inputs)` is `export_model`: the package has its main function's name.
"""

import inspect
import sys
from types import ModuleType
from typing import Any

from model_profiling.export.exporter import export_model
from model_profiling.export.records import Accuracy, DelegationCoverage, Deviation, ExportResult
from model_profiling.program.graph_file import Undelegated

__all__ = ["Accuracy", "DelegationCoverage", "Deviation", "ExportResult", "Undelegated", "export_model"]
__signature__ = inspect.signature(export_model)


class _CallablePackage(ModuleType):
    def __call__(self, *given: Any, **settings: Any) -> ExportResult:  # as in __signature__
        return export_model(*given, **settings)


sys.modules[__name__].__class__ = _CallablePackage
