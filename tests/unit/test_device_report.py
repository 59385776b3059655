"""What a report says of the phone a run was measured on, and that old manifests are read without it."""

from __future__ import annotations

from dataclasses import replace

from said import says

from model_profiling.core.formatting import ranges
from model_profiling.core.records import parse_record, record_json
from model_profiling.report.data import machine_rows
from model_profiling.run.manifest import Between, Machine
from model_profiling.runner.machine import Battery, Cluster, DeviceState
from model_profiling.targets import MachineFacts

PHONE = MachineFacts(
    cpu="Cortex-A520 + Cortex-X4",
    machine="aarch64",
    cores=5,
    governor="walt",
    temperature_c=41.0,
    on_battery=True,
    clusters=(
        Cluster("little", (0, 1, 2, 3), "Cortex-A520", 300, 1_900_000, 1_900_000, 400_000, "walt"),
        Cluster("big", (4,), "Cortex-X4", 1024, 3_300_000, 3_300_000, 3_300_000, "walt"),
    ),
    device=DeviceState(
        model="Example One",
        soc="EX1000",
        battery=Battery(87.0, "discharging", 31.0),
        thermal_status=0,
        settings={"low_power": "0", "window_animation_scale": None},
        boot_id="a",
    ),
)


def test_rows_of_a_phone_that_throttled_and_restarted() -> None:
    assert PHONE.device is not None
    little, big = PHONE.clusters
    later = replace(
        PHONE,
        temperature_c=61.0,
        clusters=(little, replace(big, allowed_khz=2_100_000)),
        device=replace(PHONE.device, battery=Battery(80.0), thermal_status=3, boot_id="b"),
    )
    between = tuple(
        Between(
            number, "", facts.temperature_c, facts.device.thermal_status, facts.device.battery, facts.clusters
        )
        for number, facts in enumerate((PHONE, later))
        if facts.device
    )
    rows = dict(machine_rows(Machine(PHONE, later, between)))
    says(rows["Between rounds"], "41 to 61 C", "80 to 87 %", "severe", "little 0.40 GHz", "big 3.30 GHz")
    says(rows["Cluster little"], "0-3", "Cortex-A520", "1.90 GHz", "walt")
    says(rows["Cluster big"], "4", "Cortex-X4", "3.30 GHz", "2.10 GHz", "walt")
    says(rows["Battery"], "87.0 % before", "80.0 % after", "discharging")
    says(rows["Thermal status"], "none before", "severe after")
    assert rows["Power settings"] == "low_power 0"
    says(rows["Restarted"], "yes")
    says(rows["Temperature"], "41.0 C before", "61.0 C after")
    assert "Clock governor" not in rows, "each cluster has its own"


def test_a_machine_with_one_kind_of_cpu_is_told_as_ever() -> None:
    rows = dict(machine_rows(Machine(MachineFacts(cpu="N1", governor="performance"))))
    assert rows["Clock governor"] == "performance"
    assert not {"Phone", "Battery"} & set(rows)


def test_the_facts_go_to_json_and_back_and_older_ones_are_read() -> None:
    told = record_json(PHONE)
    assert parse_record(MachineFacts, told, "x", "") == PHONE
    older = {name: value for name, value in told.items() if name not in ("clusters", "device")}
    assert parse_record(MachineFacts, older, "x", "") == replace(PHONE, clusters=(), device=None)


def test_ranges() -> None:
    assert ranges([7, 0, 1, 2, 4]) == "0-2, 4, 7"
    assert ranges([]) == ""
