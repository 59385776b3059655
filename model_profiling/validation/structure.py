"""Checks of what a run directory is made of: its files, its program, its dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import chain, zip_longest
from pathlib import Path

from model_profiling.analysis import operators
from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.core import files
from model_profiling.core.check import Check, check_unless
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import inside, is_regular, is_there
from model_profiling.program.category import MATRIX
from model_profiling.run import Manifest, Result, Run, Series, Times, names
from model_profiling.run.journal import TIMED, Entry
from model_profiling.run.manifest import MEASURE_AGAIN
from model_profiling.run.metrics import COMPUTE_AGAIN
from model_profiling.run.series import first_of_each
from model_profiling.runner.result import LockstepResult, read_lockstep_result, read_result

# A run directory under examination: everything is read once, when the first check needs it.

ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """One run directory and what its checks ask of it."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def run(self) -> Run:
        run = Run.open(self.path)
        if run.manifest is not None and not run.manifest.version_0:
            return run
        return Run.open(self.path, times=self._users_word())

    def _users_word(self) -> Times | None:
        """What `--times` said when the dumps were analysed: their files are to say the same."""
        try:
            entries = read_json_object(self.path / names.ANALYSIS, ANALYSE_AGAIN).get("per_etdump")
        except ProfilingError:
            return None  # that it is damaged is another check's to say
        listed = entries if isinstance(entries, list) else []
        said = [entry.get("times") for entry in listed if isinstance(entry, dict)]
        return Times.HARDWARE if Times.HARDWARE.value in said else None

    @property
    def manifest(self) -> Manifest | None:
        return self.run.manifest

    @property
    def promises_little(self) -> bool:
        """Whether nothing but its own names, or the earlier kit, tells what the run is (version 0)."""
        return self.manifest is None or self.manifest.version_0

    @property
    def results(self) -> tuple[Result, ...]:
        return self.run.results

    @cached_property
    def analysis(self) -> RunAnalysis | FormatError | None:
        """The dumps analysed; None where there are none, an error where all are damaged."""
        if not self.run.dumps:
            return None
        try:
            return analyse_run(self.run, self.run.programs())
        except FormatError as problem:
            return problem

    @property
    def damaged(self) -> tuple[FormatError, ...]:
        if isinstance(self.analysis, FormatError):
            return (self.analysis,)
        return self.analysis.damaged if self.analysis else ()

    @cached_property
    def whole_dumps(self) -> list[DumpAnalysis]:
        """Every dump that could be read, all rounds."""
        if self.analysis is None or isinstance(self.analysis, FormatError):
            return []
        return [dump for series in self.analysis.series for dump in series.rounds]

    @property
    def explained(self) -> bool:
        """Whether a program explained the operators."""
        return any(dump.graph is not None for dump in self.whole_dumps)

    def dumps_of(self, result: Result) -> list[DumpAnalysis]:
        return self._by_series.get(result.series, [])

    def dump_at(self, path: Path) -> DumpAnalysis | None:
        """The one in this file."""
        return self._by_place.get(path.resolve())

    @cached_property
    def _by_series(self) -> dict[Series, list[DumpAnalysis]]:
        found: dict[Series, list[DumpAnalysis]] = {}
        for dump in self.whole_dumps:
            found.setdefault(dump.series, []).append(dump)
        return found

    @cached_property
    def _by_place(self) -> dict[Path, DumpAnalysis]:
        return first_of_each((dump.path.resolve(), dump) for dump in self.whole_dumps)


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
    wrong += [remark.seen for remark in remarks if remark.code == operators.MISFIT]
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


# Checks of the journal: every latency in it is what the runner wrote, and what can have been.
# What a run states is computed from its journal, so a journal that was edited takes everything along. Beside
# it lies what the runner wrote of each process and launch; and turns tell more than their length: when they
# began and what CPU time they took.

_MOST_CPU = 10
"""How many times its threads' time a process may seem to have computed: systems count in ticks of their own,
and threads may spin before and after a turn."""


def journal_agrees(checked: CheckedRun) -> Iterator[Check]:
    """Whether the latencies are those that the runner wrote and, where that was not kept, can have been."""
    journal = checked.run.journal
    if journal is None:
        yield Check("journal", "skipped", "there is none")
        return
    entries = [entry for entry in journal.entries() if entry.state == "done" and entry.kind in TIMED]
    if not entries:
        yield Check("journal", "skipped", "nothing was timed")
        return
    wrong = [*_uneven(entries), *chain.from_iterable(map(_impossible, entries))]
    kept = [entry for entry in entries if entry.told]
    launches = cache(read_lockstep_result)
    for entry in kept:
        path = inside(checked.path, entry.told or "", f"{names.JOURNAL}: told")
        try:
            wrong += _unlike(entry, _told(entry, path, launches(path) if entry.launch else None))
        except ProfilingError as problem:
            wrong.append(f"{entry.told}: {problem.problem}")
    said = f"{plural(len(kept), 'process')} measured what the runner wrote"
    if wrong or len(kept) == len(entries):
        yield check_unless(wrong, "journal", said, MEASURE_AGAIN)
        return
    lacking = (
        f"of {plural(len(entries) - len(kept), 'process')} it was not kept: only what can be was checked"
    )
    yield Check("journal", "optional", f"{said}, {lacking}" if kept else f"what the runner wrote {lacking}")


def _told(entry: Entry, path: Path, launch: LockstepResult | None) -> tuple[tuple[int, ...], ...]:
    """Every inference as the runner wrote it, turn by turn; of a process by itself they are one turn."""
    if launch is None:
        return (read_result(path).iterations_ns,)
    if not 0 <= entry.told_child < len(launch.results):
        raise FormatError(f"it has no program {entry.told_child}", MEASURE_AGAIN)
    turns = zip(launch.turns.child, launch.turns.iterations_ns, strict=True)
    return tuple(taken for child, taken in turns if child == entry.told_child)


def _unlike(entry: Entry, told: Sequence[Sequence[int]]) -> Iterator[str]:
    """The first that differs, with both values."""
    ours = entry.turns_ns if entry.launch else (entry.iterations_ns,)
    if [len(turn) for turn in told] != [len(turn) for turn in ours]:
        theirs, here = (plural(sum(map(len, turns)), "inference") for turns in (told, ours))
        yield f"{_place(entry)} has {here} in {names.JOURNAL}, the runner wrote {theirs} ({entry.told})"
        return
    flat = zip(chain.from_iterable(told), chain.from_iterable(ours), strict=True)
    for number, (wrote, has) in enumerate(flat):
        if wrote != has:
            where = f"{_place(entry)}, inference {number}"
            yield f"{where} took {has} ns in {names.JOURNAL}, the runner wrote {wrote} ns ({entry.told})"
            return


def _impossible(entry: Entry) -> Iterator[str]:
    """What turns say of each other: none begins before the last has ended, and none computes more than its
    threads can."""
    if not entry.launch:
        return
    place, taken = _place(entry), [sum(turn) for turn in entry.turns_ns]
    if entry.turns_started_ns and len(entry.turns_started_ns) != len(taken):
        begun = plural(len(entry.turns_started_ns), "turn")
        yield f"{names.JOURNAL}: {place} began {begun} and took {len(taken)}"
        return
    starts = entry.turns_started_ns
    for number, (begin, following, length) in enumerate(zip(starts, starts[1:], taken, strict=False)):
        if begin + length > following:
            yield (
                f"{names.JOURNAL}: {place}, turn {number} took {length} ns, but the next one began "
                f"{following - begin} ns after it"
            )
            return
    threads = entry.threads
    if entry.use and entry.use.cpu_ns > _MOST_CPU * threads * sum(taken):
        yield (
            f"{names.JOURNAL}: {place} took {sum(taken)} ns on {plural(threads, 'thread')}, but "
            f"{entry.use.cpu_ns} ns of CPU time"
        )


def _uneven(entries: Sequence[Entry]) -> Iterator[str]:
    """Programs of one launch had a turn each in every cycle, all of one length."""
    seen: dict[str, Entry] = {}
    for entry in entries:
        if not entry.launch:
            continue
        other = seen.setdefault(entry.launch, entry)
        ours, theirs = ([len(turn) for turn in each.turns_ns] for each in (entry, other))
        if any(one != two for one, two in zip_longest(ours, theirs)):
            counts = (
                f"{sum(lengths)} of {each.series}" for each, lengths in ((entry, ours), (other, theirs))
            )
            yield f"{names.JOURNAL}: {entry.kind} round {entry.round} has {' and '.join(counts)} inferences"


def _place(entry: Entry) -> str:
    return f"{entry.kind} round {entry.round} of {entry.series}"
