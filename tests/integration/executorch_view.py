"""What ExecuTorch's own Python readers make of dumps and programs, as JSON; run in a process of its own.

python executorch_view.py dumps DUMP[=ETRECORD]...
python executorch_view.py programs PTE...
"""

from __future__ import annotations

import json
import re
import sys
import warnings


def dumps(words: list[str]) -> dict[str, object]:
    """Every event Inspector shows: block, name, instruction id, and its duration in each run."""
    from executorch.devtools import Inspector
    from executorch.devtools.inspector import TimeScale

    found = {}
    for word in words:
        dump, _, record = word.partition("=")
        inspector = Inspector(
            etdump_path=dump,
            etrecord=record or None,
            source_time_scale=TimeScale.NS,
            target_time_scale=TimeScale.NS,
        )
        found[word] = [
            [block.name, event.name, event._instruction_id, event.perf_data.raw]
            for block in inspector.event_blocks
            for event in block.events
        ]
    return found


def programs(words: list[str]) -> dict[str, object]:
    """Each delegate's XNNPACK graph as ExecuTorch's schema compiler shows it, and each operator's name."""
    import tempfile
    from pathlib import Path

    from executorch.backends.xnnpack import serialization
    from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import XNNHeader
    from executorch.exir._serialize._flatbuffer import _flatc_decompile
    from executorch.exir._serialize._program import deserialize_pte_binary

    schema = Path(next(iter(serialization.__path__))) / "runtime_schema.fbs"
    found = {}
    for word in words:
        program = deserialize_pte_binary(Path(word).read_bytes()).program
        plan = program.execution_plan[0]
        graphs = []
        for delegate in plan.delegates:
            payload = program.backend_delegate_data[delegate.processed.index].data
            header = XNNHeader.from_bytes(payload[: XNNHeader.EXPECTED_LENGTH])
            begin = header.flatbuffer_offset
            with tempfile.TemporaryDirectory() as folder:
                binary = Path(folder) / "graph.bin"
                binary.write_bytes(payload[begin : begin + header.flatbuffer_size])
                _flatc_decompile(folder, str(schema), str(binary), ["--raw-binary", "--defaults-json"])
                text = (Path(folder) / "graph.json").read_text()
                # The schema compiler's spelling of infinity is not the JSON parser's.
                graphs.append(json.loads(re.sub(r"(-?)\binf\b", r"\1Infinity", text)))
        operators = [f"{operator.name}.{operator.overload}" for operator in plan.operators]
        found[word] = {
            "graphs": graphs,
            "operators": [
                operators[step.instr_args.op_index]
                for step in plan.chains[0].instructions
                if type(step.instr_args).__name__ == "KernelCall"
            ],
        }
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    views = {"dumps": dumps, "programs": programs}
    json.dump(views[sys.argv[1]](sys.argv[2:]), sys.stdout)
