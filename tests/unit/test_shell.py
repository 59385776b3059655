"""shellcheck has nothing to say about any shell text of the repository: scripts, what runs on other machines,
programs that the kit writes, and the commands of the workflows."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import missing
from ruamel.yaml import YAML
from working_tree import ROOT, tracked

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import compilers
from model_profiling.targets.collect import ExpectedFile
from model_profiling.targets.device import state
from model_profiling.targets.remote import android, facts, scripts
from model_profiling.targets.remote.shell import LinkLost, Shell

# With what a shell would obey: where quoting is forgotten, the text is another.
ODD = "/data/it's $HOME/`x`"
RENDERED = {
    "make_home": scripts.make_home(ODD),
    "make_folder": scripts.make_folder(ODD),
    "state_of": scripts.state_of([ODD, "/b"]),
    "receive": scripts.receive(
        f"{ODD}/file", [f"{ODD}/old.part", f"{ODD}/file.part"], 12, "0" * 64, executable=True
    ),
    "list_files": scripts.list_files(
        ODD, [ExpectedFile("out'put", ".bin", 9, several=True), ExpectedFile("log", "", 1)]
    ),
    "remove_job": scripts.remove_job(ODD),
    "watched": scripts.watched([f"{ODD}/runner", "--model", ODD], ODD, 12.5),
    "machine_facts": scripts.machine_facts(
        {**facts._FILES, **state.FILES}, {**facts._COMMANDS, **state.COMMANDS}
    ),
    "features": scripts.features([f"{ODD}/runner"]),
    "inventory": scripts.inventory(ODD),
    "remove_home": scripts.remove_home(ODD),
}
INTENDED = {
    "SC2016": (
        r"'",
        "a word is quoted so that nothing in it is obeyed; one for a shell of its own is looked at alone",
    ),
    "SC2043": (r"\.?/\S+; do", "one path, which may be a pattern on another machine"),
    "SC2046": (r"\$\((wc -c|sha256sum) <", "a size and a hash are taken apart into words"),
}
"""What is meant as it stands in texts for other machines: where, and why."""
WRITTEN = {
    "zig": compilers.ZIG_SCRIPT,
    "unpacked_gcc": compilers.GCC_SCRIPT.format(program="aarch64-linux-gnu-g++"),
    "adb": android._SCRIPT,
}


class Overheard:
    """A link that keeps what it is to run, and loses it."""

    title, shown = "overheard", ("true",)

    def __init__(self) -> None:
        self.heard = ""

    def connect(self) -> None: ...
    def close(self) -> None: ...
    def complaint(self, said: str) -> SetupError | None:
        del said
        return None

    def command(self, script: str) -> Sequence[str]:
        self.heard = script
        return ("true",)


def as_sent(script: str) -> str:
    """With what is put around each text that is sent to another machine."""
    link = Overheard()
    with pytest.raises(LinkLost):
        Shell(link).script(script)
    return link.heard


def texts() -> dict[str, str]:
    """Every piece of shell text by a name for a file; its first line says for which shell it is."""
    found = {}
    for name, text in RENDERED.items():
        found[f"{name}.sh"] = f"#!/bin/sh\n{text}\n"
        # What is given to a shell of its own is a word to this one: it is looked at by itself.
        for number, inner in enumerate(re.findall(r"sh -c '([^']+)'", text)):
            found[f"{name}-{number}.sh"] = f"#!/bin/sh\n{inner}\n"
    found["as_sent.sh"] = f"#!/bin/sh\n{as_sent('true')}\n"
    found |= {f"{name}-program.sh": text for name, text in WRITTEN.items()}
    folders = ROOT / ".github" / "workflows", ROOT / "docs" / "examples" / "github-actions"
    for path in (found for folder in folders for found in sorted(folder.glob("*.yml"))):
        for job, told in YAML(typ="safe").load(path)["jobs"].items():
            steps = [step["run"] for step in told["steps"] if "run" in step]
            for number, text in enumerate(steps):
                # GitHub fills in ${{ ... }} before a shell sees it.
                filled = re.sub(r"\$\{\{.*?\}\}", "filled_in", text)
                found[f"{path.stem}-{job}-{number}.sh"] = f"#!/bin/bash -e\n{filled}\n"
    return found


def test_every_text_for_another_machine_is_looked_at() -> None:
    public = {
        name
        for name, each in inspect.getmembers(scripts, inspect.isfunction)
        if each.__module__ == scripts.__name__ and not name.startswith("_")
    }
    assert public == set(RENDERED)
    assert len([name for name in texts() if name.startswith("watched-")]) == 3


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        missing("shellcheck")
        return
    for name, text in texts().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first = {name: (ROOT / name).read_bytes()[:30].partition(b"\n")[0] for name in tracked()}
    own = [
        name for name, line in first.items() if name.endswith(".sh") or re.match(rb"#!.*\b(ba)?sh\b", line)
    ]
    assert {".ci/run", "model_profiling/scripts/setup_repo.sh"} <= set(own)
    words = [shellcheck, "--external-sources", "--format", "json1", *own, *sorted(tmp_path.glob("*.sh"))]
    done = process.run(words, timeout=300, cwd=ROOT)
    assert done.returncode in (0, 1), done.tail()
    found = [said for said in json.loads(done.stdout)["comments"] if not intended(said)]
    assert found == [], "\n".join(
        f"{one['file']}:{one['line']}: SC{one['code']} {one['message']}" for one in found
    )


def intended(said: dict[str, Any]) -> bool:
    path = Path(said["file"])
    where, _ = INTENDED.get(f"SC{said['code']}", (None, ""))
    if where is None or path.stem.partition("-")[0] not in RENDERED:
        return False
    line = path.read_text(encoding="utf-8").splitlines()[said["line"] - 1]
    return re.match(where, line[said["column"] - 1 :]) is not None


def test_shellcheck_would_find_something(tmp_path: Path) -> None:
    """A name that is not quoted, in a text as ours are."""
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        missing("shellcheck")
        return
    careless = tmp_path / "careless.sh"
    careless.write_text("#!/bin/sh\n" + scripts.make_home(ODD).replace('mkdir "$h"', "mkdir $h") + "\n")
    assert "SC2086" in process.run([shellcheck, careless], timeout=60).stdout


@pytest.mark.parametrize("name", ["build_runners", "check_prereqs", "setup_repo"])
def test_a_script_called_with_sh_is_run_by_bash(name: str) -> None:
    """dash said `Illegal option -o pipefail`, and no more."""
    shell = shutil.which("dash") or shutil.which("sh")
    script = ROOT / "model_profiling" / "scripts" / f"{name}.sh"
    done = process.run([str(shell), script, "--help"], timeout=60)
    assert done.ok and "sage" in done.stdout, done.tail()


def test_scripts_are_for_the_bash_of_a_mac() -> None:
    """3.2 knows no mapfile, no case of letters, no references; with `set -u` no array that is empty."""
    for path in sorted((ROOT / "model_profiling" / "scripts").glob("*.sh")):
        text = path.read_text(encoding="utf-8")
        newer = r"\b(?:mapfile|readarray|coproc)\b|declare -[Agn]|local -n|\$\{\w+(?:,,|\^\^|@[A-Z])|&>>|\|&"
        assert not re.search(newer, text), path.name
        for array in re.findall(r"(?m)^(\w+)=\(\)", text):
            left = text.replace(f'${{{array}[@]+"${{{array}[@]}}"}}', "")
            guarded = f"${{{array}[*]-}}" in text  # and whoever is empty leaves
            assert guarded or f"{array}[" not in left, f"{path.name}: {array} may be empty"
