"""The script that draws charts, from the vl-convert package, which carries it: no network is needed.

Putting it together takes seconds, so it is kept in the kit's cache by the versions it was made of.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import version

from model_profiling import files
from model_profiling.errors import InputError
from model_profiling.report.charts.drawing import VEGA_LITE
from model_profiling.runner.cache import cache_root

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def vega_script() -> str:
    kept = cache_root() / "vega" / f"{version('vl-convert-python')}-{VEGA_LITE}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        import vl_convert

        script: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
        # Inside a page, the end of a script element ends it wherever it stands.
        script = script.replace("</script", "<\\/script")
        with contextlib.suppress(InputError):
            files.write_text(kept, script)
        return script
