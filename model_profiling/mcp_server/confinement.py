"""What the assistant may name: paths inside one folder, and models in it or known to the kit. Every path is
resolved first, so that neither `..` nor a link leads out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import InputError, system_reason
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import under_either_name
from model_profiling.models import list_models
from model_profiling.models.registry import unknown_model
from model_profiling.run import names
from model_profiling.run.folders import holds_run, runs_in

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Root:
    """The folder that the user named, resolved."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> Root:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}", "give the folder with your models and runs")
        return cls(folder.resolve())

    def place(self, text: str) -> Path:
        """The resolved path that `text` names inside the root, whether it exists or not."""
        if not text.strip() or "\0" in text:
            raise InputError("the path is empty", "give a path relative to the root, such as '.'")
        try:
            found = (self.folder / text).resolve()
        except (OSError, RuntimeError) as problem:  # a loop of links
            raise InputError(f"{text} cannot be resolved: {problem}", "give another path") from problem
        if not found.is_relative_to(self.folder):
            raise InputError(
                f"{text} is outside the root {self.folder}",
                "give a path inside it, relative to it; only the user can change the root",
            )
        return found

    def shown(self, path: Path | str) -> str:
        """The path relative to the root if it is inside: the form in which an assistant names it again."""
        whole = self.folder / path
        return whole.relative_to(self.folder).as_posix() if whole.is_relative_to(self.folder) else str(path)

    def word(self, path: Path) -> str:
        """The same for a command line: safe from being read as an option or a home folder."""
        shown = self.shown(path)
        return f"./{shown}" if shown.startswith(("-", "~")) else shown

    def run_dir(self, text: str) -> Path:
        """The run directory `text`, or the only one in the folder `text`."""
        folder = self.place(text)
        if not folder.is_dir():
            raise InputError(f"there is no run directory {text}", "the tool `runs` lists them")
        found = [run for run in runs_in(folder) if run.resolve().is_relative_to(self.folder)]
        if len(found) != 1:
            listed = ", ".join(self.shown(run) for run in found[:_SHOWN])
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise InputError(f"{text} contains {len(found)} runs", f"choose one of them: {listed}{more}")
        return found[0]

    def file(self, text: str, *endings: str) -> Path:
        path = self.place(text)
        if path.suffix not in endings:
            raise InputError(f"{text} does not end in {' or '.join(endings)}", "give another file")
        if not path.is_file():
            raise InputError(f"there is no file {self.shown(path)}", "correct the path, relative to the root")
        return path

    def factory(self, text: str) -> str:
        """`file.py:function` with the file inside the root, as a command takes it."""
        file, _, function = text.rpartition(":")
        if not file.endswith(".py"):
            raise InputError(
                f"{text} could import any module of this machine",
                (
                    "give a Python file inside the root, path/file.py:factory, or a model that the tool "
                    "`models` lists"
                ),
            )
        if not function.isidentifier():
            raise InputError(f"'{function}' is not the name of a function", "write path/file.py:factory")
        return f"{self.word(self.file(file, '.py'))}:{function}"

    def model(self, text: str) -> str:
        """A model as a command takes it: a known name, or a program or factory inside the root."""
        if text.endswith(".pte"):
            return self.word(self._program(text))
        if ":" in text or text.endswith(".py"):
            return self.factory(text)
        known = [entry.name for entry in list_models()]
        name, _, options = text.partition("@")
        if name not in known:
            problem, hint = unknown_model(text, known), did_you_mean(name, known)
            raise InputError(
                problem.problem,
                (
                    f"{hint}{' ' if hint else ''}the tool `models` lists them; for others, give "
                    "path/file.py:factory"
                ),
            )
        return "@".join((name, *([self._options(options)] if options else ())))

    def _options(self, text: str) -> str:
        """`size=512,checkpoint=FILE` of a model: a value that is not a number is a file inside the root."""
        parts = []
        for part in text.split(","):
            key, _, value = part.partition("=")
            if not (key.isidentifier() and value):
                raise InputError(
                    f"'{part}' is not an option of a model", "write name@option=value,option=value"
                )
            parts.append(f"{key}={value if value.isdigit() else self.word(self.place(value))}")
        return ",".join(parts)

    def _program(self, text: str) -> Path:
        path = self.place(str(under_either_name(self.place(text))))
        return self.file(str(path), ".pte")

    def outputs(self, model: str, out_dir: str | None) -> str | None:
        """The folder that a job must write to; None leaves the choice to the command, after checking that its
        usual folders are inside the root. `model` is what `model()` returned."""
        if out_dir is not None:
            return self.word(self.place(out_dir))
        if model.endswith(".pte"):
            self.place(str(names.run_home(self.folder / model)))
        else:
            file, _, factory = model.rpartition(":")
            name, _, options = model.partition("@")
            home = f"out_{Path(file).stem}_{factory}" if file and not options else f"out_{name}"
            # The folder of a variant has the options in its name.
            homes = [home, *(found.name for found in self.folder.glob(f"{home}_*") if options)]
            for place in homes:
                for folder in ("artifacts", "runs"):
                    self.place(f"{place}/{folder}")
        return None

    def listing(self, text: str) -> list[Path]:
        """The run directories in a folder, the latest first."""
        folder = self.place(text)
        if not folder.is_dir():
            raise InputError(f"there is no folder {text}", "give a folder relative to the root, such as '.'")
        inside = [run for run in runs_in(folder) if run.resolve().is_relative_to(self.folder)]
        return sorted(filter(holds_run, inside), key=_changed, reverse=True)


def _changed(run_dir: Path) -> float:
    manifest = run_dir / names.MANIFEST
    try:
        return (manifest if manifest.is_file() else run_dir).stat().st_mtime
    except OSError as problem:
        raise InputError(
            f"cannot read {run_dir}: {system_reason(problem)}", "ask for the list again"
        ) from problem
