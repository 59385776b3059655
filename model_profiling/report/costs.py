"""The report's sections on memory and loading: what makes the peak, and what takes the time until the first
answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from model_profiling.analysis.costs import MemoryUse
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, percent, plural, size
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
from model_profiling.report.charts import Row, band, layer, named
from model_profiling.report.data import ReportData, spoken_of
from model_profiling.runs.costs import Loading, MemoryPart, TimePart
from model_profiling.runs.metrics import Latency

_DELEGATES = 8


def memory(data: ReportData) -> list[doc.Block]:
    use = memory_use(data)
    if use is None:
        return []
    peak, parts = use.memory.peak_bytes, sorted(use.memory.parts, key=lambda part: -part.bytes)
    when = "while it is loaded" if use.memory.while_loading else "in the first inference"
    columns: tuple[doc.Column[MemoryPart], ...] = (
        doc.Column("what", lambda part: part.what),
        doc.Number("memory", lambda part: size(part.bytes)),
        doc.Number("share", lambda part: percent(part.bytes / peak)),
    )
    live = [
        (what, size(tensor.bytes), tensor.layer or MISSING, tensor.line or MISSING)
        for what, peak in use.live
        for tensor in peak.tensors
        if tensor.bytes > peak.bytes / 100
    ]
    header = ("in", "tensor", "computed by", "line")
    return [
        doc.Paragraph(f"The process has most memory, {size(peak)}, {when}{_of(data)}."),
        _bars("memory", "What the memory is for", {part.what: part.bytes / 2**20 for part in parts}, "MiB"),
        doc.table_of(parts, columns),
        *doc.make_list(f"{text}." for text in use.advice),
        *(
            [doc.Folded("What lives there when they are fullest", (doc.make_table(header, live),))]
            if live
            else []
        ),
    ]


def loading(data: ReportData) -> list[doc.Block]:
    latency = _latency(data)
    if latency is None or latency.loading is None:
        return []
    warm, cold = latency.loading, latency.loading.cold
    from_disk = {part.what: part.ms for part in cold.parts} if cold else {}
    cold_column = doc.Number[TimePart](
        "ms from the disk", lambda part: milliseconds(from_disk.get(part.what))
    )
    columns: tuple[doc.Column[TimePart], ...] = (
        doc.Column("what", lambda part: part.what),
        doc.Number("ms", lambda part: milliseconds(part.ms)),
        doc.Number("share", lambda part: percent(part.ms / warm.load_ms)),
        *((cold_column,) if cold else ()),
    )
    return [
        doc.Paragraph(f"{_loads(warm)}{_of(data)}. {_first(latency, warm)}"),
        _bars("loading", "What loading takes", {part.what: part.ms for part in warm.parts}, "ms"),
        doc.table_of(warm.parts, columns),
        *_delegates(data, warm),
    ]


def _delegates(data: ReportData, warm: Loading) -> list[doc.Block]:
    """Show the delegates that take longest to pack, if there are several."""
    use = memory_use(data)
    layers = use.packing_layers if use and len(warm.packing_ms) == len(use.packing_layers) else ()
    if use is None or len(layers) < 2:
        return []
    packed = zip(range(len(layers)), warm.packing_ms, use.memory.packed_bytes, layers, strict=True)
    rows = [
        (str(number), milliseconds(ms), size(nbytes), layer or MISSING)
        for number, ms, nbytes, layer in sorted(packed, key=lambda each: -each[1])[:_DELEGATES]
    ]
    header = ("delegate", "packing ms", "packed", "its heaviest layer")
    return [doc.Folded("The delegates that take longest to pack", (doc.make_table(header, rows, (1, 2)),))]


def _loads(warm: Loading) -> str:
    said = f"Loading takes {milliseconds(warm.load_ms)} ms with {plural(warm.page_faults, 'page fault')}"
    if warm.cold is None:
        return f"{said}; {warm.no_cold}"
    waited = plural(warm.cold.pages_from_disk, "wait")
    return f"{said}, and {milliseconds(warm.cold.load_ms)} ms from the disk, with {waited} for it"


def _first(latency: Latency, warm: Loading) -> str:
    if latency.first_inference_ms is None:
        return ""
    later = (
        f"; later ones take {milliseconds(latency.end_to_end_ms.median)} ms" if latency.end_to_end_ms else ""
    )
    return (
        f"The first inference takes {milliseconds(latency.first_inference_ms)} ms, of which XNNPACK plans "
        f"and clears its workspace for {milliseconds(warm.first_set_up_ms)} ms, with "
        f"{plural(warm.first_page_faults, 'page fault')}{later}."
    )


def cost_facts(data: ReportData) -> dict[str, object]:
    """Return `memory` and `loading` of `analysis_summary.json`: null if not measured."""
    use, latency = memory_use(data), _latency(data)
    found = None
    if use is not None:
        live = [{"what": what, **asdict(peak)} for what, peak in use.live]
        found = {**asdict(use.memory), "live": live, "advice": list(use.advice)}
    return {"memory": found, "loading": asdict(latency.loading) if latency and latency.loading else None}


def memory_use(data: ReportData) -> MemoryUse | None:
    spoken, latency = spoken_of(data), _latency(data)
    if spoken is None or latency is None or latency.memory is None:
        return None
    graph = spoken.dumps.graph if spoken.dumps else None
    return MemoryUse(latency.memory, graph, data.run.whole.manifest.method if data.run.whole.manifest else "")


def _latency(data: ReportData) -> Latency | None:
    """Return the figures of the series that the first answer is about."""
    spoken = spoken_of(data)
    return spoken.latency if spoken and data.timed else None


def _of(data: ReportData) -> str:
    spoken = spoken_of(data)
    said = [str(spoken.series)] if spoken and len(data.run.series) > 1 else []
    said += ["on a CPU that is not Arm"] if data.is_arm is False else []
    return f" ({', '.join(said)})" if said else ""


def _bars(name: str, title: str, values: Mapping[str, float], unit: str) -> doc.Chart:
    rows: list[Row] = [
        {
            **band(place, 0.48, 0.9),
            "what": named(what),
            "_label": f"{what}: {milliseconds(value)} {unit}",
            "value": round(value, 5),
        }
        for place, (what, value) in enumerate(values.items())
    ]
    tip = {"what": "what", "value": unit}
    layers = [layer("rows", "bar", x="_zero", x2="value", **draw.BOX, color=draw.series_colour(0), tip=tip)]
    spec = draw.labelled({"rows": rows}, layers, draw.axis(unit))
    return doc.Chart(name, title, draw.sentence(rows), spec, names.METRICS)
