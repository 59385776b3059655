"""What is sent away: nothing in it names a person, a machine or a place, and its figures are the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from pages import headings, section, tables
from recorded_runs import ARM, EMULATED, PROGRAM, X86_64, Json, dumps_in, edit, load
from said import says

from model_profiling.core.errors import FormatError, InputError
from model_profiling.etdump import boundaries_beside
from model_profiling.report.run_report import run_document
from model_profiling.report.scrubbing import Scrubber, left_out_lines
from model_profiling.report.verdict import verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow import scrubbed_copy
from model_profiling.workflow.bundle import Bundle, Shared, share_report, write_bundle
from model_profiling.workflow.report import gather_report
from model_profiling.workflow.scrubbed_copy import ShareOptions

HOME = "/home/annabel.lee/Secret Project"
SECRETS = (
    "annabel", "Secret Project", "R5CT90ABCDE", "raven-host", "corp.example", "192.168.7.31", "ravenbuild7",
    "3f0c9a52-77aa", "torch.flatten(self.features(image)", "self.classifier(mixed",
)  # fmt: skip
_FOUND = {"name": "Python", "found": f"{HOME}/.venv/bin/python"}
DIAGNOSIS = {"schema_version": 1, "ok": True, "checks": [_FOUND]}
FIGURES = ("Latency", "Where the time goes", "Kernels", "Numerical parity")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run full of what nobody should see; its folder has a name of that kind too."""
    home = tmp_path_factory.mktemp("annabel.lee")
    run_dir = home / "android-R5CT90ABCDE"
    shutil.copytree(X86_64, run_dir)
    shutil.copytree(PROGRAM.parent, home / "artifacts")
    for path in run_dir.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".csv", ".md"):
            path.write_text(path.read_text().replace("/home/user", HOME))
    edit(run_dir / "manifest.json", _make_private)
    said = (
        f"$ adb -s R5CT90ABCDE shell run --model {HOME}/x.pte\nLinux raven-host 6.1.0, at 192.168.7.31:5555"
    )
    next(run_dir.glob("*/*_t1.log")).write_text(said)
    return run_dir


def _make_private(manifest: Json) -> None:
    manifest["target"] = {"name": "android:R5CT90ABCDE", "platform": "android", "times": "hardware"}
    manifest.get("settings", manifest["config"])["target"]["device"] = "R5CT90ABCDE"
    program = f"{HOME}/out_small_cnn/artifacts/small_cnn_xnnpack_fp16.pte"
    remote = "ssh:annabel.lee@raven-host.corp.example:2222"
    manifest["sessions"][0]["command_line"] = ["sme2prof", "profile", program, "--target", remote]
    for moment in ("before", "after"):
        facts = manifest["machine"][moment]
        facts["os"] = "Maker Phone 1, Android 15, kernel Linux 6.1.0-ravenbuild7"
        booted = "3f0c9a52-77aa-4b0e-9df2-1b2a4c6d8e90"
        facts["device"] = {"model": "Phone 1", "soc": "Chip 9", "boot_id": booted}


def secrets_in(content: bytes) -> list[str]:
    text = content.decode("utf-8", errors="replace").lower()
    return [secret for secret in SECRETS if secret.lower() in text]


@pytest.fixture(scope="module")
def shared(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    return share_report([private], tmp_path_factory.mktemp("shared") / "page.md")


@pytest.fixture(scope="module")
def bundle(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundle") / "run.zip"
    return write_bundle(private, out, diagnosis=DIAGNOSIS)


def unpacked(bundle: Bundle, to: Path) -> Path:
    with zipfile.ZipFile(bundle.path) as archive:
        archive.extractall(to)
    (home,) = to.iterdir()
    return home


def figures(run_dir: Path) -> list[object]:
    page = run_document(gather_report(run_dir))
    return [tables(section(page, heading)) for heading in FIGURES]


def test_a_shared_page_holds_nothing_private_and_the_same_figures(private: Path, shared: Shared) -> None:
    written = sorted(path for path in shared.path.parent.rglob("*") if path.is_file())
    assert {path.suffix for path in written} >= {".md", ".html"}
    assert not [path.name for path in written if secrets_in(path.read_bytes())]
    original = gather_report(private)
    own, copied = (run_document(data) for data in (original, shared.runs[0]))
    for heading in FIGURES:
        assert tables(section(own, heading)) == tables(section(copied, heading)), heading
    assert verdict(shared.runs[0]) == verdict(original) and headings(own) == headings(copied)


def test_the_same_thing_has_the_same_placeholder_and_the_page_lists_them(shared: Shared) -> None:
    kinds = {found.kind for found in shared.replaced}
    assert kinds >= {"folder", "user", "host", "kernel build", "source text"}
    names = [(found.kind, found.placeholder) for found in shared.replaced if found.placeholder]
    assert len(names) - len(set(names)) <= 1  # the run directory has been at two places
    page = shared.path.with_suffix(".html").read_text()
    says(page, *{found.placeholder for found in shared.replaced if found.placeholder})
    says(page, "sme2prof report RUN_DIR", "program/small_cnn_xnnpack_fp16.pte", "small_cnn.py:22")
    assert "kernel Linux 6.1.0-kernel-build-1" in page


def test_what_would_leak_is_not_written(private: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Scrubber, "text", lambda _, text: text)
    with pytest.raises(InputError, match="nothing was written"):
        share_report([private], tmp_path / "page.html")
    with pytest.raises(InputError, match="nothing was written"):
        write_bundle(private, tmp_path / "run.zip", diagnosis=DIAGNOSIS)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_holds_the_run_and_nothing_private(private: Path, bundle: Bundle, tmp_path: Path) -> None:
    home = unpacked(bundle, tmp_path)
    packed = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    wanted = {"manifest.json", "metrics.json", "analysis_summary.json", "journal.jsonl", "program_graph.json"}
    assert wanted | {"doctor.json", "report.html"} <= set(packed)
    assert {found.name for found in bundle.files} == set(packed)
    assert len(dumps_in(home)) == len(dumps_in(private)) > 1
    assert not [name for name, path in packed.items() if secrets_in(path.read_bytes())]
    assert [name for name in packed if "annabel" in name or "R5CT" in name] == []
    listed = load(home / "shared.json")
    assert any("names of operators" in entry["what"] for entry in listed["files"])
    assert "MADE_FROM" in [entry["file"] for entry in listed["left_out"]]
    assert [entry["file"] for entry in listed["left_out"] if "weights" in entry["why"]] == [PROGRAM.name]


@pytest.mark.slow
def test_an_unpacked_bundle_is_the_run_again(private: Path, bundle: Bundle, tmp_path: Path, sme2prof) -> None:
    home = unpacked(bundle, tmp_path / "private")
    done = sme2prof("report", home, "--out", tmp_path / "again.html", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == list(verdict(gather_report(private)))
    made = write_bundle(ARM, tmp_path / "run.zip", diagnosis=DIAGNOSIS)
    again = unpacked(made, tmp_path / "unpacked")
    assert figures(again) == figures(ARM)
    checked = validate(again)
    assert checked.ok, checked.as_text()
    with pytest.raises(InputError, match="cannot write"):
        write_bundle(X86_64, made.path / "in_a_file.zip", diagnosis=DIAGNOSIS)


def test_a_bundle_is_the_same_every_time(private: Path, bundle: Bundle, tmp_path: Path) -> None:
    again = write_bundle(private, tmp_path / "again.zip", diagnosis=DIAGNOSIS)
    assert again.path.read_bytes() == bundle.path.read_bytes()


def test_the_program_is_packed_only_when_asked_for(private: Path, tmp_path: Path) -> None:
    made = write_bundle(private, tmp_path / "with.zip", diagnosis=DIAGNOSIS, with_program=True)
    home = unpacked(made, tmp_path / "unpacked")
    assert (home / "program" / PROGRAM.name).read_bytes() == PROGRAM.read_bytes()
    run_dir = tmp_path / "runs" / "linux"
    shutil.copytree(private, run_dir)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / PROGRAM.name).write_bytes(b"another")
    with pytest.raises(InputError, match="not the program"):
        write_bundle(run_dir, tmp_path / "wrong.zip", diagnosis=DIAGNOSIS, with_program=True)
    assert not (tmp_path / "wrong.zip").exists()


def test_a_model_can_be_renamed_everywhere(private: Path, tmp_path: Path) -> None:
    options = ShareOptions(rename="some_model")
    made = write_bundle(private, tmp_path / "run.zip", options=options, diagnosis=DIAGNOSIS)
    home = unpacked(made, tmp_path / "unpacked")
    for path in home.rglob("*"):
        assert "small_cnn" not in path.name
        assert not path.is_file() or b"small_cnn" not in path.read_bytes(), path
    assert figures(home) == figures(private)
    for name in ("my_small_cnn", "no/slash"):
        with pytest.raises(InputError):
            share_report([private], tmp_path / "page.html", options=ShareOptions(rename=name))


def test_proof_that_lies_beside_a_run_travels_with_it(tmp_path: Path) -> None:
    shutil.copytree(EMULATED, tmp_path / "runs" / "emulated")
    run_dir = tmp_path / "runs" / "linux"
    shutil.copytree(ARM, run_dir)
    (run_dir / "evidence.json").unlink()
    made = write_bundle(run_dir, tmp_path / "run.zip", diagnosis=DIAGNOSIS)
    home = unpacked(made, tmp_path / "unpacked")
    assert load(home / "evidence.json")["kernels"]
    assert verdict(gather_report(home)) == verdict(gather_report(run_dir))


def test_dumps_alone_keep_their_meaning(tmp_path: Path) -> None:
    folder = tmp_path / "emulated"
    folder.mkdir()
    for dump in dumps_in(EMULATED):
        shutil.copy(dump, folder)
    made = write_bundle(folder, tmp_path / "dumps.zip", diagnosis=DIAGNOSIS)
    home = unpacked(made, tmp_path / "unpacked")
    assert gather_report(home).times == gather_report(folder).times == "emulated"


def test_a_damaged_file_still_fits_into_a_bug_report(private: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(private, run_dir)
    whole = (run_dir / "analysis_summary.json").read_text()
    (run_dir / "analysis_summary.json").write_text(whole[: len(whole) // 2])
    made = write_bundle(run_dir, tmp_path / "run.zip", diagnosis=DIAGNOSIS)
    home = unpacked(made, tmp_path / "unpacked")
    assert not secrets_in((home / "analysis_summary.json").read_bytes())
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|delimiter"):
        load(home / "analysis_summary.json")


def test_damaged_dumps_still_fit_into_a_bug_report(private: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(private, run_dir)
    (dump,) = run_dir.glob("*/*.etdump")
    for damaged in dumps_in(run_dir):
        damaged.write_bytes(damaged.read_bytes()[:500])
    made = write_bundle(run_dir, tmp_path / "run.zip", diagnosis=DIAGNOSIS)
    assert any(f"RUN_DIR/{dump.relative_to(run_dir)} is cut short" in why for _, why in made.left_out)
    home = unpacked(made, tmp_path / "unpacked")
    assert (home / dump.relative_to(run_dir)).stat().st_size == 500 and (home / "report.html").is_file()
    with pytest.raises(FormatError, match=re.escape(f"{dump} is cut short")):
        share_report([run_dir], tmp_path / "page.html")


def test_several_runs_are_shared_on_one_page(private: Path, tmp_path: Path) -> None:
    share_report([private, ARM], tmp_path / "both.html")
    page = (tmp_path / "both.html").read_bytes()
    assert not secrets_in(page) and b"RUN_DIR_1" in page and b"RUN_DIR_2" in page


def test_the_commands_say_what_they_did(private: Path, tmp_path: Path, monkeypatch, sme2prof) -> None:
    class Fine:
        def as_dict(self) -> Json:
            return dict(DIAGNOSIS)

    monkeypatch.setattr("model_profiling.workflow.bundle.examine", Fine)
    monkeypatch.chdir(tmp_path)
    shared = sme2prof("report", private, "--share", "--out", "page.html", "--json")
    facts = json.loads(shared.stdout)
    assert shared.returncode == 0 and facts["report"] == "page.html" and (tmp_path / "page.html").is_file()
    assert "raven-host" in {found["original"] for found in facts["replaced"]}
    packed = sme2prof("bundle", private)
    assert "left out: MADE_FROM" in packed.stdout and "names of operators" in packed.stdout
    assert packed.returncode == 0 and (tmp_path / "small_cnn_xnnpack_fp16_android_bundle.zip").is_file()
    assert sme2prof("report", private, "--rename", "x").returncode == 2
    wrong = sme2prof("bundle", tmp_path / "mistyped")
    assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1


def test_this_machines_own_names_are_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbed_copy.getpass, "getuser", lambda: "edgar")
    monkeypatch.setattr(scrubbed_copy.socket, "gethostname", lambda: "usher.lan")
    scrubber = scrubbed_copy.make_scrubber()
    assert scrubber.text("Edgar on usher.lan, on USHER") == "user-1 on host-1, on host-2"
    assert scrubber.text(r"%2Fedgar, \nedgar \u003cedgar") == r"%2Fuser-1, \nuser-1 \u003cuser-1"
    assert [[*scrubber.leaks(text)] != [] for text in ("%2Fedgar", r"\nedgar", "hedgar")] == [
        True,
        True,
        False,
    ]
    monkeypatch.setattr(scrubbed_copy.socket, "gethostname", lambda: "usher.poe.example")
    assert scrubbed_copy.make_scrubber().text("ci.poe.example") == "ci.host-1"
    assert scrubbed_copy.make_scrubber(ShareOptions(keep=("edgar",))).text("edgar") == "edgar"


def test_what_may_not_be_read_is_said(private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refused(path: Path, *how: int, **more: int) -> int:
        if str(path).endswith(".log"):  # root may read everything
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InputError, match=r"\.log.* permission denied"):
        share_report([private], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see /home/ann/x/net.py:22 and /home/ann/x/b.py", "see folder-1/net.py:22 and folder-1/b.py"),
        ("/proc/cpuinfo, /sys/devices/soc0, GB/s and/or 3/4", None),
        ("--model=/opt/acme/m.pte", "--model=folder-1/m.pte"),
        ("/v/lib/python3/site-packages/torch/nn/conv.py:3", "site-packages/torch/nn/conv.py:3"),
        ("https://docs.example.org/a/b", None),
        ("C:\\Users\\ann\\m.pte", "folder-1/m.pte"),
        ("mail ann@corp.example, 10.0.0.7:5555", "mail address-1, address-2"),
        ("kernel 5.15.167.4-microsoft-standard-WSL2, 1.5.1", None),
        ("~/models/m.pte", "folder-1/m.pte"),
        ("file:///home/ann/x/net.py", "file://folder-1/net.py"),
        ("?path=%2Fhome%2Fann%2Fnet.py&x", "?path=folder-1/net.py&x"),
        (r'{"p": "\/home\/ann\/net.py"}', '{"p": "folder-1/net.py"}'),
        (r"\\ann\share\m.pte", "folder-1/m.pte"),
        ("from fe80::1ff:fe23:4567:890a at 12:30:45", "from address-1 at 12:30:45"),
        ("c10::List, std::add, 2026-01-02T10:20:30", None),
    ],
)
def test_private_things_are_known_by_their_form(text: str, shown: str | None) -> None:
    found = Scrubber().text(text)
    assert found == (text if shown is None else shown) and not re.search(r"ann\b", found)


def test_a_quoted_path_is_replaced_with_its_spaces() -> None:
    scrubber = Scrubber()
    scrubber.learn('File "/opt/raven wing/nest box/net.py", line 3')
    assert scrubber.text('File "/opt/raven wing/nest box/net.py", line 3') == 'File "folder-1/net.py", line 3'
    assert scrubber.text("in /opt/raven wing/nest box") == "in folder-1"


def test_a_home_that_only_a_binary_file_names_is_found() -> None:
    scrubber = Scrubber(keep=("lenore",))
    assert [found.original for found in scrubber.leaks("op /home/poe/x.cpp", binary=True)] == ["poe"]
    assert not [*scrubber.leaks("op /home/user/x.cpp /Users/lenore/y", binary=True)]


def test_notes_are_left_out() -> None:
    scrubber = Scrubber()
    config = {"experiments": [], "notes": "Edgar A. Poe's desk", "method": "forward"}
    assert scrubber.value({"config": config}) == {"config": {**config, "notes": ""}}
    assert left_out_lines(scrubber.replaced) == ["the config's notes"]


def test_words_of_the_report_are_no_names() -> None:
    scrubber = Scrubber()
    scrubber.learn({"model": "/home/user/m.pte", "other": "/home/linux/x"})
    assert scrubber.text("the user of linux") == "the user of linux"
    scrubber.learn({"model": "/home/annabel/m.pte"})
    scrubber.learn("$ adb -s R5CT90 shell true")
    assert scrubber.text("adb -s R5CT90, android-R5CT90") == "adb -s device-1, android-device-1"
    assert scrubber.text("out_annabel_1, ANNABEL, annabella") == "out_user-1_1, user-1, annabella"


def test_boundaries_go_with_their_dump_under_its_new_name(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(X86_64, run_dir)
    (dump,) = (dump for dump in dumps_in(run_dir) if "_r1." in dump.name)
    boundaries_beside(dump).write_bytes(b"SME2PBND, whatever they are")
    scrubber = scrubbed_copy.make_scrubber()
    (copy,) = scrubbed_copy.copy_runs([run_dir], tmp_path / "sent", scrubber, ShareOptions(rename="mine"))
    (sent,) = copy.path.rglob("*.boundaries")
    (beside,) = (dump for dump in dumps_in(copy.path) if "_r1." in dump.name)
    assert boundaries_beside(beside) == sent and sent.name.startswith("mine")
    assert sent.read_bytes() == boundaries_beside(dump).read_bytes()
