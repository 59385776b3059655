"""Where a store is: what the user named, else $SME2PROF_STORE, else the folder `sme2prof_store` here."""

from __future__ import annotations

import os

from model_profiling.files import StrPath

VARIABLE = "SME2PROF_STORE"
DEFAULT = "sme2prof_store"
_REMOTE = ("s3://", "gs://", "gcs://", "r2://", "az://", "abfss://", "file://")
"""What DuckDB can list and read, each with an extension; `file` with none, so that the way can be tested."""


def store_address(given: StrPath | None = None) -> str:
    """The address of the store that is meant."""
    return os.fspath(given) if given is not None else os.environ.get(VARIABLE) or DEFAULT


def store_command(words: str, address: str) -> str:
    """`sme2prof store` with `words`, as it must be said of the store at `address`."""
    named = "" if address == store_address() else f" --store {address}"
    return f"sme2prof store {words}{named}"


def is_remote(address: str) -> bool:
    """Whether it is no folder of this machine."""
    return address.lower().startswith(_REMOTE)
