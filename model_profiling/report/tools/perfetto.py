"""A Perfetto trace, by Perfetto's own definitions: a process for each experiment, a track for each run,
nested slices with what is known about every operator.

Times are those of the dumps, on the machine's clock if the journal has it. Times that mean nothing (of an
emulator, or of a run that traces kernels) are left out: slices then keep their order and nesting, and are all
equally wide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from model_profiling._version import __version__
from model_profiling.analysis.event_views import RunSlices, Slice, clock_origins, slice_runs
from model_profiling.analysis.headroom import proven_on_sme
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.core import files
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.facts.operators import OPERATOR_FACTS, OperatorRow
from model_profiling.report.data import ReportData
from model_profiling.report.tools import no_dumps, whole_text
from model_profiling.runs import Times

FILE = "trace.pftrace"
_MOST_SLICES = 200_000
"""A larger trace is slow to make and to view; then only some runs are chosen, and the trace says how many."""
_STEP_NS = 1000
"""Width of a slice where only the order is shown."""

Argument = str | int | float | bool


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    if data.analysis is None:
        raise no_dumps(data)
    definitions = needed("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "tools")
    path = folder / FILE
    with files.replacing(path) as part, part.open("wb") as stream:
        _Trace(definitions, stream).write(data)
    return (path,)


def times_note(times: Times) -> str:
    """What the widths of slices mean, for a process's name; empty if they are what one expects."""
    if times is Times.UNKNOWN:
        return "times as recorded on an unknown machine"
    return "" if times.are_shown else f"times are {times.value}: order only, widths mean nothing"


def arguments(operator: Operator) -> dict[str, Argument]:
    row = OperatorRow(operator, 0.0, 0.0)
    known = {fact.name.replace("_", " "): fact.cell(row) for fact in OPERATOR_FACTS if not fact.timed}
    return {name: value for name, value in known.items() if value is not None and value != ""}


class _Trace:
    def __init__(self, definitions: Any, stream: BinaryIO) -> None:
        self.pb: Any = definitions
        self.stream = stream
        self.interned: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Texts by kind that were written once and are then named by number."""
        self.uuid = 0
        """Of the newest track."""
        self.begun = False

    def write(self, data: ReportData) -> None:
        assert data.analysis is not None
        series = data.analysis.series
        origins = clock_origins(data.run, series)
        dumps = [dump for found in series for dump in found.rounds if found.times.are_shown]
        one_clock = bool(dumps) and all(dump.path in origins for dump in dumps)
        zeros = origins if one_clock else dict.fromkeys((dump.path for dump in dumps), 0)
        start = min((zeros[dump.path] + _first_start(dump) for dump in dumps), default=0)
        shift = max(0, -start)  # a damaged dump may begin before its clock does
        slices = sum(len(found.first.attribution.groups[0].nodes) * found.runs for found in series)
        share = min(1.0, _MOST_SLICES / max(1, slices))
        if one_clock:
            clock = self.pb.BUILTIN_CLOCK_MONOTONIC
            snapshot = {
                "primary_trace_clock": clock,
                "clocks": [{"clock_id": clock, "timestamp": start + shift}],
            }
            self._put(self.pb.TracePacket(timestamp=start + shift, clock_snapshot=snapshot))
        self._about(data, one_clock, share, start + shift)
        for number, found in enumerate(series, start=1):
            most = max(1, int(found.runs * share))
            process = self._process(found, number, most)
            pattern = self._patterns(found, proven_on_sme(found, data.outlook.coverage))
            for rank, run in enumerate(slice_runs(found, most)):
                offset = shift + (zeros[run.dump.path] if found.times.are_shown else start)
                self._track(_run_name(found, run), parent_uuid=process, sibling_order_rank=rank)
                self._run(run, found.times.are_shown, offset, pattern)

    def _about(self, data: ReportData, one_clock: bool, share: float, at: int) -> None:
        manifest = data.run.manifest
        clock = (
            "the machine's monotonic clock: runs stand when they were made, programs alternate in turns"
            if one_clock
            else "each process counts from its own start: runs of different processes did not overlap"
        )
        facts: dict[str, Argument] = {
            "model": data.model,
            "cpu": data.cpu,
            "program SHA-256": manifest.model_sha256 if manifest else "",
            "times": f"from {data.times.origin}",
            "clock": clock,
            "runs shown": "every run that counts"
            if share == 1.0
            else f"one in {1 / share:.1f}, evenly chosen",
            "made by": f"sme2prof {__version__}",
        }
        self._track("About this trace")
        packet = self._event(at, self.pb.TrackEvent.TYPE_INSTANT)
        packet.track_event.name_iid = self._iid(packet, "event_names", f"About {data.title}")
        self._annotate(packet, packet.track_event, {name: value for name, value in facts.items() if value})
        self._put(packet)

    def _process(self, series: SeriesAnalysis, number: int, most: int) -> int:
        self.uuid += 1
        note = times_note(series.times)
        runs = f"{most} of {plural(series.runs, 'run')}" if most < series.runs else plural(series.runs, "run")
        threads = plural(series.series.threads, "thread") if series.series.threads else ""
        # Viewers show the process number after the name: brackets keep the two apart.
        details = "; ".join(text for text in (threads, note) if text)
        name = f"{series.series.experiment} ({details})" if details else series.series.experiment
        described = {
            "uuid": self.uuid,
            "process": {"pid": number, "process_name": whole_text(name), "process_labels": [runs]},
            "child_ordering": self.pb.TrackDescriptor.EXPLICIT,
            "description": f"{runs} with the event tracer on. {note}".strip(),
        }
        self._put(self.pb.TracePacket(track_descriptor=described))
        return self.uuid

    def _track(self, name: str, **more: int) -> None:
        """Begin the track for the events that follow."""
        self.uuid += 1
        alone = self.pb.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
        described = {"uuid": self.uuid, "name": name, "sibling_merge_behavior": alone, **more}
        self._put(self.pb.TracePacket(track_descriptor=described))

    def _run(self, run: RunSlices, timed: bool, offset: int, pattern: Callable[[Any, Slice], Any]) -> None:
        open_ends: list[tuple[int, int]] = []
        placed = ((found, found.begin_ns, found.end_ns) for found in run.slices)
        for found, begin, end in placed if timed else _in_order(run.slices):
            self._close(open_ends, found.depth, offset)
            packet = self._event(begin + offset, self.pb.TrackEvent.TYPE_SLICE_BEGIN)
            packet.track_event.MergeFrom(pattern(packet, found))
            if timed:
                own: dict[str, Argument] = {"self time ns": found.self_ns}
                if found.duration_ns != found.end_ns - found.begin_ns:
                    own["recorded duration ns"] = found.duration_ns
                self._annotate(packet, packet.track_event, own)
            self._put(packet)
            open_ends.append((found.depth, end))
        self._close(open_ends, 0, offset)

    def _close(self, open_ends: list[tuple[int, int]], depth: int, offset: int) -> None:
        while open_ends and open_ends[-1][0] >= depth:
            self._put(self._event(open_ends.pop()[1] + offset, self.pb.TrackEvent.TYPE_SLICE_END))

    def _patterns(self, series: SeriesAnalysis, proven: Mapping[int, str]) -> Callable[[Any, Slice], Any]:
        """Return a function for the part of an event that is the same in every run; it interns new texts."""
        made: dict[int, Any] = {}

        def pattern(packet: Any, found: Slice) -> Any:
            if id(found.node) in made:
                return made[id(found.node)]
            event, operator = self.pb.TrackEvent(), found.operator
            event.name_iid = self._iid(packet, "event_names", found.node.name)
            category = operator.category.value if operator else found.node.level
            event.category_iids.append(self._iid(packet, "event_categories", category))
            known: dict[str, Argument] = {}
            if operator is not None:
                known = arguments(operator)
                if sme := proven.get(series.place(operator)):
                    known["runs on"] = sme
                place = operator.source.place
                if place.file and place.line:
                    at = {"file_name": whole_text(place.file), "line_number": place.line}
                    event.source_location_iid = self._iid(
                        packet, "source_locations", f"{place.file}:{place.line}", **at
                    )
            elif found.node.level == "method":
                known = {"experiment": series.name, "times": f"from {series.times.origin}"}
            if found.node.call >= 0:
                known["call"] = found.node.call
            self._annotate(packet, event, known)
            made[id(found.node)] = event
            return event

        return pattern

    def _annotate(self, packet: Any, event: Any, known: Mapping[str, Argument]) -> None:
        for name, value in known.items():
            told = event.debug_annotations.add(name_iid=self._iid(packet, "debug_annotation_names", name))
            match value:
                case bool():
                    told.bool_value = value
                case int():
                    told.int_value = value
                case float():
                    told.double_value = value
                case str():
                    text = whole_text(value).encode()
                    kind = "debug_annotation_string_values"
                    told.string_value_iid = self._iid(packet, kind, value, str=text)

    def _iid(self, packet: Any, kind: str, text: str, **fields: object) -> int:
        kept = self.interned[kind]
        if text not in kept:
            kept[text] = len(kept) + 1
            entry = fields or {"name": whole_text(text)}
            getattr(packet.interned_data, kind).add(iid=kept[text], **entry)
        return kept[text]

    def _event(self, at: int, kind: int) -> Any:
        return self.pb.TracePacket(timestamp=at, track_event={"type": kind, "track_uuid": self.uuid})

    def _put(self, packet: Any) -> None:
        packet.trusted_packet_sequence_id = 1
        flags = self.pb.TracePacket
        packet.sequence_flags = flags.SEQ_NEEDS_INCREMENTAL_STATE
        if not self.begun:
            packet.sequence_flags |= flags.SEQ_INCREMENTAL_STATE_CLEARED
            self.begun = True
        self.stream.write(self.pb.Trace(packet=[packet]).SerializeToString())


def _run_name(series: SeriesAnalysis, run: RunSlices) -> str:
    """Numbers are padded to the same length, because Perfetto's page sorts tracks by name."""
    rounds = len(str(max(dump.dump.round for dump in series.rounds) + 1))
    runs = len(str(max(dump.attribution.runs_in_file for dump in series.rounds)))
    return f"{series.unit} {run.dump.dump.round + 1:0{rounds}}, run {run.number + 1:0{runs}}"


def _in_order(slices: tuple[Slice, ...]) -> Iterator[tuple[Slice, int, int]]:
    """Give one step to each slice that holds no other, whatever time it took."""
    depths = [found.depth for found in slices]
    leaves = [after <= depth for depth, after in zip(depths, (*depths[1:], -1), strict=True)]
    begins, at = [], 0
    for leaf in leaves:
        begins.append(at)
        at += _STEP_NS if leaf else 0
    for place, found in enumerate(slices):
        inside = place + 1
        while inside < len(slices) and slices[inside].depth > found.depth:
            inside += 1
        yield found, begins[place], begins[inside] if inside < len(slices) else at


def _first_start(dump: DumpAnalysis) -> int:
    return min(int(group.start_ns[:, -1].min()) for group in dump.attribution.groups)
