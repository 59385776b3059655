"""Values of an answer as JSON, CSV and terminals hold them; whatever DuckDB may answer has a form here."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any, TypeAlias

from model_profiling.core.hints import needed

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"


def plain_values(column: Any) -> list[Plain]:
    """Of one Arrow column. A moment is in UTC; those that Python's calendar does not know, and what Arrow
    alone knows, are texts."""
    arrow = needed("pyarrow", "store")
    kind = column.type
    if arrow.types.is_timestamp(kind):
        # Without its zone, which only some machines have a table of: what is counted is UTC.
        column = column.cast(arrow.timestamp("us"), safe=False)
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError, arrow.ArrowException):
        values = _as_texts(column)
    return [_plain(value) for value in values]


def _as_texts(column: Any) -> list[Any]:
    arrow = needed("pyarrow", "store")
    try:
        texts: list[Any] = column.cast(arrow.string()).to_pylist()
    except arrow.ArrowException:
        texts = [str(value) for value in column]
    return texts


def _plain(value: Any) -> Plain:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(key): _plain(inside) for key, inside in value.items()}
        case list():
            return [_plain(inside) for inside in value]
        case tuple() if type(value) is tuple:  # an entry of a MAP
            return [_plain(inside) for inside in value]
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
    return _text(value)


def _text(value: Any) -> str:
    match value:
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case (months, days, nanoseconds):  # Arrow's record of an INTERVAL
            return f"{months} months {days} days {nanoseconds / 1e9:g} seconds"
    return str(value)


def json_value(value: Plain) -> Plain:
    """JSON knows neither NaN nor infinities: null stands there."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [json_value(inside) for inside in value]
        case dict():
            return {key: json_value(inside) for key, inside in value.items()}
    return value


def cell(value: Plain) -> str | int | float | None:
    """A value in a table: lists and structures as JSON, flags in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(json_value(value), ensure_ascii=False)
    return value
