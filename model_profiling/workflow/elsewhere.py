"""Kernel evidence from another Linux machine with the kit: it emulates a program, and the run comes here."""

from __future__ import annotations

import shlex
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from model_profiling.config.settings import ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import SetupError
from model_profiling.core.safe_read import stays_inside
from model_profiling.core.stdio import Progress
from model_profiling.runs.folders import locked
from model_profiling.targets.remote.shell import Shell, last_line
from model_profiling.targets.remote.ssh import SshLink

_LIMIT_S = 6 * 3600.0
_MOST_BYTES = 2 << 30
_MOST_FILES = 10_000
_NO_KIT = 119
# What is sent is the program, what comes back is the run directory; nothing stays there.
_SCRIPT = """\
PATH=$PATH:$HOME/.local/bin
command -v sme2prof >/dev/null || exit {no_kit}
folder=$(mktemp -d) || exit
trap 'rm -rf "$folder"' EXIT
cd "$folder" && cat > {name} || exit
sme2prof profile {name} {words} --target emulated --outdir out --quiet >&2 || exit
tar -C "$(dirname "$(find out -name manifest.json)")" -cf - ."""


def emulate_on(host: str, config: ProfileConfig, progress: Progress) -> Path:
    """Emulate the program of `config` on `host`; return the run directory, beside that of `config`."""
    name = shlex.quote(config.model.name)
    script = _SCRIPT.format(no_kit=_NO_KIT, name=name, words=shlex.join(_words(config)))
    shell = Shell(SshLink(host))
    progress.stage(f"emulating {config.model.stem} on {shell.title}")
    with tempfile.TemporaryFile() as archive:
        try:
            shell.link.connect()
            done = shell.script(script, timeout=_LIMIT_S, stdin=config.model, into=archive, most=_MOST_BYTES)
        finally:
            shell.link.close()
        if done.returncode == _NO_KIT:
            cure = (
                f"install the kit there (so that `ssh {host} sme2prof --version` answers), or emulate by hand"
            )
            raise SetupError(
                f"{shell.title} has no sme2prof in its PATH", f"{cure} and name the run directory"
            )
        if not done.ok:
            said = last_line(done).removeprefix("error: ")
            raise SetupError(f"{shell.title} could not emulate {config.model.name}: {said}", "mend it there")
        archive.seek(0)
        return _unpacked(archive, config.output_root.with_name(f"emulated-{host}"), shell.title)


def _words(config: ProfileConfig) -> list[str]:
    """The options of `sme2prof profile` for the same method and inputs."""
    words = ["--method", config.method] if config.method else []
    for option, given, joint in (
        ("--length", config.inputs.sizes, "x"),
        ("--input", config.inputs.values, ","),
    ):
        for name, numbers in given.items():
            words += [option, f"{name}={joint.join(f'{number:.17g}' for number in numbers)}"]
    return words


def _unpacked(archive: IO[bytes], into: Path, title: str) -> Path:
    """Write the regular files of an archive from a machine that is not trusted into an empty folder. It is
    read as it is, not unpacked from gzip, and sparse files count in full: little may claim to be much."""
    with locked(into):
        if into.exists():
            shutil.rmtree(into)
        members: dict[str, tarfile.TarInfo] = {}
        left = _MOST_BYTES
        try:
            with tarfile.open(fileobj=archive, mode="r:") as packed:
                for number, member in enumerate(packed):
                    left -= member.size
                    if member.size < 0 or left < 0 or number == _MOST_FILES:
                        raise ValueError("larger than any run")
                    if member.isreg():
                        members[stays_inside(member.name, title)] = member
                for name, member in members.items():
                    source = packed.extractfile(member)
                    assert source is not None
                    with files.replacing(into / name) as part, part.open("wb") as stream:
                        shutil.copyfileobj(source, stream)
        except (tarfile.TarError, ValueError, ArithmeticError, RecursionError) as problem:
            raise SetupError(f"what {title} sent is not a whole run", "look at that machine") from problem
    return into
