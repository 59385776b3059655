"""The categories used in reports; backends assign operators to them (`program/delegates`)."""

from model_profiling.program.category import Category, operator_type

__all__ = ["Category", "operator_type"]
