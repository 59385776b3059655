"""Reports of real run directories: what they say first, what they prove, and what they must never show."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from measured_runs import ROUNDS, RUNS, copied, edit, load, pristine, run_program

from model_profiling.errors import FormatError, InputError
from model_profiling.report.markdown import render_markdown
from model_profiling.validation.validate import validate
from model_profiling.workflow.report import gather_report, write_report

HEADINGS = [
    "Latency",
    "Where the time goes",
    "Operators",
    "Portable and delegated",
    "Kernels",
    "Numerical parity",
    "Measurement quality",
    "Machine and versions",
    "How to reproduce",
]
MILLISECONDS = re.compile(r"\bms\b|\d\s?ms|millisecond", re.IGNORECASE)


@pytest.fixture(scope="session")
def home(tmp_path_factory, exported) -> Path:
    return pristine(tmp_path_factory, exported)


def report_of(run_dir: Path) -> str:
    return render_markdown(gather_report(run_dir))


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row below its header."""
    found = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [row for row in found if not set("".join(row)) <= set("-: ")]


def test_a_host_run_has_every_section_the_verdict_first(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    text = report_of(run_dir)
    assert text.startswith("# toy_cnn_xnnpack_fp32 on ")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")][:2] == HEADINGS[:2]
    for heading in HEADINGS:
        assert section(text, heading).strip(), heading
    opening = text.split("\n## ", 1)[0]
    comparison = load(run_dir / "metrics.json")["comparisons"][1]
    assert comparison["verdict"] in opening and "Kernel evidence" in opening


def test_latencies_are_those_without_the_tracer_and_its_cost_stands_beside(
    home: Path, tmp_path: Path
) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    shown = rows(section(report_of(run_dir), "Latency"))
    for entry in load(run_dir / "metrics.json")["latencies"]:
        named = [row for row in shown if row[:2] == [entry["experiment"], str(entry["threads"])]]
        plain, traced = named
        assert float(plain[4]) == pytest.approx(entry["end_to_end_ms"]["median"], rel=0.01)
        assert float(traced[2]) == pytest.approx(entry["traced_ms"]["median"], rel=0.01)
        assert traced[3].startswith(f"{100 * entry['tracer_cost']['share']:+.1f}%")


def test_a_comparable_pair_shows_categories_before_and_after_that_add_up(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    data = gather_report(run_dir)
    pair = next(pair for pair in data.pairs if pair.label == "threads")
    assert pair.comparable and pair.pairing is not None
    assert (pair.pairing.baseline.threads, pair.pairing.candidate.threads) == (1, 2)
    text = section(render_markdown(data), "Where the time goes")
    table = {row[0]: row for row in rows(text) if len(row) == 8}
    shares = [table[name][2] for name in table if name not in ("category", "End to end, traced")]
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=0.5)
    assert "takes most of the time" in text or "The bottleneck moved from" in text


def test_operators_lead_back_to_module_and_source_line(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    text = section(report_of(run_dir), "Operators")
    assert "`features.0`" in text and re.search(r"model\.py:\d+", text)
    assert "inserted by lowering" in text


def test_on_and_off_without_sme2_are_said_not_to_be_comparable(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    data = gather_report(run_dir)
    sme2 = next(pair for pair in data.pairs if pair.label == "SME2")
    opening = render_markdown(data).split("\n## ", 1)[0]
    if data.has_sme2:
        assert sme2.comparable
    else:
        assert not sme2.comparable and "has no SME2" in sme2.speedup.reason
        assert sme2.speedup.reason in opening and "measure on a CPU that has it" in opening
        assert not any(finding.subject == "SME2" for finding in data.findings)


def test_evidence_comes_from_the_emulated_run_beside_it(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path) / "runs" / "linux"
    data = gather_report(run_dir)
    assert [evidence.emulated for evidence in data.evidence] == [False, True]
    text = render_markdown(data)
    kernels = section(text, "Kernels")
    assert re.search(r"`kai_\w+sme2\w*` \| SME2 \| \d+ calls? \| - \|", kernels)
    if not data.has_sme2:
        assert "Kernel evidence under emulation: SME2 ran" in text.split("\n## ", 1)[0]
    assert "e_sme2_on" not in section(text, "Latency")


def test_a_damaged_emulated_run_costs_only_its_evidence(home: Path, tmp_path: Path) -> None:
    out = copied(home, tmp_path)
    (out / "runs/emulated/manifest.json").write_text("{")
    data = gather_report(out / "runs" / "linux")
    assert len(data.evidence) == 1 and data.experiments
    assert any("cannot be used" in remark for remark in data.remarks)


def test_evidence_of_another_program_is_not_used(home: Path, tmp_path: Path) -> None:
    out = copied(home, tmp_path)
    edit(out / "runs/emulated/manifest.json", lambda manifest: manifest.update(model_sha256="0" * 64))
    data = gather_report(out / "runs" / "linux")
    assert len(data.evidence) == 1
    assert any("another program" in remark for remark in data.remarks)


def test_an_emulated_report_has_no_time_in_it_even_if_its_files_do(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path) / "runs" / "emulated"
    linux = load(run_dir.parent / "linux" / "metrics.json")
    for spoilt in ("nothing", "metrics", "manifest"):
        if spoilt == "metrics":
            edit(
                run_dir / "metrics.json",
                lambda metrics: metrics.update(latencies=linux["latencies"], timings_are_latency=True),
            )
        if spoilt == "manifest":
            (run_dir / "manifest.json").unlink()
        text = report_of(run_dir)
        assert not MILLISECONDS.search(text), MILLISECONDS.search(text)
        assert "emulated" in text.split("\n## ", 1)[0] and re.search(r"SME2? ran", text)
        assert re.search(r"F32 → PF32", section(text, "Operators"))
        assert "million operations" in section(text, "Where the work is")


def test_without_any_evidence_it_says_so(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    for path in [*run_dir.rglob("*_kernels.csv"), *run_dir.rglob("*.etdump")]:
        path.unlink()
    edit(
        run_dir / "manifest.json",
        lambda manifest: [result.update(outputs=[], kernels=None) for result in manifest["results"]],
    )
    text = report_of(run_dir)
    assert "There is no kernel evidence: nothing here shows whether SME2 ran." in text
    assert "not proven" in section(text, "Kernels")
    assert "there are no dumps" in section(text, "What this report cannot show")


def test_a_run_that_only_traces_kernels_shows_no_latency(home: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "trace"
    traces = [{"name": f"t_sme2_{switch}", "sme2": switch, "mode": "xnntrace"} for switch in ("on", "off")]
    run_program(next(home.glob("artifacts/*.pte")), run_dir, "host", traces)
    text = report_of(run_dir)
    assert text.split("\n## ", 1)[0].count("This run gathered kernel evidence") == 1
    assert "none are shown" in section(text, "Latency") and not MILLISECONDS.search(text)
    assert "t_sme2_on" in section(text, "Kernels")
    assert validate(run_dir).ok, validate(run_dir).as_text()


def test_bare_dumps_are_reported_as_traced_times(home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in (home / "runs" / "linux").glob("*/*_t1.etdump"):
        shutil.copy(path, bare / path.name)
    text = report_of(bare)
    opening = text.split("\n## ", 1)[0]
    assert "with the event tracer on" in opening and "without the tracer was not measured" in opening
    assert "median ms without" not in text
    missing = section(text, "What this report cannot show")
    assert "manifest.json" in missing and "metrics.json" in missing and ".pte" in missing


def test_one_experiment_alone_is_a_report_too(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"

    def keep_one(content: dict[str, list[dict[str, object]]]) -> None:
        for key in ("results", "latencies"):
            if key in content:
                content[key] = [one for one in content[key] if one["experiment"] == "x_sme2_on"][:1]
        content["comparisons"] = content["parity"] = []
        if "config" in content:
            content["config"]["analysis"]["compare_pairs"] = []  # type: ignore[call-overload]

    shutil.rmtree(run_dir / "x_sme2_off")
    for name in ("manifest.json", "metrics.json"):
        edit(run_dir / name, keep_one)
    for path in run_dir.rglob("*_t2*"):
        path.unlink()
    text = report_of(run_dir)
    assert re.search(r"takes [\d.]+ ms end to end \(x_sme2_on, 1 thread", text.split("\n## ", 1)[0])
    assert len(rows(section(text, "Operators"))) > 4


def test_failures_and_doubts_are_listed(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"

    def fail(manifest: dict[str, object]) -> None:
        manifest.update(state="failed", warnings=["the fan was off"])
        manifest["results"][0].update(state="failed", problem="the runner crashed")  # type: ignore[index]

    edit(run_dir / "manifest.json", fail)
    text = section(report_of(run_dir), "Measurement quality")
    assert "the runner crashed" in text and "the fan was off" in text and "--resume" in text


def test_outputs_that_differ_spoil_the_verdict(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"

    def spoil(metrics: dict[str, list[dict[str, object]]]) -> None:
        metrics["parity"][0]["verdict"] = "mismatch"

    edit(run_dir / "metrics.json", spoil)
    assert "do not trust its speed" in report_of(run_dir).split("\n## ", 1)[0]


@pytest.mark.parametrize("part", ["x_sme2_on", "x_sme2_on/rounds"])
def test_a_part_of_a_run_is_refused(home: Path, part: str) -> None:
    with pytest.raises(InputError, match="is a part of the run in"):
        gather_report(home / "runs" / "linux" / part)


def test_a_folder_of_runs_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="runs, none of its own"):
        gather_report(home)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("manifest.json", "{", "manifest.json is not JSON"),
        ("manifest.json", "[]", "not a JSON object"),
        ("manifest.json", '{"schema_version": 2, "results": []}', "schema_version"),
        ("manifest.json", '{"schema_version": 1, "results": [{"threads": "many"}]}', "results.0.threads"),
        ("metrics.json", '{"schema_version": 1, "comparisons": [{"label": "x"}]}', "comparisons"),
        ("metrics.json", '{"schema_version": 1, "latencies": [{}]}', "latencies.0.experiment"),
    ],
)
def test_a_damaged_file_is_named(home: Path, tmp_path: Path, name: str, content: str, said: str) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    (run_dir / name).write_text(content)
    with pytest.raises(FormatError, match=re.escape(said)):
        gather_report(run_dir)


def test_the_command_and_the_script_write_the_same_report(home: Path, tmp_path: Path, cli, script) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    done = cli("report", run_dir, "--title", "Mine")
    assert done.ok, done.tail()
    first = (run_dir / "report.md").read_text()
    assert first.startswith("# Mine\n") and f"wrote {run_dir / 'report.md'}" in done.stdout
    done = script("scripts/generate_report.py", "--run-dir", run_dir, "--out", tmp_path / "r.md")
    assert done.ok, done.tail()
    assert (tmp_path / "r.md").read_text().split("\n", 1)[1] == first.split("\n", 1)[1]
    assert cli("report", tmp_path / "nothing").returncode == 2


def test_several_runs_stand_on_one_page(home: Path, tmp_path: Path, script) -> None:
    out = copied(home, tmp_path)
    page = tmp_path / "page.md"
    runs = [out / "runs" / "linux", out / "runs" / "emulated"]
    done = script("scripts/generate_combined_report.py", "--run-dirs", *runs, "--out", page)
    assert done.ok, done.tail()
    text = page.read_text()
    latencies = rows(section(text, "Latency"))
    emulated = next(row for row in latencies if row[0].endswith("emulated"))
    assert "no latency" in emulated[4]
    assert sum(row[0].endswith("linux") for row in latencies) == 4
    assert "SME2 ran" in section(text, "Kernels and numerics")
    assert "e_sme2" not in section(text, "Where the time goes")
    assert script("scripts/generate_combined_report.py", "--run-dirs", tmp_path / "no").returncode == 2


def test_a_report_is_not_left_half_written(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        write_report(run_dir, out=blocked / "report.md")


def test_operator_times_that_do_not_belong_to_the_latencies_are_a_doubt(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    text = report_of(run_dir)
    assert "not of the same runs" not in section(text, "Measurement quality")

    def elsewhere(metrics: dict) -> None:
        for entry in metrics["latencies"]:
            entry["traced_ms"]["median"] *= 3

    edit(run_dir / "metrics.json", elsewhere)
    assert "not of the same runs" in section(report_of(run_dir), "Measurement quality")


def test_without_a_pair_the_parts_are_those_of_a_typical_run(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    data = gather_report(run_dir)
    text = section(render_markdown(replace(data, pairs=())), "Where the time goes")
    table = {row[0]: row for row in rows(text)}
    traced = load(run_dir / "metrics.json")["latencies"][0]["traced_ms"]["median"]
    assert float(table["End to end, traced"][1]) == pytest.approx(traced, rel=0.05)
    assert f"medians over {ROUNDS * RUNS} runs in {ROUNDS} rounds" in text
    for row in table.values():
        if row[2].endswith("%") and float(row[1]) > 0.01:
            assert float(row[1]) / traced == pytest.approx(float(row[2].rstrip("%")) / 100, abs=0.1)
