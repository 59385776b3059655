"""`sme2prof doctor`: whether this machine can profile, line by line, with the fix for what is missing."""

from model_profiling.doctor.devices import DEVICES, Device, device_lines
from model_profiling.doctor.examination import (
    Diagnosis,
    TargetState,
    examine,
    fetch_emulation,
    prerequisites,
)

__all__ = [
    "DEVICES",
    "Device",
    "Diagnosis",
    "TargetState",
    "device_lines",
    "examine",
    "fetch_emulation",
    "prerequisites",
]
