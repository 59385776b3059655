"""Packages from the machine's own Debian mirror, signature-checked, without root and without touching the
system's apt: the Debian client works on a private state of its own.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from model_profiling import process
from model_profiling.errors import SetupError

_KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
_TIMEOUT_S = 300


def unpack_packages(
    packages: Sequence[str],
    *,
    suite: str,
    architecture: str,
    into: Path,
    cure: str,
    member: str | None = None,
) -> None:
    """Download `packages` for `architecture` from `suite` and unpack them under `into`.

    `member` takes that one file and leaves the rest. `cure` is what a person can do when this machine
    cannot: it ends every error.
    """
    _require_client(cure)
    with tempfile.TemporaryDirectory(prefix="sme2prof-apt-") as folder:
        state = _PrivateState(Path(folder), suite, architecture, cure)
        state.update()
        for archive in state.download(packages):
            done = process.run(_unpacking(archive, into, member), timeout=_TIMEOUT_S)
            if not done.ok:
                raise SetupError(f"cannot unpack {archive.name}: {done.tail(1)}", cure)


def _unpacking(archive: Path, into: Path, member: str | None) -> list[str]:
    if member is None:
        return ["dpkg", "-x", str(archive), str(into)]
    into.mkdir(parents=True, exist_ok=True)
    pipe = 'dpkg --fsys-tarfile "$1" | tar -x -C "$2" "$3"'
    return ["sh", "-c", pipe, "sh", str(archive), str(into), f"./{member}"]


def native_architecture(cure: str) -> str:
    """Debian's name for this machine's architecture."""
    _require_client(cure)
    return process.run(["dpkg", "--print-architecture"], timeout=30).stdout.strip()


def own_suite(cure: str) -> str:
    """The release of Debian this machine runs, as its mirror calls it."""
    _require_client(cure)
    return _first_listed("CODENAME", lambda name: bool(name) and "-" not in name, cure)


def _require_client(cure: str) -> None:
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        raise SetupError(f"this machine has no {missing[0]}", cure)


class _PrivateState:
    """An apt configuration that keeps lists, caches and sources in a folder of its own."""

    def __init__(self, folder: Path, suite: str, architecture: str, cure: str) -> None:
        self._folder = folder
        self._cure = cure
        keyring = next((path for path in _KEYRINGS if Path(path).is_file()), None)
        if keyring is None:
            raise SetupError("the Debian archive keyring is not installed, so nothing can be verified", cure)
        for part in (
            "state/lists/partial",
            "cache/archives/partial",
            "etc/sources.list.d",
            "etc/preferences.d",
        ):
            (folder / part).mkdir(parents=True)
        (folder / "state/status").touch()
        sources = f"deb [signed-by={keyring} arch={architecture}] {_mirror(cure)} {suite} main\n"
        (folder / "etc/sources.list").write_text(sources, encoding="utf-8")
        self._options = [
            word
            for setting in (
                f"Dir::State={folder / 'state'}",
                f"Dir::State::status={folder / 'state/status'}",
                f"Dir::Cache={folder / 'cache'}",
                f"Dir::Etc::SourceList={folder / 'etc/sources.list'}",
                f"Dir::Etc::SourceParts={folder / 'etc/sources.list.d'}",
                f"Dir::Etc::PreferencesParts={folder / 'etc/preferences.d'}",
                f"APT::Architecture={architecture}",
                f"APT::Architectures={architecture}",
                "APT::Sandbox::User=",
                "APT::Install-Recommends=false",
                "Acquire::Languages=none",
                "Acquire::Retries=2",
                "Acquire::http::Timeout=20",
                "Debug::NoLocking=true",
            )
            for word in ("-o", setting)
        ]

    def update(self) -> None:
        done = self._apt("update", "--error-on=any")
        if not done.ok:
            raise SetupError(f"the Debian mirror cannot be read: {_last_line(done)}", self._cure)

    def download(self, packages: Sequence[str]) -> list[Path]:
        done = self._apt("download", *packages)
        found = sorted(self._folder.glob("*.deb"))
        if not done.ok or len(found) != len(packages):
            wanted = ", ".join(packages)
            raise SetupError(f"the Debian mirror did not give {wanted}: {_last_line(done)}", self._cure)
        return found

    def _apt(self, *words: str) -> process.Completed:
        return process.run(
            ["apt-get", *self._options, *words], timeout=_TIMEOUT_S, cwd=self._folder, env={"LC_ALL": "C"}
        )


def _mirror(cure: str) -> str:
    """The Debian mirror this machine already uses."""
    # Security updates live in a repository of their own that has no backports.
    return shlex.quote(_first_listed("REPO_URI", lambda uri: "security" not in uri, cure))


def _first_listed(field: str, wanted: Callable[[str], bool], cure: str) -> str:
    """The first fitting value of `field` among the Debian sources that apt lists."""
    listing = process.run(["apt-get", "indextargets", "--format", f"$(ORIGIN) $({field})"], timeout=60)
    values = [line.split(" ", 1)[1] for line in listing.stdout.splitlines() if line.startswith("Debian ")]
    for value in filter(wanted, values):
        return value
    raise SetupError("apt on this machine knows no Debian mirror", cure)


def _last_line(done: process.Completed) -> str:
    if done.timed_out:
        return "no answer in time"
    lines = [line.removeprefix("E: ").strip() for line in done.stderr.splitlines() if line.startswith("E:")]
    return lines[-1] if lines else f"apt-get ended with {done.returncode}"
