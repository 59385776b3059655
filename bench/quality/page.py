"""The figures as Markdown: all for the terminal, some for bench/figures/measuring.md."""

from __future__ import annotations

import os
from pathlib import Path

from model_profiling.core.errors import InputError
from model_profiling.core.files import write_text
from quality.figures import THRESHOLD, Figures, Outcome, Seen, seen, spread, undisturbed
from quality.methods import METHODS, equal_seconds
from quality.pools import CHECKED, CONDITIONS, Campaign
from quality.programs import EFFECTS, LAYERS

_SHOWN = (0.01, 0.02, 0.03)
_SAID = {True: "pass", False: "FAIL", None: "not judged"}

ByMethod = dict[str, Figures]


def whole(campaign: Campaign, figures: dict[str, ByMethod], outcomes: list[Outcome], trials: int) -> str:
    """Everything there is."""
    blocks = [_head(campaign, trials), _truth(campaign), _pools(campaign)]
    for name, methods in figures.items():
        blocks.append([f"**{CONDITIONS[name].title}**", "", *_shares(methods)])
    return _joined([*blocks, _outcomes(outcomes)])


def short(campaign: Campaign, figures: dict[str, ByMethod], outcomes: list[Outcome], trials: int) -> str:
    """What a page has room for: no method's seconds, nor what it finds of 5%."""
    return _joined([_head(campaign, trials), _pools(campaign), _side_by_side(figures), _outcomes(outcomes)])


def linked(picture: Path, document: Path) -> str:
    """The picture as `document` shows it."""
    place = Path(os.path.relpath(picture.resolve(), document.resolve().parent)).as_posix()
    return f"![How often each method says that more work is slower, by condition]({place})\n\n"


def put_into(document: Path, text: str, bench: str) -> None:
    """Replace what stands between the marks of `bench` in `document`."""
    begin, end = (f"<!-- {bench} --into: {edge} -->" for edge in ("begin", "end"))
    try:
        content = document.read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot read {document}: {problem.strerror}", "correct the path") from problem
    before, begins, rest = content.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise InputError(
            f"{document} does not say where the tables go", f'write "{begin}" and "{end}" into it'
        )
    write_text(document, f"{before}{begin}\n{text}\n{end}{after}")


def _joined(blocks: list[list[str]]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks)


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [lines[0], f"|{'---|' * len(head)}", *lines[1:]]


def _head(campaign: Campaign, trials: int) -> list[str]:
    return [f"{campaign.machine}; seed {campaign.seed}, {trials} trials for each share."]


def _truth(campaign: Campaign) -> list[str]:
    """What the fastest 1% of inferences say, which nothing else on the machine disturbed."""
    head = ["more layers", *(f"{pair.more_work:.2%}" for pair in EFFECTS.values())]
    return _table(
        head,
        [
            [CONDITIONS[name].title, *(f"{undisturbed(pool, pair):.2%}" for pair in EFFECTS.values())]
            for name, pool in campaign.pools.items()
        ],
    )


def _pools(campaign: Campaign) -> list[str]:
    layers = f"{LAYERS[CHECKED.candidate]} against {LAYERS[CHECKED.baseline]} layers"
    head = ["condition", "processes spread", "rounds", "launches", "launch of two", "seconds for each"]
    rows = []
    for name, pool in campaign.pools.items():
        cost = sum(one.pair_seconds for one in pool.launches) / len(pool.launches)
        rows.append(
            [
                CONDITIONS[name].title,
                f"{spread(pool):.0%}",
                f"{len(pool.rounds)}",
                f"{len(pool.launches)} of {pool.cycles} cycles",
                f"{cost:.2f} s",
                f"{equal_seconds(pool):.1f}",
                _said(seen(pool.launches)),
                f"{_said(seen(pool.pairs))} ({len(pool.pairs)})",
            ]
        )
    return _table([*head, f"{layers}, in launches of five", "in launches of two"], rows)


def _said(one: Seen) -> str:
    return f"{one.more:.2%} [{one.low:.2%}, {one.high:.2%}], each ± {one.apart:.2%}"


def _shares(methods: ByMethod) -> list[str]:
    works = [work for work in EFFECTS if work]
    head = ["method", "seconds", "false", "false, no threshold"]
    rows = [
        [
            title,
            f"{one.seconds:.1f}",
            f"{one.claimed[0.0]:.1%}",
            f"{one.false_without_threshold:.1%}",
            *(f"{one.claimed[work]:.0%}" for work in works),
            f"{one.wrong_way:.0%}",
        ]
        for title, one in ((title, methods[title]) for title in METHODS)
    ]
    return _table([*head, *(f"{work:.0%} found" for work in works), "wrong way"], rows)


def _side_by_side(figures: dict[str, ByMethod]) -> list[str]:
    def cell(one: Figures) -> str:
        return " / ".join([f"{one.claimed[0.0]:.1%}", *(f"{one.claimed[work]:.0%}" for work in _SHOWN)])

    works = ", ".join(f"{work:.0%}" for work in _SHOWN)
    said = f"False / found of {works}; what is below {THRESHOLD:.1%} is not claimed:"
    head = ["method", *(CONDITIONS[name].title for name in figures)]
    rows = [[title, *(cell(methods[title]) for methods in figures.values())] for title in METHODS]
    return [said, "", *_table(head, rows)]


def _outcomes(outcomes: list[Outcome]) -> list[str]:
    head = ["condition", "promised of lockstep until within 0.5%", ""]
    return _table(head, [[CONDITIONS[one.condition].title, one.wanted, _SAID[one.holds]] for one in outcomes])
