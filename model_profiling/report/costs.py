"""The report's sections on memory, loading, accuracy by layer, threads, and samples inside operators."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict

from model_profiling.analysis.matching import FEWEST, InsideOperator, InsideSeries, SampledPart
from model_profiling.analysis.series_views import AtThreads, MemoryUse, ThreadCurve, thread_curve
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, capitalized, listing, milliseconds, percent, plural, size
from model_profiling.program.records import Kept, LayerNoise, NoiseByLayer
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
from model_profiling.report.charts import Row, named
from model_profiling.report.data import ReportData, spoken_of
from model_profiling.runs.costs import Loading, WeightsCache
from model_profiling.runs.records import Latency


def memory(data: ReportData) -> list[doc.Block]:
    use = memory_use(data)
    if use is None:
        return []
    peak, parts = use.memory.peak_bytes, sorted(use.memory.parts, key=lambda part: -part.bytes)
    when = "while it is loaded" if use.memory.while_loading else "in the first inference"
    rows = [(part.what, size(part.bytes), percent(part.bytes / peak)) for part in parts]
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
        doc.make_table(("what", "memory", "share"), rows, (1, 2)),
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
    warm = latency.loading
    headers = ["what", "ms", "share"]
    rows = [[part.what, milliseconds(part.ms), percent(part.ms / warm.load_ms)] for part in warm.parts]
    if warm.cold:
        headers.append("ms from the disk")
        from_disk: dict[str, float] = {part.what: part.ms for part in warm.cold.parts}
        rows = [[*row, milliseconds(from_disk.get(row[0]))] for row in rows]
    return [
        doc.Paragraph(f"{_loads(warm)}{_of(data)}. {_first(latency, warm)}"),
        _bars("loading", "What loading takes", {part.what: part.ms for part in warm.parts}, "ms"),
        doc.make_table(headers, rows, range(1, len(headers))),
        *([doc.Paragraph(_cached(warm.weights_cache))] if warm.weights_cache else ()),
    ]


def _cached(cache: WeightsCache) -> str:
    return (
        f"From a file of XNNPACK's packed weights ({size(cache.bytes)}; `packed_cache_path` among the "
        f"backend options of `load_method`), loading takes {milliseconds(cache.load_ms)} ms, not "
        f"{milliseconds(cache.without_ms)} ms: one right after the other, in one process."
    )


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
    """Return these parts of `analysis_summary.json`: null if not measured."""
    use, latency = memory_use(data), _latency(data)
    found = None
    if use is not None:
        live = [{"what": what, **asdict(peak)} for what, peak in use.live]
        found = {**asdict(use.memory), "live": live, "advice": list(use.advice)}
    noise = _noise(data)
    return {
        "memory": found,
        "loading": asdict(latency.loading) if latency and latency.loading else None,
        "threads": asdict(curve) if (curve := threads_of(data)) else None,
        "accuracy": {**asdict(noise), "suggested": noise.suggested and list(noise.suggested.layers)}
        if noise
        else None,
    }


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
            "what": named(what),
            "_label": f"{what}: {milliseconds(value)} {unit}",
            "value": round(value, 5),
        }
        for what, value in values.items()
    ]
    return draw.bars(rows, name, title, unit, names.METRICS, tip={"what": "what"})


_LAYERS = 10


def accuracy(data: ReportData) -> list[doc.Block]:
    """Show what the number format costs each layer, if the export was asked for it."""
    noise = _noise(data)
    if noise is None or not noise.layers:
        return []
    columns: tuple[doc.TableColumn[LayerNoise], ...] = (
        doc.TableColumn("layer", _layer),
        doc.TableColumn("line", lambda layer: layer.line or MISSING),
        doc.Number("its own", lambda layer: decibels(layer.own_db)),
        doc.Number("with all before it", lambda layer: decibels(layer.db)),
    )
    kept = [(_kept(each), decibels(each.snr_db)) for each in noise.kept]
    worst = noise.worst[:_LAYERS]
    bars = {_layer(layer): layer.own_db for layer in worst}
    return [
        *(doc.Paragraph(sentence) for sentence in noise_sentences(noise)),
        _bars("accuracy", "Signal-to-noise of the layers with least", bars, "dB"),
        doc.table_of(worst, columns),
        *([doc.make_table(("in fp32, exported again", "outputs"), kept, (1,))] if len(kept) > 1 else []),
    ]


def noise_sentences(noise: NoiseByLayer) -> Iterator[str]:
    """Say which layer loses most, where that begins, and what to keep in float32."""
    worst = noise.worst[0]
    yield f"Most noise of its own has {_layer(worst)}: {decibels(worst.own_db)}, the more the better."
    if noise.first is not None:
        yield f"The first result that is noise by more than a tenth is that of {_layer(noise.first)}."
    if noise.suggested is not None:
        brings = f"{decibels(noise.kept[0].snr_db)} to {decibels(noise.suggested.snr_db)}"
        yield f"{_kept(noise.suggested)} brings the outputs from {brings}: this was exported and compared."
    elif len(noise.kept) > 1:
        yield "Keeping the worst layers in fp32 brings little."


def _layer(layer: LayerNoise) -> str:
    return f'{layer.kind} "{layer.path}"'


def _kept(kept: Kept) -> str:
    return " ".join(f"--keep {path}=fp32" for path in kept.layers) or "the program as it is"


def decibels(value: float) -> str:
    return f"{value:.1f} dB"


def _noise(data: ReportData) -> NoiseByLayer | None:
    graphs = (series.graph for series in (data.analysis.series if data.analysis else ()))
    known = (graph.noise for graph in graphs if graph and graph.noise)
    return next((noise for noise in known if any(layer.path for layer in noise.layers)), None)


def threads(data: ReportData) -> list[doc.Block]:
    """Show how the latency follows the number of threads, if several were measured."""
    curve = threads_of(data)
    if curve is None:
        return []
    names_of_parts = list(curve.points[-1].by_category)

    def efficiency(name: str) -> doc.Number[AtThreads]:
        return doc.Number(name, lambda point: percent(point.by_category.get(name)))

    columns: tuple[doc.TableColumn[AtThreads], ...] = (
        doc.Number("threads", lambda point: str(point.threads)),
        doc.Number("median ms", lambda point: milliseconds(point.ms)),
        doc.Number("efficiency", lambda point: percent(point.efficiency)),
        *map(efficiency, names_of_parts),
    )
    said = [f"Use {plural(curve.recommended, 'thread')}: no other number is more than 3% faster{_of(data)}."]
    if curve.not_scaling:
        said.append(f"With {curve.points[-1].threads} these do not scale: {listing(curve.not_scaling)}.")
    if curve.sme2_shared:
        said.append("Cores of this CPU share SME2 units, which flattens the curve.")
    bars = {plural(point.threads, "thread"): point.ms for point in curve.points}
    return [
        doc.Paragraph(" ".join(said)),
        _bars("threads", "Latency by number of threads", bars, "ms"),
        doc.Folded("How each part of the time scales", (doc.table_of(curve.points, columns),)),
    ]


def threads_of(data: ReportData) -> ThreadCurve | None:
    spoken = spoken_of(data)
    if spoken is None or not data.timed:
        return None
    measured = sorted(
        (
            (each.series.threads, each.summary.median, each.dumps)
            for each in data.experiments
            if each.series.experiment == spoken.series.experiment and each.series.threads and each.summary
        ),
        key=lambda each: each[0],
    )
    on_sme2 = data.has_sme2 is True and spoken.sme2 is True
    return thread_curve(spoken.series.experiment, measured, has_sme2=on_sme2)


# Inside operators: which kernels take their time, from a sampled run.

_SAMPLED_SHOWN = 15


def inside_operators(data: ReportData) -> list[doc.Block]:
    return [block for found in data.inside for block in _sampled_series(found, data.run.series)]


def _sampled_series(found: InsideSeries, every: Collection[Series]) -> Iterator[doc.Block]:
    yield from doc.make_list(f"{capitalized(note)}." for note in found.notes)
    if not found.samples:
        return
    yield doc.Paragraph(
        f"{found.series.spoken(every)}: {plural(found.samples, 'sample')}, at most {found.hz} per second and "
        "thread, from a separate run (no latency comes from it)."
    )
    ordered = sorted(found.operators, key=lambda each: -(each.operator.typical_ms if each.operator else 0.0))
    # Under an emulator, samples prove which kernels ran, but how often says nothing.
    parts = [part for part in SampledPart if found.shown and any(part in each.parts for each in ordered)]
    columns: tuple[doc.TableColumn[InsideOperator], ...] = (
        doc.TableColumn("operator", lambda each: each.name),
        doc.Number("samples", lambda each: str(each.samples)),
        *(doc.Number(part.value, functools.partial(_part_share, part)) for part in parts),
        doc.TableColumn(
            "mostly in", lambda each: doc.Code(each.kernels[0].name) if each.kernels else MISSING
        ),
    )
    yield doc.table_of(ordered[:_SAMPLED_SHOWN], columns)
    if parts:
        yield doc.Paragraph(
            "Shares of an operator's samples: parts add up to the operator. "
            f"Below {FEWEST} samples nothing is divided."
        )


def _part_share(part: SampledPart, each: InsideOperator) -> str:
    return percent(each.parts.get(part, 0.0)) if each.enough else MISSING
