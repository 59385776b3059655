"""The categories as reports name them; which operator is of which, a backend says (`program/delegates`)."""

from model_profiling.program.category import Category, operator_type

__all__ = ["Category", "operator_type"]
