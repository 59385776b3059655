"""A short, deterministic slice of the campaign of attacks (`bench/attack_campaign.py`), and what its long
runs found."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import ROOT, missing
from said import says

sys.path.insert(0, str(ROOT / "bench"))

from attack import disks, downloads, fuzzing, kills, verbs
from attack.damage import damaged
from attack.finds import PartResult, as_json, as_text
from attack.live_run import Ended
from attack.readers import BY_NAME, READERS

from model_profiling.config.reading import ConfigError, load_config
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.runner.samples import read_samples

INPUTS = 2000


def test_damaged_files_of_every_kind_are_refused_or_read(tmp_path: Path) -> None:
    found = fuzzing.fuzz(INPUTS, 20261116, finds=tmp_path)
    assert not found.finds, as_text([found])
    assert found.tried >= INPUTS * 0.99
    coverage = found.figures["coverage"]
    assert isinstance(coverage, dict)
    for name in ("core/flatbuffer.py", "etdump/reader.py", "program/pte.py", "program/etrecord.py"):
        seen, whole = coverage[name]
        assert seen / whole > 0.6, f"too little of {name} was reached: {seen} of {whole} lines"


OWN = {"mcp_server/jobs.py"}
"""Modules that read only what the kit's own processes have just written."""


def test_all_json_that_the_kit_reads_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module that reads JSON does so for some reader of the campaign. Of those named here, the first
    reads what the reader `report` reads, the next two a file of the kit, once in a process, and the last what
    the doctor reads for the reader `power mode`."""
    named = {"runs/times.py", "program/matrix_work.py", "report/charts.py", "targets/power_mode.py"}
    package, real, reached = ROOT / "model_profiling", json.loads, named

    def watched(*given: Any, **options: Any) -> object:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(f"{package}/"):
                reached.add(Path(frame.f_code.co_filename).relative_to(package).as_posix())
            frame = frame.f_back
        return real(*given, **options)

    monkeypatch.setattr(json, "loads", watched)
    for reader in READERS:
        (tmp_path / reader.name).mkdir()
        with contextlib.suppress(ProfilingError):
            reader.read(reader.seeds()[0], tmp_path / reader.name)
    calls = re.compile(r"(?<!def )\b(?:json\.loads|parse_json|read_json|read_json_object|read_record)\(")
    found = (path for path in package.rglob("*.py") if calls.search(path.read_text()))
    assert {path.relative_to(package).as_posix() for path in found} - reached == OWN


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.name))
def test_the_same_seed_is_the_same_damage(reader: fuzzing.Reader) -> None:
    seeds = reader.seeds()
    made = [fuzzing.input_of(reader, seeds, len(seeds), seed, 17) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_what_an_export_left_outside_is_read_from_its_seed(tmp_path: Path) -> None:
    """This reader answers nothing for whatever it does not know: such a seed would prove nothing."""
    reader = BY_NAME["undelegated"]
    assert reader.read(reader.seeds()[0], tmp_path)


def test_a_reader_that_crashes_hangs_bloats_or_surprises_is_found(tmp_path: Path) -> None:
    """The campaign is held to readers that are known to be bad, also those that hide it: memory that is
    refused ends as a refusal of the file, the alarm meets a finalizer, a surprise comes before a death."""
    lines = [
        "import hashlib, os, sys, time",
        f"sys.path[:0] = [{str(ROOT / 'bench')!r}, {str(ROOT)!r}, {str(ROOT / 'tests')!r}]",
        "from attack import fuzzing, readers",
        "from model_profiling.core.errors import InputError",
        "fuzzing.SECONDS, fuzzing.WAIT = 0.4, 3",
        "def spin(seconds):",
        "    until = time.process_time() + seconds",
        "    while time.process_time() < until: pass",
        "class Late:",
        "    def __del__(self): spin(0.6)",
        "def hidden():",
        "    try: bytearray(3 << 30)",
        "    except MemoryError: raise InputError('it is too long', 'shorten it')",
        "KINDS = {",
        "    'surprise': lambda: [][0],",
        "    'exit': lambda: os._exit(11),",
        "    'sleep': lambda: time.sleep(60),",
        "    'bloat': lambda: bytearray(3 << 30),",
        "    'hidden bloat': hidden,",
        "    'hidden spin': lambda: Late() and None,",
        "}",
        "def bad(data, folder):",
        "    kind = list(KINDS)[hashlib.sha256(data).digest()[0] % len(KINDS)]",
        "    with open(os.path.join(sys.argv[1], 'order'), 'a') as order: print(kind, file=order)",
        "    KINDS[kind]()",
        "seeds = lambda: [b'abcdefghijklmnop', b'qrstuvwxyz012345']",
        "bad_one = readers.Reader('bad', 'bytes', 10000, seeds, bad)",
        "for module in (readers, fuzzing): module.READERS, module.BY_NAME = (bad_one,), {'bad': bad_one}",
        "if __name__ == '__main__':",
        "    from pathlib import Path",
        "    result = fuzzing.fuzz(7, 50, finds=Path(sys.argv[1]) / 'finds')",
        "    print(*sorted(find.what.split(':')[0] for find in result.finds), result.tried, sep='\\n')",
    ]
    script = tmp_path / "bad.py"
    script.write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == [
        "IndexError",
        "ends the process with 11",
        *["takes longer than 0.4 s"] * 2,
        *["takes more than 1024 MB"] * 2,
        "7",
    ], done.stdout + done.stderr
    order = (tmp_path / "order").read_text().splitlines()
    assert order.index("surprise") < order.index("exit"), "what was found before must not be lost with it"
    kept = sorted((tmp_path / "finds").glob("bad-*.json"))
    assert json.loads(kept[0].read_text())["reader"] == "bad"


def test_what_counts_as_a_clear_answer() -> None:
    """Ctrl-C says `error: interrupted`, unless Python has read nothing of the kit yet."""
    clear = [(0, ""), (1, ""), (2, "error: x; y\n"), (130, "error: interrupted\n"), (130, "")]
    unclear = [
        (0, "error: x; y\n"),
        (2, ""),
        (2, "error: a\nerror: b\n"),
        (-9, ""),
        (2, "error: unexpected x\n"),
    ]
    assert [Ended(code, "", err).is_clear for code, err in clear] == [True] * len(clear)
    assert [Ended(code, "", err).is_clear for code, err in unclear] == [False] * len(unclear)


def test_kinds_and_names_of_files_that_were_found(tmp_path: Path) -> None:
    """Pipes, folders and links to themselves in a run, each with a command that waited or was surprised."""
    for kind, place, verb in (
        ("pipe", "report.md", "view"),
        ("folder", "report.html", "report"),
        ("link to itself", "emulated_sme2_on/small_cnn_xnnpack_fp16_emulated_sme2_on_t1.etdump", "validate"),
        ("pipe", "config.json", "config"),
        ("added", "manifest.json", "report"),
    ):
        with contextlib.suppress(ProfilingError):
            BY_NAME["kinds"].read(f"{kind}\0{place}\0{verb}\0%2F..%2F@%2Fsettings.json".encode(), tmp_path)


def test_kills_of_a_command_and_of_a_runner_lose_nothing(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("the processes of a run are found in /proc")
    (tmp_path / "made").mkdir()
    verb = verbs.BY_NAME["run"]
    whole = kills.prepared(verb, tmp_path / "made", tmp_path / "whole")
    drawn: tuple[tuple[kills.Victim, signal.Signals], ...] = (
        ("parent", signal.SIGHUP),
        ("child", signal.SIGKILL),
    )
    for number, (victim, sent) in enumerate(drawn):
        each = kills.Kill(number, verb, victim, sent, 0.3)
        wrong, landed = kills.killed_and_tried_again(each, tmp_path / "made", tmp_path / str(number), whole)
        assert not wrong, wrong
        assert landed


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path) -> None:
    verb, place = verbs.BY_NAME["analyze"], tmp_path / "disk"
    (tmp_path / "made").mkdir()
    whole = kills.prepared(verb, tmp_path / "made", tmp_path / "whole")
    try:
        with disks.disk(place, disks.ENOUGH):
            assert not list(disks.filled(verb, tmp_path / "made", place, 40, whole))
    except PermissionError:
        missing("the right to mount a small file system (root)")


def test_a_wheel_that_is_cut_or_forged_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with downloads._own_cache(tmp_path / "cache"):
        assert not list(downloads._wheel("cut", tmp_path))


FOUND = [
    ("sweep", {"name": "s", "models": ["9" * 400], "targets": ["host"]}),
    ("sweep", {"name": "s", "models": [f"{'9' * 400}.py:net"], "targets": ["host"]}),
    ("sweep", {"name": "s", "models": ["toy_cnn"], "targets": ["host"], "dtypes": ["\ud800"]}),
    ("machine", 'ID="debian\nNAME=Debian'),
    ("config", '{"model": ' + "[" * 900 + "]" * 900 + "}"),
]
"""Readers and contents that gave anything but an answer or one of the kit's errors."""


@pytest.mark.parametrize(("reader", "content"), FOUND, ids=lambda value: str(value)[:24])
def test_what_was_found_is_read_or_refused_in_one_line(reader: str, content: object, tmp_path: Path) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    try:
        BY_NAME[reader].read(text.encode(), tmp_path)
    except ProfilingError as refusal:
        assert "\n" not in str(refusal)


def test_an_error_is_never_as_long_as_the_file() -> None:
    """zipfile names the member as the archive has it: a message of 35,000 characters came of it."""
    refused = FormatError("a member called " + "x" * 65_000 + " at the end", "export it again")
    assert len(str(refused)) < 2100
    assert refused.problem.startswith("a member called x") and refused.problem.endswith("x at the end")


@pytest.mark.parametrize("key", ["model", "output_root", "runner_path"])
@pytest.mark.parametrize("path", ["x" * 300, "a/" * 3000], ids=["name", "path"])
def test_a_path_that_no_system_takes_is_a_problem_of_the_config(tmp_path: Path, key: str, path: str) -> None:
    experiment = {"name": "one", **({key: path} if key == "runner_path" else {})}
    config = {"model": "m.pte", "output_root": "out", "experiments": [experiment]}
    if key != "runner_path":
        config[key] = path
    (tmp_path / "c.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError) as refusal:
        load_config(tmp_path / "c.json", files=False)
    (problem,) = refusal.value.problems
    assert key in problem.text
    assert "too long" in problem.text or "at most 4095" in problem.fix


def test_a_runner_with_a_zero_character_is_a_problem_of_the_config(tmp_path: Path) -> None:
    experiments = [{"name": "one", "runner_path": "a\0b"}, {"name": "two", "runner_path": "a"}]
    (tmp_path / "c.json").write_text(
        json.dumps({"model": "m.pte", "output_root": "o", "experiments": experiments})
    )
    with pytest.raises(ConfigError) as refusal:
        load_config(tmp_path / "c.json", files=False)
    (problem,) = refusal.value.problems
    says(problem.text, "runner_path", "not a path")


def test_samples_name_files_that_no_system_could_have(tmp_path: Path) -> None:
    seen = json.loads((ROOT / "tests/data/runner/seen.json").read_text())
    for file in seen["files"]:
        file["path"] = "x" * 5000
    (tmp_path / "seen.json").write_text(json.dumps(seen))
    found = read_samples(tmp_path / "seen.json")
    assert {file.problem for file in found.files} == {"it is not on this machine"}


def test_what_was_tried_is_a_table_and_json() -> None:
    results = [PartResult("kills", 3, 1.5), PartResult("disks", skipped="only root mounts")]
    assert "kills" in as_text(results) and "not tried: only root mounts" in as_text(results)
    assert as_json(results, 4)["found"] == 0


def test_damage_never_makes_a_file_much_longer() -> None:
    for reader in READERS:
        seeds = reader.seeds()
        assert all(len(damaged(reader.kind, seeds[0], seeds, random.Random(n))) <= 400_000 for n in range(20))
