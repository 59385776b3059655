"""Four times the series, runs or bare dumps take four times the work: counted in calls, never in seconds."""

import cProfile
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from grown_runs import recorded_run, with_series  # noqa: E402

from model_profiling.analysis.run import analyse_run  # noqa: E402
from model_profiling.config import names  # noqa: E402
from model_profiling.config.series import Series, natural_pairs  # noqa: E402
from model_profiling.report.analysis_json import summary_facts  # noqa: E402
from model_profiling.report.data import report_data  # noqa: E402
from model_profiling.runs import Run  # noqa: E402
from model_profiling.runs.figures import compute_metrics, latencies  # noqa: E402
from model_profiling.validation.validate import validate  # noqa: E402
from model_profiling.workflow.compare import compare  # noqa: E402
from model_profiling.workflow.view import page_to_view  # noqa: E402

PACKAGE = str(ROOT / "model_profiling")
TIMES = 4
OPENS = ("open>", "posix.stat>", "posix.lstat>", "posix.scandir>")


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often each function of the kit was entered, records were compared, and files were asked for."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found: Counter[str] = Counter()
    for entry in profile.getstats():
        code = entry.code
        if isinstance(code, str):
            if any(name in code for name in OPENS):
                found[code] += entry.callcount
        elif code.co_filename == "<string>" or code.co_filename.startswith(PACKAGE):
            found[f"{Path(code.co_filename).name}:{code.co_name}"] += entry.callcount
    return found


def assert_linear(small: Counter[str], large: Counter[str]) -> None:
    faster = {
        name: (small[name], count)
        for name, count in large.items()
        if count > 200 and count > 1.1 * TIMES * small[name] + 50
    }
    assert not faster, f"grows faster than what it is done for: {faster}"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of 4 series and 2 pairs, and one of four times as many."""
    folder = tmp_path_factory.mktemp("grown")
    recorded = recorded_run(folder / "recorded")
    return with_series(recorded, folder / "small", 1), with_series(recorded, folder / "large", TIMES)


def test_a_run_is_read_analysed_and_told_in_time_with_its_series(grown: tuple[Path, Path]) -> None:
    def work(run_dir: Path) -> Callable[[], object]:
        def done() -> None:
            run = Run.open(run_dir)
            analysis = analyse_run(run, run.programs())
            assert len(analysis.series) == len(run.series) and len(analysis.pairings) == len(run.pairs)
            summary_facts(report_data(run, analysis))
            assert run.manifest and run.journal
            known = latencies(run.manifest, run.journal)
            assert len(compute_metrics(run.manifest, run.journal, run_dir, known).parity) == len(run.pairs)

        return done

    work(grown[0])()  # what is made once, such as adapters of records, is not counted
    small, large = (calls(work(run_dir)) for run_dir in grown)
    assert small["reader.py:read_etdump"] == 4 and large["reader.py:read_etdump"] == 4 * TIMES
    assert large["evidence.py:gather_evidence"] == large["coverage.py:coverage_of"] == 1
    assert large["flow.py:flow_of"] == small["flow.py:flow_of"], "all series are of one program"
    assert_linear(small, large)


def test_a_run_is_validated_in_time_with_its_series(grown: tuple[Path, Path]) -> None:
    validate(grown[0])
    assert_linear(*(calls(lambda run_dir=run_dir: validate(run_dir)) for run_dir in grown))  # type: ignore[misc]


def test_two_runs_are_matched_in_time_with_their_series(grown: tuple[Path, Path]) -> None:
    compare(grown[0], grown[0])
    small, large = (calls(lambda one=one: compare(one, one)) for one in grown)  # type: ignore[misc]
    assert_linear(small, large)
    found = compare(grown[1], grown[0])
    assert [one.before for one in found.series] == [one.after for one in found.series]
    assert len(found.series) == 4 and len(found.only_a) == 4 * (TIMES - 1) and not found.only_b


def test_bare_dumps_are_opened_in_time(grown: tuple[Path, Path], tmp_path: Path) -> None:
    """What earlier analyses wrote about all of them is read once, not once for each."""
    counted = []
    for run_dir, name in zip(grown, ("small", "large"), strict=True):
        place = tmp_path / name
        for dump in run_dir.rglob(f"*{names.DUMP}"):
            (place / dump.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(dump, place / dump.parent.name / dump.name)
        listed = [f'{{"etdump": "{path.name}", "times": "hardware"}}' for path in place.rglob("*.etdump")]
        (place / names.ANALYSIS).write_text(f'{{"per_etdump": [{", ".join(listed)}]}}')
        counted.append(calls(lambda place=place: Run.open(place)))  # type: ignore[misc]
        files = sorted(place.rglob("*.etdump"))
        assert len(Run.of_files(files).dumps) == len(files)
    assert_linear(*counted)


def test_a_list_of_runs_is_made_in_time_with_them(grown: tuple[Path, Path], tmp_path: Path) -> None:
    counted = []
    for count in (2, 2 * TIMES):
        for number in range(count):
            shutil.copytree(grown[0], tmp_path / str(count) / f"run_{number}")
        counted.append(calls(lambda count=count: page_to_view(tmp_path / str(count))))  # type: ignore[misc]
    assert_linear(*counted)


def test_pairs_by_name_are_found_in_time() -> None:
    def switches(count: int) -> list[tuple[Series, Any]]:
        return [(Series(f"{n}_sme2_{switch}", 1), switch) for n in range(count) for switch in ("on", "off")]

    small, large = (calls(lambda count=count: natural_pairs(switches(count))) for count in (50, 50 * TIMES))  # type: ignore[misc]
    assert_linear(small, large)
    assert len(natural_pairs(switches(1000))) == 1000
