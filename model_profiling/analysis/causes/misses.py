"""Matrix operators proven to miss SME2: why, and the change that lets them reach it.

No bound (the gain was not measured), so other causes keep the operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from model_profiling.analysis.causes.case import ANY_NOUN, NOUNS, Case, Free, reaching
from model_profiling.analysis.coverage import Coverage, Sme2Row
from model_profiling.analysis.findings import WORTH, Concern, Finding, where
from model_profiling.analysis.matching import NOT_DELEGATED, NOT_KNOWN, matrix_operators_by_key
from model_profiling.core.formatting import plural, several
from model_profiling.core.number_formats import FORMATS
from model_profiling.program.delegates.reach import PROBE, Reach, reach_in

_OUTSIDE = NOT_DELEGATED.cause
_THEM, _SOME, _WHAT = "THEM", "SOME", "WHAT"
"""Replaced in texts."""
_ORDER: dict[str, int] = {name: place for place, name in enumerate(FORMATS)}
_OF_PRECISION = {"int8 dynamic": "int8-dynamic", "int8 dynamic, int4 weights": "int4"}
"""The format most like a precision, if it has another name."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What lets operators reach SME2."""

    what: str
    """With THEM in place of the operators; empty if nothing is known."""
    note: str = ""
    because: str = ""
    """If not because of the reason why the operators miss SME2."""
    title: str = f"Let {_SOME} reach SME2: {_WHAT}"

    def of(self, them: str) -> str:
        return self.what.replace(_THEM, them)


@dataclass(frozen=True, slots=True)
class _Missing:
    """Operators of one kind that miss SME2 for one cause."""

    noun: str
    operators: tuple[Sme2Row, ...]
    of: int
    """How many operators of this kind the program has."""
    change: _Change

    @property
    def share(self) -> float:
        return sum(each.share or 0.0 for each in self.operators)

    @property
    def title(self) -> str:
        some = f"{len(self.operators)} of {plural(self.of, self.noun)}"
        if not self.change.what:
            return f"No known change lets {some} reach SME2"
        what = self.change.of(self._they("it", "them"))
        return self.change.title.replace(_SOME, some).replace(_WHAT, what)

    @property
    def action(self) -> str:
        count = len(self.operators)
        the = self._they(f"the {self.noun}", f"the {count} {several(self.noun)}")
        did = self.change.of(the) or f"no change is known for {the}"
        note = f" ({self.change.note})" if self.change.note else ""
        missing = self.operators[0]
        because = "" if missing.cause == _OUTSIDE else self.change.because or missing.reason
        return f"{did}{note}{f', because {because}' if because else ''}"

    def _they(self, one: str, many: str) -> str:
        return one if len(self.operators) == 1 else many


def misses_sme2(case: Case, _free: Free) -> Finding | None:
    coverage = case.coverage
    missing = coverage.missing if coverage else ()
    share = sum(each.share or 0.0 for each in missing)
    little = share < WORTH and all(each.share is not None for each in missing)
    if coverage is None or not missing or little:
        return None
    ran = matrix_operators_by_key(case.series)
    groups = _groups(coverage, case.executorch)
    main = groups[0]
    return Finding(
        "misses-sme2",
        main.title,
        tuple(each.action for each in groups if each is main or each.share >= WORTH),
        case.series,
        tuple(
            Concern(
                tuple(found),
                where(found[0]),
                each.reason,
                {
                    "cause": each.cause,
                    "reason": each.reason,
                    "precision": each.operator.precision,
                    "arithmetic_share": each.share,
                    "change": group.change.of("it") or None,
                },
            )
            for group in groups
            for each in group.operators
            if (found := ran.get(each.operator.key.in_program))
        ),
        {
            "matrix_operators": len(coverage.operators),
            "missing": len(missing),
            "arithmetic_share": share,
            "by_cause": {
                cause: {
                    "operators": sum(each.cause == cause for each in missing),
                    "arithmetic_share": sum(each.share or 0.0 for each in missing if each.cause == cause),
                }
                for cause in dict.fromkeys(each.cause for each in missing)
            },
            "proven": "under emulation" if coverage.emulated else "on a CPU with SME2",
        },
        has_cure=any(group.change.what for group in groups),
    )


def _groups(coverage: Coverage, executorch: str) -> list[_Missing]:
    """By cause and kind: those with a known change first, then by share of the arithmetic."""
    reach = reach_in(executorch)
    alike: dict[tuple[str, str], list[Sme2Row]] = {}
    for each in coverage.missing:
        outside = each.cause == _OUTSIDE
        noun = NOUNS.get(each.operator.kind, ANY_NOUN) if reach and not outside else ANY_NOUN
        alike.setdefault((each.cause if reach or outside else "", noun), []).append(each)
    groups = [
        _Missing(
            noun,
            tuple(members),
            sum(noun in (NOUNS.get(each.kind), ANY_NOUN) for each in coverage.operators),
            _change(members[0], reach, executorch),
        )
        for (_, noun), members in alike.items()
    ]
    return sorted(groups, key=lambda each: (not each.change.what, -each.share))


def _change(missing: Sme2Row, reach: Reach | None, executorch: str) -> _Change:
    if missing.cause == _OUTSIDE:
        return _Change(
            f"bring {_THEM} into the delegate, as the advice about operators outside it says",
            title=f"Let {_SOME} reach SME2",
        )
    if reach is None:
        return _not_probed(executorch)
    if missing.cause in (NOT_KNOWN, "not told"):
        return _Change("")
    layer, format = _other_layer(missing, reach), _other_format(missing, reach)
    if layer is None or not format.what:
        return layer or format
    return replace(layer, note=f"{layer.note}; {format.note}")


def _not_probed(executorch: str) -> _Change:
    if not executorch:
        return _Change("", because="this run does not record its version of ExecuTorch")
    return _Change(
        f"run `{PROBE}` with ExecuTorch {executorch} installed",
        because=f"what reaches SME2 is not known for ExecuTorch {executorch}",
        title=f"Find out what lets {_SOME} reach SME2 in ExecuTorch {executorch}",
    )


def _other_layer(missing: Sme2Row, reach: Reach) -> _Change | None:
    """Another layer that does the same work in the same number format, if one is known."""
    work, operator = missing.work, missing.operator
    types = work.node.types if work and work.node else ()
    pointwise = operator.kind == "pointwise convolution" and operator.precision == "fp16"
    if missing.cause == "one input channel" and reach.takes_sme("convolution", types):
        return _Change(f"give {_THEM} a second input channel of zeros", "with weights of zero")
    if missing.cause == "depthwise" and reach.formats("convolution"):
        return _Change(f"use plain convolutions of fewer channels in place of {_THEM}")
    if missing.cause == "dtype" and pointwise and "fp16" in reach.formats("linear"):
        return _Change(f"write {_THEM} as linear layers over the channels", "with fp16 weights")
    return None


def _other_format(missing: Sme2Row, reach: Reach) -> _Change:
    """The number formats of the kit in which such operators were seen on SME2 kernels, the nearest first."""
    path = missing.work.path if missing.work else missing.operator.kind
    precision = missing.operator.precision
    own = _ORDER.get(_OF_PRECISION.get(precision, precision), 0)
    formats = sorted(reach.formats(path), key=lambda each: abs(_ORDER[each.partition(":")[0]] - own))
    note = reaching(reach.executorch, missing.operator.kind, path)
    return _Change(f"export {_THEM} as {formats[0]}" if formats else "", note)
