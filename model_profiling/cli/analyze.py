"""`sme2prof analyze`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from model_profiling.analysis.findings import subject
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.workflow.analyse import analyse, write_analysis

_SHOWN_FINDINGS = 5
_SHOWN_OPERATORS = 5

_Row = tuple[str, str, str]


@frame.command(
    "analyze",
    example="""sme2prof analyze out_toy_cnn/runs/linux
    sme2prof analyze someones_dump.etdump --model their_model.pte""",
    facts=True,
)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="The .pte that was run [default: looked for].")
@click.option(
    "--etrecord", type=click.Path(path_type=Path), help="Its record [default: the one beside the .pte]."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write every file here, not beside the dumps.")
def command(
    run_dir: Path, model: Path | None, etrecord: Path | None, out: Path | None, as_json: bool
) -> None:
    """Say where the time went in every dump of RUN_DIR, and write it as CSV and JSON.

    RUN_DIR is a run directory, any folder with .etdump files, or one .etdump of any runner.
    """
    with shown_progress() as progress:
        analysis = analyse(run_dir, model=model, etrecord=etrecord, progress=progress)
        written = write_analysis(analysis, out)
    if as_json:
        summary = json.loads(written[-1].read_text(encoding="utf-8"))
        frame.facts(summary | {"files": [str(path) for path in written]})
        return
    print_analysis(analysis)
    frame.say(f"{len(written)} files written; the summary is {written[-1]}")


def print_analysis(analysis: RunAnalysis) -> None:
    for dump in analysis.dumps:
        _print_dump(dump)
    for pairing in analysis.pairings:
        reason = pairing.not_comparable or pairing.e2e.reason
        frame.say(f"{pairing.label}, by these dumps alone: {pairing.e2e.verdict.value} ({reason})")
    # Experiments of one model share most findings; each is shown where it weighs most.
    largest = {finding.id: finding for finding in reversed(analysis.findings)}
    for finding in sorted(largest.values(), key=lambda one: -one.max_gain_pct)[:_SHOWN_FINDINGS]:
        frame.say(
            f"{finding.severity:6}  {finding.title} [{finding.subject}]; at most {finding.max_gain_pct:g}%"
        )
    for warning in dict.fromkeys(
        (*analysis.warnings, *(text for dump in analysis.dumps for text in dump.warnings))
    ):
        frame.warn(warning)


def _print_dump(dump: DumpAnalysis) -> None:
    breakdown, timed = dump.breakdown, dump.timings_are_latency
    runs = f"{dump.runs} run{'' if dump.runs == 1 else 's'}"
    if timed:
        frame.say(f"{subject(dump)}: {runs}, mean {dump.e2e_ms:.3f} ms with the tracer on")
    else:
        frame.say(f"{subject(dump)}: {runs}; emulated or traced: shares are of event times, not of a latency")
    rows = [(category.label, part) for category, part in breakdown.categories.items()]
    rows += [("framework overhead", breakdown.framework), ("unattributed", breakdown.unattributed)]
    _table(
        ("  WHERE", "MEAN MS", "SHARE"),
        [
            (f"  {name}", f"{breakdown.mean_ms(part):.3f}", f"{breakdown.share(part):.1%}")
            for name, part in rows
        ],
        timed=timed,
    )
    longest = sorted(dump.operators, key=lambda operator: -operator.times.median_ns)[:_SHOWN_OPERATORS]
    _table(
        ("  OPERATOR", "MEDIAN MS", "WHERE"),
        [(f"  {operator.name}", f"{operator.median_ms:.3f}", operator.place) for operator in longest],
        timed=timed,
    )
    if dump.unknown_names:
        frame.say(f"  unknown operators, counted as Other: {', '.join(dump.unknown_names)}")


def _table(header: _Row, rows: list[_Row], *, timed: bool) -> None:
    """A table whose middle column is a time; times that are no latencies are not shown."""
    if timed:
        frame.table(header, rows)
    else:
        frame.table((header[0], header[2]), [(row[0], row[2]) for row in rows])
