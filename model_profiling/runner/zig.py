"""The C++ compiler in the `ziglang` wheel: one download for any Linux or macOS, which compiles for any other.

It brings headers and stubs of the C libraries it compiles for, and its own C++ library, which it builds the
first time. ExecuTorch's Linux libraries use another one: no function with a type of either can be linked to
the other, and `_SAME_LAYOUT` makes the types agree that cross over inside ExecuTorch's own.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

from model_profiling.core import fetching
from model_profiling.core.errors import SetupError
from model_profiling.runner import sdk
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.features import Platform

_TITLE = "the ziglang wheel"
_RELEASE = "0.17"
_PACKAGE = f"ziglang=={_RELEASE}.*"
_CURE = "check the connection to the package index"
_TARGETS = {
    # The oldest glibc that ExecuTorch's wheels run on, and the oldest macOS.
    ("linux", "aarch64"): "aarch64-linux-gnu.2.28",
    ("linux", "x86_64"): "x86_64-linux-gnu.2.28",
    ("macos", "aarch64"): "aarch64-macos.14.0",
}
# A program holds its data in a std::variant, which both sides move: libstdc++ keeps its index in one byte,
# libc++ in four unless told so. Without this a runner now and then ends in std::bad_variant_access.
_SAME_LAYOUT = "-D_LIBCPP_ABI_VARIANT_INDEX_TYPE_OPTIMIZATION"
_SCRIPT = """\
#!/bin/sh
home=${0%/*}
ZIG_GLOBAL_CACHE_DIR="$home/../zig-cache" ZIG_LOCAL_CACHE_DIR="$home/../zig-cache" \\
  exec "$home/ziglang/zig" c++ "$@"
"""


def source(wanted: Platform) -> str | None:
    """What it is called, if it compiles for `wanted` and this Python has, or can make, the pip to get it."""
    # On the path alone: what setuptools adds to imports warns of things that are not ours.
    has_pip = any(PathFinder.find_spec(name) for name in ("pip", "ensurepip"))
    return _TITLE if (wanted.system, wanted.machine) in _TARGETS and has_pip else None


def command(wanted: Platform, *, fetch: bool = True) -> tuple[str, ...]:
    """How it is called to compile C++ for `wanted`; the wheel is fetched the first time."""
    home = cached(cache_root() / "compilers" / f"ziglang-{_RELEASE}", _install, _TITLE, fetch=fetch)
    layout = (_SAME_LAYOUT,) if wanted.system == "linux" else ()
    # The level also chooses which build of its C++ library is linked: named here, there is one only.
    return (str(home / "c++"), "-target", _TARGETS[wanted.system, wanted.machine], "-O2", *layout)


def _install(into: Path) -> None:
    done = fetching.pip(
        *("install", "--no-deps", "--only-binary=:all:", "--no-compile", "--target", into),
        *sdk.pip_words("ziglang"),
        timeout=900,
    )
    if not done.ok:
        raise SetupError(f"pip cannot get {_PACKAGE}: {done.tail(1)}", _CURE)
    script = into / "c++"
    script.write_text(_SCRIPT, encoding="utf-8")
    script.chmod(0o755)
