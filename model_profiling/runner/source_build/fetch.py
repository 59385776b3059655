"""An ExecuTorch checkout by git: shallow, with its submodules, and able to go on where it was interrupted."""

from __future__ import annotations

from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError, SetupError
from model_profiling.process import Completed, run
from model_profiling.progress import Progress, Silent

URL = "https://github.com/pytorch/executorch.git"
# Where the checkout itself remembers what was fetched completely.
_REF, _COMMIT = "sme2prof.ref", "sme2prof.commit"
_HOUR = 3600.0


def fetch_source(
    url: str, ref: str, dest: Path, *, timeout: float = _HOUR, progress: Progress | None = None
) -> str:
    """Make `dest` a checkout of `ref` (tag, branch or commit) of `url`; returns the commit.

    A complete checkout of the same ref is left alone, without asking the network. One that was
    interrupted goes on. A checkout with changes of its own is never switched to something else.
    """
    say = progress or Silent()
    if dest.exists() and any(dest.iterdir()) and not (dest / ".git").exists():
        raise InputError(f"{dest} is there but is no git checkout", "choose another folder")
    if _is_complete(dest, ref):
        return _ask(dest, "rev-parse", "HEAD")
    files.make_folder(dest)
    if not (dest / ".git").exists():
        _git(dest, timeout, "init", "--quiet")
    _git(dest, timeout, "config", "remote.origin.url", url)
    _git(dest, timeout, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    say.stage(f"fetching {ref}")
    _git(dest, timeout, "fetch", "--quiet", "--depth", "1", "--no-tags", "origin", ref)
    commit = _ask(dest, "rev-parse", "FETCH_HEAD^{commit}")
    if _has_head(dest) and _ask(dest, "rev-parse", "HEAD") != commit and _changes(dest):
        raise InputError(f"{dest} has changes of its own", f"commit or undo them before fetching {ref}")
    say.stage(f"checking out {commit[:12]}")
    _git(dest, timeout, "checkout", "--quiet", "--detach", commit)
    say.stage("fetching submodules")
    _git(dest, timeout, "submodule", "--quiet", "sync", "--recursive")
    _git(
        dest,
        timeout,
        "submodule",
        "--quiet",
        "update",
        "--init",
        "--recursive",
        "--depth",
        "1",
        "--jobs",
        "4",
    )
    _git(dest, timeout, "config", _REF, ref)
    _git(dest, timeout, "config", _COMMIT, commit)
    return commit


def _is_complete(dest: Path, ref: str) -> bool:
    if not (dest / ".git").exists() or not _has_head(dest):
        return False
    if _ask(dest, "config", "--default", "", _REF) != ref:
        return False
    if _ask(dest, "config", "--default", "", _COMMIT) != _ask(dest, "rev-parse", "HEAD"):
        return False
    modules = _git(dest, 600.0, "submodule", "status", "--recursive").stdout.splitlines()
    return not any(line.startswith(("-", "U")) for line in modules)


def _has_head(dest: Path) -> bool:
    return run(["git", "-C", dest, "rev-parse", "--verify", "--quiet", "HEAD"], timeout=60).ok


def _changes(dest: Path) -> bool:
    return bool(_ask(dest, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules"))


def _ask(dest: Path, *words: str) -> str:
    return _git(dest, 600.0, *words).stdout.strip()


def _git(dest: Path, timeout: float, *words: str) -> Completed:
    # A prompt for a password would wait for ever; git fails instead.
    done = run(["git", "-C", dest, *words], timeout=timeout, env={"GIT_TERMINAL_PROMPT": "0"})
    if done.timed_out:
        raise SetupError(
            f"git {words[0]} took longer than {timeout:.0f} s", "run it again: it goes on from there"
        )
    if not done.ok:
        said = done.tail(1) or f"exit code {done.returncode}"
        raise SetupError(
            f"git {words[0]} failed: {said}", "check the address, the ref and the network; then run again"
        )
    return done
