"""What tests share: exported programs made once per content, and the command line as a user runs it."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from postgres import Postgres, postgres_folder, running_postgres
from virtual_phone import AdbServer, VirtualPhone

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.number_formats import parse_format
from model_profiling.models.registry import choose
from model_profiling.runner.build import SOURCES, Sdk, _flags, compiled
from model_profiling.runner.cache import cache_root
from model_profiling.runner.compilers import Compiler
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.host import HostTarget

# Examples are slow on a machine that is busy with something else; that is no failure. Half of the usual
# number, drawn anew each time, find in two runs what all would find in one. With CI=true they are always the
# same: what a change is judged by depends on the change alone.
settings.register_profile("kit", deadline=None, max_examples=50, derandomize=os.environ.get("CI") == "true")
settings.load_profile("kit")

# Exports leave millions of objects that live on; to look through them for cycles takes an eighth of the time.
gc.set_threshold(200_000, 50, 1000)

pytest_plugins = ("browser.in_chromium",)
ROOT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI") == "true"
# What runs the tests in the background may ignore Ctrl-C; the programs they start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as under nohup
ON_ARM = platform.machine().lower() in ("aarch64", "arm64")


@dataclass(frozen=True)
class Artifact:
    """An exported program and what was written beside it."""

    pte: Path
    etrecord: Path
    summary: Path


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` is tests/unit, tests/runs and, of the other folders, what is marked quick. Those other
    folders come first: what takes long must not be begun last."""
    replayed = ROOT / "tests" / "unit", ROOT / "tests" / "runs"
    items.sort(key=lambda item: item.path.parent in replayed)
    for item in items:
        if item.path.parent not in replayed and not item.get_closest_marker("quick"):
            item.add_marker("slow")


def missing(what: str) -> None:
    """Skip a test that lacks `what`; in CI nothing may be lacking."""
    if IN_CI:
        pytest.fail(f"CI lacks {what}")
    pytest.skip(f"this machine lacks {what}")


def arm_xnnpack() -> Path:
    """The XNNPACK backend of ExecuTorch's Arm wheel."""
    from model_profiling.runner.build import installed_sdk
    from model_profiling.targets.emulated import aarch64_sdk

    sdk = installed_sdk()
    if not ON_ARM:
        try:
            sdk = aarch64_sdk(sdk)
        except SetupError as problem:
            missing(str(problem))
    (library,) = sdk.libraries.glob("libexecutorch_backend_xnnpack.*")
    return library


def _export_fingerprint() -> str:
    """Changes whenever an export could come out differently."""
    digest = hashlib.sha256()
    for package in ("executorch", "torch", "torchao"):
        digest.update(f"{package}={importlib.metadata.version(package)};".encode())
    for folder in ("model_profiling/export", "model_profiling/models", "tests/models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="session")
def exported() -> Callable[..., Artifact]:
    """`exported("toy_cnn", "fp16")`: a real export, made by whichever test asks first and kept on disk."""
    cache = ROOT / ".pytest_cache" / "exported" / _export_fingerprint()
    cache.mkdir(parents=True, exist_ok=True)

    def export(model: str, dtype: str = "fp32", backend: str = "xnnpack") -> Artifact:
        file, _, factory = model.rpartition(":")
        chosen = choose(model)
        stem = chosen.file_name if chosen else f"{Path(file).stem}_{factory}" if file else model
        own = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file.endswith(".py") else ""
        folder = cache / own / stem
        pte = folder / f"{stem}_{backend}_{parse_format(dtype).word()}.pte"
        folder.parent.mkdir(exist_ok=True)
        with (folder.parent / f".{pte.name}.lock").open("w") as lock:
            # Two test workers may want the same program at once: one makes it, the other waits.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not pte.exists():
                # In this process: importing torch anew takes longer than most exports.
                from model_profiling.export import export_model

                made = export_model(model, dtype=dtype, backend=backend, outdir=folder, name=stem)
                assert made.pte == pte
        return Artifact(pte, Path(f"{pte}.etrecord"), Path(f"{pte}.json"))

    return export


@pytest.fixture(scope="session", autouse=True)
def state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's state is left alone, and test workers do not wait for each other's machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def emulated() -> EmulatedTarget:
    """A machine with SME2, under QEMU."""
    if sys.platform != "linux":
        pytest.skip("QEMU's user mode runs on Linux only")
    target = EmulatedTarget()
    try:
        target.prepare()
    except SetupError as problem:
        missing(str(problem))
    return target


@pytest.fixture(scope="session")
def host() -> HostTarget:
    """This machine."""
    target = HostTarget()
    target.prepare()
    return target


@pytest.fixture(scope="session")
def arm(request: pytest.FixtureRequest) -> HostTarget | EmulatedTarget:
    """A machine with Arm's CPU features: this one or, if it is of another kind, QEMU's."""
    target: HostTarget | EmulatedTarget = request.getfixturevalue("host" if ON_ARM else "emulated")
    return target


@pytest.fixture(scope="session")
def lend_objects() -> Callable[[Path, Sdk, Compiler], None]:
    """`lend_objects(cache, sdk, compiler)`: the compiled runner for a cache of a test's own. It is the same
    for all of them, and compiling takes longer than what they are about."""
    root = cache_root()

    def lend(cache: Path, sdk: Sdk, compiler: Compiler) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SME2PROF_CACHE", str(root))
            home = compiled(sdk, compiler, sorted(SOURCES.glob("*.cpp")), _flags(sdk)[0])[0].parent
        cache.mkdir(mode=0o755, exist_ok=True)
        (cache / home.parent.name).mkdir(mode=0o755, exist_ok=True)
        shutil.copytree(home, cache / home.parent.name / home.name)

    return lend


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    """An adb with a server of its own; `adb.environment` makes another process use it."""
    try:
        with contextlib.closing(AdbServer(tmp_path_factory.mktemp("adb"))) as server:
            yield server
    except SetupError as problem:
        missing(str(problem))


@pytest.fixture
def phones(adb: AdbServer, tmp_path: Path) -> Iterator[Callable[..., VirtualPhone]]:
    """`phones("Model")`: one more virtual phone, switched on and connected; all end with the test."""
    with contextlib.ExitStack() as stack:
        made = itertools.count()

        def phone(model: str = "Virtual 1", *, qemu: Path | None = None) -> VirtualPhone:
            folder = tmp_path / f"phone_{next(made)}"
            try:
                new = VirtualPhone(adb, folder, model, qemu=qemu)
            except SetupError as problem:
                missing(str(problem))
                raise
            return stack.enter_context(contextlib.closing(new))

        yield phone


@pytest.fixture
def phone(phones: Callable[..., VirtualPhone]) -> VirtualPhone:
    """A virtual phone; its programs are this machine's, so on x86_64 it runs no aarch64 runner."""
    return phones()


@pytest.fixture
def arm_phones(
    phones: Callable[..., VirtualPhone], request: pytest.FixtureRequest
) -> Callable[..., VirtualPhone]:
    """Virtual phones that run aarch64 programs: on this CPU or, where it is of another kind, on QEMU's with
    SME2."""
    if ON_ARM:
        return phones
    target: EmulatedTarget = request.getfixturevalue("emulated")
    assert target.qemu is not None
    return functools.partial(phones, qemu=target.qemu.path)


@pytest.fixture
def arm_phone(arm_phones: Callable[..., VirtualPhone]) -> VirtualPhone:
    return arm_phones()


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The socket of a Python that has exported before, one for all workers; see `warm_python.ask`."""
    among_workers = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    shared, owner = (base.parent, os.getppid()) if among_workers else (base, os.getpid())
    place = shared / "warm"
    with (shared / "warm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            # Not a Popen: nobody here waits for its end, which comes with that of the tests.
            words = [sys.executable, ROOT / "tests" / "warm_python.py", place, str(owner)]
            said = (os.POSIX_SPAWN_OPEN, 1, shared / "warm.log", os.O_WRONLY | os.O_CREAT, 0o600)
            files = [said, (os.POSIX_SPAWN_DUP2, 1, 2)]
            pid = os.posix_spawn(sys.executable, words, os.environ, file_actions=files)
            while not place.exists():
                assert os.waitpid(pid, os.WNOHANG)[0] == 0, (shared / "warm.log").read_text()
                time.sleep(0.2)
    return str(place)


@pytest.fixture(scope="session")
def warm_words(warm_python: str) -> list[str]:
    """What comes before a script in the command that runs it off that Python."""
    return [sys.executable, str(ROOT / "tests" / "warm_python.py"), "ask", warm_python]


_LOWERING = """
import sys
import torch
from torch import nn
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

def save(programs, **facts):
    given = {"partitioner": [XnnpackPartitioner()], "constant_methods": facts, "generate_etrecord": True}
    done = to_edge_transform_and_lower(programs, **given).to_executorch()
    open(sys.argv[1], "wb").write(done.buffer)
    done.get_etrecord().save(sys.argv[1] + ".etrecord")
"""


@pytest.fixture(scope="session")
def scripted(warm_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`scripted("name", text, ...)`: the .pte of a script that ends with `save(...)`, given further words."""
    folder = tmp_path_factory.mktemp("scripted")

    @functools.cache
    def export(name: str, text: str, *words: str) -> Path:
        script, pte = folder / f"{name}.py", folder / f"{name}.pte"
        script.write_text(_LOWERING + text)
        made = process.run([*warm_words, script, pte, *words], timeout=300)
        assert pte.is_file(), made.tail(20)
        return pte

    return export


@pytest.fixture
def own_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Models that a test registers, from whatever folder, are forgotten afterwards."""
    from model_profiling import models
    from model_profiling.models import registry

    monkeypatch.setattr(models, "__path__", list(models.__path__))
    before, loaded = dict(registry._entries), set(sys.modules)
    yield
    registry._entries.clear()
    registry._entries.update(before)
    for name in set(sys.modules) - loaded:
        if name.startswith("model_profiling.models."):
            del sys.modules[name]
            vars(models).pop(name.rpartition(".")[2], None)


@pytest.fixture
def cli(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., process.Completed]:
    """`cli("models", "--json")`: sme2prof in a process of its own, working in an empty folder. It is forked
    off the warm Python, unless that would have to be told something by a variable of Python's own."""

    def call(*words: object, timeout: float = 300, cwd: Path | None = None, **env: str) -> process.Completed:
        cold = sys.platform != "linux" or any(name.startswith("PYTHON") for name in env)
        python: list[str] = [sys.executable] if cold else request.getfixturevalue("warm_words")
        argv = [*python, "-m", "model_profiling", *(str(word) for word in words)]
        own = {"PYTHONPATH": str(ROOT), **env}
        return process.run(argv, timeout=timeout, cwd=cwd or tmp_path, env=own)

    return call


@pytest.fixture
def sme2prof(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., process.Completed]]:
    """`sme2prof("validate", run_dir)`: the command line in this process, for what it answers and returns."""
    from model_profiling.cli.main import main

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def call(*words: object) -> process.Completed:
        capsys.readouterr()
        argv = tuple(map(str, words))
        code = main(argv)
        said = capsys.readouterr()
        return process.Completed(argv, code, said.out, said.err, seconds=0.0, timed_out=False)

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server of its own."""
    if postgres_folder() is None:
        missing("PostgreSQL's server")
    with running_postgres() as server:
        yield server


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, for commands that write a page here."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def arm_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`out_small_cnn` of a CPU without SME2 and of its emulated sibling; tests copy what they spoil."""
    from recorded_runs import ARM, lay_out

    return lay_out(tmp_path_factory.mktemp("arm"), ARM, threads=(1, 2))


@pytest.fixture(scope="session")
def sme2_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`out_small_cnn` of a CPU with SME2."""
    from recorded_runs import SME2, lay_out

    return lay_out(tmp_path_factory.mktemp("sme2"), SME2, emulated=False)


@pytest.fixture
def arm_run(arm_home: Path, tmp_path: Path) -> Path:
    """A copy of the run on a CPU without SME2, to spoil."""
    from recorded_runs import copied

    return copied(arm_home, tmp_path) / "runs" / "xnnpack_fp16" / "linux"


@pytest.fixture
def emulated_run(arm_run: Path) -> Path:
    """The emulated sibling beside it."""
    return arm_run.with_name("emulated")


@pytest.fixture
def sme2_run(sme2_home: Path, tmp_path: Path) -> Path:
    """A copy of the run on a CPU with SME2, to spoil."""
    from recorded_runs import copied

    return copied(sme2_home, tmp_path) / "runs" / "xnnpack_fp16" / "linux"


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Callable[..., process.Completed]:
    """`script("tools/x.py", ...)`: a documented entry point, run from the repository root as documented, off
    the warm Python. .ci/test_documents.py starts each by itself."""
    # Asked for before the test begins: its threads may not ask pytest for a fixture.
    python = request.getfixturevalue("warm_words") if sys.platform == "linux" else [sys.executable]

    def call(path: str, *words: object, timeout: float = 300, **env: str) -> process.Completed:
        argv = [*python, f"model_profiling/{path}", *(str(word) for word in words)]
        return process.run(argv, timeout=timeout, cwd=ROOT, env=env)

    return call


@pytest.fixture
def entry(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., process.Completed]:
    """`entry("tools/x.py", ...)`: a script as `python x.py ...` runs it, in this process."""

    def call(path: str, *words: object) -> process.Completed:
        argv = tuple(map(str, words))
        monkeypatch.setattr(sys, "argv", [path, *argv])
        spec = importlib.util.spec_from_file_location("__main__", ROOT / "model_profiling" / path)
        assert spec is not None and spec.loader is not None
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended, monkeypatch.context() as inside:
            inside.setattr(sys, "path", list(sys.path))
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        said = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int) or code is None
        return process.Completed(argv, code or 0, said.out, said.err, seconds=0.0, timed_out=False)

    return call


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with 256 KiB of room."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = process.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], timeout=20)
    if not mounted.ok:
        missing("the right to mount a small file system (root)")
    yield place
    process.run(["umount", "-l", place], timeout=20)
