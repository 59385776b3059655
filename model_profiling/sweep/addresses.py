"""The address of a Dask scheduler, and the certificates for talking to it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.core.errors import InputError
from model_profiling.core.hints import needed

EXTRA = "sweep"
LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})/?")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: the authority that both sides trust, and this side's certificate with its key."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A checked address; with `tls`, a peer that cannot prove its identity is not talked to."""

    address: str
    tls: Tls | None = None

    @property
    def is_loopback(self) -> bool:
        found = _ADDRESS.fullmatch(self.address)
        return found is not None and is_loopback(found.group(2))

    def security(self) -> Any:
        if self.tls is None:
            return None
        cert, key = str(self.tls.cert), str(self.tls.key)
        return needed("distributed", EXTRA).Security(
            require_encryption=True,
            tls_ca_file=str(self.tls.ca),
            tls_client_cert=cert,
            tls_client_key=key,
            tls_worker_cert=cert,
            tls_worker_key=key,
        )


def parse_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """Check that all three files are given, or none."""
    given = [path for path in (ca, cert, key) if path is not None]
    if not given:
        return None
    if ca is None or cert is None or key is None:
        raise InputError("TLS needs three files", "give --tls-ca, --tls-cert and --tls-key together")
    for path in given:
        if not path.is_file():
            raise InputError(f"there is no file {path}", "name a certificate or key in PEM format")
    return Tls(ca.absolute(), cert.absolute(), key.absolute())


def parse_scheduler(text: str, tls: Tls | None = None) -> Scheduler:
    """Parse `HOST:PORT`, with `tcp://` or `tls://` before it if wanted."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found.group(3)) < 65536:
        raise InputError(f"{text!r} is no scheduler's address", "write HOST:PORT, as 127.0.0.1:8786")
    scheme = found.group(1) or ("tls" if tls else "tcp")
    if (scheme == "tls") != (tls is not None):
        fix = (
            "give --tls-ca, --tls-cert and --tls-key"
            if tls is None
            else "write tls://, or leave the files out"
        )
        raise InputError(f"{text} is asked for {'without' if tls is None else 'with'} certificates", fix)
    return Scheduler(f"{scheme}://{found.group(2)}:{found.group(3)}", tls)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
