"""What commands do on a run directory of somebody else, seen by Python itself: no process, no connection, no
pickle, and no file but the run's own, those asked for, and those of the installation."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import pytest
from recorded_runs import Json, copied, edit, put

from model_profiling.core import process
from model_profiling.runner.cache import cache_root

SCRIPT = Path(__file__).parents[1] / "audited_commands.py"
KIT = Path(__file__).parents[2] / "model_profiling"


class Mine:
    """Unpickled, it would leave a mark."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


def lay_traps(run_dir: Path, outside: Path) -> None:
    """What does not keep a run from being read, and leads everywhere if it is believed."""
    secret = outside / "secret.txt"
    secret.write_text("root:x:0:0\n")
    program = outside / "model.pte"
    program.write_bytes(b"\0" * 64)

    def believed(manifest: Json) -> None:
        manifest.update(model=str(program), etrecord=str(secret), config=str(secret), config_file=str(secret))
        manifest["target"]["platform"] = "../../../outside/x"
        manifest["settings"]["inputs"] = {"files": [str(secret)]}
        manifest["settings"]["output_root"] = str(outside)
        manifest["sessions"][0]["command_line"] = ["sh", "-c", f"touch {outside}/ran", "--host", "evil"]
        for result in manifest["results"]:
            result["runner_path"] = str(outside / "runner")

    edit(run_dir / "manifest.json", believed)
    edit(run_dir / "metrics.json", lambda metrics: metrics.update(model=str(secret)))

    def elsewhere(graph: Json) -> None:
        graph["program"]["source"] = str(secret)
        for refs in (graph["record"] or {"sources": {}})["sources"].values():
            for ref in refs.values():
                ref["file"] = str(secret)

    edit(run_dir / "program_graph.json", elsewhere)
    (run_dir / "program_graph.json.pkl").write_bytes(pickle.dumps(Mine()))
    (run_dir / "notes.md").symlink_to(secret)
    (run_dir / "notes.json.csv").symlink_to(secret)
    (run_dir / "more.json").symlink_to(secret)
    (run_dir / "a_kernels.csv").symlink_to(secret)
    os.mkfifo(run_dir / "pipe.log")
    (run_dir / ".hidden").symlink_to(outside)
    (run_dir / "round").symlink_to("round")
    (run_dir / "sitecustomize.py").write_text("import os; os.mkdir('imported')\n")


@pytest.mark.slow
def test_no_command_leaves_the_run_directory(arm_home: Path, tmp_path: Path) -> None:
    first, second, third = (copied(arm_home, tmp_path / name) / "runs" / "xnnpack_fp16" for name in "abc")
    hostile, other, wrong = first / "linux", second / "linux", third / "linux"
    outside, out, scratch, home = (tmp_path / name for name in ("outside", "out", "scratch", "home"))
    for folder in (outside, out, scratch, home):
        folder.mkdir()
    lay_traps(hostile, outside)
    put(wrong / "manifest.json", "results.0.outputs.0.file", "/dev/zero")
    before = sorted(outside.rglob("*"))
    read = [
        ["analyze", str(hostile)],
        ["report", str(hostile)],
        ["report", str(hostile), "--for", "all"],
        ["report", str(hostile), "--share"],
        ["validate", str(hostile)],
        ["compare", str(hostile), str(other)],
        ["view", str(hostile), "--no-browser"],
        ["view", str(first), "--no-browser"],
        ["report", str(hostile), "--zip", "--out", str(out / "run.zip")],
    ]
    not_read = [
        ["analyze", str(wrong)],
        ["report", str(wrong)],
        ["validate", str(wrong)],
        ["compare", str(wrong), str(other)],
        ["view", str(wrong), "--out", str(out / "page.html"), "--no-browser"],
    ]
    plan = tmp_path / "plan.json"
    own, readable = (first, out, scratch, wrong), (second, KIT, cache_root())
    folders = {"own": list(map(str, own)), "read": list(map(str, readable))}
    plan.write_text(json.dumps({"commands": [*read, *not_read], **folders}))
    environment = {
        "TMPDIR": str(scratch), "HOME": str(home), "SME2PROF_CACHE": str(cache_root()),
        "PYTHONPATH": str(KIT.parent), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1",
    }  # fmt: skip
    argv = [sys.executable, "-X", "utf8", str(SCRIPT), str(plan)]
    done = process.run(argv, timeout=300, cwd=hostile, env=environment)
    assert done.ok, done.tail()
    answers = json.loads(done.stdout)
    assert [answer for answer in answers if answer["touched"]] == []
    for answer in answers[: len(read)]:
        assert "unexpected" not in answer["said"], answer
        # What is wrong with it is told by `validate`; everything else reads on.
        assert answer["code"] == (1 if answer["command"][0] == "validate" else 0), answer
    for answer in answers[len(read) :]:
        assert answer["code"] == (1 if answer["command"][0] == "validate" else 2), answer
        assert "0.outputs.0.file: '/dev/zero'" in answer["said"], answer
    assert sorted(outside.rglob("*")) == before
    for trace in ("unpickled", "imported", "ran"):
        assert not list(tmp_path.rglob(trace))
    made = [page for page in (*hostile.rglob("*.md"), *hostile.glob("*.html")) if not page.is_symlink()]
    assert made and not any("root:x:0:0" in page.read_text() for page in made)
