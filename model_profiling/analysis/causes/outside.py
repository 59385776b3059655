"""Operators that no delegate took, by the line of the model that creates them: why, what to write instead,
and what separating delegates costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_profiling.analysis.findings import (
    CONVERSIONS,
    WORTH,
    Concern,
    Finding,
    Free,
    SeriesCase,
    by_kind,
    identities,
    line_or_layer,
    some_of,
    where,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import Calls, calls_of
from model_profiling.core.formatting import listing, plural
from model_profiling.program.category import MATRIX, SCALAR_READ, SIZE, Category
from model_profiling.program.graph_file import VARYING, Undelegated

REASON_NOT_KNOWN = (
    "why is not known, because the program was not exported by this kit: export it with `sme2prof export` to "
    "see why each was not taken and, where known, what to write instead"
)
OUTSIDE = "outside-delegates"
_LITTLE = 0.05
_NAMED = 3
"""Remedies the advice spells out, and lines it names for each; the listed operators have the rest."""


Member = tuple[Operator, Undelegated | None]
"""An operator outside delegates, and why it is there, if known."""


@dataclass(frozen=True, slots=True)
class OutsideLine:
    """What one line of the model leaves outside, in any number of modules, with one remedy."""

    calls: tuple[Sequence[Member], ...]
    """By call of the model: a `hardsigmoid` becomes several operators."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(operator for call in self.calls for operator, _ in call)

    @property
    def reasons(self) -> tuple[Undelegated, ...]:
        return tuple(why for call in self.calls for _, why in call if why)

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(operator.call for operator in self.operators)

    @property
    def helped(self) -> bool:
        """Whether something is known to help, or no reason is known at all."""
        return not self.reasons or bool(self.reasons[0].replacement)

    @property
    def called(self) -> str:
        """The function the model calls, if known: `hardsigmoid`."""
        return self.reasons[0].call if self.reasons else ""

    @property
    def name(self) -> str:
        return self.called or next(iter(by_kind(self.operators)))

    @property
    def place(self) -> str:
        """`model.py:31`, without folders, or the layer; empty if unknown."""
        place = self.operators[0].source.place
        return place.short_line or (self.reasons[0].source if self.reasons else "") or place.layer

    @property
    def why(self) -> str:
        """The partitioner's own words; empty if unknown."""
        return _why(self.reasons)

    @property
    def remedy(self) -> str:
        """`instead: ...`, or that nothing is known to help; empty without a reason."""
        return self.reasons[0].remedy if self.reasons else ""


def _why(reasons: Sequence[Undelegated]) -> str:
    return "; ".join(list(dict.fromkeys(each.plainly for each in reasons))[:_NAMED])


def outside_lines(series: SeriesAnalysis, outside: Sequence[Operator]) -> list[OutsideLine]:
    lines: dict[tuple[str, ...], dict[str, list[Member]]] = {}
    for operator in outside:
        why = why_outside(series, operator)
        # Without a reason only their kind distinguishes them, and all need the same remedy.
        line: tuple[str, ...] = (operator.kind, line_or_layer(operator))
        # The call of a line is its module's; the operator itself if the module is unknown.
        call = (operator.source.module_path or why.module_path if why else "") or str(operator.identity)
        if why is not None:
            line = (
                why.call or why.operator,
                why.remedy,
                operator.line or why.source or line_or_layer(operator),
            )
        lines.setdefault(line, {}).setdefault(call, []).append((operator, why))
    return [OutsideLine(tuple(calls.values())) for calls in lines.values()]


def why_outside(series: SeriesAnalysis, operator: Operator) -> Undelegated | None:
    graph = series.graph
    if not graph or not operator.method:
        return None
    found = graph.why_outside(operator.method, operator.instruction_id)
    if found is None and graph.undelegated and not operator.delegated:
        # The export has a reason for each that computed a tensor then.
        number = operator.kind in (SCALAR_READ, SIZE)
        reason = _A_NUMBER if number else VARYING if _VIEW in operator.name else _ADDED_LATER
        return Undelegated(operator.name, "", operator.source.module_path, reason, "refused")
    return found


_A_NUMBER = "it gives a number, not a tensor"
_ADDED_LATER = "lowering added it after the backend had chosen its operators"
_VIEW = "et_view"
"""A reshape to a shape that varies; to a fixed one it takes no instruction."""
_PORTABLE = 100.0
"""How much slower a portable kernel may be; it only decides which finding is first if there are no times."""


def outside(case: SeriesCase, free: Free) -> Finding | None:
    left = case.largest(free, lambda operator: not operator.delegated)
    if not left:
        return None
    series, calls = case.series, calls_of(case.series)
    lines = _ordered(case, outside_lines(series, left), calls)
    helped = [line for line in lines if line.helped]
    taken = frozenset[int]().union(*(line.numbers for line in helped))
    # Operators that no model input reaches wait for no delegate, wherever they are written.
    aside = {
        operator.call
        for operator in series.operators
        if not operator.delegated and (why := why_outside(series, operator)) and why.constant
    }
    joined = calls.joined(taken, aside)
    beside = series.spent_ms(calls.saved_ms(joined, taken) if case.timed else 0.0)
    around = around_outside(case, free)
    added = series.spent_by([operator for operator, _ in around])
    own = series.spent_by([operator for line in helped or lines for operator in line.operators])
    little = series.gain_pct(own.ms + added.ms, beside.ms) < 100 * WORTH
    if case.timed and little and 0 < len(helped) < len(lines):
        # What has a cure is not worth it: the others are still named, without one.
        lines, helped, around, joined = [line for line in lines if not line.helped], [], [], 0
        left = [operator for line in lines for operator in line.operators]
        own, added, beside = series.spent_by(left), series.spent_ms(0.0), series.spent_ms(0.0)
        taken = frozenset()
    evidence = {
        "delegate_calls": series.first.delegate_calls,
        "operator_calls": series.first.operator_calls,
        "calls_joined": joined,
    }
    alike = _alike(helped or lines)
    first = alike[0][0]
    entering = f", and entering and leaving {plural(joined, 'delegate call')} that would disappear"
    finding = Finding(
        OUTSIDE,
        _title(left, alike, helped=bool(helped), delegates=bool(series.first.delegate_calls)),
        tuple(_to_do(case, left, lines, alike)),
        series,
        (
            *(_concern(line, call, calls) for line in lines for call in line.calls),
            *(Concern((each,), f"beside {where(near)}", _BECAUSE, line=near.line) for each, near in around),
        ),
        evidence,
        besides=beside if beside.ms else None,
        besides_what=f"calling them{entering if joined else ''}",
        # The reason for the longest one; the action has all reasons.
        first_step=f"{first.reasons[0].plainly}; {first.remedy}" if first.reasons and taken else "",
        has_cure=bool(helped) or not series.first.delegate_calls,
    )
    return case.bounded(finding, own.ms + added.ms, slower=_PORTABLE)


def around_outside(case: SeriesCase, free: Free) -> list[tuple[Operator, Operator]]:
    """What disappears with the operators outside for which a cure is known, and which of them it is beside:
    layout changes, conversions and copies, and the other parts of the calls that are replaced."""
    series = case.series
    outside = case.largest(free, lambda operator: not operator.delegated)
    helped = [line for line in outside_lines(series, outside) if line.helped]
    own = {operator.identity: operator for line in helped for operator in line.operators}
    replaced = {
        _call_of(operator): operator
        for line in helped
        if line.reasons and line.reasons[0].replaced_as_a_call
        for operator in line.operators
        if operator.source.place.call
    }
    # Whatever replaces attention multiplies too.
    kept = {_call_of(each) for each in series.operators if each.category in MATRIX}
    found = {
        each.identity: (each, replaced[_call_of(each)])
        for each in series.operators
        if each.delegated and _call_of(each) in replaced.keys() - kept
    }
    for known in case.flows.values():
        numbers = {operator.identity: index for index, operator in known.operators.items()}
        ahead = [(known.flow.steps[numbers[key]], left, False) for key, left in own.items() if key in numbers]
        seen = {step.place for step, _, _ in ahead}
        while ahead:
            step, beside, converted = ahead.pop()
            for near in (*known.flow.before(step), *known.flow.after(step)):
                operator = known.operators.get(known.flow.at[near.place])
                if near.place in seen or (operator and not _passes_layout_on(operator)):
                    continue
                converts = operator is not None and operator.kind in CONVERSIONS
                if converts and converted:  # the data left the format that the outside needs
                    continue
                seen.add(near.place)
                ahead.append((near, beside, converted or converts))
                if operator and _only_between(operator):
                    found[operator.identity] = operator, beside
    return [each for key, each in found.items() if key in identities(free) - own.keys()]


_BECAUSE = "it disappears with the operators outside"


def _call_of(operator: Operator) -> tuple[str, ...]:
    place = operator.source.place
    return place.source_line, operator.source.module_path, place.call


def _passes_layout_on(operator: Operator) -> bool:
    """Arithmetic of single elements takes any layout; a permute of the model gives it another on purpose."""
    if operator.kind == "transpose":
        return operator.origin == "lowering"
    return operator.category in (Category.ELEMENTWISE, Category.DATA_MOVEMENT)


def _only_between(operator: Operator) -> bool:
    """Whether it only prepares data for what comes after it."""
    if operator.delegated and operator.kind == "transpose":
        return operator.origin == "lowering"
    return operator.kind in CONVERSIONS or (operator.kind == "copy" and not operator.delegated)


def _ordered(case: SeriesCase, lines: Sequence[OutsideLine], calls: Calls) -> list[OutsideLine]:
    """Largest saving first; without times, those that separate most delegate calls first."""

    def weight(line: OutsideLine) -> tuple[float, float]:
        if not case.timed:
            return calls.parted(line.numbers), len(line.operators)
        saved = calls.saved_ms(calls.joined(line.numbers), line.numbers)
        return case.series.spent_by(line.operators).ms + saved, 0.0

    return sorted(lines, key=weight, reverse=True)


def _alike(lines: Sequence[OutsideLine]) -> list[tuple[OutsideLine, ...]]:
    """Group lines with the same remedy (a weight's norm and its convolution), in the order of their first
    lines; without a known remedy, lines that call the same."""
    found: dict[tuple[str, str], list[OutsideLine]] = {}
    for line in lines:
        replaced = bool(line.reasons) and line.helped
        key = (line.remedy, "" if replaced else line.name)
        found.setdefault(key, []).append(line)
    return [tuple(members) for members in found.values()]


def _names(lines: Sequence[OutsideLine], *, quoted: bool = False) -> str:
    """`conv1d and weight_norm`; `quoted` at the start of a sentence, which keeps them as written."""
    names = dict.fromkeys(f"`{line.name}`" if quoted and line.called else line.name for line in lines)
    return some_of(list(names), _NAMED)


def _places(lines: Sequence[OutsideLine]) -> str:
    """` (model.py:31, model.py:40 and 2 more lines)`; empty if no line is known."""
    places = list(dict.fromkeys(line.place for line in lines if line.place))
    more = len(places) - _NAMED
    shown = ", ".join(places[:_NAMED]) + (f" and {plural(more, 'more line')}" if more > 0 else "")
    return f" ({shown})" if shown else ""


def _title(
    left: Sequence[Operator], alike: Sequence[Sequence[OutsideLine]], *, helped: bool, delegates: bool
) -> str:
    first, every = alike[0], [line for lines in alike for line in lines]
    chosen, names = sum(len(line.operators) for line in every), {line.name for line in every}
    if len(names) == 1:
        what = plural(chosen, f"{names.pop()} operator")
    else:
        what = f"{f'{chosen} of ' if chosen < len(left) else ''}{plural(len(left), 'operator')}"
    begin = f", {_names(first)}{_places(first)} first" if first[0].reasons else ""
    at = _places(first) if len(alike) == 1 else begin
    if helped or not delegates:
        return f"Bring {what} into the delegate{at}"
    return f"No cure is known for {what} outside delegates{at}"


def _to_do(
    case: SeriesCase,
    left: Sequence[Operator],
    lines: Sequence[OutsideLine],
    alike: Sequence[Sequence[OutsideLine]],
) -> Iterator[str]:
    """What to do, one thing each."""
    if not case.series.first.delegate_calls:
        yield "no delegate took anything: export with --backend xnnpack"
        return
    if not any(line.reasons for line in lines):
        kinds = some_of(list(by_kind(left)))
        yield f"portable kernels ({kinds}) run on one thread without SIMD tuning"
        yield REASON_NOT_KNOWN
        return
    for each in alike[:_NAMED]:
        why = "; ".join(dict.fromkeys(line.why for line in each))
        said = f"{why}; {each[0].remedy}" if each[0].reasons else REASON_NOT_KNOWN
        yield said if len(alike) == 1 else f"{_names(each, quoted=True)}{_places(each)}: {said}"
    helped = [line for line in lines if line.reasons and line.helped]
    beyond = [f"{each[0].name}{_places(each)}" for each in _alike([one for one in lines if not one.helped])]
    if beyond and any(line.helped for line in lines):
        yield f"no cure is known for {some_of(beyond, _NAMED)}; the percentage does not count it"
    yield from _to_optimize(case, helped)


def _to_optimize(case: SeriesCase, helped: Sequence[OutsideLine]) -> Iterator[str]:
    """What the kit can change itself, unless that is hardly any of the time, and what is left to a person."""
    rewrites = list(dict.fromkeys(why.rewrite for line in helped for why in line.reasons if why.rewrite))
    by_hand = [line for line in helped if not any(why.rewrite for why in line.reasons)]
    by_kit_ms, ms = (
        case.series.spent_by([one for line in some for one in line.operators]).ms
        for some in ([line for line in helped if line not in by_hand], helped)
    )
    if rewrites and (not case.timed or by_kit_ms >= _LITTLE * ms):
        rest = f"; change {_names(by_hand, quoted=True)} by hand" if by_hand else ""
        does = f"changes the exported graph ({listing(rewrites)}) and measures it"
        yield f"`sme2prof optimize MODEL` {does}{rest}"


def _concern(line: OutsideLine, call: Sequence[Member], calls: Calls) -> Concern:
    operators, reasons = tuple(operator for operator, _ in call), [why for _, why in call if why]
    if not reasons:
        return Concern(operators, where(operators[0]))
    facts = {
        "reason": _why(reasons),
        "why": reasons[0].why,
        "call": line.called,
        "replacement": reasons[0].replacement,
        "operator_count": len(operators),
        "parts_delegates": calls.parted({operator.call for operator in operators}),
    }
    several = len(operators) > 1 and line.called
    named = f"{line.name} ({plural(len(operators), 'operator')})" if several else ""
    return Concern(operators, where(operators[0]) or line.place, _why(reasons), facts, named=named)


ATTENTION = "scaled_dot_product_attention"


def calls_function(operator: Operator, function: str) -> bool:
    """Whether the model calls `function` there; records of older kits only have the line's text."""
    place = operator.source.place
    return place.call == function if place.call else f"{function}(" in place.code
