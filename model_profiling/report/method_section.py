"""How latencies were measured, what ended that, and what the machine did meanwhile, in words and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.report.document import Block, Paragraph, make_table
from model_profiling.run.manifest import Part
from model_profiling.run.metrics import Latency, MachineUse
from model_profiling.statistics.verdict import Speedup
from model_profiling.wording import MISSING, listing, percent, plural, several, span_of

RATIO_NOTE = (
    "Times are medians. Speedups and changes are not their quotient: they compare the lower quartiles of "
    "processes that ran side by side, which other work on the machine disturbs least."
)
SEPARATE_RATIO_NOTE = (
    "Times are medians. Speedups and changes are not their quotient: they compare the lower quartiles of "
    "processes that ran at different times, so 3% is added to each side of an interval for what the machine "
    "did then."
)
LOCKSTEP_RATIO_NOTE = (
    "Times are medians. Speedups and changes are not their quotient: they compare turns of the same moment, "
    "launch by launch, so that what the machine did meets both sides."
)


def ratio_note(found: Speedup, *, side_by_side: bool = True) -> str:
    """What a ratio was made of."""
    if found.unit == "launch":
        return LOCKSTEP_RATIO_NOTE
    return RATIO_NOTE if side_by_side else SEPARATE_RATIO_NOTE


def unit_header(latencies: Sequence[Latency]) -> str:
    """What a column counts: launches, rounds, or some of each."""
    units = {several(found.counted_in) for found in latencies}
    return " or ".join(sorted(units)) or "rounds"


def how_measured(part: Part, latencies: Sequence[Latency]) -> str:
    """One sentence or two about the experiments that one config measured."""
    ours = [found for found in latencies if found.experiment in part.experiments and found.rounds]
    if not ours:
        return ""
    in_turns = [found for found in ours if found.measured == "lockstep"]
    alone = [found for found in ours if found.measured != "lockstep"]
    said = []
    if in_turns:
        launches = plural(max(found.rounds for found in in_turns), "launch")
        who = (
            "all programs were loaded and took turns" if len(in_turns) > 1 else "the program was started anew"
        )
        said.append(f"Measured in lockstep: in each of {launches} {who}")
    if alone:
        who = f" ({listing(dict.fromkeys(str(found.series) for found in alone))})" if in_turns else ""
        rounds = plural(max(found.rounds for found in alone), "round")
        said.append(f"{'measured' if said else 'Measured'} in {rounds} of one process after another{who}")
    return f"{'; '.join(said)}.{_ending(part)}"


def _ending(part: Part) -> str:
    facts = part.schedule
    took = f" after {facts.measured_s:.0f} s" if facts.measured_s is not None else ""
    if facts.ended == "precision" and facts.precision is not None:
        return f" It ended{took} because every speedup was known to plus or minus {percent(facts.precision)}."
    if facts.ended == "budget" and facts.budget_s is not None:
        return f" It ended{took} because the budget of {facts.budget_s:g} s was spent."
    if facts.ended == "nothing compared":
        return f" It ended{took}: nothing is compared, so the fewest launches are enough."
    if facts.ended == "rounds" and facts.mode == "lockstep":
        return f" It ended{took} with the last launch that was asked for."
    return ""


def machine_table(latencies: Sequence[Latency]) -> list[Block]:
    """What the machine did while the turns were taken; nothing where none were."""
    known = [(found, found.machine) for found in latencies if found.machine is not None]
    if not known:
        return []
    headers = ("experiment", "threads", "CPU time", "pushed off the CPU", "page faults from disk")
    rows = [
        (
            found.experiment,
            str(found.threads or MISSING),
            MISSING if use.cpu_time_share is None else f"{100 * use.cpu_time_share:.0f}%",
            _rate(use.involuntary_switches, use.inferences),
            _rate(use.major_faults, use.inferences),
        )
        for found, use in known
    ]
    meanwhile = "; ".join(_meanwhile([use for _, use in known]))
    note = (
        "What the machine did during the turns: CPU time as a share of the time the turns took, the rest as "
    )
    return [
        Paragraph(f"{note}events per 1,000 inferences{f'; {meanwhile}' if meanwhile else ''}."),
        make_table(headers, rows, numbers=(1, 2, 3, 4)),
    ]


def _rate(events: int, inferences: int) -> str:
    return f"{1000 * events / inferences:.1f}" if inferences else MISSING


def _meanwhile(uses: Sequence[MachineUse]) -> Iterator[str]:
    loads = [load for use in uses for load in use.load or ()]
    if loads:
        yield f"load {span_of(loads, '.1f')}"
    stolen = [use.stolen_share for use in uses if use.stolen_share is not None]
    if stolen:
        yield f"{percent(max(stolen))} of CPU time taken by the hypervisor"
    clocks = [khz / 1e6 for use in uses for khz in use.clock_khz or ()]
    if clocks:
        yield f"clock {span_of(clocks, '.2f')} GHz"
    temperatures = [degrees for use in uses for degrees in use.temperature_c or ()]
    if temperatures:
        yield f"{span_of(temperatures, '.0f')} C"
