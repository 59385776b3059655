"""What `mac_pipeline.py` and `linux_pipeline.py` share: `sme2prof run`, on the system its name promises."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from model_profiling.cli.main import main as sme2prof

SYSTEMS = {"darwin": ("a Mac", "mac_pipeline.py"), "linux": ("Linux", "linux_pipeline.py")}


def run_pipeline(system: str, description: str, argv: Sequence[str] | None = None) -> int:
    """Run `--config`; every other option is `sme2prof run`'s own."""
    parser = argparse.ArgumentParser(
        description=description,
        epilog="Further options are those of `sme2prof run`: --resume, --force, --only, --analysis-only.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, help="the config to run")
    options, rest = parser.parse_known_args(argv)
    if sys.platform != system:
        wanted, _ = SYSTEMS[system]
        here, script = SYSTEMS.get(sys.platform, (sys.platform, "sme2prof run"))
        print(f"error: this is {here}, not {wanted}; use {script}", file=sys.stderr)  # noqa: T201  an entry point
        return 2
    return sme2prof(["run", options.config, *rest])
