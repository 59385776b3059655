"""`sme2prof doctor`: whether this machine can profile, line by line, with the fix for what is missing."""

from model_profiling.check import Check
from model_profiling.doctor.examination import examine, prerequisites
from model_profiling.doctor.records import Diagnosis, TargetState

__all__ = ["Check", "Diagnosis", "TargetState", "examine", "prerequisites"]
