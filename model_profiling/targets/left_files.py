"""Which files a job may leave where it runs, and how large they may be: nothing else is brought back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from model_profiling.targets.command import BOUNDARIES, ETDUMP, OUTPUTS, RESULT, child_files
from model_profiling.targets.device import energy
from model_profiling.targets.protocol import Job, LockstepJob

# The numbers of every turn of a launch that lasts a day, as text.
_RESULT_BYTES = 256 << 20
# FlatBuffers, which a dump is one of, cannot be larger.
_DUMP_BYTES = 2 << 30
# A tensor that an Arm device of today holds beside the program that made it.
_OUTPUT_BYTES = 2 << 30
MOST_FILES = 1000
"""Of one job; programs have a few outputs, those with a cache of past tokens some hundred."""
MOST_BYTES = 8 << 30
"""Of all files of one job together."""


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file's name: `start`, a number where there are `several`, and `end`."""

    start: str
    end: str
    most_bytes: int
    several: bool = False

    def is_called(self, name: str) -> bool:
        number = "[0-9]{1,3}" if self.several else ""
        return re.fullmatch(f"{re.escape(self.start)}{number}{re.escape(self.end)}", name) is not None


def left_files(job: Job, stem: str) -> tuple[LeftFile, ...]:
    """What `job` leaves besides what it prints."""
    found = [] if job.runner_path else [LeftFile(stem, RESULT, _RESULT_BYTES)]
    if job.gauge is not None:
        found.append(LeftFile(stem, energy.ENDING, energy.most_bytes(job.timeout_s)))
    return (*found, *_of_program(job, stem))


def left_files_of_launch(job: LockstepJob, stem: str) -> tuple[LeftFile, ...]:
    """What a launch leaves: its own result, and what each program was asked to keep."""
    programs = (_of_program(child, child_files(stem, number)) for number, child in enumerate(job.jobs))
    return (LeftFile(stem, RESULT, _RESULT_BYTES), *(file for files in programs for file in files))


def _of_program(job: Job, stem: str) -> list[LeftFile]:
    dump = [LeftFile(stem, ETDUMP, _DUMP_BYTES)] if job.etdump else []
    if job.etdump and job.runner_path is None:
        # Eight bytes for an operator, of which a dump holds many more.
        dump.append(LeftFile(stem, BOUNDARIES, _DUMP_BYTES))
    outputs = [LeftFile(f"{stem}{OUTPUTS}", ".bin", _OUTPUT_BYTES, several=True)] if job.save_outputs else []
    return [*dump, *outputs]
