"""Labels of runs, which are not measured: the commit, the branch, tags, a name for the machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError

_TAG = re.compile(r"\w[\w.:/+-]{0,199}", re.ASCII)
_GIT_S = 10.0
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT")
_BRANCHES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH", "GIT_BRANCH")
"""Variables of GitHub Actions, GitLab, Buildkite and Jenkins; the first that is set counts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What whoever adds runs says about them; None means to find out, empty means nothing."""

    commit: str | None = None
    branch: str | None = None
    tags: tuple[str, ...] = ()
    device: str | None = None
    """Names the machine instead of its CPU."""
    sweep: str = ""

    def __post_init__(self) -> None:
        for tag in self.tags:
            check_tag(tag)


def check_tag(tag: str) -> str:
    """Return `tag` if it is one word that can be typed on a command line and named in a JSON path."""
    if not _TAG.fullmatch(tag):
        raise InputError(
            f"{tag[:40]!r} is not a valid tag", "give one word of letters, digits and . _ : / + -"
        )
    return tag


def with_commit(labels: Labels, folder: Path | None = None) -> Labels:
    """Return `labels` with the commit and branch: as given, else from CI, else from git in `folder`."""
    if labels.commit is not None:
        return replace(labels, branch=labels.branch or "")
    if commit := _first_set(_COMMITS):
        return replace(labels, commit=commit, branch=labels.branch or _first_set(_BRANCHES))
    here = folder or Path.cwd()
    commit = _git(here, "rev-parse", "HEAD")
    branch = labels.branch or (_git(here, "branch", "--show-current") if commit else "")
    return replace(labels, commit=commit, branch=branch)


def _first_set(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), "")


def _git(folder: Path, *words: str) -> str:
    """What git prints; empty if it fails. The folder may be one that somebody sent: programs that its
    configuration names, to watch files and to fetch, are not run."""
    command = ("git", "-c", "core.fsmonitor=", "-C", str(folder), *words)
    try:
        done = process.run(command, timeout=_GIT_S, env={"GIT_ALLOW_PROTOCOL": "none"})
    except SetupError:
        return ""
    return done.stdout.strip() if done.ok else ""
