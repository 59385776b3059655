"""Attack the kit: damaged files for every reader, kills, full disks, clocks, cut downloads.

    python bench/attack_campaign.py                        everything at its full size (an hour or more)
    python bench/attack_campaign.py --only fuzz --inputs 50000 --seed 7 --workers 2
    python bench/attack_campaign.py --only kills,clocks --kills 20 --json campaign.json
    python bench/attack_campaign.py --replay attack_finds/etdump-0123456789ab

Prints what was tried and what was found, and exits with 1 if that is anything. The same seed damages the same
files and draws the same kills. Inputs that were finds are kept in a folder.
bench/figures/attack.md says what each part does and what counts as a find.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from attack.finds import PartResult, as_json, as_text  # noqa: E402

if TYPE_CHECKING:
    from attack.verbs import Verb

PARTS = ("fuzz", "kills", "disks", "clocks", "downloads")


def _fuzz(options: argparse.Namespace, work: Path) -> PartResult:
    del work
    if options.engine == "atheris":
        from attack.guided import fuzz as guided

        return guided(options.inputs, options.seed, only=options.readers, finds=options.finds)
    from attack.fuzzing import fuzz

    return fuzz(
        options.inputs, options.seed, workers=options.workers, only=options.readers, finds=options.finds
    )


def _kills(options: argparse.Namespace, work: Path) -> PartResult:
    from attack.kills import kill

    return kill(options.kills, options.seed, work, _chosen(options))


def _chosen(options: argparse.Namespace) -> list[Verb]:
    from attack.verbs import VERBS

    return [verb for verb in VERBS if not options.verbs or verb.name in options.verbs]


def _disks(options: argparse.Namespace, work: Path) -> PartResult:
    from attack.disks import fill

    return fill(options.sizes, work, _chosen(options))


def _clocks(options: argparse.Namespace, work: Path) -> PartResult:
    from attack.clocks import step

    return step(options.seed, work)


def _downloads(options: argparse.Namespace, work: Path) -> PartResult:
    from attack.downloads import interrupt

    return interrupt(options.seed, work)


RUN: dict[str, Callable[[argparse.Namespace, Path], PartResult]] = dict(
    zip(PARTS, (_fuzz, _kills, _disks, _clocks, _downloads), strict=True)
)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _parts(text: str) -> list[str]:
    wrong = set(_names(text)) - set(PARTS)
    if wrong:
        raise argparse.ArgumentTypeError(
            f"no part {', '.join(sorted(wrong))}; choose from {', '.join(PARTS)}"
        )
    return _names(text)


def _named(kind: str) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        known = import_module(f"attack.{kind}s").BY_NAME
        if wrong := set(_names(text)) - set(known):
            raise argparse.ArgumentTypeError(f"no {kind} {', '.join(wrong)}; choose from {', '.join(known)}")
        return _names(text)

    return names


def _options() -> argparse.Namespace:
    from attack.guided import engine

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_parts, default=list(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="damaged files (default %(default)s)")
    parser.add_argument("--readers", type=_named("reader"), default=[], help="damage files of these only")
    parser.add_argument("--verbs", type=_named("verb"), default=[], help="kill and starve these only")
    parser.add_argument("--workers", type=int, default=1, help="processes that read (default %(default)s)")
    parser.add_argument(
        "--engine",
        choices=("mutator", "atheris"),
        default=engine(),
        help="who damages files: the campaign itself, or libFuzzer through atheris (default: %(default)s)",
    )
    parser.add_argument("--kills", type=int, default=100, help="how many (default %(default)s)")
    parser.add_argument("--sizes", type=int, default=12, help="disks, each smaller (default %(default)s)")
    parser.add_argument("--finds", type=Path, default=Path("attack_finds"), help="where finds are kept")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--replay", type=Path, help="read one input that was a find, and nothing else")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.replay:
        from attack.fuzzing import replay

        replay(options.replay)
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="sme2prof-attack-") as work:
        for part in options.only:
            folder = Path(work) / part
            folder.mkdir()
            results.append(RUN[part](options, folder))
            print(f"{part}: {len(results[-1].finds)} found", file=sys.stderr)
    print(as_text(results))
    if options.json:
        options.json.write_text(json.dumps(as_json(results, options.seed), indent=1) + "\n", encoding="utf-8")
    return 1 if any(result.finds for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
