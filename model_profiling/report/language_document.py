"""The page `llm.md` and its table in the terminal: prompt and answer of a language model."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.core.formatting import MISSING, milliseconds, percent, short_rate, size
from model_profiling.program.category import Category
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
from model_profiling.report.language import (
    LAYERS,
    NOT_PART,
    Language,
    LanguageCase,
    PhaseLatency,
)


def language_document(found: Language) -> list[doc.Block]:
    chart = _rate_chart(found)
    return [
        doc.Heading(f"{found.model}: prompt and answer", 1),
        doc.Answers(found.answers),
        *([chart] if chart else []),
        doc.Heading("Prompt and answer side by side"),
        language_table(found),
        *doc.make_list(_notes(found)),
        *_parts(found),
        *_layers(found),
        doc.Heading("Runs"),
        doc.make_table(
            ("case", "method", "report", "first finding"),
            [
                (case.name, case.method, doc.Link("report", f"{case.run}/report.html"), case.next or MISSING)
                for case in found.cases
            ],
        ),
    ]


def language_table(found: Language) -> doc.Block:
    """One row for each case; SME2 on and off are columns if both were measured."""
    sides = list(
        dict.fromkeys((each.experiment, each.threads) for case in found.cases for each in case.latencies)
    )
    headers = ["case"]
    for experiment, threads in sides:
        name = _side(found, experiment, threads) if len(sides) > 1 else ""
        headers += [f"{what}, {name}" if name else what for what in ("ms", "tokens/s")]
    rows = []
    for case in found.cases:
        row = [case.name]
        known = {(each.experiment, each.threads): each for each in case.latencies}
        for side in sides:
            row += _cells(case, known.get(side))
        row.append(_sme2_cell(case))
        rows.append(row)
    headers.append("SME2")
    return doc.make_table(headers, rows, numbers=range(1, len(headers) - 1))


def _side(found: Language, experiment: str, threads: int) -> str:
    sme2 = {each.sme2 for case in found.cases for each in case.latencies if each.experiment == experiment}
    word = {True: "SME2 on", False: "SME2 off"}.get(next(iter(sme2), None), experiment)  # type: ignore[arg-type]
    many = len({each.threads for case in found.cases for each in case.latencies}) > 1
    return f"{word}{f', {threads} threads' if many else ''}"


def _cells(case: LanguageCase, latency: PhaseLatency | None) -> list[str]:
    if latency is None:
        return [MISSING, MISSING]
    return [
        milliseconds(latency.median_ms),
        latency.rate(case.tokens, unit=""),
    ]


def _sme2_cell(case: LanguageCase) -> str:
    if case.speedup is not None and case.speedup.ratio is not None:
        return case.speedup.in_short
    told = []
    if case.projected:
        told.append(f"projected {case.projected[0]:.2f}x to {case.projected[1]:.2f}x")
    if case.sme2_operators:
        told.append(f"{case.sme2_operators[0]} of {case.sme2_operators[1]} matrix operators")
    return "; ".join(told) or "not tested"


def _notes(found: Language) -> Iterator[str]:
    if found.timed:
        yield f"Measured on {found.cpu}. The brackets are 95% intervals."
    yield "The time of a prompt is the time to the first token. " + NOT_PART
    yield (
        f"The KV cache holds {found.context} tokens. Every inference starts with a cache of zeros and is "
        "told how many tokens came before: times depend on that number, not on what the cache contains."
    )
    memory = max((case.peak_memory_bytes or 0 for case in found.cases), default=0)
    loading = [case.load_ms for case in found.cases if case.load_ms is not None]
    if memory and loading:
        load = milliseconds(sorted(loading)[len(loading) // 2])
        program = size(found.size_bytes)
        yield f"Loading takes {load} ms, memory peaks at {size(memory)}, the program has {program}."
    for why in found.left_out:
        yield f"Left out: {why}."
    yield from found.warnings


def _layers(found: Language) -> Iterator[doc.Block]:
    timed = [case for case in found.cases if case.layers]
    if not timed:
        return
    yield doc.Heading("Layers of a language model")
    used = [name for name in LAYERS if any(name in case.layers for case in timed)]
    rows = [(case.name, *(_layer(found, case, name) for name in used)) for case in timed]
    headers = ("case", *(LAYERS[name] for name in used))
    yield doc.make_table(headers, rows, numbers=range(1, len(headers)))
    yield from doc.make_list(
        ["Shares are of the time; of the bytes: of the weights that one token of the answer reads."]
    )


def _layer(found: Language, case: LanguageCase, name: str) -> str:
    """`12.3%`, for weights with their part of all weight bytes."""
    layer = case.layers.get(name)
    if layer is None:
        return MISSING
    told = percent(layer.share)
    if name == "cache_copies":
        return f"{told}, {size(layer.nbytes or 0)}"
    if layer.nbytes is not None and found.read.weights:
        return f"{told}, {percent(layer.nbytes / found.read.weights)} of the bytes"
    return told


def _parts(found: Language) -> Iterator[doc.Block]:
    if any(case.parts for case in found.cases):
        yield doc.Heading("Where the time goes")
        yield _parts_table(found)


def _parts_table(found: Language) -> doc.Block:
    named = [category.value for category in Category]
    used = dict.fromkeys(name for case in found.cases for name, share in case.parts.items() if share)
    columns = sorted(used, key=lambda name: named.index(name) if name in named else len(named))
    rows = [
        (case.name, *(percent(case.parts[name]) if name in case.parts else MISSING for name in columns))
        for case in found.cases
        if case.parts
    ]
    return doc.make_table(("case", *columns), rows, numbers=range(1, len(columns) + 1))


def _rate_chart(found: Language) -> doc.Chart | None:
    """Tokens per second of the answer over the position in the cache."""
    several = len({(each.experiment, each.threads) for case in found.cases for each in case.latencies}) > 1
    rows: list[draw.Row] = []
    for case in found.of("answer"):
        for each in case.latencies:
            name = _side(found, each.experiment, each.threads) if several else ""
            rows.append(
                {
                    "series": draw.named(name or found.cpu),
                    "position": case.position,
                    "rate": each.tokens_per_s(1),
                    "low": 1e3 / (each.high_ms or each.median_ms),
                    "high": 1e3 / (each.low_ms or each.median_ms),
                    "_text": short_rate(each.tokens_per_s(1)),
                }
            )
    if len({row["position"] for row in rows}) < 2:
        return None
    colour = draw.series_colours("series", dict.fromkeys(str(row["series"]) for row in rows))
    x: draw.Channel = {
        "type": "ordinal",
        "title": "tokens before it",
        "axis": {"labelAngle": 0},
        "scale": {"type": "point", "padding": 0.6},
    }
    top = max(1e3 / (each.low_ms or each.median_ms) for case in found.of("answer") for each in case.latencies)
    y = draw.axis("tokens per second", {"domain": [0, top * 1.08], "nice": False}, tickCount=5)
    tip = {"series": "series", "position": "position", "rate": "tokens/s", "low": "from", "high": "to"}
    layers = draw.measured_line("position", ("rate", "low", "high"), colour=colour, tip=tip)
    said = ", ".join(f"{row['_text']} tokens/s at {row['position']} ({row['series']})" for row in rows)
    spec = draw.layered({"rows": rows}, layers, x, y)
    return doc.Chart("tokens", "Tokens per second over the context", f"{said}.", spec, "llm.json")
