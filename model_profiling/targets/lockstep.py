"""Which jobs can take turns in one launch: where they cannot, whoever schedules them measures in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from model_profiling.targets.protocol import Job
from model_profiling.wording import plural

# A process that has not run yet: its program, the weights packed once more, and what every process needs.
_COPIES = 2
_EVERY_PROCESS = 64 << 20
# What stays free for everybody else.
_RESERVE = 0.1


def unfit_for_turns(jobs: Sequence[Job]) -> str | None:
    """What about these jobs no launch can do, or None."""
    if any(job.runner_path for job in jobs):
        return "an executor_runner cannot take turns"
    if any(job.kernels for job in jobs):
        return "kernels are counted in a run of their own, not in turns"
    if len({job.cpu_affinity for job in jobs}) > 1:
        return "jobs pinned to different CPUs cannot take turns"
    return None


def too_large_together(
    jobs: Sequence[Job], peaks: Mapping[Path, int], available_bytes: int | None
) -> str | None:
    """Why memory does not hold all jobs at once; None when it does, or when nobody knows.

    A program's need is the peak memory of an earlier process of it (`peaks`), or a guess from its size.
    """
    if available_bytes is None:
        return None
    need = sum(peaks.get(job.model) or job.model.stat().st_size * _COPIES + _EVERY_PROCESS for job in jobs)
    if need <= available_bytes * (1 - _RESERVE):
        return None
    return (
        f"{plural(len(jobs), 'program')} at once need about {need / 2**30:.1f} GiB of memory, "
        f"{available_bytes / 2**30:.1f} GiB is free"
    )
