"""Series with as many operators as a test asks for, each with a place in a made-up model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.sources import OperatorSource
from model_profiling.config.series import Pair, Series
from model_profiling.etdump import read_etdump
from model_profiling.program.records import SourceRef
from model_profiling.report.data import PairReport, ReportData, report_data
from model_profiling.runs import Run, Times
from model_profiling.runs import run as opened
from model_profiling.runs.records import PairSpeedup
from model_profiling.statistics.speedup import Speedup, Verdict, compare_rounds

MADE = Series("made", 1)


def one_call(operators: Iterable[tuple[str, float]], inside: float = 1000, outside: float = 1000) -> Block:
    """A run of one delegate call: the nanoseconds of its operators, of the rest of it, and around it."""
    clock, events = 0, []
    for name, spent in operators:
        end = clock + round(spent)
        events.append(ProfileEvent(None, 0, 0, -1, name, None, clock, end))
        clock = end
    call = clock + round(inside)
    events.append(ProfileEvent("DELEGATE_CALL", 0, 0, -1, None, None, 0, call))
    events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, call + round(outside)))
    return Block("Execute", -1, (), tuple(events))


def analysed(runs: Iterable[Block], series: Series = MADE, round: int = 0, turn: int = 0) -> DumpAnalysis:
    content = Dump(tuple(runs), True, False).to_bytes()
    dump = opened.Dump(
        Path(series.experiment) / "made.etdump", series, Times.HARDWARE, round, turn_length=turn
    )
    return analyse_dump(read_etdump(content), dump)


def conv(number: int) -> str:
    return f"Convolution (NHWC, F16) IGEMM #{number}"


def made_series(
    count: int, experiment: str = "made", *, slower: int = 1, name: Callable[[int], str] = conv
) -> SeriesAnalysis:
    """`count` operators in one call; the n-th takes n times 7 ns, and 1,000 more."""
    operators = [(name(number), slower * (1_000 + 7 * number)) for number in range(count)]
    series = series_of([analysed([one_call(operators, 500, 100)], Series(experiment, 1))])
    placed = tuple(
        replace(operator, source=_source(number, name)) for number, operator in enumerate(series.operators)
    )
    return replace(series, operators=placed)


def _source(number: int, name: Callable[[int], str]) -> OperatorSource:
    place = SourceRef(
        module_path=f"encoder.layers.{number // 10}.block.{number % 10}",
        module_class="torch.nn.modules.conv.Conv2d",
        file="/home/user/model.py" if name is conv else f"/home/user/{name(number)}.py",
        line=number % 400 + 1,
        code=f"x = self.layers[{number}](x)  # {name(number)}",
    )
    return OperatorSource(
        origin="model", backend="XnnpackBackend", node_index=number, node_kind="Conv2d", dtype="fp16",
        input_shapes=((1, 112, 112, 16 + number),), output_shape=(1, 56, 56, 32), kernel_size=(3, 3),
        groups=1, flops=123_456 + number, bytes_moved=4_567 + number, place=place,
    )  # fmt: skip


def made_page(count: int, name: Callable[[int], str] = conv) -> ReportData:
    """A report of such a series before and after it became twice as fast."""
    before = made_series(count, "made_off", slower=2, name=name)
    after = made_series(count, "made_on", name=name)
    faster: Speedup = replace(
        compare_rounds((), ()), verdict=Verdict.FASTER, ratio=2.0, low=1.9, high=2.1, reason=""
    )
    pair = Pair(name(0), before.series, after.series, None)
    answer = PairSpeedup(pair.label, pair.baseline, pair.candidate, faster, with_tracer=True)
    pairing = pair_series(before, after, label=pair.label, answer=answer)
    run = Run(Path("made"), dumps=(before.first.dump, after.first.dump))
    data = report_data(run, RunAnalysis(run, (before, after), (pairing,), (), (), ()), f"{name(0)} on linux")
    return replace(data, pairs=(PairReport(pair, faster, True, pairing),))
