"""What was damaged in the cache and made again is said once: by the run it happened in, or by the command."""

from __future__ import annotations

import re
from pathlib import Path

from recorded_runs import ARM, load, make_config
from replay import ReplayTarget
from said import says

from model_profiling.pipeline.open_run import measure_together
from model_profiling.pipeline.start import Start
from model_profiling.report.html import page
from model_profiling.run import names
from model_profiling.runner.cache import cached, take_repair_notes


class HealingTarget(ReplayTarget):
    """Its runner lies damaged in the cache when it is prepared."""

    def prepare(self) -> None:
        home = self.cache / "runners" / "0123456789abcdef"
        for _ in range(2):
            cached(home, lambda into: into.mkdir(), "the runner", fetch=True)
            (home / "more").touch()
        super().prepare()

    cache = Path()


def test_a_run_keeps_that_its_runner_was_made_again(tmp_path: Path) -> None:
    target = HealingTarget(ARM)
    target.cache = tmp_path / "cache"
    measure_together([(make_config(tmp_path / "run"), Start())], target)
    kept = load(tmp_path / "run" / names.MANIFEST)["warnings"]
    (remark,) = (remark for remark in kept if remark["code"] == "cache")
    says(remark["seen"], "the runner", "(more is not as it was made)")
    assert take_repair_notes() == ()


def test_a_command_without_a_run_warns_of_it(tmp_path: Path, sme2prof, monkeypatch) -> None:
    """A page needs the script that draws charts, which the cache keeps."""
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(page, "_put_together", lambda: "draw()")  # takes seconds
    assert page.vega_script() == "draw()"
    (kept,) = (tmp_path / "cache/vega").glob("*/vega.js")
    kept.write_text("steal()")
    assert page.vega_script() == kept.read_text() == "draw()"
    told = sme2prof("models")
    assert re.search(r"^warning: .*cache.*\(vega\.js .*\).*made again$", told.stderr, re.MULTILINE)
    (tmp_path / "cache").chmod(0o777)
    kept.write_text("steal()")
    assert page.vega_script() == "draw()", "a page is made without the cache, too"
