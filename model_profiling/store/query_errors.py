"""What DuckDB says of a question that it cannot answer, as one line with what to do."""

from __future__ import annotations

import re

from model_profiling.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.store.confined import Refusal
from model_profiling.store.log import FIX
from model_profiling.store.views import TABLES_AND_VIEWS
from model_profiling.wording import did_you_mean

_LIST = "`sme2prof query --views` lists them"
_ONLY_READS = "a question is one SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT or EXPLAIN"
_NO_TABLE = re.compile(r'Table with name "?(.+?)"? does not exist')
_NO_COLUMN = re.compile(
    r'(?:Referenced column|Column) "(.+?)"(?: in \w+ list)? (?:not found|that was)'
    r'|does not have a column named "(.+?)"'
)
_PREFIX = re.compile(r"^[A-Z][A-Za-z ]*?(?:Error|ERROR): ")
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)


def worded(refusal: Refusal, sql: str, memory: int) -> ProfilingError:
    match refusal.kind:
        case "NoQuestionError":
            return InputError(f"this is no question of one statement: {refusal.message}", _ONLY_READS)
        case "DamagedError" | "SetupError":
            return _of_this_machine(refusal)
        case "OutOfMemoryException" | "MemoryError" | "ArrowMemoryError":
            return InputError(
                f"the question needs more than {memory / (1 << 20):.0f} MB of memory",
                "ask for fewer rows or columns, or allow more: sme2prof query --memory MB",
            )
        case "PermissionException":
            return InputError(
                "a question reads the tables of the store, and no other file or setting", f"tables: {_LIST}"
            )
    if not refusal.of_duckdb:
        return _of_this_machine(refusal)
    return InputError(*_unknown_name(refusal.message, sql) or (_said(refusal.message), _cure(refusal.kind)))


def _of_this_machine(refusal: Refusal) -> ProfilingError:
    """What is no fault of the question."""
    match refusal.kind:
        case "DamagedError":
            return FormatError(f"the store's {refusal.message}", FIX)
        case "SetupError":
            return SetupError(*refusal.message.split("; ", 1))
    return RunError(
        f"the answer could not be sent: {refusal.kind}: {one_line(refusal.message)}",
        "write what is asked for as text: column::VARCHAR",
    )


def _unknown_name(message: str, sql: str) -> tuple[str, str] | None:
    """What is wrong and what to do, where the question names something that is not there."""
    if found := _NO_TABLE.search(message):
        hint = did_you_mean(found[1], TABLES_AND_VIEWS)
        return f"there is no table or view '{found[1]}'", _with(hint, _LIST)
    if found := _NO_COLUMN.search(message):
        name = found[1] or found[2]
        return f"there is no column '{name}' here", _with(did_you_mean(name, _columns_near(sql)), _LIST)
    return None


def one_line(text: str) -> str:
    return " ".join(text.split())


def _with(hint: str, more: str) -> str:
    return f"{hint} {more}" if hint else more


def _columns_near(sql: str) -> list[str]:
    """The columns of the tables that the question names; of all where it names none."""
    words = set(re.findall(r"[a-z_0-9]+", sql.lower()))
    named = [found for name, found in TABLES_AND_VIEWS.items() if name in words]
    return sorted({name for found in named or TABLES_AND_VIEWS.values() for name in found.names})


def _said(message: str) -> str:
    """DuckDB's first sentence, and in which line of the question it sees it."""
    first = _PREFIX.sub("", message.strip().split("\n\n")[0].split("\n\t")[0])
    line = _LINE.search(message)
    where = f" in line {line[1]}" if line and int(line[1]) > 1 else ""
    return f"DuckDB cannot answer{where}: {one_line(first).rstrip('.')}"


def _cure(kind: str) -> str:
    if kind == "ParserException":
        return "correct the SQL; an example: FROM latest_latencies ORDER BY median_ms LIMIT 10"
    return f"correct the SQL; tables and columns: {_LIST}"
