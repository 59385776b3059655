"""Stands before `sme2prof` and `python` where documents are run: measures for as long as a test may take.

It starts the real command on the package of the clone the reader stands in, with nothing else changed.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

from warm_python import ask

BUDGET_S = "2"


def main(name: str, words: list[str]) -> None:
    clone = _clone()
    os.environ["PYTHONPATH"] = str(clone)
    if name.startswith("python"):
        if words and words[0].endswith("_pipeline.py"):
            _shorten_config(words, "--config")
        argv = words
    elif name == "sme2prof":
        argv = ["-m", "model_profiling", *_shortened(words)]
    else:
        (tool,) = (found for found in entry_points(group="console_scripts") if found.name == name)
        code = f"import sys; from {tool.module} import {tool.attr} as main; sys.exit(main())"
        argv = ["-c", code, *words]
    warm = os.environ.get("DOCUMENTED_WARM")
    if warm and _better_warm(name, words):
        sys.exit(ask(warm, argv))
    os.execv(sys.executable, [sys.executable, *argv])


def _better_warm(name: str, words: list[str]) -> bool:
    """Whether most of its time would go into loading what it needs."""
    if name == "sme2prof":
        if words and words[0] in os.environ.get("DOCUMENTED_COLD", "").split():
            return False
        return bool(words) and not words[0].startswith("-") and words[0] not in ("mcp", "view")
    script = words[0] if words else ""
    return (
        script.endswith(("export_model.py", "run_quick_test.py", "_pipeline.py")) or "test-cases/" in script
    )


def _clone() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "model_profiling" / "__init__.py").is_file():
            return folder
    return Path(os.environ["DOCUMENTED_ROOT"])


def _shortened(words: list[str]) -> list[str]:
    command = next((word for word in words if not word.startswith("-")), "")
    if "--help" in words or "--budget" in words:
        return words
    if command == "profile" or (command == "compare" and any(word.endswith(".pte") for word in words)):
        return [*words, "--budget", BUDGET_S]
    if command == "run" and "--analysis-only" not in words:
        _shorten_config(words, "run")
    return words


def _shorten_config(words: list[str], after: str) -> None:
    config = Path(words[words.index(after) + 1])
    if config.is_file():
        content = json.loads(config.read_text())
        content.setdefault("schedule", {})["budget_s"] = float(BUDGET_S)
        config.write_text(json.dumps(content, indent=2))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
