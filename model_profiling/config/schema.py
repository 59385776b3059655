"""The JSON Schemas of configs and sweeps, made from the settings; the copies that ship are
`configs/schema.json` and `configs/sweep_schema.json`."""

from __future__ import annotations

from model_profiling.config.settings import SYNONYMS, ProfileConfig
from model_profiling.config.sweep import OWN_RUNGS, SweepConfig

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ITSELF = {"type": "string", "description": "Where an editor finds this schema."}


def config_schema() -> dict[str, object]:
    """What editors and other programs check a config against."""
    schema = ProfileConfig.model_json_schema()
    schema["properties"]["$schema"] = _ITSELF
    settings = schema["$defs"]["Experiment"]["properties"]
    for old, new in SYNONYMS.items():
        settings[old] = {**settings[new], "description": f"Older name of {new}.", "deprecated": True}
        settings[old].pop("default", None)
    schema["$defs"]["Side"] = {
        "description": "An experiment's name, or its name and a thread count.",
        "anyOf": [{"type": "string", "description": "An experiment's name."}, schema["$defs"]["Side"]],
    }
    return {"$schema": _DIALECT, "schema_version": 1, **schema, "title": "SME2 profiling config"}


def sweep_schema() -> dict[str, object]:
    """The same for sweeps."""
    schema = SweepConfig.model_json_schema()
    schema["properties"]["$schema"] = _ITSELF
    schema["$defs"]["Rung"] = {
        "description": "A rung that the kit knows, or a set of CPU features of your own.",
        "anyOf": [{"enum": list(OWN_RUNGS)}, schema["$defs"]["Rung"]],
    }
    return {"$schema": _DIALECT, "schema_version": 1, **schema, "title": "SME2 profiling sweep"}
