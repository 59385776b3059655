"""The JSON Schema of configs, made from the settings; the copy that ships is `configs/schema.json`."""

from __future__ import annotations

from model_profiling.config.settings import SYNONYMS, ProfileConfig


def config_schema() -> dict[str, object]:
    """What editors and other programs check a config against."""
    schema = ProfileConfig.model_json_schema()
    schema["properties"]["$schema"] = {"type": "string", "description": "Where an editor finds this schema."}
    settings = schema["$defs"]["Experiment"]["properties"]
    for old, new in SYNONYMS.items():
        settings[old] = {**settings[new], "description": f"Older name of {new}.", "deprecated": True}
        settings[old].pop("default", None)
    schema["$defs"]["Side"] = {
        "description": "An experiment's name, or its name and a thread count.",
        "anyOf": [{"type": "string", "description": "An experiment's name."}, schema["$defs"]["Side"]],
    }
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "schema_version": 1, **schema, "title": "SME2 profiling config"}
