"""File names in a run directory, and what can be read from a name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.config.series import Series
from model_profiling.core.errors import ProfilingError
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import stays_inside

MANIFEST = "manifest.json"
METRICS = "metrics.json"
JOURNAL = "journal.jsonl"
SUMMARY = "_pipeline_summary.json"
"""Suffix; the model's name comes first."""
ANALYSIS = "analysis_summary.json"
CONFIG = "config.json"
GRAPH = "program_graph.json"
EVIDENCE = "evidence.json"
REPORT = "report.md"
REPORT_PAGE = "report.html"
COMBINED = "combined_report.md"
COMPARISON = "comparison.html"
SHARED = "shared_report.html"
SHARED_ARCHIVE = "shared_run.zip"
INDEX = "runs_index.html"
STORE_INDEX = "store_index.html"
HTML = ".html"
PICTURES = "_files"
"""Suffix of the folder with the pictures of a Markdown page."""
FOR_TOOLS = "for_tools"
KERNEL_VIEW = "kernel_view.md"
DTYPES = "dtypes.json"
LANGUAGE = "llm.json"
OPTIMIZATION_PAGE = "optimization.md"
DTYPES_PAGE = "dtypes.md"
WORK = ".work"
ROUNDS = "rounds"
OWN_FOLDERS = frozenset({FOR_TOOLS, f"report{PICTURES}", "artifacts"})
"""Folders of a run that are not experiments."""
FAILED_LAUNCH = "failed_launch.log"
"""Output of the last launch that failed."""

DUMP = ".etdump"
ROUND_DUMP = ".etdump_round"
"""Suffix of later rounds' dumps, so that a search for `*.etdump` finds each series once."""
DUMPS = (DUMP, ROUND_DUMP)
BOUNDARIES = ".boundaries"
"""Appended to a dump's name: the file that says when its operators began and ended."""
ROBUST_STATS = "_robust_stats.json"
KERNELS_CSV = "_kernels.csv"
XNNTRACE_LOG = "_xnntrace.log"
SAMPLES = "_samples.json"
TIMELINE_CSV = "_exec_all_runs_timeline.csv"
RUN0_TIMELINE_CSV = "_exec_run0_timeline.csv"
STATS_CSV = "_exec_ops_stats.csv"

_THREADS = re.compile(r"_t(\d{1,9})(?:_r\d+)?$")
_ROUND = re.compile(r"_r(\d{1,9})$")
_EXEC = re.compile(r"_exec_(?:e2e|all_runs|run\d+|ops_stats|operator_details|category_summary).*$")
_MADE_OF_DUMPS = (BOUNDARIES, *DUMPS, ROBUST_STATS, KERNELS_CSV, "_timeline.csv", "_all_runs", ".csv")
IN_NAMES = r"(?:fp32|fp16|int8-dynamic|int8|q8|int4(?:-\d+)?|own-\w+)(?:-kept)?(?:-optimized)?"
"""Matches the word of a format in the name of a program; q8 is that of older tools."""
_MODEL = re.compile(rf"^.+?_(?:xnnpack|portable)_{IN_NAMES}_(?=.)")
_VARIANT = re.compile(rf"_((?:xnnpack|portable)_{IN_NAMES})$")


@dataclass(frozen=True, slots=True)
class RunFiles:
    path: Path
    model_stem: str

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def work(self) -> Path:
        """Where a process keeps its files until it succeeds."""
        return self.path / WORK

    def summary(self, ending: Literal["json", "md"]) -> Path:
        return (self.path / f"{self.model_stem}{SUMMARY}").with_suffix(f".{ending}")

    def of_series(self, series: Series, ending: str) -> Path:
        """Return a file of one series; `ending` follows the common stem: `.etdump`, `_kernels.csv`."""
        stem = f"{self.model_stem}_{series.experiment}_t{series.threads}"
        stays_inside(series.experiment, f"{self.path}: an experiment's name", folder=True)
        return self.path / series.experiment / f"{stem}{ending}"

    def dump(self, series: Series, number: int) -> Path:
        """Return the dump of a round. Round 0 has the documented name; later rounds lie in `rounds/`, where
        earlier kits called them `.etdump` too."""
        if number == 0:
            return self.of_series(series, DUMP)
        named = self.of_series(series, f"_r{number}{ROUND_DUMP}")
        return named.parent / ROUNDS / named.name

    def boundaries(self, series: Series, number: int) -> Path:
        dump = self.dump(series, number)
        return dump.with_name(f"{dump.name}{BOUNDARIES}")

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()


def is_dump(path: Path) -> bool:
    return path.suffix in DUMPS


def without_dump_ending(name: str) -> str:
    return name.removesuffix(DUMP).removesuffix(ROUND_DUMP)


def dump_stem(name: str) -> str:
    """Return the stem of the round-0 dump that a file was made from."""
    stem = _EXEC.sub("", name)
    for ending in _MADE_OF_DUMPS:
        stem = stem.removesuffix(ending)
    return _ROUND.sub("", stem)


def series_of_dump(path: Path, folder: Path) -> tuple[Series, int]:
    """Return the series and the round that a dump's name and its place under `folder` tell."""
    stem = without_dump_ending(path.name)
    in_rounds = path.parent.name == ROUNDS
    home = path.parent.parent if in_rounds else path.parent
    threads, number = _THREADS.search(stem), _ROUND.search(stem)
    experiment = home.name
    if home.resolve() == folder.resolve():
        # `mac_sme2_on` of `toy_cnn_xnnpack_fp16_mac_sme2_on_t1`, for kits with one folder of dumps.
        experiment = _MODEL.sub("", _THREADS.sub("", stem), count=1)
    series = Series(experiment, int(threads[1]) if threads else None)
    return series, int(number[1]) if number and in_rounds else 0


def variant_of(program: Path) -> tuple[str, str]:
    """Return the model's name and the variant of a program; one without a known variant is all variant."""
    variant = _VARIANT.search(program.stem)
    return (program.stem[: variant.start()], variant[1]) if variant else (program.stem, program.stem)


def spoken_variant(program: str) -> tuple[str, tuple[str, ...]]:
    """Return `toy_cnn` and (`XNNPACK`, `fp16`); nothing beside the name for a program without a variant."""
    model, variant = variant_of(Path(f"{program}.pte"))
    backend, _, dtype = variant.rpartition("_")
    return model, (spoken_backend(backend), dtype) if variant != model else ()


def spoken_backend(backend: str) -> str:
    return "XNNPACK" if backend == "xnnpack" else backend


def computes_in(program: Path, dtype: Literal["int8", "fp16"]) -> bool:
    """Whether a program computes in `dtype`, whatever its outputs; from its export record or its name. Every
    format of 8-bit activations counts as int8."""
    try:
        exported = read_json_object(Path(f"{program}.json"), "", follow=True)["dtype"]
    except (ProfilingError, KeyError):
        return is_named(program, dtype)
    return exported == dtype if dtype == "fp16" else exported not in ("fp32", "fp16")


def is_named(program: Path, dtype: Literal["int8", "fp16"]) -> bool:
    words = {"int8": "int8|q8|int4", "fp16": "fp16|f16"}[dtype]
    return re.search(rf"(^|[_-])({words})([_.-]|$)", program.stem) is not None


def run_home(program: Path, outdir: Path | None = None, method: str | None = None, fed: str = "") -> Path:
    """Return `runs/<variant>`, beside an export's `artifacts` or else in `out_<model>`: the folder with the
    runs of one program, one subfolder for each place it ran."""
    return runs_folder(program, outdir) / with_method(variant_of(program)[1], method, fed)


def with_method(stem: str, method: str | None, fed: str = "") -> str:
    """Return what files of a program's method are named after, with the inputs that it was `fed`; `forward`
    and the usual inputs are left out."""
    parts = (stem, "" if method in (None, "forward") else method, fed)
    cleaned = (re.sub(r"[^A-Za-z0-9_.-]", "_", part) for part in parts[1:] if part)
    return "_".join((stem, *cleaned))


def fed_in_words(
    sizes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[float]]
) -> tuple[str, ...]:
    """`tokens 32`, `input_pos 0`: sizes and values of inputs; sizes of 1 are left out."""
    large = {name: [size for size in given if size != 1] or [1] for name, given in sizes.items()}
    sized = (f"{name} {'x'.join(map(str, given))}" for name, given in large.items())
    valued = (f"{name} {_in_short(given)}" for name, given in values.items())
    return (*sized, *valued)


def case_words(
    method: str | None, sizes: Mapping[str, Sequence[int]], values: Mapping[str, Sequence[float]]
) -> list[str]:
    """The options of `sme2prof profile` for this method, and these sizes and values of inputs."""
    words = ["--method", method] if method else []
    for option, given, joint in (("--length", sizes, "x"), ("--input", values, ",")):
        for name, numbers in given.items():
            words += [option, f"{name}={joint.join(repr(number).removesuffix('.0') for number in numbers)}"]
    return words


def _in_short(values: Sequence[float]) -> str:
    """`256`, `3,7`, or `0-127` for positions of many tokens, which would make too long a file name."""
    rising = all(after == before + 1 for before, after in itertools.pairwise(values))
    if rising and len(values) > 2:
        return f"{values[0]:g}-{values[-1]:g}"
    return ",".join(f"{value:g}" for value in values)


def runs_folder(program: Path, outdir: Path | None = None) -> Path:
    """Return the folder with one subfolder per variant, and the page that shows them side by side."""
    if outdir is None:
        exported = program.parent.name == "artifacts"
        outdir = program.parent.parent if exported else Path(f"out_{variant_of(program)[0]}")
    return outdir / "runs"


def earlier_name(run_dir: Path, moment: str) -> Path:
    """Return where to keep an earlier run: the folder's name with the date and time of its start."""
    digits = re.sub(r"\D", "", moment)[:14].ljust(14, "0")
    name = f"{run_dir.name}-{digits[:8]}-{digits[8:]}"
    free, number = run_dir.with_name(name), 2
    while free.exists():
        free, number = run_dir.with_name(f"{name}-{number}"), number + 1
    return free


def format_of_name(stem: str) -> str:
    """Return the number format in a program's name `<model>_<backend>_<format>`; empty if it has none."""
    match = re.search(rf"_({IN_NAMES})$", stem)
    if match is None:
        return ""
    word = match[1].removesuffix("-optimized").removesuffix("-kept")
    return "int8" if word == "q8" else re.sub(r"^int4-", "int4:", word)


# int8 programs are named `_int8` here and `_q8` by older tools; either name finds the other's file.

_TWINS: dict[str, str] = {"_q8": "_int8", "_int8": "_q8"}


def under_either_name(path: Path) -> Path:
    if not path.exists():
        for mine, other in _TWINS.items():
            if path.stem.endswith(mine):
                twin = path.with_name(path.stem.removesuffix(mine) + other + path.suffix)
                if twin.is_file():
                    return twin
    return path
