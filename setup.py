"""What pyproject.toml cannot say: README.md as it is published, where its relative links would lead nowhere.

Links and pictures point into the repository, at the tag of the release that is built.
"""

import re
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def published(readme: str, repository: str, version: str) -> str:
    """`readme` with every relative link absolute: pages to look at, pictures to load."""
    tag = "HEAD" if "dev" in version else f"v{version}"

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['before']}({repository}/{kind}/{tag}/{found['target']})"

    link = r"(?P<before>(?P<picture>!?)\[[^\]]*\])\((?P<target>(?![a-z]+:|#|/)[^)\s]+)\)"
    return re.sub(link, absolute, readme)


def stated(file: str, pattern: str) -> str:
    """What a line of `file` says; building imports nothing of the kit."""
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"error: {file} has no line like {pattern}")
    return found[1]


if __name__ == "__main__":
    setup(
        long_description=published(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            stated("pyproject.toml", r'^Repository = "(.+)"$'),
            stated("model_profiling/__init__.py", r'^__version__ = "(.+)"$'),
        ),
        long_description_content_type="text/markdown",
    )
