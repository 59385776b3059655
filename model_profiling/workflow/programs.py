"""The program to profile: the .pte file a user named, an export that is still good, or a new export."""

from __future__ import annotations

from pathlib import Path

from model_profiling import export, files
from model_profiling.errors import InputError, ProfilingError
from model_profiling.export import export_model
from model_profiling.export.exporter import versions
from model_profiling.export.reading import read_export
from model_profiling.models import registry
from model_profiling.models.options import Chosen
from model_profiling.program_name import under_either_name
from model_profiling.progress import Progress, Silent


def find_or_export(
    model: str,
    *,
    dtype: str | None = None,
    backend: str | None = None,
    outdir: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """The .pte of `model`; an export of a registered model is made again only when it could come out
    differently. Models of the user's own are always exported: what they depend on is not known here.
    `dtype` and `backend` (fp32, xnnpack) are those of an export: a program that is one has its own."""
    progress = progress or Silent()
    if model.endswith(".pte"):
        program = _named(Path(model))
        for option, value in (("--dtype", dtype), ("--backend", backend)):
            if value is not None:
                raise InputError(
                    f"{program} is exported already", f"{option} applies to models; leave it out"
                )
        return program
    dtype, backend = dtype or "fp32", backend or "xnnpack"
    artifacts = outdir / "artifacts" if outdir else None
    if found := current_export(model, dtype, backend, artifacts):
        progress.stage(f"using {found}")
        return found
    return export_model(model, dtype=dtype, backend=backend, outdir=artifacts, progress=progress).pte


def current_export(
    model: str, dtype: str | None, backend: str | None, artifacts: Path | None = None
) -> Path | None:
    """An earlier export of a registered model, if a new one would come out the same."""
    chosen = registry.choose(model)
    if chosen is None:
        return None
    folder = artifacts or Path(f"out_{chosen.file_name}") / "artifacts"
    pte = folder / f"{chosen.file_name}_{backend or 'xnnpack'}_{dtype or 'fp32'}.pte"
    return pte if _is_current(chosen, pte) else None


def _named(path: Path) -> Path:
    path = under_either_name(path)
    if not path.is_file():
        raise InputError(f"there is no program {path}", "correct the path, or name a model to export")
    return path


def _is_current(chosen: Chosen, pte: Path) -> bool:
    """Whether the export is whole, of the same variant, made with what is installed, and newer than the
    model's source and the files it reads."""
    entry = registry.discover()[chosen.model]
    home = registry.home_of(entry)
    if home is None or entry.source != "kit":
        return False
    try:
        summary = read_export(pte)
        made = pte.stat().st_mtime
    except (OSError, ProfilingError):
        return False
    whole = files.sha256(pte) == summary.sha256 and summary.etrecord.is_file()
    same_tools = summary.versions == versions() and summary.seed == 0
    sources = [
        *chosen.files,
        *registry.sources_in(home),
        *registry.KIT.glob("*.py"),
        *registry.KIT.glob("*/*.py"),  # a model may be built of another's parts
        *Path(export.__file__).parent.glob("*.py"),
    ]
    usable = whole and not summary.accuracy.problem and summary.source == chosen.source
    return usable and same_tools and all(source.stat().st_mtime <= made for source in sources)
