"""The built wheel outside of the repository: what is in it, and what it does in an empty folder."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from recorded_runs import SME2
from working_tree import ROOT, copy_to

import model_profiling
from model_profiling.core import process
from model_profiling.doctor.checks import PYTHON

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class Built:
    """What `python -m build` leaves: the wheel is made of the sdist."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with the wheel in it; commands run in an empty folder."""

    folder: Path
    work: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def run(self, command: str, *words: object, timeout: float = 300) -> process.Completed:
        # Without the PYTHONPATH that a developer may have set: the wheel is what is tested.
        argv = [self.folder / "bin" / command, *(str(word) for word in words)]
        return process.run(
            argv, timeout=timeout, cwd=self.work, env={"PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
        )


def build(folder: Path) -> Built:
    """Everything that is or would be committed is copied first: building leaves files beside its sources."""
    source = folder / "source"
    copy_to(source)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source]
    done = process.run(words, timeout=300)
    assert done.ok, done.tail(20)
    (wheel,), (sdist,) = (tuple((folder / "dist").glob(f"*{end}")) for end in (".whl", ".tar.gz"))
    return Built(wheel, sdist)


def install(wheel: Path, folder: Path, *extras: str) -> Environment:
    """An environment with the wheel, and with what it asks for in itself and in `extras`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    made = Environment(folder, folder / "empty")
    made.work.mkdir()
    pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "--quiet", "--no-compile"]
    done = process.run([*pip, "--no-deps", "--no-index", wheel], timeout=120)
    assert done.ok, done.tail(20)
    (own,) = importlib.metadata.distributions(name="sme2-profiling-kit", path=[str(made.site)])
    for name in _closure(own.requires or [], extras):
        _link(importlib.metadata.distribution(name), made.site)
    return made


def _closure(asked: Sequence[str], extras: Sequence[str]) -> set[str]:
    """The distributions behind requirements, and those that these require."""
    found: set[str] = set()
    waiting = [(Requirement(line), ("", *extras)) for line in asked]
    while waiting:
        requirement, wanted = waiting.pop()
        marker = requirement.marker
        name = requirement.name.lower().replace("_", "-")
        if name in found or (marker and not any(marker.evaluate({"extra": extra}) for extra in wanted)):
            continue
        found.add(name)
        theirs = importlib.metadata.requires(name) or []
        waiting += [(Requirement(line), ("", *requirement.extras)) for line in theirs]
    return found


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Link the folders and files that a distribution has put into site-packages."""
    home = Path(str(distribution.locate_file("")))
    tops = {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists() and (home / top).exists():
            (site / top).symlink_to(home / top)


TOOLS = sorted((ROOT / "model_profiling" / "tools").glob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def readers(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install sme2-profiling-kit`, no extra: who only reads runs."""
    return install(built.wheel, tmp_path_factory.mktemp("readers") / "env")


@pytest.fixture(scope="module")
def exporters(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """`pip install 'sme2-profiling-kit[executorch]'`."""
    return install(built.wheel, tmp_path_factory.mktemp("exporters") / "env", "executorch")


@pytest.mark.quick
def test_the_wheel_holds_the_package_and_all_that_it_reads(built: Built) -> None:
    """Every file of the package that is no document, no script of a clone; and nothing else."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    package = ROOT / "model_profiling"
    here = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    left_out = {path for path in here if path.parent == package / "scripts" or path.suffix == ".md"}
    shipped = {str(path.relative_to(ROOT)) for path in here - left_out}
    own = {name for name in inside if name.startswith("model_profiling/")}
    assert shipped - own == set()
    assert {name for name in own - shipped if not name.startswith("model_profiling/skills/")} == set()
    assert {name.partition("/")[0] for name in inside} == {"model_profiling"}
    tests = {name for name in inside if "/test" in name}
    assert tests | {name for name in inside if name.endswith(".sh")} == set()
    for kind in ("runner/runner.cpp", "runner/json.h", "configs/schema.json", "py.typed"):
        assert f"model_profiling/{kind}" in inside


def test_an_sdist_holds_what_the_wheel_is_built_from(built: Built) -> None:
    """`build` has made the wheel of it; tests and their data stay out."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    assert {name for name in names if name.startswith(("tests", "bench", "docs", ".git", ".venv"))} == set()


def _pip(python: Path, *words: object) -> process.Completed:
    return process.run([python, "-m", "pip", *(str(word) for word in words)], timeout=550)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever pip's own settings name as the index of packages, if it can be reached."""
    folder = tmp_path_factory.mktemp("asked")
    if not _pip(Path(sys.executable), "download", "--no-deps", "--dest", folder, "click").ok:
        missing("an index of packages")


@pytest.mark.usefixtures("index")
@pytest.mark.timeout(1500)  # what is downloaded takes minutes on a busy machine
@pytest.mark.parametrize(
    "extras", ["", "[mcp,pandas,source-build,store-server,sweep]"], ids=["without extras", "with extras"]
)
def test_pip_installs_wheel_and_sdist_as_users_do(built: Built, tmp_path: Path, extras: str) -> None:
    """Dependencies come from the index; `[executorch]`, which is gigabytes, has linked packages below."""
    python = tmp_path / "env" / "bin" / "python"
    assert process.run([sys.executable, "-m", "venv", tmp_path / "env"], timeout=120).ok
    done = _pip(python, "install", "--quiet", f"{built.wheel}{extras}")
    assert done.ok, done.tail(20)
    assert _pip(python, "check").ok
    if not extras:  # the sdist needs what builds it, which pip fetches too
        done = _pip(python, "install", "--quiet", "--no-deps", "--force-reinstall", built.sdist)
        assert done.ok, done.tail(20)
    made = Environment(tmp_path / "env", tmp_path / "empty")
    made.work.mkdir()
    assert made.run("sme2prof", "--version").stdout == f"sme2prof, version {model_profiling.__version__}\n"
    run = shutil.copytree(SME2, made.work / "run")
    assert made.run("sme2prof", "report", run).ok
    assert made.run("sme2prof", "store", "add", run).ok
    helped = {name: made.run("sme2prof", name, "--help").ok for name in ("sweep", "worker", "mcp")}
    assert all(helped.values()), helped
    if extras:
        code = "import distributed, mcp, pandas, psycopg, model_profiling.mcp_server, model_profiling.sweep"
        assert made.run("python", "-c", code).ok


@pytest.mark.usefixtures("index")
@pytest.mark.timeout(1500)
def test_pipx_runs_the_wheel_by_the_package_s_name(built: Built, tmp_path: Path) -> None:
    """pipx looks for a program called as the package is, which `sme2prof` is not, or for this entry point."""
    python = tmp_path / "env" / "bin" / "python"
    assert process.run([sys.executable, "-m", "venv", tmp_path / "env"], timeout=120).ok
    done = _pip(python, "install", "--quiet", "pipx")
    assert done.ok, done.tail(20)
    env = {name: str(tmp_path / name.lower()) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    words = ["-m", "pipx", "run", "--spec", built.wheel, "sme2-profiling-kit", "--version"]
    done = process.run([python, *words], timeout=500, cwd=tmp_path, env={**env, "PYTHONPATH": ""})
    assert done.ok and model_profiling.__version__ in done.stdout.split(), done.stdout + done.stderr


def test_one_place_has_the_version_and_the_metadata_agrees(built: Built) -> None:
    (metadata,) = _metadata(built)
    assert metadata["Version"] == model_profiling.__version__
    assert "version" not in PROJECT and built.wheel.name.split("-")[1] == model_profiling.__version__
    supported = SpecifierSet(PROJECT["requires-python"])
    numbers = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert numbers == [f"3.{minor}" for minor in range(30) if f"3.{minor}.1" in supported]
    assert (numbers[0], numbers[-1]) == tuple(f"{major}.{minor}" for major, minor in PYTHON)


def _metadata(built: Built) -> list[importlib.metadata.PackageMetadata]:
    found = importlib.metadata.distributions(path=[str(built.wheel)])
    return [distribution.metadata for distribution in found]


def test_the_address_stands_in_one_place_and_the_description_links_nowhere_else(built: Built) -> None:
    """There is no address yet; once pyproject.toml names one, the links lead there (the test below)."""
    assert set(PROJECT["urls"]) <= {"Repository"}
    (metadata,) = _metadata(built)
    # A header once somebody has loaded the newer importlib_metadata, which Dask does.
    text = metadata["Description"] or str(metadata.get_payload())  # type: ignore[attr-defined]
    assert metadata["Description-Content-Type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert "Troubleshooting" in text and all(re.match(r"https://|#", target) for target in targets), targets


def test_a_release_links_to_its_own_tag() -> None:
    text = "![p](docs/p.png) [a](docs/a.md#b) [c](#c) [d](https://e.org) `x[0](y z)`"
    # In a process of its own: setuptools puts its own distutils into whoever imports it.
    code = "from setup import published\n"
    code += "".join(f"print(published({text!r}, {address!r}, '1.2.0'))\n" for address in ("https://h/r", ""))
    done = process.run([sys.executable, "-c", code], timeout=60, cwd=ROOT)
    assert done.ok, done.tail()
    assert done.stdout.splitlines() == [
        "![p](https://h/r/raw/v1.2.0/docs/p.png) [a](https://h/r/blob/v1.2.0/docs/a.md#b) [c](#c) "
        "[d](https://e.org) `x[0](y z)`",
        "p a [c](#c) [d](https://e.org) `x[0](y z)`",
    ]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.stem)
def test_each_tool_is_a_command_that_says_how_it_is_called(tool: Path, readers: Environment) -> None:
    name = f"sme2prof-{tool.stem.replace('_', '-')}"
    done = readers.run(name, "--help", timeout=60)
    assert done.ok, done.stderr
    assert done.stdout.startswith(f"usage: {name} ")
    assert f"{name} " in done.stdout.partition("example")[2] and ".py" not in done.stdout
    assert "earlier kit" in done.stdout


@pytest.mark.quick
def test_runs_are_read_without_executorch_torch_and_pandas(readers: Environment) -> None:
    run = Path(shutil.copytree(SME2, readers.work / "run"))
    for words in (("analyze", run), ("report", run), ("validate", run)):
        done = readers.run("sme2prof", *words)
        assert done.returncode == 0, done.tail(20)
    assert "vega" in (run / "report.html").read_text(encoding="utf-8")
    dump = next(run.rglob("*.etdump"))
    code = (
        "import sys, model_profiling\n"
        f"events = model_profiling.read_etdump({str(dump)!r})\n"
        f"table = model_profiling.analyse({str(run)!r}).operators\n"
        "assert len(events) and events.duration_ns.sum() > 0\n"
        "assert table[0]['name'] in [row['name'] for row in table]\n"
        "assert not {'pandas', 'torch', 'executorch'} & set(sys.modules), 'loaded'\n"
        "for each in (events, table):\n"
        "    try:\n"
        "        each.to_pandas()\n"
        "    except model_profiling.ProfilingError as problem:\n"
        "        print(problem)\n"
    )
    done = readers.run("python", "-c", code)
    fix = f"{readers.python} -m pip install 'pandas>=2.1'"
    assert done.ok, done.stderr
    assert [line.rpartition("; ")[2] for line in done.stdout.splitlines()] == [fix] * 2


def test_the_agent_skills_come_along(built: Built, readers: Environment) -> None:
    from model_profiling.workflow.skills import list_skills

    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    texts = [path.relative_to(ROOT) for path in (ROOT / "agent_skill_ml_profiling").rglob("*.md")]
    assert {str(path) for path in texts} <= names
    done = readers.run("sme2prof", "skills", "install", "--for", "claude", "--json", timeout=60)
    assert done.ok, done.stderr
    for skill in list_skills():
        for path, text in skill.files.items():
            installed = readers.work / ".claude" / "skills" / skill.name / path
            assert installed.read_text(encoding="utf-8") == text
    shutil.rmtree(readers.work / ".claude")


def test_who_lacks_executorch_is_told_in_one_line_what_installs_it(readers: Environment) -> None:
    fix = f"{readers.python} -m pip install executorch==1.5.1 torch==2.13.0"
    for words in (("profile", "toy_cnn"), ("export", "toy_cnn", "--dtype", "fp16")):
        done = readers.run("sme2prof", *words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.rstrip().endswith(fix), done.stderr
    told = readers.run("sme2prof", "doctor", "--json")
    assert told.returncode == 1
    checks = json.loads(told.stdout)["checks"]
    fixes = {check["name"]: check["fix"] for check in checks if check["status"] == "fail"}
    assert fixes["ExecuTorch SDK"] == fix
    assert set(fixes) == {"executorch", "torch", "ExecuTorch SDK"}
    wrong = {"model": "m.pte", "output_root": "o", "experiments": [{"name": "a", "runner_path": "none"}]}
    (readers.work / "c.json").write_text(json.dumps(wrong))
    checked = readers.run("sme2prof", "config", "check", "c.json")
    said = checked.stdout + checked.stderr
    assert f"({readers.python} -m model_profiling.compat.build_runners)" in said and ".sh" not in said
    (readers.work / "no.log").write_text("nothing\n")
    words = ("--xnntrace", "no.log", "--out", "k.csv", "--model-id", "m")
    told = readers.run("sme2prof-xnntrace-to-kernels", *words)
    page = "docs/how-to/source_builds.md of the kit's repository"
    assert told.returncode == 2 and told.stderr.rstrip().endswith(f"see {page}"), told.stderr
    listed = readers.run("sme2prof", "models")
    assert listed.ok and "toy_cnn" in listed.stdout


def test_an_empty_folder_and_one_command_make_a_report(exporters: Environment) -> None:
    """The whole job from the wheel alone: exported, built, measured where this machine can, reported."""
    ready = exporters.run("sme2prof", "doctor", "--json")
    assert ready.ok, ready.stdout
    here = ("--target", "host") if ON_ARM else ()
    done = exporters.run("sme2prof", "profile", "toy_cnn", "--budget", "1", *here, timeout=500)
    assert done.ok, done.tail(20)
    assert list(exporters.work.iterdir()) == [exporters.work / "out_toy_cnn"]
    reports = sorted(exporters.work.glob("out_toy_cnn/runs/*/*/report.html"))
    assert reports and all("<html" in path.read_text(encoding="utf-8")[:500] for path in reports)
