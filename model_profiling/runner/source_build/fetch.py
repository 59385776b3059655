"""An ExecuTorch checkout by git: shallow, with its submodules, and able to go on where it was interrupted."""

from __future__ import annotations

from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError, SetupError
from model_profiling.process import run
from model_profiling.progress import Progress, Silent

URL = "https://github.com/pytorch/executorch.git"
# Where the checkout itself remembers what was fetched completely.
_REF, _COMMIT = "sme2prof.ref", "sme2prof.commit"
_LIMIT = 3600.0


def fetch_source(url: str, ref: str, dest: Path, *, progress: Progress | None = None) -> str:
    """Make `dest` a checkout of `ref` (tag, branch or commit) of `url`; returns the commit.

    A complete checkout of the same ref is left alone, without asking the network. One that was
    interrupted goes on. A checkout with changes of its own is never switched to something else.
    """
    say = progress or Silent()
    if dest.exists() and any(dest.iterdir()) and not (dest / ".git").exists():
        raise InputError(f"{dest} is there but is no git checkout", "choose another folder")
    files.make_folder(dest)
    if not (dest / ".git").exists():
        _git(dest, "init", "--quiet")
    head = ask_git(dest, "rev-parse", "--verify", "--quiet", "HEAD")
    if head and _is_complete(dest, ref, head):
        return head
    _git(dest, "config", "remote.origin.url", url)
    _git(dest, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    say.stage(f"fetching {ref}")
    _git(dest, "fetch", "--quiet", "--depth", "1", "--no-tags", "origin", ref)
    commit = _git(dest, "rev-parse", "FETCH_HEAD^{commit}")
    changes = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    if head not in (None, commit) and _git(dest, *changes):
        raise InputError(f"{dest} has changes of its own", f"commit or undo them before fetching {ref}")
    say.stage(f"checking out {commit[:12]}")
    _git(dest, "checkout", "--quiet", "--detach", commit)
    say.stage("fetching submodules")
    _git(dest, "submodule", "--quiet", "sync", "--recursive")
    _git(dest, "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1", "--jobs=4")
    _git(dest, "config", _REF, ref)
    _git(dest, "config", _COMMIT, commit)
    return commit


def can_be_fetched(dest: Path) -> bool:
    """Whether `dest` is where a checkout would go and none is yet, or one whose fetching was interrupted."""
    if dest.resolve().name != "executorch" or (dest / "CMakeLists.txt").is_file():
        return False
    return not dest.exists() or (dest.is_dir() and ((dest / ".git").exists() or not any(dest.iterdir())))


def ask_git(folder: Path, *words: str) -> str | None:
    """What git answers, or nothing where it cannot."""
    done = run(["git", "-C", folder, *words], timeout=300)
    return done.stdout.strip() if done.ok else None


def _is_complete(dest: Path, ref: str, head: str) -> bool:
    if (ask_git(dest, "config", _REF), ask_git(dest, "config", _COMMIT)) != (ref, head):
        return False
    modules = _git(dest, "submodule", "status", "--recursive").splitlines()
    return not any(line.startswith(("-", "U")) for line in modules)


def _git(dest: Path, *words: str) -> str:
    # A prompt for a password would wait for ever; git fails instead.
    done = run(["git", "-C", dest, *words], timeout=_LIMIT, env={"GIT_TERMINAL_PROMPT": "0"})
    if done.timed_out:
        raise SetupError(f"git {words[0]} took longer than {_LIMIT:.0f} s", "run it again: it goes on")
    if not done.ok:
        said = done.tail(1) or f"exit code {done.returncode}"
        raise SetupError(
            f"git {words[0]} failed: {said}", "check the address, the ref and the network; then run again"
        )
    return done.stdout.strip()
