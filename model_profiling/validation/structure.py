"""Checks of what a run directory is made of: its files, its program, its dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from model_profiling import files
from model_profiling.analysis import operator_clock
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.check import Check, check_unless
from model_profiling.errors import ProfilingError
from model_profiling.json_record import read_json_object
from model_profiling.program.category import MATRIX
from model_profiling.reading import is_regular, is_there
from model_profiling.run import names
from model_profiling.run.manifest import MEASURE_AGAIN
from model_profiling.run.metrics import COMPUTE_AGAIN
from model_profiling.validation.checked_run import CheckedRun
from model_profiling.wording import plural

_SCHEMA_VERSIONS = (1, 2, 3)


def manifest_parses(run: CheckedRun) -> Iterator[Check]:
    if run.manifest is None:
        yield Check("manifest", "skipped", "there is none: only the dumps can be checked")
        return
    count = len(run.manifest.results)
    if run.manifest.version_0:
        told = f"{plural(count, 'experiment')}, as the earlier kit tells them without a schema_version"
        if is_there(run.path / names.MANIFEST):
            yield Check("manifest", "pass", f"{told}: it promises less, so less is checked")
        else:
            yield Check("manifest", "skipped", f"there is none, only a pipeline summary: {told}")
        return
    parts = f" in {plural(len(run.manifest.parts), 'part')}" if run.manifest.earlier_parts else ""
    found = f"{plural(count, 'experiment')} on {run.manifest.target.platform}{parts}"
    yield Check("manifest", "pass", found)


def json_files(run: CheckedRun) -> Iterator[Check]:
    wrong = []
    # Files for other tools have those tools' formats.
    ours = (path for path in run.path.rglob("*.json") if run.path / names.FOR_TOOLS not in path.parents)
    # Beside a CSV file: its rows, for whoever reads JSON more easily (`etdump_to_csv.py --json`).
    records = (path for path in ours if not path.with_suffix(".csv").is_file())
    paths = sorted(path for path in records if names.WORK not in path.parts)
    versions = (*_SCHEMA_VERSIONS, None) if _of_little_promise(run) else _SCHEMA_VERSIONS
    without = 0
    for path in paths:
        try:
            version = read_json_object(path, COMPUTE_AGAIN).get("schema_version")
        except ProfilingError as problem:
            wrong.append(problem.problem)
            continue
        without += version is None
        if version not in versions:
            wrong.append(f"{path.name} has no schema_version that is known")
    each = (
        f"{without} of them the earlier kit's, without a schema_version"
        if without
        else "each with its schema_version"
    )
    yield check_unless(wrong, "JSON files", f"{len(paths)} parse, {each}", COMPUTE_AGAIN)


def _of_little_promise(run: CheckedRun) -> bool:
    try:
        return run.promises_little
    except ProfilingError:
        return False  # a manifest that cannot be read still says that the run has one


def is_finished(run: CheckedRun) -> Iterator[Check]:
    assert run.manifest is not None
    state = run.manifest.unfinished or "finished"
    stopped = run.manifest.why_unfinished
    why = f": {stopped.problem}" if stopped else ""
    wrong = [] if state == "finished" else [f"the run is {state}{why}"]
    wrong += [
        f"{result.series} failed: {result.problem}" for result in run.results if result.state == "failed"
    ]
    left = [path.name for path in run.path.rglob(".*.part")]
    if state == "finished" and ((run.path / names.WORK).exists() or left):
        wrong.append("half-written files were left behind")
    yield check_unless(wrong, "state", state, "continue it: sme2prof run CONFIG --resume")


def files_exist(run: CheckedRun) -> Iterator[Check]:
    promised = [(result, name) for result in run.results for name in result.files]
    missing = [
        f"{'not a file' if is_there(run.path / name) else 'missing'}: {result.series}: {name}"
        for result, name in promised
        if not is_regular(run.path / name)
    ]
    if not run.promises_little and not is_regular(run.path / names.JOURNAL):
        missing.append(f"missing: {names.JOURNAL}")
    found = f"all {len(promised)} are there"
    if not missing and not is_there(run.path / names.METRICS):
        fix = "" if run.promises_little else COMPUTE_AGAIN
        yield Check("files", "optional", f"{found}, but no {names.METRICS}: no figure of it is checked", fix)
        return
    yield check_unless(missing, "files", found, MEASURE_AGAIN)


def program_matches(run: CheckedRun) -> Iterator[Check]:
    """Whether what explains the operators, and the program if it is at hand, are what was measured."""
    manifest = run.manifest
    assert manifest is not None
    if not manifest.model_sha256:
        yield Check("program", "skipped", "the manifest has no checksum of it")
        return
    seen = {dump.graph.sha256 for dump in run.whole_dumps if dump.graph and dump.graph.sha256}
    wrong = []
    if seen - {manifest.model_sha256}:
        wrong.append(f"{names.GRAPH} is of another program than the one that was measured")
    path, name = run.run.programs().named(), Path(manifest.model).name
    if path is not None and (now := files.sha256(path)) != manifest.model_sha256:
        then = manifest.model_sha256[:12]
        wrong.append(f"{name} is not what was measured: SHA-256 {now[:12]}, then {then}")
    if not wrong and not seen and path is None:
        yield Check("program", "skipped", f"{name} is not here to be compared")
        return
    yield check_unless(wrong, "program", f"{name} is what was measured", MEASURE_AGAIN)


def dumps_parse(run: CheckedRun) -> Iterator[Check]:
    wrong = [problem.problem for problem in run.damaged] + [*_wrong_runs(run), *_uneven_launches(run)]
    remarks = (remark for dump in run.whole_dumps for remark in dump.warnings)
    wrong += [remark.seen for remark in remarks if remark.code == operator_clock.MISFIT]
    if not run.run.dumps:
        yield Check("dumps", "skipped", "there are none")
        return
    runs = sum(dump.runs for dump in run.whole_dumps)
    found = f"{len(run.whole_dumps)} parse, {plural(runs, 'run')} as promised"
    yield check_unless(wrong, "dumps", found, MEASURE_AGAIN)


def _wrong_runs(run: CheckedRun) -> Iterator[str]:
    for result in run.results:
        length = result.etdump_turn_length
        for dump in run.dumps_of(result):
            held = f"{dump.path.name} holds {plural(dump.attribution.runs_in_file, 'run')}"
            if length and dump.attribution.runs_in_file % length:
                yield f"{held}, which is no whole number of turns of {length}"
            # Cycles follow from the model's speed. The analysis leaves warm-up runs out, which only runners
            # other than the kit's put into a dump.
            if not length and result.runs is not None and dump.runs != result.runs:
                held = f"{dump.path.name} holds {plural(dump.runs, 'run')}"
                yield f"{held}, the manifest says {result.runs}"


def _uneven_launches(run: CheckedRun) -> Iterator[str]:
    """Experiments of one launch had a turn each in every cycle; only then do turns belong together."""
    seen: dict[tuple[tuple[str, ...], str], DumpAnalysis] = {}
    for result in run.results:
        together = run.manifest.part_of(result.experiment).experiments if run.manifest else ()
        for dump in run.dumps_of(result) if result.etdump_turn_length else ():
            first = seen.setdefault((together, dump.dump.met), dump)
            if _turns(dump) != _turns(first):
                ours, theirs = (f"{one.path.name} has {plural(_turns(one), 'turn')}" for one in (first, dump))
                yield f"{ours}, {theirs}: they are not of one launch"


def _turns(dump: DumpAnalysis) -> int:
    return int(dump.turns[-1]) + 1


def dumps_close(run: CheckedRun) -> Iterator[Check]:
    if not run.whole_dumps:
        yield Check("closure", "skipped", "there is no dump to add up")
        return
    wrong = []
    for dump in run.whole_dumps:
        parts = dump.breakdown
        if not parts.closes:
            wrong.append(f"the parts of {dump.path.name} do not add up to its end-to-end time")
        if (parts.e2e <= 0).any() or (parts.framework < 0).any():
            wrong.append(f"{dump.path.name} holds times that cannot be")
    found = "categories, framework and unattributed time add up to end-to-end in every run"
    yield check_unless(wrong, "closure", found, "report it: the attribution is wrong for these dumps")


def same_program(run: CheckedRun) -> Iterator[Check]:
    """Whether all experiments ran one program: the same calls with as much matrix work, and the .pte's.

    Other operators may come and go with the kernels, which pack and convert in their own ways.
    """
    if not run.whole_dumps:
        yield Check("same program", "skipped", "there is no dump to compare")
        return
    first, *others = run.whole_dumps
    made = _calls(first)
    wrong = [
        f"{dump.path.name} is of another program than {first.path.name}"
        for dump in others
        if _calls(dump) != made
    ]
    wrong += [f"{dump.path.name}: {text}" for dump in run.whole_dumps for text in dump.misfits]
    found = f"{len(run.whole_dumps)} dumps make the same calls"
    yield check_unless(wrong, "same program", found, MEASURE_AGAIN)


def _calls(dump: DumpAnalysis) -> list[tuple[int, int, str, int]]:
    matrix = Counter(operator.call for operator in dump.operators if operator.category in MATRIX)
    return [
        (node.chain_index, node.instruction_id, node.call_kind, matrix[node.call])
        for node in dump.attribution.groups[0].nodes
        if node.level == "call"
    ]
