"""Whether this tree may be released under a tag: `python .ci/check_release.py v1.0.0`.

The tag names the version, which is no development version; the changelog has a dated section for it, and
CITATION.cff names the same version and date.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What speaks against releasing the tree under `root` as `tag`."""
    code = (root / "model_profiling" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', code, re.MULTILINE)
    version = found[1] if found else ""
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    wrong = []
    if tag != f"v{version}":
        wrong.append(f"the tag is {tag}, model_profiling.__version__ is {version}: they must agree")
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        wrong.append(f"{version} is no version to release; set model_profiling.__version__ to X.Y.Z")
    section = re.search(rf"^## {re.escape(version)}, (\d{{4}}-\d\d-\d\d)$", changes, re.MULTILINE)
    if section is None:
        wrong.append(f"CHANGELOG.md has no section '## {version}, YYYY-MM-DD'; name Unreleased so")
    cited = (root / "CITATION.cff").read_text(encoding="utf-8")
    facts = f"version: {version}", f"date-released: {section[1] if section else 'YYYY-MM-DD'}"
    if missing := [fact for fact in facts if fact not in cited.splitlines()]:
        wrong.append(f"CITATION.cff must have {' and '.join(missing)}")
    return wrong


def main(words: list[str]) -> int:
    if len(words) != 1:
        sys.stderr.write("usage: check_release.py TAG\n")
        return 2
    wrong = problems(words[0])
    for line in wrong:
        sys.stderr.write(f"error: {line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
