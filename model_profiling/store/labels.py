"""Labels of runs, which are not measured: the commit, the branch, tags, a name for the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError

_LONGEST = 200
_GIT_S = 10.0
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT")
_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH", "GIT_BRANCH")
"""Variables of GitHub Actions, GitLab, Buildkite and Jenkins; the first that is set counts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What whoever adds runs says about them; None means to find out, empty means nothing."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    tags: tuple[str, ...] = ()
    device: str | None = None
    """Names the machine instead of its CPU."""
    sweep: str = ""
    name: str | None = None

    def __post_init__(self) -> None:
        for label in (self.commit, self.branch, self.device, self.sweep, self.name):
            if label is not None and (len(label) > _LONGEST or not label.isprintable()):
                raise InputError(
                    f"{label[:40]!r} is not a valid label", f"give up to {_LONGEST} plain letters"
                )
        for tag in self.tags:
            check_tag(tag)


def check_tag(tag: str) -> str:
    """Return `tag` if it is one word: it is typed on command lines, where `-` before it removes it."""
    if not tag or tag.startswith("-") or len(tag) > _LONGEST or not tag.isprintable() or " " in tag:
        raise InputError(f"{tag[:40]!r} is not a valid tag", "give one word that does not begin with '-'")
    return tag


def with_commit(labels: Labels, folder: Path | None = None) -> Labels:
    """Return `labels` with the commit and branch: as given, else from CI, else from git in `folder`."""
    if labels.commit is not None:
        return replace(labels, branch=labels.branch or "")
    commit, branch = _first_set(_COMMITS), _first_set(_BRANCHES)
    if commit:
        return replace(labels, commit=commit, branch=labels.branch or branch)
    here = folder or Path.cwd()
    found = _git(here, "rev-parse", "HEAD")
    if not found:
        return replace(labels, commit="", branch=labels.branch or "")
    named = labels.branch or _git(here, "rev-parse", "--abbrev-ref", "HEAD")
    dirty = _has_changes(here) if labels.dirty is None else labels.dirty
    return replace(labels, commit=found, branch="" if named == "HEAD" else named, dirty=dirty)


def _first_set(variables: tuple[str, ...]) -> str:
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    return found[:_LONGEST] if found.isprintable() else ""


# The folder may be one that somebody sent, with a git configuration that names programs: monitors of files,
# ways to fetch, and filters, of which each has its own name.
_ALONE = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}


def _has_changes(folder: Path) -> bool | None:
    """Whether tracked files differ from the commit; None if that would run programs which `folder` names."""
    filters = _ask_git(
        folder, "config", "--show-scope", "--includes", "--name-only", "--get-regexp", "^filter[.]"
    )
    if any(line.startswith(("local", "worktree")) for line in filters.splitlines()):
        return None
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return bool(_ask_git(folder, *words))


def _git(folder: Path, *words: str) -> str:
    told = _ask_git(folder, *words).strip()[:_LONGEST]
    return told if told.isprintable() else ""


def _ask_git(folder: Path, *words: str) -> str:
    command = ("git", "-c", "core.fsmonitor=", "-C", str(folder), *words)
    try:
        said = process.run(command, timeout=_GIT_S, env=_ALONE)
    except SetupError:
        return ""
    return said.stdout if said.ok else ""
