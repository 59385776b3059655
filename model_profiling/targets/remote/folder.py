"""The kit's folder on another machine. Files lie in it under their content, so what is there is never sent
again; whatever comes or goes is checked by size and SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, SetupError
from model_profiling.core.formatting import plural, size
from model_profiling.targets.collect import MOST_BYTES, MOST_FILES, LeftFile
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.shell import Answer, LinkLost, Shell

HOME = "sme2prof-device"
"""Not the name of any folder that the kit, or its cache, has on the machine it runs on: they may be the
same."""
_COPY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a file here."""

    size: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.size} {self.sha256}"


@dataclass(frozen=True, slots=True)
class Removed:
    """What was taken off a machine: each file under `folder` with its size, and what else a person should
    know of it."""

    folder: str
    files: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.files)


@dataclass(slots=True)
class RemoteFolder:
    """The kit's own folder in `base`, on the machine behind `shell`."""

    shell: Shell
    base: str
    sent: list[str] = field(default_factory=list)
    """Every file that had to be sent, in order."""
    _contents: dict[tuple[Path, int, int], Content] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _seen_at: int = 0
    _left_behind: list[str] = field(default_factory=list)
    _boot: str = ""

    @property
    def path(self) -> str:
        return f"{self.base.rstrip('/')}/{HOME}"

    def open(self) -> None:
        """Make the folder, or say why it cannot be."""
        answer = self.shell.repeat(lambda: self.shell.script(scripts.make_home(self.path)))
        if not answer.ok:
            raise self._refusal(answer)
        self._boot = answer.stdout.strip()

    def _look_again(self) -> None:
        """A machine that was away may have been restarted, and forgotten everything."""
        if self._seen_at != self.shell.times_lost:
            self._seen, self._seen_at = set(), self.shell.times_lost
            self.open()

    def _not_ours(self) -> InputError:
        return InputError(
            f"{self.path} on {self.shell.title} was not made by the kit",
            "move it away, or name another folder there as device_path of the config's target",
        )

    def put(self, file: Path, *, executable: bool = False) -> str:
        """Where `file` is there, under its own name in a folder of its content."""
        return self._put({f"files/{self._content(file).sha256[:32]}/{file.name}": file}, executable)[0]

    def put_together(self, named: Mapping[str, Path]) -> str:
        """The folder there that holds these programs and libraries, and nothing else, under these names."""
        digest = hashlib.sha256()
        for name, file in sorted(named.items()):
            digest.update(f"{name}\0{self._content(file)}\0".encode())
        folder = f"programs/{digest.hexdigest()[:32]}"
        self._put({f"{folder}/{name}": file for name, file in named.items()}, True)
        return f"{self.path}/{folder}"

    def _put(self, wanted: Mapping[str, Path], executable: bool) -> list[str]:
        self._look_again()
        paths = {f"{self.path}/{name}": file for name, file in wanted.items()}
        unknown = [path for path in paths if path not in self._seen]
        if unknown:
            found = self.shell.repeat(lambda: self._state_of(unknown))
            for path, state in zip(unknown, found, strict=True):
                if state != str(self._content(paths[path])):
                    self._send(paths[path], path, executable)
            self._seen |= set(unknown)
        return list(paths)

    def _state_of(self, paths: Sequence[str]) -> list[str]:
        answer = self.shell.script(scripts.state_of(paths), timeout=_COPY_S)
        states = answer.stdout.split("\n")
        states = [state for state in states if state]
        if not answer.ok or len(states) != len(paths):
            raise self._refusal(answer)
        return states

    def _send(self, file: Path, path: str, executable: bool) -> None:
        content = self._content(file)
        parts: list[str] = []  # one for each attempt: the process of an earlier one may still be writing

        def send() -> Answer:
            parts.append(f"{path.rpartition('/')[0]}/.{secrets.token_hex(6)}.part")
            script = scripts.receive(path, parts, content.size, content.sha256, executable=executable)
            answer = self.shell.script(script, timeout=_COPY_S, stdin=file)
            if answer.stdout.startswith(scripts.DAMAGED):
                raise LinkLost(f"{file.name} arrived damaged on {self.shell.title}", "check the connection")
            return answer

        answer = self.shell.repeat(send)
        if not answer.ok:
            raise self._refusal(answer)
        self.sent.append(path)

    def new_job(self) -> str:
        """An empty folder there for what one job writes; LinkLost where the machine was restarted
        meanwhile: nothing that is known of its files holds any more."""
        self._look_again()
        for folder in self._left_behind:
            self.remove_job(folder)

        def make() -> tuple[str, Answer]:
            # A new name each time: the folder may have been made, and only the answer lost.
            folder = f"{self.path}/jobs/{secrets.token_hex(8)}"
            return folder, self.shell.script(scripts.make_folder(folder))

        folder, answer = self.shell.repeat(make)
        if answer.stdout.strip() != self._boot:
            self._left_behind.append(folder)
            raise LinkLost(f"{self.shell.title} was restarted", "see that it stays on")
        if "No such file" in answer.stderr:
            raise LinkLost(f"{self.path} on {self.shell.title} is gone", "see that nobody removes it")
        if not answer.ok:
            raise self._refusal(answer)
        return folder

    def fetch(self, folder: str, wanted: Sequence[LeftFile], into: Path) -> None:
        """Bring those files in `folder` that are `wanted` to `into`, each whole or not at all. Of what the
        machine offers nothing else is taken, whoever put it there."""
        script = scripts.list_files(folder, wanted)
        listed = self.shell.repeat(lambda: self.shell.script(script, timeout=_COPY_S))
        if not listed.ok:
            raise LinkLost(f"what the job left on {self.shell.title} is gone", "run it again")
        offered = [self._offered(line, wanted) for line in filter(None, listed.stdout.split("\n"))]
        names = {name for name, _ in offered}
        whole = sum(content.size for _, content in offered)
        if len(names) < len(offered) or len(names) > MOST_FILES or whole > MOST_BYTES:
            raise self._no_job_leaves(f"{plural(len(offered), 'file')}, {size(whole)} together")
        for name, content in offered:
            self._fetch_one(f"{folder}/{name}", into / name, content)

    def _offered(self, line: str, wanted: Sequence[LeftFile]) -> tuple[str, Content]:
        found = re.fullmatch(r"([0-9]{1,16}) ([0-9a-f]{64}) ([^/]{1,255})", line)
        fits = found and [
            file for file in wanted if file.is_called(found[3]) and int(found[1]) <= file.most_bytes
        ]
        if found is None or not fits:
            raise self._no_job_leaves(line.removeprefix(f"{scripts.ODD} ")[:80])
        return found[3], Content(int(found[1]), found[2])

    def _no_job_leaves(self, what: str) -> SetupError:
        return SetupError(
            f"{self.shell.title} offers what no job leaves: {what}",
            f"see who else writes to {self.path} there",
        )

    def _fetch_one(self, path: str, to: Path, content: Content) -> None:
        def fetch() -> Answer:
            with files.replacing(to) as part:
                with part.open("wb") as stream:
                    script = f"cat {scripts.quoted(path)}"
                    answer = self.shell.script(script, timeout=_COPY_S, into=stream, most=content.size)
                if not answer.ok:
                    raise self._refusal(answer)
                if Content(part.stat().st_size, files.sha256(part)) != content:
                    raise LinkLost(
                        f"{to.name} arrived damaged from {self.shell.title}", "check the connection"
                    )
                return answer

        self.shell.repeat(fetch)

    def remove_job(self, folder: str) -> None:
        """End what is left of a job and remove its folder; later, where the machine is away."""
        try:
            self.shell.script(scripts.remove_job(folder), timeout=30)
            left = False
        except ProfilingError:
            left = True
        self._left_behind = [
            *(other for other in self._left_behind if other != folder),
            *([folder] if left else []),
        ]

    def clean(self) -> Removed:
        """Remove the folder with everything in it, and say what that was."""
        listed = self.shell.repeat(lambda: self.shell.script(scripts.inventory(self.path), timeout=_COPY_S))
        if not listed.ok:
            raise self._refusal(listed)
        # A name with a line's end in it, or a file that went meanwhile, has no size to tell.
        found = re.findall(r"(?m)^ *([0-9]{1,16}) (?:\./)?(.+)$", listed.stdout)
        removed = Removed(self.path, tuple((name, int(size)) for size, name in found))
        if listed.stdout.strip():
            answer = self.shell.repeat(lambda: self.shell.script(scripts.remove_home(self.path)))
            if not answer.ok:
                raise self._refusal(answer)
        return removed

    def _content(self, file: Path) -> Content:
        try:
            said = file.stat()
        except OSError as problem:
            raise InputError(f"cannot read {file}: {problem.strerror}", "correct the path") from problem
        key = (file, said.st_size, said.st_mtime_ns)
        if key not in self._contents:
            self._contents[key] = Content(said.st_size, files.sha256(file))
        return self._contents[key]

    def full_disk(self, answer: Answer) -> ProfilingError | None:
        """What a job means that ended because nothing more could be written there; None where that was not
        the reason."""
        not_begun = answer.status == scripts.NOT_BEGUN and scripts.NO_ROOM in answer.stderr
        if not not_begun and (answer.ok or not re.search(_FULL, answer.stderr, re.IGNORECASE)):
            return None
        said = replace(answer, stderr=answer.stderr.replace(scripts.NO_ROOM, "").strip())
        found = self._refusal(said)
        return type(found)(found.problem, f"{found.fix}, then continue with --resume")

    def _refusal(self, answer: Answer) -> ProfilingError:
        if answer.status == scripts.NOT_OURS:
            return self._not_ours()
        return refusal(self.shell.title, self.path, answer)


_FULL = "no space left|disk quota exceeded"
_CURES = (
    (_FULL, "there is no space left", "free some space there"),
    ("read-only file system", "the file system is read-only", ""),
    ("permission denied|operation not permitted", "it may not be written to", ""),
    ("not a directory|file exists", "a part of the path is a file", ""),
)
_ELSEWHERE = "name another folder there as device_path of the config's target"


def refusal(title: str, path: str, answer: Answer) -> ProfilingError:
    """What a machine means that would not write to `path`."""
    said = f"{answer.stdout}\n{answer.stderr}".lower()
    for pattern, meaning, cure in _CURES:
        if re.search(pattern, said):
            fix = f"{cure}, or {_ELSEWHERE}" if cure else _ELSEWHERE
            return InputError(f"{path} on {title} cannot be used: {meaning}", fix)
    if missing := re.search(r"(\w+): (?:inaccessible or )?(?:command )?not found", said):
        return SetupError(
            f"{title} has no {missing[1]}, which the kit needs there", "install it, or use another machine"
        )
    return SetupError(
        f"{path} on {title} cannot be used: {answer.last_line or 'it does not say why'}", _ELSEWHERE
    )
