"""Energy from a fuel gauge's readings, as the meter on a phone writes them."""

from __future__ import annotations

import csv

import pytest
from said import says_together

from model_profiling.core.process import run
from model_profiling.report.sections import energy_table
from model_profiling.report.text import render_markdown
from model_profiling.run.metrics import Latency
from model_profiling.runner.machine import Energy, Gauge
from model_profiling.targets.device.state import energy_of, gauge_of, metered, read_metered, readings_csv


def read_energy(text: str, iterations_ns: list[int]) -> Energy:
    return energy_of(read_metered(text, iterations_ns), len(iterations_ns))


TEN_SECONDS = [10_000_000] * 1000


def readings(currents: list[int], voltage: int = 4_000_000, every: float = 1.0, end: float = 112.0) -> str:
    """A gauge that looks once `every` second, read five times as often."""
    lines = [
        f"{end - every * (len(currents) - at / 5):.2f} {currents[at // 5]} {voltage}"
        for at in range(5 * len(currents))
    ]
    return "\n".join([*lines, f"end {end:.2f}"])


def test_a_steady_current_is_known_well_and_a_wild_one_badly() -> None:
    steady = read_energy(readings([-500_000, -500_100] * 6), TEN_SECONDS)
    assert steady.joules == pytest.approx(0.020, rel=1e-3), "2 W for 10 ms"
    assert steady.watts == pytest.approx(2.0, rel=1e-3)
    wild = read_energy(readings([-200_000, -800_000] * 6), TEN_SECONDS)
    assert None not in (steady.low, steady.high, wild.low, wild.high)
    assert wild.high - wild.low > 100 * (steady.high - steady.low) > 0  # type: ignore[operator]


def test_only_the_inferences_count_and_not_what_the_gauge_remembers() -> None:
    """Ten seconds of inferences at the end: what came before, and the first two of them, say nothing."""
    loading = [-3_000_000] * 4
    text = readings(
        [*loading, -500_000, -500_100, -500_000, -500_100, -500_000, -500_100, -500_000, -500_100]
    )
    assert read_energy(text, TEN_SECONDS).watts == pytest.approx(2.0, rel=1e-3)


def test_the_figure_can_be_made_again_from_the_readings_that_are_kept() -> None:
    text = readings([-3_000_000, *([-500_000, -600_000, -700_000] * 4)])
    found = read_energy(text, TEN_SECONDS)
    *rows, end = list(csv.DictReader(readings_csv(read_metered(text, TEN_SECONDS), 1000).splitlines()))
    assert len(rows) == 65 and rows[0]["current"] == "-3000000" and rows[0]["counted"] == "0"
    counted = [row for row in rows if row["counted"] == "1"]
    until = [*(float(row["uptime_s"]) for row in counted[1:]), float(end["uptime_s"])]
    held = [later - float(row["uptime_s"]) for row, later in zip(counted, until, strict=True)]
    watts = [float(row["amperes"]) * float(row["volts"]) for row in counted]
    mean = sum(w * s for w, s in zip(watts, held, strict=True)) / sum(held)
    assert mean * float(end["busy_s"]) / int(end["inferences"]) == pytest.approx(found.joules)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "have no end"),
        (readings([-500_000] * 12), "1 different reading in 10 s"),
        (readings([0, 1] * 6), "0 different readings"),
        ("end 5\n\n\x00 1 2\n9 9 9", "have no end"),
        # A clock that stands still, or goes back.
        ("\n".join(f"112.00 {-500_000 - n} 4000000" for n in range(9)) + "\nend 112.00", "1 different"),
        (
            "\n".join(f"{111 - n}.00 {-5_000_000 - n} 4000000" for n in range(9)) + "\nend 112.00",
            "1 different",
        ),
    ],
)
def test_a_gauge_that_does_not_tell(text: str, says: str) -> None:
    found = read_energy(text, TEN_SECONDS)
    assert found.joules is None and says in (found.reason or "")


def test_the_meter_runs_beside_a_program_and_ends_with_it(tmp_path):
    for name, text in (("current", "-500000\n"), ("voltage", "4000000\n")):
        (tmp_path / name).write_text(text)
    gauge = Gauge(str(tmp_path / "current"), str(tmp_path / "voltage"))
    file = tmp_path / "it's a file"
    done = run(metered(["sh", "-c", "sleep 0.5; echo out; exit 7"], gauge, str(file)), timeout=20)
    assert (done.returncode, done.stdout) == (7, "out\n")
    *told, last = file.read_text().splitlines()
    assert 1 <= len(told) <= done.seconds / 0.2 + 1 and told[0].endswith(" -500000 4000000")
    assert last.startswith("end ")


@pytest.mark.parametrize(
    ("status", "current", "says"),
    [
        ("Charging", "-412000", "is charging"),
        ("Full", "0", "is full"),
        ("Discharging", "", "no current"),
        ("", "-412000", "whether it is charging"),
    ],
)
def test_a_gauge_that_would_tell_something_else_is_not_asked(status: str, current: str, says: str) -> None:
    texts = {
        "gauge_status": {"s": status},
        "gauge_current": {"c": current},
        "gauge_voltage": {"v": "4000000"},
    }
    assert says in str(gauge_of(texts))


def test_a_gauge_that_tells() -> None:
    texts = {
        "gauge_status": {"s": "Discharging"},
        "gauge_current": {"/c": "412"},
        "gauge_voltage": {"/v": "4000"},
    }
    assert gauge_of(texts) == Gauge("/c", "/v")


def test_the_report_says_what_is_known_and_why_the_rest_is_not() -> None:
    known = Latency(experiment="on", threads=1, energy=Energy(0.0204, 0.0199, 0.0209, 2.04, 40))
    silent = Energy(reason="the fuel gauge told nothing")
    unknown = Latency(experiment="off", threads=1, energy=silent)
    page = render_markdown(energy_table([known, unknown, Latency(experiment="other")]))
    assert "| on" in page and "20.4" in page and "19.9 to 20.9" in page
    says_together(page, "off, 1 thread", silent.reason)
    assert "other" not in page
    assert energy_table([Latency(experiment="other")]) == []
