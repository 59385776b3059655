"""Writes the bill of materials of this version: `make sbom`, or `python .ci/sbom.py FILE.cdx.json`.

CycloneDX 1.6, made of the locks alone, so that a version has one: what the kit needs to run, the packages
that only its tests and its build need (scope `excluded`), their hashes, and who asks for what. Nothing of
them is in the kit's own wheel.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from locks import FOLDER, PROJECT, ROOT, UNLOCKED, Locked, normal, parse, read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_OWN = "sme2prof:"
"""Begins the names of properties that CycloneDX has no field for."""


def version() -> str:
    """The kit's own, read and not imported: building needs none of its packages."""
    code = (ROOT / "model_profiling" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    if found is None:
        sys.exit("error: model_profiling/_version.py states no version")
    return found[1]


def reference(name: str, version: object) -> str:
    """A package URL, which also is the component's name within the bill."""
    return f"pkg:pypi/{name}@{version}"


def component(held: dict[str, Locked], scope: str) -> dict[str, Any]:
    """A package as CycloneDX has it; which locks hold it, and where they want it, are properties."""
    one = next(iter(held.values()))
    told = [
        ("lock", " ; ".join(filter(None, (f"requirements/{lock}.txt", each.marker))))
        for lock, each in held.items()
    ]
    hashes = sorted({digest for each in held.values() for digest in each.hashes})
    if not hashes:
        told.append(("hash", "none: a machine may serve a build of its own"))
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(one.name, one.version),
        "name": one.name,
        "version": str(one.version),
        "scope": scope,
        "purl": reference(one.name, one.version),
        "properties": [{"name": f"{_OWN}{key}", "value": value} for key, value in told],
    }
    if hashes:  # of each file that pip may take, one for every Python and machine
        made["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
    return made


def bill() -> dict[str, Any]:
    """The whole of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = {normal(re.split(r"[<>=;\[ ]", line)[0]) for line in project["dependencies"]}
    (pin,) = parse((FOLDER / f"{UNLOCKED}.txt").read_text(encoding="utf-8"))
    run = read("run")
    packages = {
        "run": run,
        UNLOCKED: [replace(pin, via=(PROJECT,))],
        "torch-cuda": read("torch-cuda"),
        "build": read("build"),
        "test": read("test"),
    }
    found: dict[str, dict[str, Locked]] = {}
    for lock, ones in packages.items():
        for one in ones:
            found.setdefault(reference(one.name, one.version), {})[lock] = one
    # Who reads runs needs `dependencies` and what these need; who makes them the extra `executorch`, too.
    needed = _closure(run, always)

    def scope(held: dict[str, Locked]) -> str:
        if any(one.name in needed for one in held.values()):
            return "required"
        return "excluded" if set(held) <= {"build", "test"} else "optional"

    own = reference(PROJECT, version())
    by_name: dict[str, set[str]] = {PROJECT: {own}}
    for name, held in found.items():
        by_name.setdefault(next(iter(held.values())).name, set()).add(name)
    asks: dict[str, set[str]] = {name: set() for name in (own, *found)}
    for name, held in found.items():
        for asking in {via for one in held.values() for via in one.via}:
            for each in by_name.get(asking, ()):
                asks[each].add(name)
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": PROJECT,
                "version": version(),
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": own,
                "externalReferences": [{"type": "vcs", "url": url} for url in project["urls"].values()],
            }
        },
        "components": [component(held, scope(held)) for _, held in sorted(found.items())],
        "dependencies": [{"ref": name, "dependsOn": sorted(theirs)} for name, theirs in sorted(asks.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


def _closure(packages: Iterable[Locked], names: set[str]) -> set[str]:
    """`names`, and whatever is there because one of these asks for it."""
    packages = list(packages)
    found = set(names)
    while more := {one.name for one in packages if found & set(one.via)} - found:
        found |= more
    return found


def main(words: list[str]) -> int:
    if len(words) != 1:
        sys.stderr.write("usage: sbom.py FILE.cdx.json\n")
        return 2
    path = Path(words[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
