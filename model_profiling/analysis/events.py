"""Every event of every dump of a run as columns, one dump after another, so that no two are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_profiling.analysis.operator_clock import read_timed
from model_profiling.errors import FormatError
from model_profiling.run.opened import Dump, Run

Column = NDArray[np.int32] | NDArray[np.int64] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DumpEvents:
    """The events of one dump in file order: the columns of `EventTable.to_pandas` under the same names, with
    the most exact times there are."""

    dump: Dump
    texts: tuple[str, ...]
    coded: Mapping[str, NDArray[np.int32]]
    """Columns of text, as places in `texts`; -1 where there is none."""
    numbers: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.numbers["run_index"])


def read_events(run: Run) -> Iterator[DumpEvents]:
    """Of each dump that can be read; what cannot is said by the run's analysis."""
    for dump in run.dumps:
        try:
            table = read_timed(dump.path).table
        except FormatError:
            continue
        yield DumpEvents(
            dump=dump,
            texts=table.names,
            coded={
                "block": table.blocks.name[table.block],
                "name": table.name,
                "delegate_name": table.delegate_name,
            },
            numbers={
                "run_index": table.run_index,
                "start_ns": table.start_ns,
                "end_ns": table.end_ns,
                "duration_ns": table.duration_ns,
                "instruction_id": table.instruction_id,
                "delegate_id": table.delegate_id,
                "is_delegated": table.is_delegated,
                "chain_index": table.chain_index,
                "block_index": table.block,
            },
        )
