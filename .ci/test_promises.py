"""What pages, texts and tables promise is what the code has."""

import inspect
import re

import pytest
from working_tree import ROOT

import model_profiling
from model_profiling.program.delegates.xnnpack import alignment, graph, operators
from model_profiling.targets import collect
from model_profiling.targets.power_mode import MODES
from model_profiling.workflow import skills
from model_profiling.workflow.skills import list_skills

_EXPORT = "model inputs dtype backend outdir save_graph name calibration keep optimize by_layer seed"
PARAMETERS = {
    "analyse": "source model etrecord times",
    "compare": "a b limit across_machines times fail_on memory_limit load_limit",
    "export": _EXPORT,
    "export_model": _EXPORT,
    "optimize": "model inputs dtype only name",
    "profile": "model inputs dtype name",
    "profile_llm": "model dtype",
    "read_etdump": "source",
    "register_model": "name cls inputs description options not_supported",
    "write_analysis": "analysis out",
}
"""What callers may pass until 2.0.0: more may come, none of these may go."""


def test_the_api_is_what_its_page_promises() -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    promised = page.partition("the names in `model_profiling.__all__`")[2].partition("\n- ")[0]
    public = re.findall(r"`(\w+)`", promised)
    assert len(public) >= 28 and sorted(public) == sorted(model_profiling.__all__)
    assert [name for name in public if not getattr(model_profiling, name).__doc__] == []
    for name, words in PARAMETERS.items():
        assert set(words.split()) <= set(inspect.signature(getattr(model_profiling, name)).parameters), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model_profiling.nothing


def test_the_page_s_adb_lines_are_those_of_the_power_modes() -> None:
    page = (ROOT / "docs/how-to/android.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^adb shell settings put global (\w+) (\d+)$", page)
    modes = [dict(MODES["boost"]), dict(MODES["app"])]
    assert [dict(lines[:5]), dict(lines[5:])] == modes and len(lines) == 10


def test_source_advice_and_documentation_know_the_same_exit_codes() -> None:
    source = (ROOT / "model_profiling" / "runner" / "failure.h").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"(?m)^  k\w+ = (\d+),", source)}
    assert len(codes) > 10
    assert codes == {*collect._EXIT_CODES, collect._OUT_OF_MEMORY, collect._TIME_LIMIT}
    documented = (ROOT / "docs" / "reference" / "runner.md").read_text(encoding="utf-8")
    assert codes == {int(code) for code in re.findall(r"(?m)^\| (\d+) \| ", documented)} - {0}


@pytest.mark.parametrize("skill", list_skills(), ids=lambda skill: skill.name)
def test_every_skill_has_what_an_assistant_needs(skill: skills.Skill) -> None:
    text = (ROOT / "agent_skill_ml_profiling" / skill.source).read_text()
    for part in ("## Prerequisites", "## Expected", "## Failures", "## Checklist", "\n- [ ] "):
        assert part in text, part
    assert re.search(r"^Next( skill)?: |^There is no next skill", text, re.MULTILINE)
    assert "| symptom | cause | fix |" in text
    assert len(text.split()) <= 500, "an assistant reads it whole"
    assert len(re.findall(r"^```bash$", text, re.MULTILINE)) >= 2
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        assert '["answers"].items()' not in block or '["warnings"]' in block, "a warning is an answer, too"


def test_no_table_names_a_kind_of_node_that_no_program_has() -> None:
    kinds = set(graph._KINDS)
    of_events = frozenset[str]().union(*alignment._KINDS_OF_EVENT.values())
    tables = (operators._NODE_KINDS, operators._COMPUTING, graph._MOVES, graph._RULES, of_events)
    for table in (*tables, graph._LAYOUTS, alignment._VANISHING_COST):
        assert sorted(set(table) - kinds) == []
