"""`sme2prof skills`: what is written follows the Agent Skills rules, works there, and harms nothing."""

import json
import re
from pathlib import Path

import pytest
from said import refused

from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.workflow.skills import ASSISTANTS, STANDARD, install_skills, list_skills

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ROOT / "agent_skill_ml_profiling"


def _links(text: str) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def _all(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "skills"
    install_skills(folder)
    return folder


def test_all_are_there_in_order_by_the_agent_skills_rules(installed: Path) -> None:
    numbers = [skill.source[:2] for skill in list_skills()]
    assert numbers == [f"{number:02}" for number in range(1, 10)]
    catalogue = (TEXTS / "readme.md").read_text()
    for skill in list_skills():
        assert f"({skill.source}) | `{skill.name}` |" in catalogue
    reference = pytest.importorskip("skills_ref", reason="skills-ref needs Python 3.11")
    folders = sorted(path for path in installed.iterdir() if path.is_dir())
    assert len(folders) == 9
    for folder in folders:
        assert reference.validate(folder) == []
        properties = reference.read_properties(folder)
        assert not re.search("[<>]", properties.description) and "Use " in properties.description
        assert len((folder / "SKILL.md").read_text().splitlines()) < 500
    # An assistant holds all descriptions at once; 8,000 characters are what Codex gives them at least.
    assert sum(len(skill.name) + len(skill.description) for skill in list_skills()) < 6_000


def test_links_lead_to_what_was_installed_and_clone_only_parts_stay_behind(installed: Path) -> None:
    for page in installed.rglob("*.md"):
        text = page.read_text()
        for target in _links(text):
            assert (page.parent / target.partition("#")[0]).resolve().is_file(), f"{page}: {target}"
            assert (page.parent / target.partition("#")[0]).resolve().is_relative_to(installed.resolve())
        assert "<!--" not in text and "## In a clone" not in text
        assert "model_profiling/scripts/" not in text
    assert {path.name for path in installed.rglob("references/*")} == {
        path.name for path in (TEXTS / "references").iterdir()
    }
    for skill in list_skills():  # what is kept is kept word for word: every command of the steps
        assert "sme2prof" in skill.files["SKILL.md"]


@pytest.mark.parametrize("assistant", [None, *ASSISTANTS])
def test_each_assistant_gets_them_in_its_own_folder_and_twice_changes_nothing(
    assistant, tmp_path, monkeypatch, sme2prof
):
    monkeypatch.chdir(tmp_path)
    words = ["--for", assistant] if assistant else []
    first = json.loads(sme2prof("skills", "install", *words, "--json").stdout)
    place = ASSISTANTS[assistant] if assistant else STANDARD
    assert first["folder"] == place and first["unchanged"] == []
    assert sorted(path.parent.name for path in Path(place).glob("*/SKILL.md")) == sorted(first["skills"])
    before = _all(tmp_path)
    assert set(before) == {f"{place}/{path}" for path in first["written"]}
    ages = {path: (tmp_path / path).stat().st_mtime_ns for path in before}

    again = sme2prof("skills", "install", *words)
    assert again.returncode == 0 and "0 files written" in again.stdout
    assert _all(tmp_path) == before
    assert {path: (tmp_path / path).stat().st_mtime_ns for path in before} == ages


def test_a_changed_file_is_named_and_kept_until_force(tmp_path, sme2prof):
    folder = tmp_path / "mine"
    assert sme2prof("skills", "install", "--dir", str(folder)).returncode == 0
    whole = _all(folder)
    changed = folder / "sme2prof-export-model" / "SKILL.md"
    changed.write_text("my own notes\n")
    (folder / "sme2prof-run-profiling" / "SKILL.md").unlink()

    refused = sme2prof("skills", "install", "--dir", str(folder))
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "sme2prof-export-model/SKILL.md" in refused.stderr
    assert "--force" in refused.stderr
    assert changed.read_text() == "my own notes\n"
    assert not (folder / "sme2prof-run-profiling").joinpath("SKILL.md").exists()  # none, where not all can be

    assert sme2prof("skills", "install", "--dir", str(folder), "--force").returncode == 0
    assert _all(folder) == whole


def test_what_a_full_disk_cut_short_is_completed_by_installing_again(tmp_path, monkeypatch):
    really, left = files.write_text, iter(range(3))

    def write_text(path: Path, content: str) -> None:
        if next(left, None) is None:
            raise InputError(f"cannot write {path}: no space left on device")
        really(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_text", write_text)
        with pytest.raises(InputError, match="no space"):
            install_skills(tmp_path)
    assert install_skills(tmp_path).unchanged and not install_skills(tmp_path).written


def test_nothing_leads_out_of_the_folder_or_over_a_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "sme2prof-setup-workspace").symlink_to(outside)
    with refused(InputError, folder / "sme2prof-setup-workspace"):
        install_skills(folder, force=True)
    assert list(outside.iterdir()) == []
    names = [skill.name for skill in list_skills()]
    (tmp_path / names[-1]).write_text("a file where a folder has to be\n")
    with refused(InputError, "a part of the path is a file"):
        install_skills(tmp_path)
    assert (tmp_path / names[-1]).read_text() == "a file where a folder has to be\n"


def test_a_repository_does_not_choose_another_folder(tmp_path, monkeypatch, sme2prof):
    (tmp_path / "home").mkdir()
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / ".claude").symlink_to(tmp_path / "home")
    monkeypatch.chdir(tmp_path / "clone")
    done = sme2prof("skills", "install", "--for", "claude")
    assert done.returncode == 2 and "leads out of this folder" in done.stderr
    assert not list((tmp_path / "home").iterdir())
    assert sme2prof("skills", "install", "--dir", ".claude/skills").returncode == 0  # the user's word


def test_for_and_dir_together_and_unknown_assistants_are_refused(tmp_path, sme2prof):
    both = sme2prof("skills", "install", "--for", "claude", "--dir", str(tmp_path))
    assert both.returncode == 2 and "give one" in both.stderr
    assert sme2prof("skills", "install", "--for", "someone").returncode == 2
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    wrong = sme2prof("skills", "install", "--dir", str(tmp_path / "file"))
    assert wrong.returncode == 2 and "is not a folder" in wrong.stderr
    alone = sme2prof("skills")
    assert alone.returncode == 0 and alone.stdout.startswith("Usage: sme2prof skills ")
