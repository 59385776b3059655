"""Types of single config values (paths, names, counts, CPUs), each with its own error wording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from model_profiling.config.names import OWN_FOLDERS
from model_profiling.core.formatting import printable
from model_profiling.runner.machine import ClusterName

MOST = 1_000_000
MOST_ENTRIES = 256
LONGEST_PATH = 4096
_LONGEST_NAME = 255
_MOST_CPUS = 1024


def refuse(problem: str, fix: str) -> PydanticCustomError:
    """A validation error with its own wording; braces in its values are not placeholders. Half characters,
    which pydantic does not accept, are made visible."""
    return PydanticCustomError("kit", "{problem}", {"problem": printable(problem), "fix": printable(fix)})


def _as_path(value: object) -> object:
    if not isinstance(value, str):
        return value
    # Not `Path.expanduser`, which fails for unknown users.
    return Path(os.path.expanduser(usable(value)))  # noqa: PTH111


def usable(path: str) -> str:
    longest = max(map(len, path.split("/")))
    if not path.strip() or "\0" in path or len(path) > LONGEST_PATH or longest > _LONGEST_NAME:
        limits = f"at most {LONGEST_PATH} characters, {_LONGEST_NAME} in each name"
        raise refuse(f"is {shown(path)}, which is empty or not a path", f"write a path of {limits}")
    return path


def is_program(path: Path) -> Path:
    if path.suffix != ".pte":
        fix = "export it first (sme2prof export) and name the .pte file"
        raise refuse(f"is {str(path)!r}, not a .pte program", fix)
    return path


def own_name(name: str) -> str:
    if name.lower() in OWN_FOLDERS:
        raise refuse(f"is {name!r}, a name that the kit uses for a folder of its own", "choose another name")
    return name


_Entries = TypeVar("_Entries", bound=tuple[object, ...])


def each_once(entries: _Entries) -> _Entries:
    """Refuse a list with duplicates."""
    repeated = next((entry for entry in entries if entries.count(entry) > 1), None)
    if repeated is not None:
        raise refuse(f"lists {repeated} twice", "list it once")
    return entries


# Flags that the kit itself passes to the runner, or that the earlier kit's script took: a second value would
# silently win or lose.
_OWN_FLAGS = (
    "boundaries count-kernels cpu_threads disable etdump etdump_path executions exp features-only fill input "
    "inputs library memory-rate method method_name mode model model_path num_executions outdir output-prefix "
    "output_file quiet-runner result seed sizes state threads time-limit timing-runs values verbose-runner "
    "warmup"
)


def own_argument(word: str) -> str:
    if word.startswith("-") and word.partition("=")[0].lstrip("-") in _OWN_FLAGS.split():
        raise refuse(f"sets {word!r}, which the kit sets itself", "drop it, and use the setting for it")
    return word


def shown(value: object) -> str:
    """A wrong value as the user wrote it, shortened."""
    names = {dict: "an object", list: "a list", type(None): "null"}
    if type(value) in names:
        return names[type(value)]
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return text if len(text) <= 40 else text[:37] + "..."


def as_list(value: object) -> object:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _as_cpus(value: object) -> object:
    return [value] if isinstance(value, str) else as_list(value)


def _as_cpu(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_CPUS
    if number or (isinstance(value, str) and value in get_args(ClusterName)):
        return value
    fix = 'write numbers like [4, 5], or a cluster: "little", "big", "prime"'
    raise refuse(f"is {shown(value)}", fix)


ConfigPath = Annotated[Path, BeforeValidator(_as_path), WithJsonSchema({"type": "string", "minLength": 1})]
Text = Annotated[str, Field(strict=True)]
Word = Annotated[str, Field(strict=True, max_length=LONGEST_PATH)]
Whole = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Counted = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Threads = Annotated[int, Field(strict=True, ge=1, le=512)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)]
Duration = Annotated[float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False)]
Share = Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
Cpu = Annotated[int | ClusterName, PlainValidator(_as_cpu)]
Feature = Literal["sme2", "sme2-only", "sme", "sve2", "sve", "i8mm", "bf16", "dotprod", "fp16"]

# JSON schemas of what two settings accept besides a list; pydantic's own schema has only the list.
_COUNT = {"type": "integer", "minimum": 1, "maximum": 512}
_COUNTS = {"anyOf": [_COUNT, {"type": "array", "items": _COUNT, "minItems": 1, "uniqueItems": True}]}
_CPU = {"type": "integer", "minimum": 0}
_CLUSTER = {"enum": list(get_args(ClusterName))}
_CPUS = {"anyOf": [_CPU, _CLUSTER, {"type": "array", "items": {"anyOf": [_CPU, _CLUSTER]}}]}
ThreadCounts = Annotated[
    tuple[Threads, ...],
    Field(min_length=1, max_length=MOST_ENTRIES),
    AfterValidator(each_once),
    BeforeValidator(as_list),
    WithJsonSchema(_COUNTS),
]
Cpus = Annotated[
    tuple[Cpu, ...],
    Field(max_length=_MOST_CPUS),
    AfterValidator(each_once),
    BeforeValidator(_as_cpus),
    WithJsonSchema(_CPUS),
]
Features = Annotated[tuple[Feature, ...], Field(max_length=len(get_args(Feature))), AfterValidator(each_once)]
