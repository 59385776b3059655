"""Energy on a phone with a real adbd whose fuel gauge a test moves."""

from __future__ import annotations

import json
import re
import threading

import pytest
from conftest import ON_ARM

BATTERY = "/sys/class/power_supply/battery"


@pytest.mark.skipif(not ON_ARM, reason="times of an emulated phone are no latencies, so nothing is metered")
@pytest.mark.parametrize("charging", [False, True])
def test_energy_is_measured_from_the_battery_alone(phone, exported, cli, tmp_path, charging: bool) -> None:
    phone.write(f"{BATTERY}/status", "Charging" if charging else "Discharging")
    run = tmp_path / "run"
    config = {
        "model": str(exported("toy_cnn", "fp16").pte),
        "output_root": str(run),
        "target": {"remote": phone.serial},
        "experiments": [{"name": "alone", "runs": 5, "cpu_affinity": "big"}],
        "schedule": {"mode": "rounds", "rounds": 1, "energy_s": 6},
    }
    (tmp_path / "c.json").write_text(json.dumps(config))
    ended = threading.Event()

    def move_gauge() -> None:
        step = 0
        while not ended.wait(0.2):
            step += 1
            phone.write(f"{BATTERY}/current_now", f"-{500_000 + step % 7}")

    mover = threading.Thread(target=move_gauge)
    mover.start()
    try:
        done = cli("run", tmp_path / "c.json", **phone.server.environment, XDG_STATE_HOME=str(tmp_path))
    finally:
        ended.set()
        mover.join()
    assert done.ok, done.stderr
    metrics = json.loads((run / "metrics.json").read_text())
    (latency,) = metrics["latencies"]
    report = (run / "report.md").read_text()
    if charging:
        assert latency["energy"] is None
        assert re.search(r"energy .*not measured.*charging", report)
        return
    energy = latency["energy"]
    assert energy["reason"] is None, energy
    assert energy["watts"] == pytest.approx(0.5 * 4.312, rel=0.01)
    assert energy["low"] < energy["joules"] < energy["high"]
    assert "mJ for one inference" in report
    assert energy["file"] == "alone/toy_cnn_xnnpack_fp16_alone_t1_gauge.csv"
    kept = (run / energy["file"]).read_text().splitlines()
    assert kept[0].startswith("uptime_s,current,voltage,") and len(kept) > energy["readings"]
    assert any(",-50000" in line for line in kept) and kept[-1].count(",") == 7
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["machine"]["before"]["device"]["battery"]["status"] == "discharging"
