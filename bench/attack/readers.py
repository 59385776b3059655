"""Everything of the kit that reads what others wrote, each with real files to damage and its share of inputs.

Those of run directories and programs are here, those of stores, sweeps and caches in `verb_readers`.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

from attack.kinds import OF_KINDS
from attack.reader import DATA, RUN, Reader, at, beside, found, named, replaced
from attack.verb_readers import OF_VERBS
from model_profiling.analysis.kernels import kernel_uses, read_kernels_csv
from model_profiling.compat.timelines import analyse_timeline, read_latencies
from model_profiling.config import names
from model_profiling.config.reading import load_config
from model_profiling.core.records import read_record
from model_profiling.etdump import read_boundaries, read_etdump
from model_profiling.program.delegates import delegate_named
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.flow import flow_of, input_independent
from model_profiling.program.graph_file import Undelegated, read_graph_file, read_undelegated
from model_profiling.program.pte import read_program
from model_profiling.report.data import report_data
from model_profiling.report.document import render_markdown
from model_profiling.report.html import render_html
from model_profiling.report.run_report import run_document
from model_profiling.runner.result import read_lockstep_result, read_report, read_result
from model_profiling.runner.samples import Samples, read_samples
from model_profiling.runner.xnnpack_log import read_xnntrace
from model_profiling.runs import Run
from model_profiling.runs.folders import runs_in
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.records import read_evidence, read_metrics, read_robust_stats
from model_profiling.targets.job import Job, read_own_times
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse

PROGRAM = DATA / "runs" / "programs" / "small_cnn_xnnpack_fp16.pte"
PROGRAM_SHA256 = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
EVENTS = ["Convolution (NHWC, F32) IGEMM #1", "Clamp (NC) #1"]


def _dump(data: bytes, folder: Path) -> None:
    del folder
    table = read_etdump(data)
    table.text(table.name)


def _program(data: bytes, folder: Path) -> None:
    del folder
    for method in read_program(data).methods:
        for delegate in method.delegates:
            delegate_named(delegate.backend).align(delegate.nodes, EVENTS)
        input_independent(flow_of(method))


def _record(data: bytes, folder: Path) -> None:
    del folder
    record = read_etrecord(data)
    for method in record.handles:
        record.refs_of_instruction(method, 0)


def _journal(folder: Path) -> None:
    journal = Journal(folder)
    for entry in journal.entries():
        journal.latencies_ms(entry.series, journal.rounds_of(entry.series) % 100)
        journal.turns_ms(entry.series)


def _log(data: bytes, folder: Path) -> None:
    path = folder / "runner.log"
    path.write_bytes(data)
    text = data.decode("utf-8", "replace")
    read_own_times(Job(path, warmup=1, runs=2), text, None)


def _features(data: bytes, folder: Path) -> None:
    del folder
    read_report(data.decode("utf-8", "replace"))


def _validate(data: bytes, folder: Path) -> None:
    validate(replaced(data, RUN, folder)).as_text()


def _report(data: bytes, folder: Path) -> None:
    run = Run.open(replaced(data, RUN, folder))
    blocks = run_document(report_data(run, analyse(run) if run.dumps else None, None))
    render_markdown(blocks, "pictures")
    render_html(blocks, "damaged")


def files_of_run() -> list[bytes]:
    return named(RUN, ".json", ".jsonl", ".csv", ".etdump")


def _made_dumps() -> list[bytes]:
    """Every kind of event, twice over, with and without each optional field."""
    from strategies import AllocationEvent, Block, DebugEvent, Dump, ProfileEvent

    profile = [
        ProfileEvent("Method::execute", -1, 0, -1, None, None, 10, 900),
        ProfileEvent(None, 0, 3, -1, "Convolution (NHWC, F32) IGEMM #1", b"", 20, 400),
        ProfileEvent(None, 0, 3, 12, None, b"metadata", 400, 500),
        ProfileEvent("x" * 280, 0, 4, -1, None, None, 500, 600),
    ]
    others = [AllocationEvent(1, 4096), DebugEvent("aten::add.out", 2, -1, None, True)]
    block = Block("Execute", 1, ("method", "planned"), (*profile, *others))
    made = Dump((block, block), write_defaults=False, size_prefixed=True).to_bytes()
    dumps = found("etdump/*.etdump", "runner/*.etdump", "runs/programs/*.etdump", "runs/*/*/*.etdump")()
    return [made, *(dump for dump in dumps if len(dump) < 30_000)]


def _made_records() -> list[bytes]:
    """One of everything the reader looks at, beside real ones."""
    node = {
        "name": "aten_convolution_default",
        "target": "executorch.exir.dialects.edge.ops.aten.convolution.default",
        "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}}],
        "outputs": [{"as_tensor": {"name": "aten_convolution_default"}}],
        "metadata": {
            "debug_handle": "1",
            "nn_module_stack": "L__self__,,net.Net;L__self__c1,c1,torch.nn.modules.conv.Conv2d",
            "stack_trace": 'File "net.py", line 10, in forward\n    x = self.c1(x)',
        },
    }
    tensors = {"aten_convolution_default": {"dtype": 7, "sizes": [{"as_int": 1}, {"as_int": 16}]}}
    graph = {"graph_module": {"graph": {"nodes": [node, node], "tensor_values": tensors}}}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ETRECORD_V0", "")
        archive.writestr("edge_dialect_exported_program/forward", json.dumps(graph))
        archive.writestr("debug_handle_map", json.dumps({"forward": {"0": [1, 2], "1": 3}}))
    return [stream.getvalue(), *found("runs/programs/*.etrecord")()]


def _logs() -> list[bytes]:
    """What executor_runners of several releases say, a meter's file, and the kit's own logs."""
    told = (
        "I 00:00:00.000123 executorch:executor_runner.cpp:270] Model loaded in 12.345678 ms.\n"
        "I 00:00:01.000456 executorch:executor_runner.cpp:402] Iteration 1 of 2: 3.250000 ms\n"
        "I 00:00:01.000789 executorch:executor_runner.cpp:402] Iteration 2 of 2: 3.125000 ms\n"
        "I 00:00:02.000001 executorch:executor_runner.cpp:410] Model executed successfully 2 time(s) in "
        "6.375000 ms.\n"
    )
    meter = "".join(
        f"{10 + second / 4:.2f} -{350000 + second * 1000} 3{900000 + second}\n" for second in range(40)
    )
    return [told.encode(), f"{meter}end 21.50\n".encode(), *found("runs/*/*/*.log", "xnntrace/*.log")()]


def _summaries() -> list[bytes]:
    """An export's summary with all that this kit writes about an operator, and a recorded one of before."""
    (recorded,) = found("runs/programs/small_cnn_xnnpack_fp16.pte.json")()
    summary = json.loads(recorded)
    (outside,) = summary["coverage"]["undelegated"]
    whole = Undelegated(
        **outside,
        why="refused",
        module_class="torch.nn.modules.pooling.AdaptiveAvgPool2d",
        call="aten.mean.dim",
        source="small_cnn.py:12",
        code="x = x.mean((2, 3))",
        dtype="float16",
        reads="float16",
        instruction=1,
    )
    summary["coverage"]["undelegated"] = [asdict(whole), asdict(replace(whole, replacement="x.flatten(1)"))]
    return [json.dumps(summary).encode(), recorded]


def _kept_journals() -> list[bytes]:
    """The whole journals, shortened: reading one of 100 kB takes as long as 20 dumps."""
    whole = found("runs/*/journal.jsonl", "runs/kit_0_1_0/*/journal.jsonl")()
    return [b"".join(each.splitlines(keepends=True)[:4]) for each in whole]


def _samples(path: Path) -> object:
    return read_record(Samples, path, "sample it again")


READERS: tuple[Reader, ...] = (
    Reader("etdump", "bytes", 2400, _made_dumps, _dump),
    Reader("pte", "bytes", 1700, found("etdump/*.pte", "runs/programs/*.pte"), _program),
    Reader("etrecord", "zip", 2000, _made_records, _record),
    Reader(
        "boundaries",
        "bytes",
        600,
        found("runner/*.boundaries"),
        lambda data, _folder: read_boundaries(data),
    ),
    Reader(
        "manifest",
        "json",
        400,
        found("runs/*/manifest.json", "runs/kit_0_1_0/*/manifest.json"),
        beside(names.MANIFEST, read_manifest),
    ),
    Reader(
        "metrics",
        "json",
        400,
        found("runs/*/metrics.json", "runs/kit_0_1_0/*/metrics.json"),
        at(names.METRICS, read_metrics),
    ),
    Reader("journal", "lines", 400, _kept_journals, beside(names.JOURNAL, _journal)),
    Reader("evidence", "json", 300, found("runs/*/evidence.json"), beside(names.EVIDENCE, read_evidence)),
    Reader("graph", "json", 250, found("runs/*/program_graph.json"), at(names.GRAPH, read_graph_file)),
    Reader(
        "config",
        "json",
        300,
        found("runs/*/config.json"),
        at(names.CONFIG, lambda path: load_config(path, files=False)),
    ),
    Reader(
        "result",
        "json",
        300,
        found("runner/result.json", "runner/result_kernels.json"),
        at("r.json", read_result),
    ),
    Reader("turns", "json", 200, found("runner/result_turns.json"), at("t.json", read_lockstep_result)),
    Reader("seen", "json", 150, found("runner/seen.json"), at("seen.json", read_samples)),
    Reader("samples", "json", 100, found("runner/toy_samples.json"), at("s_samples.json", _samples)),
    Reader(
        "stats",
        "json",
        100,
        found("runs/*/*/*_robust_stats.json"),
        at("x_robust_stats.json", read_robust_stats),
    ),
    Reader(
        "summary 0",
        "json",
        50,
        found("runs/*/*_pipeline_summary.json"),
        beside("m_pipeline_summary.json", lambda folder: (runs_in(folder), read_manifest(folder))),
    ),
    Reader(
        "undelegated",
        "json",
        40,
        _summaries,
        at("m.pte.json", lambda path: read_undelegated(path.with_suffix(""), PROGRAM_SHA256)),
    ),
    Reader("features", "json", 30, found("runner/result.json"), _features),
    Reader(
        "timeline",
        "text",
        50,
        found("runs/emulated_sme2/*/*_exec_all_runs_timeline.csv"),
        at("x_exec_all_runs_timeline.csv", analyse_timeline),
    ),
    Reader("kernels", "text", 50, found("runs/*/*/*_kernels.csv"), at("x_kernels.csv", read_kernels_csv)),
    Reader(
        "latencies",
        "text",
        50,
        found("runs/emulated_sme2/*/*_timeline.csv"),
        at("x.csv", read_latencies),
    ),
    Reader("log", "text", 50, _logs, _log),
    Reader(
        "xnntrace",
        "text",
        30,
        found("xnntrace/*.log"),
        at("x.log", lambda path: kernel_uses(read_xnntrace(path))),
    ),
    Reader("validate", "named", 10, files_of_run, _validate),
    Reader("report", "named", 10, files_of_run, _report),
    *OF_VERBS,
    *OF_KINDS,
)
BY_NAME = {reader.name: reader for reader in READERS}
