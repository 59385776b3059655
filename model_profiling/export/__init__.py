"""Lowers PyTorch models to ExecuTorch programs; the only package that loads torch, and only when called."""

from model_profiling.export.exporter import export_model
from model_profiling.export.records import Accuracy, Coverage, Deviation, ExportResult
from model_profiling.program.graph_file import Undelegated

__all__ = ["Accuracy", "Coverage", "Deviation", "ExportResult", "Undelegated", "export_model"]
