"""Holds the numbers that a page shows against the files of its run, table by table.

A table is known by its headers. For each of its rows, what the files say is worked out here again, from JSON
and CSV alone; a number in a cell that nothing here expects is a number without a source.
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

Json = Any
Row = dict[str, str]
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
    named: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    view: str = ""
    """Of an explorer: `pairs/0`."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Both sides of a comparison are called before and after here, whatever differs between them."""
        sides = {"before": r"SME2 off|1 thread", "after": r"SME2 on|2 threads"}
        told = self.named
        for side, names in sides.items():
            told = tuple(re.sub(rf"^(|share )(?:{names})(| ms)$", rf"\1{side}\2", header) for header in told)
        return told


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
        return _one(self.metrics["latencies"], **_series_in(row))

    def sides(self, pair: Json) -> list[Json]:
        return [_one(self.analysis["series"], **pair[side]) for side in ("baseline", "candidate")]

    def headroom(self, row: Row) -> Json:
        known = self.analysis["sme2_headroom"]["per_series"]
        return _one(known, **_series_in(row))

    def at(self, place: str) -> Json:
        found = self.analysis
        for part in place.split("/"):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found


def _series_in(row: Row) -> dict[str, object]:
    """What a row says about its series; what all series of a run have in common is not shown."""
    known = {name: row[name] for name in ("experiment", "threads") if name in row}
    return {name: int(text) if name == "threads" else text for name, text in known.items()}


def _one(entries: Iterable[Json], **wanted: object) -> Json:
    (found,) = [entry for entry in entries if all(entry[key] == value for key, value in wanted.items())]
    return found


def unexplained(table: Shown, files: Files) -> Iterator[str]:
    """Every number of the table that its run's files do not say."""
    kind = tuple(header for header in table.headers if header not in ("experiment", "threads"))
    checker = next((check for begin, check in _TABLES.items() if kind[: len(begin)] == begin), None)
    if checker is None:
        if any(_NUMBER.search(cell) for row in table.rows for cell in row):
            yield f"{table.section}: a table of {table.headers} that no file is known for"
        return
    for place, cells in enumerate(table.rows):
        row = _by_header(table, cells)
        expected = dict(checker(table, files, row, place))
        for header, cell in row.items():
            if header not in expected:
                if header not in _WORDS and _NUMBER.fullmatch(cell.rstrip("x%")):
                    yield f"{table.section}, {header}: {cell!r} in {cells} is in no file"
                continue
            values = expected[header]
            for problem in _differs(cell, list(values), header):
                yield f"{table.section}, {table.headers}: {header} is {cell!r} in {cells}, {problem}"


def _by_header(table: Shown, cells: Sequence[str]) -> Row:
    """Cells by header; where two columns share one, the first has it, and `[header + " 2"]` the second."""
    row: Row = {}
    for header, cell in zip(table.headers, cells, strict=True):
        row[f"{header} 2" if header in row else header] = cell
    return row


_WORDS = {"module", "layer", "threads", "advice"}
"""Columns whose numbers are names: they choose what a row is held against."""


def _differs(cell: str, values: Sequence[float | None], header: str) -> Iterator[str]:
    if cell in ("-", "about the same", "unclear"):
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


def _changed(found: Json) -> Json:
    return {**found, "change": 1 / found["ratio"] - 1 if found["ratio"] else None}


Told = Iterable[tuple[str, "Iterable[float | None]"]]
Checker = Callable[[Shown, Files, Row, int], Told]


def _keys(find: Callable[[Files, Row], Json], columns: dict[str, str]) -> Checker:
    """Columns show what stands under their keys in the record that `find` gives."""

    def told(_: Shown, files: Files, row: Row, __: int) -> Told:
        found = find(files, row)
        for header, keys in columns.items():
            yield header, [reduce(lambda at, key: at[key], path.split("."), found) for path in keys.split()]

    return told


def _speedup(files: Files, row: Row) -> Json:
    label = row["comparison"].removesuffix(" (with the tracer)")
    return _changed(_one(files.metrics["comparisons"], label=label)["speedup"])


_LATENCY = _keys(Files.latency, {
    "threads": "threads", "launches": "rounds", "rounds": "rounds", "median ms": "end_to_end_ms.median",
    "5% to 95%": "end_to_end_ms.p5 end_to_end_ms.p95", "mean ms": "end_to_end_ms.mean",
    "deviation": "end_to_end_ms.robust_cv",
})  # fmt: skip


def _categories(table: Shown, files: Files, row: Row, _: int) -> Told:
    """A table of categories is folded under its pair's name; the headline's stands open."""
    comparable = [pair for pair in files.analysis["pairs"] if pair["e2e"]["ratio"] is not None]
    pair = next((pair for pair in comparable if pair["label"] == table.view), comparable[0])
    before, after = (side["e2e_ms"] for side in files.sides(pair))
    if row["category"].startswith("End to end"):
        known = {"baseline_ms": before, "candidate_ms": after, "ratio": before / after}
        known |= {"baseline_share": 1.0, "candidate_share": 1.0}
    else:
        known = _one(pair["categories"], category=row["category"])
    columns = {"before ms": "baseline_ms", "after ms": "candidate_ms", "speedup": "ratio", "change": "change"}
    columns |= {"share": "baseline_share", "share 2": "candidate_share"}
    if row["change"] == "under 0.001 ms" and abs(known["baseline_ms"] - known["candidate_ms"]) < 1e-3:
        columns.pop("change")
    return _keys(lambda *_: _changed(known), columns)(table, files, row, 0)


def _parts(_: Shown, files: Files, row: Row, __: int) -> Told:
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


def _work(_: Shown, files: Files, row: Row, __: int) -> Told:
    members = [each for each in _headline(files)["operators"] if each["category"] == row["category"]]
    yield "operators", [len(members)]
    yield "million operations", [sum(each["flops"] or 0 for each in members) / 1e6]
    yield "data", [sum(each["bytes_moved"] or 0 for each in members)]


def _pair_operators(table: Shown, files: Files, row: Row, _: int) -> Told:
    pair = files.at(table.view)
    named = [
        each
        for each in pair["operators"]
        if each["operator"] == row["operator"]
        and (each["place"] == _layer(row) or row["layer"] == "the model itself")
        and _fits(row["before ms"], each["baseline_ms"])
        and _fits(row["after ms"], each["candidate_ms"])
    ]
    assert named, f"{dict(row)} is no operator of {table.view}"
    found = min(named, key=lambda each: _distance(row["speedup"], each["ratio"]))
    yield "before ms", [found["baseline_ms"]]
    yield "after ms", [found["candidate_ms"]]
    yield "share after", [found["candidate_ms"] / files.sides(pair)[1]["e2e_ms"]]
    yield "speedup", [found["ratio"]]
    assert row["verdict"] == (found["verdict"] or "-")


def _layer(row: Row) -> str:
    """The module's path: `features.0 Conv2d` without the class."""
    layer = row["layer"]
    return layer if layer == "inserted by lowering" else layer.partition(" ")[0]


def _fits(cell: str, said: float | None) -> bool:
    if said is None or cell == "-":
        return cell == "-" or said is None
    ((number, digit, scale),) = _numbers(cell)
    return abs(number - said * scale) <= _SUMS * digit


def _distance(cell: str, said: float | None) -> float:
    if cell == "-" or said is None:
        return 0.0 if cell == "-" and said is None else 1e9
    return abs(float(cell.rstrip("x")) - said)


def _series_operators(table: Shown, files: Files, row: Row, _: int) -> Told:
    called = (each for each in files.at(table.view)["operators"] if each["name"] == row["operator"])
    named = [each for each in called if _fits(row["ms"], each["ms"])]
    assert named, f"{dict(row)} is no operator of {table.view}"
    yield "ms", [named[0]["ms"]]
    yield "share", [named[0]["share"]]


def _untimed_operators(table: Shown, files: Files, row: Row, _: int) -> Told:
    place = files.at(table.view)
    series = files.sides(place)[1] if "baseline" in place else place
    called = (each for each in series["operators"] if each["name"] == row["operator"])
    named = [each for each in called if each["module_path"] in (_layer(row), "")]
    assert named, f"{dict(row)} is no operator of {table.view}"
    nearest = min(named, key=lambda each: abs(each["flops"] / 1e6 - float(row["million operations"])))
    yield "million operations", [nearest["flops"] / 1e6]
    yield "data", [nearest["bytes_moved"]]


def _timeline(table: Shown, files: Files, row: Row, __: int) -> Told:
    file, _, run = table.source.partition("#run=")
    with (files.folder / file).open(encoding="utf-8") as stream:
        rows = [each for each in csv.DictReader(stream) if each["run_index"] == run]
    zero = next(float(each["start_us"]) for each in rows if each["name"] == "Method::execute")
    events = [((float(each["start_us"]) - zero) / 1e3, float(each["duration_ms"])) for each in rows]
    starts, takes = float(row["starts at ms"]), float(row["takes ms"])
    start, took = min(events, key=lambda event: abs(event[0] - starts) + abs(event[1] - takes))
    yield "starts at ms", [start]
    yield "takes ms", [took]


def _answers(_: Shown, files: Files, row: Row, __: int) -> Told:
    calls = _calls(files, **_series_in(row))
    counted = re.search(r"(\d+) SME2 kernels ran (\d+) times", row["what the evidence says"])
    if counted:
        sme2 = {name: count for name, count in calls.items() if "sme2" in name}
        yield "what the evidence says", [len(sme2), 2, sum(sme2.values())]
    elif "SME2" in row["what the evidence says"]:
        yield "what the evidence says", [2]


def _calls(files: Files, experiment: object = "*", threads: object = "*") -> dict[str, int]:
    """Kernels and operators of a series and how often each was called, by its own file or kept evidence."""
    found = list(files.folder.glob(f"{experiment}/*_t{threads}_kernels.csv"))
    if found:
        with found[0].open(encoding="utf-8") as stream:
            return {each["kernel_name"]: int(each["count"] or 0) for each in csv.DictReader(stream)}
    for each in files.evidence.get("kernels", ()):
        if each["series"]["experiment"] == experiment and threads in ("*", each["series"]["threads"]):
            return {use["name"]: use["calls"] for use in each["kernels"]}
    return defaultdict(int)


def _parity(_: Shown, files: Files, row: Row, __: int) -> Told:
    known = files.metrics["parity"] if row["from"] == "this run" else files.evidence["parity"]
    columns = {"outputs of": "candidate", "against": "baseline"}
    (found,) = [
        each
        for each in known
        if all(
            row[column].startswith(f"{each[side]['experiment']}, {each[side]['threads']}")
            for column, side in columns.items()
        )
    ]
    output = found["parity"]["outputs"][int(row["output"].partition(":")[0])]
    yield "largest difference", [_significant(output["max_abs"], row["largest difference"])]
    yield "relative", [_significant(output["of_largest"], row["relative"])]
    yield "RMS", [_significant(output["rms_of_rms"], row["RMS"])]
    allowed = [output["tolerance"].get(kind) for kind in ("absolute", "relative", "rms")]
    yield "allowed", [each for each in allowed if each]


def _significant(value: float, cell: str) -> float:
    """`value` with as many digits that count as the cell has."""
    digits = len(re.sub(r"e.*|[.-]", "", cell).lstrip("0")) or 1
    return float(f"{value:.{digits}g}")


def _facts(_: Shown, files: Files, row: Row, __: int) -> Told:
    """Words of the manifest, and figures that stand in it; bytes are shown as GiB."""
    said = json.dumps(files.manifest)
    if row["value"] in said and not row["value"].isdigit():
        return
    known = [abs(float(found.replace(",", ""))) for found in _NUMBER.findall(said)]
    known += [value / 2**30 for value in known if value > 2**20]
    figures = [number for number, _, _ in _numbers(row["value"])]
    nearest = [min(known, key=lambda value, number=number: abs(value - abs(number))) for number in figures]  # type: ignore[misc]
    yield "value", [value if number >= 0 else -value for number, value in zip(figures, nearest, strict=True)]


def _threads(_: Shown, files: Files, row: Row, __: int) -> Told:
    point = _one(files.analysis["threads"]["points"], threads=int(row["threads"]))
    yield "median ms", [point["ms"]]
    for header, value in {"efficiency": point["efficiency"], **point["by_category"]}.items():
        yield header, [value]


_TABLES: dict[tuple[str, ...], Checker] = {
    ("comparison", "baseline ms"): _keys(_speedup, {
        "baseline ms": "baseline_median", "candidate ms": "candidate_median", "change": "change",
        "speedup": "ratio low high",
    }),
    ("SME2", "launches"): _LATENCY,
    ("SME2", "rounds"): _LATENCY,
    ("share of time",): _keys(Files.headroom, {
        "share of time": "time_share", "lowest speedup": "low", "highest speedup": "high", "limit": "ceiling",
        "latency ms": "latency_ms", "projected ms": "projected_ms.high projected_ms.low",
    }),
    ("median ms", "efficiency"): _threads,
    ("category", "before ms"): _categories,
    ("category", "ms", "share"): _parts,
    ("category", "operators", "million operations"): _work,
    ("layer", "operator", "category", "before ms"): _pair_operators,
    ("layer", "operator", "category", "ms"): _series_operators,
    ("layer", "operator", "category", "million operations"): _untimed_operators,
    ("event", "category"): _timeline,
    ("SME2", "what the evidence says"): _answers,
    ("outputs of", "against"): _parity,
    ("what", "value"): _facts,
}  # fmt: skip
