"""Checks of what a run directory is made of: its files, its program, its dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.categories import Category
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.errors import FormatError, ProfilingError
from model_profiling.pipeline.journal import JOURNAL_FILE
from model_profiling.report.markdown_text import plural
from model_profiling.validation.checked_run import COMPUTE_AGAIN, MEASURE_AGAIN, CheckedRun, named
from model_profiling.workflow.run_files import ResultEntry, read_json_object
from model_profiling.check import Check, check_unless


def manifest_parses(run: CheckedRun) -> Iterator[Check]:
    if run.manifest is None:
        yield Check("manifest", "skipped", "there is none: only the dumps can be checked")
        return
    count = len(run.manifest.results)
    yield Check("manifest", "pass", f"{plural(count, 'experiment')} on {run.manifest.target.platform}")


def json_files(run: CheckedRun) -> Iterator[Check]:
    wrong = []
    paths = sorted(path for path in run.path.rglob("*.json") if ".work" not in path.parts)
    for path in paths:
        try:
            if read_json_object(path).get("schema_version") != 1:
                wrong.append(f"{path.name} has no schema_version 1")
        except ProfilingError as problem:
            wrong.append(problem.problem)
    yield check_unless(wrong, "JSON files", f"{len(paths)} parse, each with its schema_version", COMPUTE_AGAIN)


def is_finished(run: CheckedRun) -> Iterator[Check]:
    assert run.manifest is not None
    state = run.manifest.state
    wrong = [] if state in ("", "finished") else [f"the run is {state}"]
    wrong += [f"{named(one)} failed: {one.problem}" for one in run.results if one.state == "failed"]
    left = [path.name for path in run.path.rglob(".*.part")]
    if state == "finished" and ((run.path / ".work").exists() or left):
        wrong.append("half-written files were left behind")
    yield check_unless(wrong, "state", state or "finished", "continue it: sme2prof run CONFIG --resume")


def files_exist(run: CheckedRun) -> Iterator[Check]:
    missing = [
        f"{named(result)}: {name}"
        for result in run.results
        for name in _promised(result)
        if not (run.path / name).is_file()
    ]
    for name in () if run.manifest is None else ("metrics.json", JOURNAL_FILE):
        if not (run.path / name).is_file():
            missing.append(name)
    count = sum(len(_promised(result)) for result in run.results)
    yield check_unless([f"missing: {one}" for one in missing], "files", f"all {count} are there", MEASURE_AGAIN)


def program_matches(run: CheckedRun) -> Iterator[Check]:
    assert run.manifest is not None
    if run.program_path is None:
        yield Check("program", "skipped", f"{Path(run.manifest.model).name} is not here to be compared")
        return
    if not run.manifest.model_sha256:
        yield Check("program", "skipped", "the manifest has no checksum of it")
        return
    now = files.sha256(run.program_path)
    wrong = []
    if now != run.manifest.model_sha256:
        wrong.append(
            f"{run.program_path.name} is not what was measured: "
            f"SHA-256 {now[:12]}, then {run.manifest.model_sha256[:12]}"
        )
    yield check_unless(wrong, "program", f"{run.program_path.name} is what was measured", MEASURE_AGAIN)


def dumps_parse(run: CheckedRun) -> Iterator[Check]:
    wrong = [str(dump.problem) for dump in run.dumps.values() if isinstance(dump, FormatError)]
    for result in run.results:
        wrong += _wrong_counts(run, result)
    whole = run.whole_dumps
    runs = sum(dump.runs for dump in whole.values())
    if not run.dumps:
        yield Check("dumps", "skipped", "there are none")
        return
    yield check_unless(wrong, "dumps", f"{len(whole)} parse, {plural(runs, 'run')} as promised", MEASURE_AGAIN)


def _wrong_counts(run: CheckedRun, result: ResultEntry) -> Iterator[str]:
    for dump in run.dumps_of(result):
        # The analysis leaves warm-up runs out, which only runners other than the kit's put into a dump.
        if result.runs is not None and dump.runs != result.runs:
            yield f"{dump.etdump.name} holds {plural(dump.runs, 'run')}, the manifest says {result.runs}"


def dumps_close(run: CheckedRun) -> Iterator[Check]:
    if not run.whole_dumps:
        yield Check("closure", "skipped", "there is no dump to add up")
        return
    wrong = []
    for dump in run.whole_dumps.values():
        parts = dump.breakdown
        if not parts.closes:
            wrong.append(f"the parts of {dump.etdump.name} do not add up to its end-to-end time")
        if (parts.e2e <= 0).any() or (parts.framework < 0).any():
            wrong.append(f"{dump.etdump.name} holds times that cannot be")
    found = "categories, framework and unattributed time add up to end-to-end in every run"
    yield check_unless(wrong, "closure", found, "report it: the attribution is wrong for these dumps")


def same_program(run: CheckedRun) -> Iterator[Check]:
    """Whether all experiments ran one program: the same calls with as much matrix work, and the .pte's.

    Other operators may come and go with the kernels, which pack and convert in their own ways.
    """
    wrong = []
    shapes = {dump.etdump.name: _calls(dump) for dump in run.whole_dumps.values()}
    first = next(iter(shapes), "")
    for name, calls in shapes.items():
        if calls != shapes[first]:
            wrong.append(f"{name} is of another program than {first}")
    for dump in run.whole_dumps.values():
        wrong += [f"{dump.etdump.name}: {text}" for text in dump.misfits]
    if not shapes:
        yield Check("same program", "skipped", "there is no dump to compare")
        return
    yield check_unless(wrong, "same program", f"{len(shapes)} dumps make the same calls", MEASURE_AGAIN)


def _promised(result: ResultEntry) -> list[str]:
    single = (result.log, result.latency, result.kernels, result.xnntrace_log)
    return [
        *result.dumps,
        *(name for name in single if name),
        *(output.file for output in result.outputs),
    ]


def _calls(dump: DumpAnalysis) -> list[tuple[int, int, str, int]]:
    matrix = Counter(one.call for one in dump.operators if one.category in (Category.CONV, Category.GEMM))
    return [
        (node.chain_index, node.instruction_id, node.call_kind, matrix[node.call])
        for node in dump.attribution.groups[0].nodes
        if node.level == "call"
    ]
