"""Writes the locks under requirements/ anew: `make lock`, with LOCK_ARGS=--upgrade for newer versions.

uv chooses the versions, for every Python and machine at once; of the files that an index has for them, only
those are kept that one of these machines can take. A wheel that one of them lacks is an error: pip would
build there what nobody has looked at. Index addresses are asked, never written.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from locks import (
    FETCHED,
    FOLDER,
    PROJECT,
    PYTHONS,
    ROOT,
    UNLOCKED,
    Locked,
    Machine,
    machines,
    normal,
    parse,
)
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BUILT = {"antlr4-python3-runtime"}
"""Packages without a wheel: their sources are locked, and built with the locked setuptools."""
_CUDA = re.compile(r"(?:nvidia|cuda)-.+|triton")
"""What only the index's torch for Linux asks for, and a build for the CPU does not: gigabytes."""
_OLDEST_GLIBC, _NEWEST_GLIBC = 28, 60
_OLDEST_MACOS, _NEWEST_MACOS = (14, 0), (27, 0)
_GLIBC_NAMES = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}

_FOR = {
    "build": "What builds the kit, its wheel, and the one package that has no wheel",
    "run": "What `make quickstart` installs beside torch",
    "test": "What `make test` installs beside torch",
    "torch-cuda": "What the index's torch for Linux needs, and one built for the CPU does not",
    "make-lock": "What `make lock` itself needs",
    "docs": "What `make docs` builds the site with",
    "ziglang": "The compiler that the kit fetches where there is none",
    "executorch": "The wheel that the kit fetches for another machine's runner",
}


@dataclass(frozen=True, slots=True)
class Files:
    """What an index has for one version of a package: names, and the hash of each."""

    wheels: dict[str, str]
    sdist: str | None


@functools.cache
def tags(machine: Machine, *, widest: bool) -> frozenset[Tag]:
    """The wheels that `machine` can take: if `widest` with the newest system, else with the oldest too."""
    version = tuple(map(int, machine.python.split(".")))
    if machine.sys_platform == "darwin":
        platforms = list(mac_platforms(_NEWEST_MACOS if widest else _OLDEST_MACOS, machine.machine))
    else:
        newest = _NEWEST_GLIBC if widest else _OLDEST_GLIBC
        names = [f"manylinux_2_{minor}" for minor in range(5, newest + 1)]
        names += [name for minor, name in _GLIBC_NAMES.items() if minor <= newest]
        platforms = [f"{name}_{machine.machine}" for name in names]
    interpreter = f"cp{machine.python.replace('.', '')}"
    own = cpython_tags(version, abis=[interpreter], platforms=platforms)
    return frozenset({*own, *compatible_tags(version, interpreter, platforms)})


class Index:
    """Asks uv, with what this machine says about indexes and proxies."""

    def __init__(self, folder: Path, upgrade: bool) -> None:
        uv = Path(sys.executable).with_name("uv")
        self._uv = str(uv) if uv.is_file() else shutil.which("uv")
        self._folder = folder
        self._upgrade = upgrade

    def choose(
        self, asked: Sequence[str], words: Sequence[str] = (), *, like: Iterable[Locked] = ()
    ) -> list[tuple[Locked, Files]]:
        """A version of all that is `asked` for; those of `like` stay unless an upgrade is wanted."""
        source = self._folder / "asked.in"
        source.write_text("\n".join(asked) + "\n", encoding="utf-8")
        chosen = self._folder / "chosen.txt"
        kept = "" if self._upgrade else "".join(replace(one, hashes=(), via=()).text() for one in like)
        chosen.write_text(kept, encoding="utf-8")
        self._compile([*words, "--no-header", "--annotation-style", "line"], source, chosen)
        # The same versions once more, now with the names of their files.
        named = self._folder / "pylock.toml"
        named.unlink(missing_ok=True)
        self._compile([*words, "--constraints", str(chosen), "--format", "pylock.toml"], source, named)
        packages = tomllib.loads(named.read_text(encoding="utf-8"))["packages"]
        files = {(normal(one["name"]), one["version"]): _files(one) for one in packages}
        locked = [_named(one) for one in parse(_one_line(chosen.read_text(encoding="utf-8")))]
        return [(one, files[one.name, str(one.version)]) for one in locked]

    def _compile(self, words: Sequence[str], source: Path, output: Path) -> None:
        if self._uv is None:
            sys.exit("error: there is no uv; run `make lock`, which installs it into .venv")
        done = subprocess.run(
            [
                *(self._uv, "pip", "compile", "--quiet", "--universal", "--no-sources", "--no-config"),
                *("--python-version", PYTHONS[0], "--output-file", str(output), *words, str(source)),
            ],
            cwd=self._folder, capture_output=True, text=True, check=False,
            env={**os.environ, "UV_PYTHON": sys.executable},
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"error: uv cannot choose versions: {done.stderr.strip()}")


def _one_line(text: str) -> str:
    """uv's `package==1 # via other` as a lock has it."""
    return re.sub(r" +# via ", "\n    # via ", text)


def _named(one: Locked) -> Locked:
    """`-r` is the file that asks for what the kit asks for, `-c` one that asks for nothing."""
    asking = (PROJECT if name == "-r" else name for name in one.via if name != "-c")
    return replace(one, via=tuple(sorted(set(asking))))


def _files(package: dict[str, Any]) -> Files:
    wheels = {_file_name(wheel): wheel["hashes"]["sha256"] for wheel in package.get("wheels", ())}
    sdist = package.get("sdist")
    return Files(wheels, sdist["hashes"]["sha256"] if sdist else None)


def _file_name(file: dict[str, Any]) -> str:
    return str(file.get("name") or unquote(urlsplit(file["url"]).path.rpartition("/")[2]))


def hashed(one: Locked, files: Files, wanted: Collection[Machine]) -> Locked | None:
    """`one` with the hashes of what the `wanted` machines can take; None where none of them wants it."""
    where = [machine for machine in wanted if machine.holds(one.marker)]
    if not where or one.name == UNLOCKED:
        return None
    if one.name in BUILT:
        if files.wheels or files.sdist is None:
            sys.exit(f"error: {one.name} {one.version} has wheels, or no sources; correct BUILT")
        return replace(one, hashes=(files.sdist,))
    able = {name: parse_wheel_filename(name)[3] for name in files.wheels}
    lacking = {
        f"Python {machine.python} on {machine.sys_platform} {machine.machine}"
        for machine in where
        if not any(theirs & tags(machine, widest=False) for theirs in able.values())
    }
    if lacking:
        sys.exit(
            f"error: {one.name} {one.version} has no wheel for {', '.join(sorted(lacking))};"
            " ask for another version in pyproject.toml"
        )
    all_tags = set().union(*(tags(machine, widest=True) for machine in where))
    return replace(
        one, hashes=tuple(sorted(files.wheels[name] for name, theirs in able.items() if theirs & all_tags))
    )


def write(name: str, packages: Iterable[Locked], folder: Path = FOLDER) -> None:
    """NAME.txt"""
    packages = sorted(packages, key=lambda one: (one.name, one.version))
    head = [
        f"# {_FOR[name]}. Written by `make lock`; requirements/README.md says how.",
        "--only-binary :all:",
        *(f"--no-binary {one.name}" for one in packages if one.name in BUILT),
    ]
    text = "\n".join(head) + "\n" + "".join(one.text() for one in packages)
    (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def before(name: str, folder: Path = FOLDER) -> list[Locked]:
    """What a lock held until now."""
    path = folder / f"{name}.txt"
    return parse(path.read_text(encoding="utf-8")) if path.exists() else []


def main(words: list[str]) -> int:
    if set(words) - {"--upgrade"}:
        sys.stderr.write("usage: make_lock.py [--upgrade]\n")
        return 2
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = document["project"], document["project"]["optional-dependencies"]
    everywhere = machines()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        index = Index(Path(made), upgrade=bool(words))
        kit = [*project["dependencies"], *extras["executorch"]]

        def lock(asked: Sequence[str], name: str, *more: str) -> list[Locked]:
            return _locked(index.choose(asked, more, like=[*before(name), *before("torch-cuda")]), everywhere)

        whole = lock([*kit, *extras["test"]], "test")
        cuda = {one.name for one in whole if _CUDA.fullmatch(one.name)}
        write("test", (one for one in whole if one.name not in cuda))
        write("torch-cuda", (one for one in whole if one.name in cuda))
        # The smaller locks take the versions of the largest: they are what the tests are run with.
        same = Path(made) / "same.txt"
        same.write_text("".join(replace(one, hashes=(), via=()).text() for one in whole), encoding="utf-8")
        constraints = ("--constraints", str(same))
        write("run", (one for one in lock(kit, "run", *constraints) if one.name not in cuda))
        write("build", lock([*document["build-system"]["requires"], "build"], "build", *constraints))
        write(
            "make-lock",
            lock(["uv", "packaging", "tomli; python_version < '3.11'"], "make-lock", *constraints),
        )
        write("docs", lock(["zensical"], "docs"))
        (release,) = (line for line in extras["executorch"] if line.startswith("executorch=="))
        for name, asked in {"ziglang": "ziglang==0.17.*", "executorch": release}.items():
            chosen = index.choose([asked], ["--no-deps"], like=before(name, FETCHED))
            write(name, _locked(chosen, everywhere), FETCHED)
    (pin,) = (line for line in extras["executorch"] if line.startswith(f"{UNLOCKED}=="))
    (FOLDER / f"{UNLOCKED}.txt").write_text(
        "# Without a hash: a machine may serve a build of its own (requirements/README.md). Written by `make"
        f" lock`.\n{pin}\n",
        encoding="utf-8",
    )
    return 0


def _locked(chosen: Iterable[tuple[Locked, Files]], wanted: Collection[Machine]) -> list[Locked]:
    return [done for one, files in chosen if (done := hashed(one, files, wanted))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
