"""What the documents show is what happens: a walk's commands run in order, in a clone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from documents import Block, Clone, blocks_of, described_machine, missing_line, pages
from stand_ins import lay_out_checkout

from model_profiling.core import process

SKILLS = "agent_skill_ml_profiling"
WALKS = {
    "readme": ("README.md",),
    "workflow": ("model_profiling/pipeline_commands.md",),
    "learning path": tuple(sorted(name for name in pages() if name.startswith("docs/learn/"))),
    "skills": tuple(sorted(name for name in pages() if name.startswith(f"{SKILLS}/"))),
    "kits": tuple(
        f"agentic-kits/{name}.md"
        for name in ("README", "setup-agent", "pipeline-agent", "validation-agent", "troubleshooting-agent")
    ),
}
"""Pages that are read one after the other, in one clone; each walk is one test."""
_EDGETAM = "https://github.com/facebookresearch/EdgeTAM.git"


@pytest.mark.skipif(sys.platform != "linux", reason="the run directories shown are those of Linux")
@pytest.mark.timeout(1800)  # a page takes minutes, and more on a busy machine
@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_runs_from_top_to_bottom(walk: str, tmp_path: Path, warm_python: str) -> None:
    # The workflow's export imports ExecuTorch itself, beside a checkout that is not the wheel.
    beside_checkout = walk == "workflow"
    stand_ins = {_EDGETAM: _edgetam(tmp_path)} if walk == "skills" else {}
    clone = Clone(tmp_path, warm_python, stand_ins, cold="doctor export" if beside_checkout else "")
    if beside_checkout:
        lay_out_checkout(clone.root)
    told = [block for page in WALKS[walk] for block in blocks_of(page)]
    assert [block for block in told if block.language == "bash" and not block.not_run], "nothing to run"
    for block in told:
        if block.language == "python":
            clone.write(block)
        elif block.language == "bash" and not block.not_run:
            _run(clone, block)
    assert not list(clone.root.glob("*.txt")), "a walk leaves no notes behind"


def _edgetam(folder: Path) -> Path:
    """A repository with what the skill takes from EdgeTAM's: a licence, and weights under its names."""
    import torch
    from edgetam_weights import checkpoint_weights

    place = folder / "edgetam"
    (place / "checkpoints").mkdir(parents=True)
    torch.save({"model": checkpoint_weights()}, place / "checkpoints" / "edgetam.pt")
    (place / "LICENSE").write_text("a stand-in\n")
    git = ["git", "-C", place, "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Stand-in"]):
        assert process.run([*git, *words], timeout=60).ok
    return place


def _run(clone: Clone, block: Block) -> None:
    done = clone.run(block)
    accepted = {0, 1} if block.mark == "may answer no" else {0}
    said = f"{block.where}\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.returncode in accepted and not done.timed_out, said
    assert "unexpected" not in done.stderr, said
    machine = block.output_mark.partition(":")[2].strip()
    if block.output and machine in ("", described_machine()):
        lost = missing_line(block.output, done.stdout + done.stderr)
        assert not lost, f"this line of the page does not come: {lost!r}\n{said}"
