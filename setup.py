"""What pyproject.toml cannot say: README.md as it is published, and the agent skills inside of the package.

Relative links of README.md would lead nowhere: links and pictures point into the repository that
pyproject.toml names, at the tag of the release that is built; if it names none, they become text. The
skills' texts have a folder of their own for whoever works in a clone.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SKILLS = "agent_skill_ml_profiling"


class BuildWithSkills(build_py):
    """Puts the texts of the skills where `model_profiling.workflow.skills` finds them without a clone."""

    def _texts(self) -> dict[str, str]:
        """Where each text is copied to, and from."""
        home = Path(self.build_lib, "model_profiling", "skills")
        texts = sorted((ROOT / SKILLS).rglob("*.md"))
        return {str(home / path.relative_to(ROOT / SKILLS)): str(path.relative_to(ROOT)) for path in texts}

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # else the clone's own are read
            for target, source in self._texts().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target, preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return super().get_outputs(include_bytecode) + ([] if self.editable_mode else list(self._texts()))

    def get_source_files(self) -> list[str]:
        return super().get_source_files() + list(self._texts().values())


def published(readme: str, repository: str, version: str) -> str:
    """`readme` with every relative link absolute, or without it: pages to look at, pictures to load."""
    tag = "HEAD" if "dev" in version else f"v{version}"

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found["picture"] else "blob"
        return f"{found['before']}({repository}/{kind}/{tag}/{found['target']})"

    link = r"(?P<before>(?P<picture>!?)\[(?P<text>[^\]]*)\])\((?P<target>(?![a-z]+:|#|/)[^)\s]+)\)"
    return re.sub(link, absolute if repository else r"\g<text>", readme)


def stated(file: str, pattern: str) -> str:
    """What a line of `file` says, or nothing; building imports nothing of the kit."""
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildWithSkills},
        long_description=published(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            stated("pyproject.toml", r'^Repository = "(.+)"$'),
            stated("model_profiling/_version.py", r'^__version__ = "(.+)"$'),
        ),
        long_description_content_type="text/markdown",
    )
