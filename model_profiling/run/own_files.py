"""Which files of a run directory the kit wrote: what else lies there is somebody's, and is not removed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from model_profiling.run import names
from model_profiling.run.manifest import Manifest

_TOP = re.compile(
    "|".join(
        (
            *map(
                re.escape,
                (
                    names.MANIFEST,
                    names.METRICS,
                    names.JOURNAL,
                    names.ANALYSIS,
                    names.CONFIG,
                    names.GRAPH,
                    names.EVIDENCE,
                    names.FACTORS,
                    names.KERNEL_VIEW,
                    names.INDEX,
                    names.SHARED,
                    names.SHARED_FACTS,
                    names.FAILED_LAUNCH,
                ),
            ),
            rf".*{Path(names.SUMMARY).stem}\.(?:json|md)",
            r"(?:report|combined_report)\.(?:md|html)",
        )
    )
)
_HALF_WRITTEN = re.compile(r"\..+\.part")


def strangers(run_dir: Path, manifest: Manifest) -> Iterator[str]:
    """Names of files and links in `run_dir` that the kit does not write, as far as their names tell."""
    experiments = {name for part in manifest.parts for name in part.experiments}
    experiments |= {result.experiment for result in manifest.results}
    for folder, subfolders, held in os.walk(run_dir):
        links = [name for name in subfolders if Path(folder, name).is_symlink()]
        for name in sorted((*held, *links)):
            path = Path(folder, name)
            inside = PurePosixPath(path.relative_to(run_dir).as_posix())
            if path.is_symlink() or not _is_own(inside, manifest.model_stem, experiments):
                yield str(inside)


def _is_own(inside: PurePosixPath, stem: str, experiments: set[str]) -> bool:
    top, name = inside.parts[0], inside.name
    if len(inside.parts) == 1:
        return bool(_TOP.fullmatch(name) or _HALF_WRITTEN.fullmatch(name))
    if top in (names.WORK, names.FOR_TOOLS) or top.endswith(names.PICTURES):
        return True
    if top == names.LAUNCHES and name.endswith(names.RUNNER_JSON):
        return True
    return top in experiments and (name.startswith(f"{stem}_") or bool(_HALF_WRITTEN.fullmatch(name)))
