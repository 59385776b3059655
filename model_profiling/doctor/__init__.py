"""`sme2prof doctor`: whether this machine can profile, line by line, with the fix for what is missing."""

from model_profiling.doctor.checks import phone_report, program_checks
from model_profiling.doctor.examination import (
    Diagnosis,
    TargetState,
    examine,
    fetch_emulation,
    prerequisites,
)

__all__ = [
    "Diagnosis",
    "TargetState",
    "examine",
    "fetch_emulation",
    "phone_report",
    "prerequisites",
    "program_checks",
]
