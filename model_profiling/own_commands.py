"""Commands that fixes name, written so that they can be run word for word by whoever reads them."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import sys
from pathlib import Path

DISTRIBUTION = "sme2-profiling-kit"
_CLONE = Path(__file__).resolve().parents[1]
_SCRIPTS = _CLONE / "model_profiling" / "scripts"


def pip_install(*words: str) -> str:
    """pip of this very Python, whichever is first on the PATH."""
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def install_extra(extra: str) -> str:
    """What brings everything the kit's `extra` names into this Python; the kit itself is on no index."""
    asked = _requirements(extra)
    return pip_install(*asked) if asked else pip_install("--editable", f"{_CLONE}[{extra}]")


def reinstall(package: str, extra: str) -> str:
    """What replaces an installed `package` by the one that `extra` asks for, even of the same version."""
    asked = [line for line in _requirements(extra) if re.match(rf"{package}\b", line)] or [package]
    return pip_install("--force-reinstall", "--no-deps", *asked)


def _requirements(extra: str) -> list[str]:
    """Those of the kit's `extra`; none where it is not installed."""
    try:
        asked = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    of_extra = re.compile(rf"""(.+?)\s*;.*\bextra\s*==\s*["']{re.escape(extra)}["']""")
    return [found[1] for line in asked if (found := of_extra.match(line))]


def set_up() -> str:
    """What makes an environment of its own in the clone, for a Python that is the system's."""
    return shlex.join(["bash", str(_SCRIPTS / "setup_repo.sh")])


def with_another_python() -> str:
    """What installs the kit with another Python, which the reader names; only a clone has scripts."""
    if (_SCRIPTS / "setup_repo.sh").is_file():
        return f"{set_up()} --python PYTHON"
    return "PYTHON -m pip install 'WHEEL[executorch]', WHEEL being the kit's"


def build_runners() -> str:
    """What builds runners from ExecuTorch's source, in a clone and where only the wheel is."""
    if (_SCRIPTS / "build_runners.sh").is_file():
        return shlex.join(["bash", str(_SCRIPTS / "build_runners.sh")])
    return shlex.join([sys.executable, "-m", "model_profiling.runner.source_build", "build"])


def document(name: str) -> str:
    """A page of `docs/`: in a clone its path, and where only the wheel is its address."""
    if (_CLONE / "docs" / name).is_file():
        return f"docs/{name}"
    try:
        installed = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"docs/{name} in a clone of the kit"
    addresses = dict(url.split(", ", 1) for url in installed.get_all("Project-URL") or ())
    version = installed["Version"]
    return f"{addresses['Repository']}/blob/{'HEAD' if 'dev' in version else f'v{version}'}/docs/{name}"


def python(*words: str) -> str:
    """This very Python, by the shortest name that starts it."""
    found = shutil.which("python")
    same = found is not None and Path(found).parent == Path(sys.executable).parent
    return shlex.join(["python" if same else sys.executable, *words])


def sme2prof(*words: str) -> str:
    """This kit's command, by the shortest name that starts it.

    Another environment's may be first on the PATH; it is ours if it lies beside this Python, or is what was
    started (pip puts it elsewhere in a user's or a system's installation).
    """
    on_path = shutil.which("sme2prof")
    for own in (Path(sys.executable).parent / "sme2prof", Path(sys.argv[0])):
        if on_path and own.is_file() and own.samefile(on_path):
            return shlex.join(["sme2prof", *words])
    return shlex.join([sys.executable, "-m", "model_profiling", *words])
