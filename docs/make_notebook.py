"""Makes `learn/example.ipynb`: its cells stand here, run in a fresh kernel, and are kept with what they show.

    python docs/make_notebook.py [OUTPUT]

Nothing that differs from one machine to the next is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "learn" / "example.ipynb"

CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        """
        # Profiles in a notebook

        Where the time goes, what SME2 changes, what to do next: from Python. Everything here runs on a run
        directory that lies in this repository, so no Arm machine is needed.

        **The figures with SME2 are made up**: measured on a CPU without it, with the times of convolutions
        and linear layers divided to look like one that has it. They show the kit, not SME2.
        """,
    ),
    (
        "code",
        """
        import model_profiling

        RUN = "../../tests/data/runs/sme2_hardware"
        run = model_profiling.analyse(RUN)
        run
        """,
    ),
    (
        "markdown",
        """
        ## Tables

        Each table of a run has `to_pandas()`. Columns and figures are those of the run's files
        ([what there is](../reference/api.md)).
        """,
    ),
    (
        "code",
        """
        speedups = run.speedups.to_pandas()
        speedups[["comparison", "verdict", "ratio", "low", "high", "baseline_median", "candidate_median"]]
        """,
    ),
    (
        "code",
        """
        categories = run.categories.to_pandas().query("threads == 1")
        categories.pivot(index="category", columns="experiment", values=["ms", "share"]).round(3)
        """,
    ),
    (
        "code",
        """
        operators = run.operators.to_pandas().query("threads == 1 and experiment == 'linux_sme2_on'")
        longest = operators.sort_values("ms", ascending=False).head(5)
        longest[["name", "category", "ms", "share", "output_shape", "module_path", "source_line"]]
        """,
    ),
    ("markdown", "What became of each operator, and which kernels it takes:"),
    (
        "code",
        """
        changes = run.operator_changes.to_pandas().query("comparison == 'SME2'")
        changes[["operator", "change", "kernel_before", "kernel_after", "baseline_ms", "candidate_ms"]]
        """,
    ),
    ("markdown", "Every inference that was timed, without the event tracer:"),
    (
        "code",
        """
        samples = run.samples.to_pandas()
        samples.groupby(["experiment", "threads"])["ms"].describe(percentiles=[0.5, 0.95]).round(3)
        """,
    ),
    (
        "markdown",
        """
        ## Comparing

        Two run directories or dumps; a run compared with itself has not changed.
        """,
    ),
    (
        "code",
        """
        model_profiling.compare(RUN, RUN)
        """,
    ),
    ("markdown", "Where times say nothing about each other, that is the answer:"),
    (
        "code",
        """
        runs = "../../tests/data/runs"
        different = model_profiling.compare(f"{runs}/arm_without_sme2", f"{runs}/x86_64")
        different.speedups[0]["reason"]
        """,
    ),
    ("markdown", "What cannot be done is an error that says what to do:"),
    (
        "code",
        """
        try:
            model_profiling.analyse("no/such/run")
        except model_profiling.ProfilingError as error:
            wrong = {"problem": error.problem, "fix": error.fix}
        wrong
        """,
    ),
    (
        "markdown",
        """
        ## Events as they were recorded

        An `.etdump` of any ExecuTorch runner, without torch:
        """,
    ),
    (
        "code",
        """
        dump = f"{RUN}/linux_sme2_on/small_cnn_xnnpack_fp16_linux_sme2_on_t1.etdump"
        events = model_profiling.read_etdump(dump)
        events.to_pandas().query("is_delegated").groupby("name")["duration_ns"].median().head()
        """,
    ),
    (
        "markdown",
        """
        ## Measuring

        `export` makes a checked program of a module in memory, and `profile` measures it as this machine can:
        with SME2 on and off where the CPU has it; elsewhere a baseline, with the kernels that SME2 would run
        from emulation. Both need `pip install -e '.[executorch]'`. The module stays as it was.
        """,
    ),
    (
        "code",
        """
        import tempfile

        import torch


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = torch.nn.Conv2d(3, 32, 3)
                self.head = torch.nn.Linear(32, 10)

            def forward(self, image):
                return self.head(self.stem(image).relu().mean((2, 3)))


        net, image = Net(), torch.rand(1, 3, 64, 64)
        made = model_profiling.export(net, image, dtype="fp16", outdir=tempfile.mkdtemp())
        left = made.coverage.undelegated
        {"program": made.pte.name, "outside the delegate": [(each.reason, each.replacement) for each in left]}
        """,
    ),
    ("markdown", "Set `PROFILE` to measure; that takes a minute or two, and writes into `out_Net`:"),
    (
        "code",
        """
        PROFILE = False

        outcome = model_profiling.profile(net, image, dtype="all", budget_s=20) if PROFILE else None
        outcome
        """,
    ),
)


def make() -> nbformat.NotebookNode:
    kinds = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    cells = [
        kinds[kind](dedent(text).strip(), id=f"cell-{place}") for place, (kind, text) in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}, record_timing=False
    ).execute()
    notebook.metadata.pop("language_info", None)
    nbformat.validate(notebook)
    return notebook


if __name__ == "__main__":
    nbformat.write(make(), sys.argv[1] if len(sys.argv) > 1 else NOTEBOOK)
