"""Hardware known to have SME2, and who says so; a device that is not here may have it all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["CPU", "Mac", "phone", "phone or tablet"]

_LLVM = "LLVM's AArch64Processors.td"


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device, and the source that says it has SME2; `seen` is when that was said or looked up."""

    kind: Kind
    name: str
    source: str
    seen: str


DEVICES: tuple[Device, ...] = (
    Device("Mac", "Apple M4 and M5 families", f"{_LLVM} (apple-m4, apple-m5)", "2026-11"),
    Device(
        "phone or tablet", "Apple A18 and A19 families, M4, M5", f"{_LLVM} (apple-a18, apple-a19)", "2026-11"
    ),
    Device("CPU", "Arm C1-Ultra, -Premium, -Pro, -Nano", f"{_LLVM} (c1-ultra and so on)", "2026-11"),
    Device(
        *("phone", "MediaTek Dimensity 9500 (vivo X300)"),
        *("MediaTek's announcement and the phone's, in Android Authority", "2025-10"),
    ),
    Device("phone", "Samsung Exynos 2600 (some Galaxy S26)", "Arm's statement, in Notebookcheck", "2026-02"),
)
NO_SERVER = (
    f"Servers: none known; {_LLVM} gives SME2 to no Neoverse (up to V3), Grace, Olympus, Ampere1 or "
    "FUJITSU-MONAKA, 2026-11."
)
ASK_THE_DEVICE = (
    "The device has the last word: `sysctl hw.optional.arm.FEAT_SME2` on a Mac, "
    "`grep -cw sme2 /proc/cpuinfo` on Linux and Android."
)


def device_lines(devices: Sequence[Device] = DEVICES) -> list[str]:
    """The table as text."""
    kind, name = (max(len(getattr(device, field)) for device in devices) for field in ("kind", "name"))
    rows = [
        f"{device.kind.ljust(kind)}  {device.name.ljust(name)}  {device.source}, {device.seen}"
        for device in devices
    ]
    return ["Known to have SME2, and who says so:", *rows, NO_SERVER, ASK_THE_DEVICE]
