"""Whether the kit's own runner is there, or would be made by the first run: found out without building it."""

from __future__ import annotations

from model_profiling import process
from model_profiling.check import Check
from model_profiling.errors import SetupError
from model_profiling.runner.build import built_runner
from model_profiling.runner.compilers import Compiler, prospect
from model_profiling.runner.sdk import Sdk, installed_sdk

_NAME = "runner"


def runner_check() -> Check:
    """A runner that is built is started once."""
    try:
        sdk = installed_sdk()
        found = prospect(sdk.platform)
    except SetupError as problem:
        return Check(_NAME, "fail", f"it cannot be built: {problem.problem}", problem.fix)
    if not found.possible:
        return Check(_NAME, "fail", "it cannot be built: there is no C++ compiler", found.fix)
    if found.compiler is None:
        return Check(_NAME, "pass", f"not built yet; the first run fetches a compiler ({found.sources[0]})")
    return _of_cache(sdk, found.compiler)


def _of_cache(sdk: Sdk, compiler: Compiler) -> Check:
    try:
        built, lacking = built_runner(sdk, compiler)
    except SetupError as problem:
        return Check(_NAME, "fail", problem.problem, problem.fix)
    if lacking is not None and built.exists():
        return Check(_NAME, "pass", f"damaged in the cache ({lacking}); the next run builds it again")
    if lacking is not None:
        return Check(_NAME, "pass", f"not built yet; the first run compiles it ({compiler.identity})")
    started = process.run([built, "--features-only"], timeout=60)
    if not started.ok:
        said = (started.stderr or started.stdout).strip().splitlines()[-1:] or [f"exit {started.returncode}"]
        fix = f"rm -r {built.parent}, and the next run builds it again"
        return Check(_NAME, "fail", f"{built} does not start: {said[0]}", fix)
    return Check(_NAME, "pass", f"built and starts: {built}")
