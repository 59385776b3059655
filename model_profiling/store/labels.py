"""Labels of a run, which are not measured: the commit, the branch, tags, a name for the machine."""

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
        for told in (self.commit, self.branch, self.device, self.sweep, self.name):
            if told is not None and (len(told) > _LONGEST or not told.isprintable()):
                raise InputError(f"{told[:40]!r} cannot label a run", f"give up to {_LONGEST} plain letters")
        for tag in self.tags:
            check_tag(tag)


def check_tag(tag: str) -> str:
    """Return `tag` if it is one word: it is typed on command lines, where `-` before it removes it."""
    if not tag or tag.startswith("-") or len(tag) > _LONGEST or not tag.isprintable() or " " in tag:
        raise InputError(f"{tag[:40]!r} is no tag", "give one word that does not begin with '-'")
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
    changed = bool(_git(here, "status", "--porcelain", "--untracked-files=no"))
    dirty = changed if labels.dirty is None else labels.dirty
    return replace(labels, commit=found, branch="" if named == "HEAD" else named, dirty=dirty)


def _first_set(variables: tuple[str, ...]) -> str:
    found = next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    return found[:_LONGEST] if found.isprintable() else ""


def _git(folder: Path, *words: str) -> str:
    try:
        said = process.run(("git", "-C", str(folder), *words), timeout=_GIT_S)
    except SetupError:
        return ""
    lines = said.stdout.strip()
    return lines[:_LONGEST] if said.ok and lines[:_LONGEST].replace("\n", "").isprintable() else ""
