"""The script that draws charts, from the vl-convert package, which carries it: no network is needed.

Putting it together takes seconds, so it is kept in the kit's cache by the versions it was made of.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from model_profiling import files
from model_profiling.errors import ProfilingError
from model_profiling.report.charts.drawing import VEGA_LITE
from model_profiling.runner.cache import cache_root, cached

_FILE = "vega.js"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def vega_script() -> str:
    """It runs in the browser of whoever opens a page, so it is taken from the cache only as it was put there;
    where the cache cannot be used it is put together anew."""
    home = cache_root() / "vega" / f"{version('vl-convert-python')}-{VEGA_LITE}"
    try:
        kept = cached(home, _make, "the script that draws charts", fetch=True) / _FILE
        return kept.read_text(encoding="utf-8")
    except (ProfilingError, OSError):
        return _put_together()


def _make(into: Path) -> None:
    files.write_text(into / _FILE, _put_together())


def _put_together() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
    # Inside a page, the end of a script element ends it wherever it stands.
    return script.replace("</script", "<\\/script")
