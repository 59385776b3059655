"""Data as it stands in a page."""

from __future__ import annotations

import json

from model_profiling.printable import printable_data


def json_text(data: object) -> str:
    """JSON that cannot end the element it stands in; ASCII, so that its length is its size."""
    text = json.dumps(printable_data(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def json_size(data: object) -> int:
    """How many bytes `json_text` has, nearly: characters that are not seen are a byte longer there."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return len(text) + 5 * (text.count("<") + text.count("&"))
