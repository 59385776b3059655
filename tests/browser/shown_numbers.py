"""Holds the numbers that a page shows against the files of its run, table by table.

A table is known by its headers. For each of its rows, what the files say is worked out here again, from JSON
and CSV alone; a number in a cell that nothing here expects is a number without a source.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = Any
Row = dict[str, str]
Expected = dict[str, "Iterable[float | None]"]
"""By header: the numbers that a cell shows, in the order it shows them."""

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_SCALES = {"%": 100.0, " MB": 1e-6, " kB": 1e-3}
_SUMS = 1.01
"""In last digits: what is rounded so that it adds up may be up to one off."""
_ROUNDED = 0.51


@dataclass(frozen=True)
class Shown:
    """A table as the page shows it."""

    section: str
    source: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    view: str = ""
    """Of an explorer: `pairs/0`."""


class Files:
    """What a run directory says about itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics, self.analysis, self.manifest = (
            self._json(name) for name in ("metrics.json", "analysis_summary.json", "manifest.json")
        )
        self.evidence = self._json("evidence.json") if (folder / "evidence.json").exists() else {}

    def _json(self, name: str) -> Json:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def latency(self, row: Row) -> Json:
        return _one(self.metrics["latencies"], experiment=row["experiment"], threads=int(row["threads"]))

    def series(self, row: Row) -> Json:
        return _one(self.analysis["series"], experiment=row["experiment"], threads=int(row["threads"]))

    def sides(self, pair: Json) -> list[Json]:
        return [_one(self.analysis["series"], **pair[side]) for side in ("baseline", "candidate")]

    def headroom(self, row: Row) -> Json:
        known = self.analysis["sme2_headroom"]["per_series"]
        return _one(known, experiment=row["experiment"], threads=int(row["threads"]))

    def at(self, place: str) -> Json:
        found = self.analysis
        for part in place.split("/"):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found


def _one(entries: Iterable[Json], **wanted: object) -> Json:
    (found,) = [entry for entry in entries if all(entry[key] == value for key, value in wanted.items())]
    return found


def unexplained(table: Shown, files: Files) -> Iterator[str]:
    """Every number of the table that its run's files do not say."""
    checker = next((check for headers, check in _TABLES if headers(table.headers)), None)
    if checker is None:
        if any(_NUMBER.search(cell) for row in table.rows for cell in row):
            yield f"{table.section}: a table of {table.headers} that no file is known for"
        return
    for place, cells in enumerate(table.rows):
        row = _Row(table, cells)
        expected = dict(checker(table, files, row, place))
        for header, cell in row.items():
            if header not in expected:
                if header not in _WORDS and _NUMBER.fullmatch(cell.rstrip("x%")):
                    yield f"{table.section}, {header}: {cell!r} in {cells} is in no file"
                continue
            values = expected[header]
            for problem in _differs(cell, list(values), header):
                yield f"{table.section}, {table.headers}: {header} is {cell!r} in {cells}, {problem}"


class _Row(dict[str, str]):
    """Cells by header; where two columns share one, the first has it, and `[header + " 2"]` the second."""

    def __init__(self, table: Shown, cells: Sequence[str]) -> None:
        super().__init__()
        for header, cell in zip(table.headers, cells, strict=True):
            self[f"{header} 2" if header in self else header] = cell


_WORDS = {"module", "threads"}
"""Columns whose numbers are names: they choose what a row is held against."""


def _differs(cell: str, values: Sequence[float | None], header: str) -> Iterator[str]:
    if cell == "-":
        # Zero, nothing and unknown are all shown so.
        return
    shown = list(_numbers(cell))
    known = [value for value in values if value is not None]
    if len(shown) != len(known):
        yield f"the files say {known}"
        return
    last_digits = _SUMS if header in _ADDING_UP else _ROUNDED
    for (number, digit, scale), value in zip(shown, known, strict=True):
        if abs(number - value * scale) > last_digits * digit:
            yield f"the files say {value * scale}"


_ADDING_UP = {"before ms", "after ms", "ms", "share", "share 2", "share after"}


def _numbers(cell: str) -> Iterator[tuple[float, float, float]]:
    """Every number of a cell: itself, the worth of its last digit, what a file's number is multiplied by."""
    for found in _NUMBER.finditer(cell):
        text = found.group().replace(",", "")
        decimals = len(text.partition(".")[2]) if "e" not in text else 9
        after = cell[found.end() :]
        scale = next((scale for unit, scale in _SCALES.items() if after.startswith(unit)), 1.0)
        yield float(text), 10.0**-decimals, scale


def _change(ratio: float | None) -> list[float | None]:
    return [None if not ratio else 1 / ratio - 1]


Checker = Callable[[Shown, Files, Row, int], Iterable[tuple[str, "Iterable[float | None]"]]]


def _speedups(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    label = row["comparison"].removesuffix(" (with the tracer)")
    found = _one(files.metrics["comparisons"], label=label)["speedup"]
    yield "before ms", [found["baseline_median"]]
    yield "after ms", [found["candidate_median"]]
    yield "change", _change(found["ratio"])
    yield "speedup", [found["ratio"]]
    yield "interval", [found["low"], found["high"]]


def _latency(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    found = files.latency(row)
    summary = found["end_to_end_ms"]
    yield "threads", [found["threads"]]
    yield table.headers[3], [found["rounds"]]
    yield "median ms", [summary["median"]]
    yield "5% to 95%", [summary["p5"], summary["p95"]]
    yield "mean ms", [summary["mean"]]
    yield "spread", [summary["robust_cv"]]


def _costs(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    found = files.latency(row)
    cost = found["tracer_cost"]
    yield "threads", [found["threads"]]
    yield "traced median ms", [found["traced_ms"]["median"]]
    yield "tracer's cost", [cost["share"], cost["low"], cost["high"]]
    yield "load ms", [found["load_ms"]]
    yield "first ms", [found["first_inference_ms"]]
    yield "memory", [found["peak_memory_bytes"]]


def _machine_use(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    use = files.latency(row)["machine"]
    yield "CPU time", [use["cpu_time_share"]]
    yield "pushed off the CPU", [1000 * use["involuntary_switches"] / use["inferences"]]
    yield "page faults from disk", [1000 * use["major_faults"] / use["inferences"]]


def _projections(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    found = files.headroom(row)
    yield "share of time", [found["time_share"]]
    yield "lowest", [found["low"]]
    yield "highest", [found["high"]]
    yield "ceiling", [found["ceiling"]]
    yield "latency ms", [found["latency_ms"]]
    yield "projected ms", [found["projected_ms"]["high"], found["projected_ms"]["low"]]


def _factors(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    found = _one(files.headroom(row)["factors"], operators=row["operators on SME2"])
    yield "count", [found["count"]]
    yield "share of time", [found["time_share"]]
    yield "factors", [found["low"], found["high"]]


def _bottlenecks(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    found = files.headroom(row)
    yield "largest part", [found["bottleneck_before"]["share"]]
    yield "with the lowest factors", [found["bottleneck_after"]["low"]["share"]]
    yield "with the highest", [found["bottleneck_after"]["high"]["share"]]


def _pair_of_section(table: Shown, files: Files) -> Json:
    """A table of categories stands below its pair's heading; the only pair has none."""
    comparable = [pair for pair in files.analysis["pairs"] if pair["e2e"]["ratio"] is not None]
    named = [pair for pair in comparable if pair["label"] == table.view]
    return (named or comparable)[0]


def _categories(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    pair = _pair_of_section(table, files)
    before, after = files.sides(pair)
    if row["category"].startswith("End to end"):
        ratio = before["e2e_ms"] / after["e2e_ms"]
        known = {"baseline_ms": before["e2e_ms"], "candidate_ms": after["e2e_ms"], "ratio": ratio}
        shares = 1.0, 1.0
    else:
        known = _one(pair["categories"], category=row["category"])
        shares = known["baseline_share"], known["candidate_share"]
    yield "before ms", [known["baseline_ms"]]
    yield "after ms", [known["candidate_ms"]]
    yield "share", [shares[0]]
    yield "share 2", [shares[1]]
    yield "change", _change(known["ratio"])
    yield "speedup", [known["ratio"]]


def _near(shown: float, said: float, digit: float = 0.1) -> float:
    """`shown`, where it is `said` rounded so that it adds up with its neighbours; else what is said."""
    return shown if abs(shown - said) <= _SUMS * digit else said


def _parts(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    series = _headline(files)
    name = row["category"]
    whole = name.startswith("End to end")
    yield "ms", [series["e2e_ms"] if whole else series["ms"][name]]
    yield "share", [1.0 if whole else series["share"][name]]
    members = [each for each in series["operators"] if whole or each["category"] == name]
    yield "operators", [len(members)]


def _headline(files: Files) -> Json:
    """With SME2 on, if it was switched, on the fewest threads."""
    known = [each for each in files.analysis["series"] if "off" not in each["experiment"]]
    return min(known, key=lambda each: each["threads"])


def _work(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    members = [each for each in _headline(files)["operators"] if each["category"] == row["category"]]
    yield "operators", [len(members)]
    yield "million operations", [sum(each["flops"] or 0 for each in members) / 1e6]
    yield "data", [sum(each["bytes_moved"] or 0 for each in members)]


def _pair_operators(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    pair = files.at(table.view)
    after = files.sides(pair)[1]
    named = [
        each
        for each in pair["operators"]
        if each["operator"] == row["operator"]
        and (each["place"] == row["module"] or row["module"] == "-")
        and _fits(row["before ms"], each["baseline_ms"])
        and _fits(row["after ms"], each["candidate_ms"])
    ]
    assert named, f"{dict(row)} is no operator of {table.view}"
    found = min(named, key=lambda each: _distance(row["speedup"], each["ratio"]))
    yield "before ms", [found["baseline_ms"]]
    yield "after ms", [found["candidate_ms"]]
    yield "share after", [found["candidate_ms"] / after["e2e_ms"]]
    yield "speedup", [found["ratio"]]
    assert row["verdict"] == (found["speedup"]["verdict"] if found["speedup"] else "-")


def _fits(cell: str, said: float | None) -> bool:
    if said is None or cell == "-":
        return cell == "-" or said is None
    ((number, digit, scale),) = _numbers(cell)
    return abs(number - said * scale) <= _SUMS * digit


def _distance(cell: str, said: float | None) -> float:
    if cell == "-" or said is None:
        return 0.0 if cell == "-" and said is None else 1e9
    return abs(float(cell.rstrip("x")) - said)


def _series_operators(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    named = [
        each
        for each in files.at(table.view)["operators"]
        if each["name"] == row["operator"] and _fits(row["ms"], each["ms"])
    ]
    assert named, f"{dict(row)} is no operator of {table.view}"
    yield "ms", [named[0]["ms"]]
    yield "share", [named[0]["share"]]


def _untimed_operators(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    place = files.at(table.view)
    series = files.sides(place)[1] if "baseline" in place else place
    named = [
        each
        for each in series["operators"]
        if each["name"] == row["operator"] and each["module_path"] in (row["module"], "")
    ]
    flops = [each["flops"] / 1e6 for each in named]
    assert flops, f"{dict(row)} is no operator of {table.view}"
    nearest = min(named, key=lambda each: abs(each["flops"] / 1e6 - float(row["million operations"])))
    yield "million operations", [nearest["flops"] / 1e6]
    yield "data", [nearest["bytes_moved"]]


def _modules(table: Shown, files: Files, _: Row, place: int) -> Iterator[tuple[str, Any]]:
    path = _path(table, place)
    view = files.at(table.view.removesuffix("/modules"))
    sides = files.sides(view) if "baseline" in view else [view]
    if path in sides[0]["ms"]:
        values = [[side["ms"][path], side["share"][path]] for side in sides]
        count, ratio = None, None
    else:
        known = [_one(side["modules"], module=path) for side in sides]
        whole = [
            (side["e2e_ms"], 1.0) if not path else (each.get("ms"), each.get("share"))
            for side, each in zip(sides, known, strict=True)
        ]
        values = [list(each) for each in whole]
        count = known[-1]["operators"]
        ratio = values[0][0] / values[-1][0] if len(sides) == 2 and values[0][0] and values[-1][0] else None
        if "million operations" in table.headers:
            flops = known[-1]["flops"]
            total = _one(sides[-1]["modules"], module="")["flops"]
            yield "million operations", [flops / 1e6]
            yield "share", [flops / total]
            yield "operators", [count]
            return
    headers = ("before ms", "after ms") if len(sides) == 2 else ("ms",)
    shares = ("share", "share 2") if len(sides) == 2 else ("share",)
    for header, share, (ms, part) in zip(headers, shares, values, strict=True):
        yield header, [ms]
        yield share, [part]
    yield "operators", [count]
    yield "speedup", [ratio]


def _path(table: Shown, place: int) -> str:
    """The path of a row of a tree: names are indented by how deep they stand."""
    parts: list[str] = []
    for cells in table.rows[: place + 1]:
        name = cells[0].lstrip("\u2003")
        depth = len(cells[0]) - len(name)
        parts = [*parts[:depth], name]
    return ".".join(parts[1:])


def _timeline(table: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    file, _, run = table.source.partition("#run=")
    with (files.folder / file).open(encoding="utf-8") as stream:
        events = [
            each for each in csv.DictReader(stream) if each["run_index"] == run and each["level"] != "outside"
        ]
    zero = next(float(each["start_us"]) for each in events if each["name"] == "Method::execute")
    takes, starts = float(row["takes ms"]), float(row["starts at ms"])
    near = min(
        events,
        key=lambda each: (
            abs(float(each["duration_ms"]) - takes) + abs((float(each["start_us"]) - zero) / 1e3 - starts)
        ),
    )
    yield "starts at ms", [(float(near["start_us"]) - zero) / 1e3]
    yield "takes ms", [float(near["duration_ms"])]


def _backends(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    series = _headline(files)
    members = [each for each in series["operators"] if each["delegate_backend"] == row["backend"]]
    yield "operators", [len(members)]
    if "ms" in row:
        yield from _together(members, row)


def _outside(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    series = _headline(files)
    members = [
        each
        for each in series["operators"]
        if each["delegate_backend"] == "portable"
        and re.sub(r" #\d+$", "", each["name"]) == row["outside delegates"]
    ]
    yield "how many", [len(members)]
    if "ms" in row:
        yield from _together(members, row)


def _outside_lines(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    names = dict(re.findall(r"\d+ x (\S+?)()(?=,|$)", row["operators"]))
    members = [
        each
        for each in _headline(files)["operators"]
        if each["delegate_backend"] == "portable"
        and re.sub(r" #\d+$", "", each["name"]) in names
        and each["source"].replace("\\", "/").rpartition("/")[2] == row["source"]
    ]
    counts = Counter(re.sub(r" #\d+$", "", each["name"]) for each in members)
    yield "operators", [counts[name] for name in names]
    yield "source", [int(row["source"].rpartition(":")[2])]
    yield "why", [float(number) for number in re.findall(r"\d+(?:\.\d+)?", row["why"])]
    if "ms" in row:
        yield from _together(members, row)


def _together(members: Sequence[Json], row: Row) -> Iterator[tuple[str, Any]]:
    """Sums of rounded figures: each may be a last digit off."""
    ms, share = (sum(each[name] for each in members) for name in ("ms", "share"))
    digits = 1 + 0.5 * len(members)
    yield "ms", [_near(float(row["ms"]), ms, digits * 10.0 ** -len(row["ms"].partition(".")[2]))]
    yield "share", [_near(float(row["share"].rstrip("%")), 100 * share, digits * 0.1) / 100]


def _answers(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    calls = _calls(files, row["experiment"], int(row["threads"]))
    counted = re.search(r"(\d+) kernels, (\d+) calls", row["what the evidence says"])
    if counted:
        sme2 = {name: count for name, count in calls.items() if "sme2" in name}
        yield "what the evidence says", [2, len(sme2), sum(sme2.values())]
    elif "SME2" in row["what the evidence says"]:
        yield "what the evidence says", [2]
    labels = [name for name in calls if name.startswith(("Convolution", "Fully Connected"))]
    yield (
        "matrix operators on SME",
        [sum(calls[name] for name in labels if "PF16" in name), sum(calls[name] for name in labels)],
    )


def _kernel_calls(table: Shown, files: Files, row: Row, _: int) -> Iterator[tuple[str, Any]]:
    for header in table.headers[2:]:
        experiment, _, threads = header.partition(", ")
        yield header, [_calls(files, experiment, int(threads.split()[0])).get(row["kernel"])]


def _calls(files: Files, experiment: str, threads: int) -> dict[str, int]:
    """Kernels and operators of a series and how often each was called, by its own file or kept evidence."""
    found = list(files.folder.glob(f"{experiment}/*_t{threads}_kernels.csv"))
    if found:
        with found[0].open(encoding="utf-8") as stream:
            return {each["kernel_name"]: int(each["count"] or 0) for each in csv.DictReader(stream)}
    for each in files.evidence.get("kernels", ()):
        if each["series"] == {"experiment": experiment, "threads": threads}:
            return {use["name"]: use["calls"] for use in each["kernels"]}
    return defaultdict(int)


def _parity(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    known = files.metrics["parity"] if row["from"] == "this run" else files.evidence["parity"]
    (found,) = [
        each
        for each in known
        if row["outputs of"].startswith(
            each["candidate"]["experiment"] + ", " + str(each["candidate"]["threads"])
        )
        and row["against"].startswith(
            each["baseline"]["experiment"] + ", " + str(each["baseline"]["threads"])
        )
    ]
    output = found["parity"]["outputs"][int(row["output"].partition(":")[0])]
    yield "largest difference", [_significant(output["max_abs"], row["largest difference"])]
    by_scale = output.get("of_largest") is not None
    yield "relative", [_significant(output["of_largest" if by_scale else "max_rel"], row["relative"])]
    if by_scale:
        yield "RMS", [_significant(output["rms_of_rms"], row["RMS"])]
    allowed = [output["tolerance"].get(kind) for kind in ("absolute", "relative", "rms")]
    yield "allowed", [each for each in allowed if each]
    yield "cosine", [output["cosine"]]


def _significant(value: float, cell: str) -> float:
    """`value` with as many digits that count as the cell has."""
    digits = len(re.sub(r"e.*|[.-]", "", cell).lstrip("0")) or 1
    return float(f"{value:.{digits}g}")


def _facts(_: Shown, files: Files, row: Row, __: int) -> Iterator[tuple[str, Any]]:
    """Words of the manifest, and figures that stand in it; bytes are shown as GiB."""
    said = json.dumps(files.manifest)
    if row["value"] in said and not row["value"].isdigit():
        return
    known = [abs(float(found.replace(",", ""))) for found in _NUMBER.findall(said)]
    known += [value / 2**30 for value in known if value > 2**20]
    figures = [number for number, _, _ in _numbers(row["value"])]
    nearest = [min(known, key=lambda value, number=number: abs(value - abs(number))) for number in figures]  # type: ignore[misc]
    yield "value", [value if number >= 0 else -value for number, value in zip(figures, nearest, strict=True)]


def _starts(*headers: str) -> Callable[[tuple[str, ...]], bool]:
    return lambda found: found[: len(headers)] == headers


_TABLES: tuple[tuple[Callable[[tuple[str, ...]], bool], Checker], ...] = (
    (_starts("comparison", "before ms"), _speedups),
    (_starts("experiment", "threads", "SME2", "launches"), _latency),
    (_starts("experiment", "threads", "SME2", "rounds"), _latency),
    (_starts("experiment", "threads", "traced median ms"), _costs),
    (_starts("experiment", "threads", "CPU time"), _machine_use),
    (_starts("experiment", "threads", "share of time"), _projections),
    (_starts("experiment", "threads", "operators on SME2"), _factors),
    (_starts("experiment", "threads", "largest part"), _bottlenecks),
    (_starts("category", "before ms"), _categories),
    (_starts("category", "ms", "share"), _parts),
    (_starts("category", "operators", "million operations"), _work),
    (_starts("operator", "category", "before ms"), _pair_operators),
    (_starts("operator", "category", "ms"), _series_operators),
    (_starts("operator", "category", "million operations"), _untimed_operators),
    (_starts("module", "operators"), _modules),
    (_starts("event", "category"), _timeline),
    (_starts("backend", "kind"), _backends),
    (_starts("outside delegates"), _outside),
    (_starts("left outside by"), _outside_lines),
    (_starts("experiment", "threads", "SME2", "what the evidence says"), _answers),
    (_starts("kernel", "instruction set"), _kernel_calls),
    (_starts("outputs of", "against"), _parity),
    (_starts("what", "value"), _facts),
)
