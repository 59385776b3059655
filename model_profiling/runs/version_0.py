"""Reads run directories of the earlier kit, without a `schema_version`, as current manifests.

It kept `manifest.json`, or only `<model>_pipeline_summary.json`, or neither. None names the machine, so it is
unknown; all its times were taken with the tracer on.
"""

from __future__ import annotations

from pathlib import Path

from model_profiling.config import names
from model_profiling.config.series import Diagnostic, switch_in_name
from model_profiling.core.records import JsonObject
from model_profiling.core.safe_read import is_regular

_TIMING = "timing"
_DEEPEST = 32
"""How many trailing parts of a path to try; a path in a damaged file may be very long."""


def is_manifest_0(content: JsonObject) -> bool:
    """Whether it is a manifest of version 0, which had at least a model and results."""
    return isinstance(content.get("model"), str) and _objects(content, "results")


def is_summary_0(content: JsonObject) -> bool:
    unversioned = "schema_version" not in content
    return unversioned and isinstance(content.get("model"), str) and _objects(content, "runs")


def manifest_of_today(content: JsonObject, run_dir: Path) -> JsonObject:
    """Convert `manifest.json`, or the pipeline summary in its place, to the current form."""
    sha = _object(content, "executorch").get("sha")
    entries = content.get("results", content.get("runs"))
    results = [
        _result(entry, run_dir, str(content.get("model")))
        for entry in (entries if isinstance(entries, list) else [])
    ]
    started = _text(content.get("generated_at"))
    return {
        "schema_version": 3,
        "version_0": True,
        "model": content.get("model"),
        "quantized": names.is_named(Path(str(content.get("model"))), "int8"),
        "half": names.is_named(Path(str(content.get("model"))), "fp16"),
        "config": _text(content.get("config")),
        "config_file": _text(content.get("config")) or None,
        "executorch": {"sha": sha} if isinstance(sha, str) else {},
        "experiments": list(dict.fromkeys(str(result["experiment"]) for result in results)),
        "sessions": [{"started": started, "ended": started, "end": "finished"}] if started else [],
        "results": results,
    }


def remark_0(*, machine_known: bool) -> Diagnostic:
    how = "measured with the earlier kit, with the tracer on and one experiment after the other"
    if machine_known:
        return Diagnostic(None, "version_0", f"{how}: users, who do not trace, see shorter times")
    return Diagnostic(
        None,
        "unknown_machine",
        f"{how}, on an unknown machine: times are shown as recorded, without latencies or speedups",
        "add --times hardware if they were measured on real hardware",
    )


def _result(entry: object, run_dir: Path, model: str) -> JsonObject:
    """Convert one row of `results` or of the summary's `runs`; name only files that exist."""
    row = entry if isinstance(entry, dict) else {}
    metrics, paths = (_object(row, key) for key in ("metrics", "paths"))
    experiment = row.get("experiment")
    threads, runs = (_whole(metrics.get(key, row.get(key))) for key in ("threads", "runs"))
    mode = _text(row.get("mode")) or _TIMING
    facts = {**metrics, **paths}
    dump = _here(run_dir, (facts.get("etdump_rel"), facts.get("etdump")))
    if threads is None and dump is not None:
        threads = names.series_of_dump(run_dir / dump, run_dir)[0].threads
    stems = [f"{experiment}/{prefix}{experiment}_t{threads}" for prefix in (f"{Path(model).stem}_", "")]
    result: JsonObject = {
        "experiment": experiment,
        "threads": threads,
        "mode": mode,
        "sme2": switch_in_name(str(experiment)),
        "runs": runs,
        "warmup": _whole(row.get("warmup")),
        "processes": 1,
        "etdump": dump,
        "log": _here(run_dir, (facts.get("log_rel"), facts.get("log"), facts.get("latency_log"))),
        "xnntrace_log": _here(
            run_dir, (facts.get("xnntrace_log"), *(f"{stem}{names.XNNTRACE_LOG}" for stem in stems))
        ),
        "kernels": _here(
            run_dir, (facts.get("kernel_csv"), *(f"{stem}{names.KERNELS_CSV}" for stem in stems))
        ),
    }
    if mode == _TIMING and dump is None:
        # Name the missing dump, so that its loss is reported.
        result["etdump"] = Path(_text(facts.get("etdump_rel") or facts.get("etdump"))).name or None
    return result


def _here(run_dir: Path, named: tuple[object, ...]) -> str | None:
    """Return the first of the files that exists in the run, also if the run was moved."""
    for path in (Path(name) for name in named if isinstance(name, str) and name):
        # Paths were relative to the run or its repository, or absolute; their last parts stay valid.
        parts = [part for part in path.parts if part not in (path.anchor, "..", ".")]
        for begin in range(max(0, len(parts) - _DEEPEST), len(parts)):
            if is_regular(place := run_dir.joinpath(*parts[begin:])):
                return place.relative_to(run_dir).as_posix()
    return None


def _objects(content: JsonObject, key: str) -> bool:
    entries = content.get(key)
    return isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)


def _object(content: JsonObject, key: str) -> JsonObject:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
