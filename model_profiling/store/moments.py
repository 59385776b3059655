"""Moments as tables hold them: microseconds since 1970, in UTC."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def now() -> int:
    return time.time_ns() // 1000


def moment_of(text: str) -> int | None:
    """What a file of a run calls a moment; None where it is none."""
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"):
        try:
            told = datetime.strptime(text, form)
        except ValueError:
            continue
        return (told - _EPOCH) // _MICROSECOND if told.year >= 1970 else None
    return None


def as_moment(told: datetime) -> int:
    """Of what a store answers: a date and time without a zone, which is UTC."""
    return (told.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


def month_of(moment: int) -> str:
    """2026-11, what files are kept by."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m")
