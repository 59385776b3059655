"""The tools that export and measure: arguments to the words of a `sme2prof` command, facts to an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling.errors import InputError, RunError
from model_profiling.mcp_server import answers, questions
from model_profiling.mcp_server.bounds import Cuts
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.job import Ended, Jobs, Told

Json = Mapping[str, Any]

_LINES = 20


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where jobs are done, one at a time, and the machines behind ssh that the user allowed."""

    root: Root
    jobs: Jobs
    ssh_hosts: tuple[str, ...] = field(default=())

    async def export(self, asked: questions.AskExport, told: Told) -> answers.ExportAnswer:
        model = self.root.model(asked.model)
        if model.endswith(".pte"):
            raise InputError(f"{asked.model} is exported already", "call `profile` with it")
        calibration = None if asked.calibration is None else self.root.factory(asked.calibration)
        words = [
            *("export", model, "--dtype", asked.dtype, "--backend", asked.backend),
            *_option("--name", asked.name),
            *_option("--calibration", calibration),
            *_option("--seed", asked.seed or None),
            *_option("--outdir", self.root.outputs(asked.name or model, asked.out_dir)),
        ]
        ended = await self.jobs.run(words, time_limit_s=asked.time_limit_s, told=told)
        return _exported(self.root, _facts_of(ended))

    async def profile(self, asked: questions.AskProfile, told: Told) -> answers.ProfileAnswer:
        model = self.root.model(asked.model)
        words = [
            *("profile", model, "--target", self._target(asked)),
            *_option("--dtype", asked.dtype),
            *_option("--backend", asked.backend),
            *("--threads", ",".join(map(str, asked.threads))),
            *_option("--budget", asked.budget_s),
            *_option("--precision", asked.precision),
            *(f"--{name}" for name in ("ladder", "sample", "resume") if getattr(asked, name)),
            *_option("--outdir", self.root.outputs(model, asked.out_dir)),
        ]
        ended = await self.jobs.run(words, time_limit_s=asked.time_limit_s, told=told)
        return _profiled(self.root, _facts_of(ended), ended)

    def _target(self, asked: questions.AskProfile) -> str:
        if asked.target not in ("android", "ssh"):
            if asked.device is not None:
                raise InputError(f"target {asked.target} has no device", "leave `device` out")
            return asked.target
        if asked.target == "ssh" and asked.device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "none"
            raise InputError(
                f"ssh is allowed to these hosts: {allowed}",
                "name one of them as `device`, or ask the user to start the server with --ssh HOST",
            )
        return f"{asked.target}:{asked.device}" if asked.device else asked.target


def _option(name: str, value: object) -> Iterator[str]:
    """A word and its value; nothing where none was given."""
    if value is not None:
        yield name
        yield str(value)


def _facts_of(ended: Ended) -> Json:
    """The facts, or the command's own words for why there are none."""
    if ended.facts is not None:
        return ended.facts
    said = " ".join(ended.lines("error") or ended.said[-3:])
    if "--" in said:
        as_here = (
            "options it names are arguments here where this tool has them, others are the user's to give"
        )
        raise InputError(said, as_here)
    raise RunError(said or f"the command ended with {ended.code} and no word")


def _exported(root: Root, facts: Json) -> answers.ExportAnswer:
    cuts = Cuts()
    folder, coverage, accuracy = Path(facts["folder"]), facts["coverage"], facts["accuracy"]
    kept = ("dtype", "backend", "size_bytes", "seconds", "inputs", "outputs")
    return answers.ExportAnswer(
        program=root.shown(folder / facts["pte"]),
        etrecord=root.shown(folder / facts["etrecord"]),
        **{name: facts[name] for name in kept},
        operators=coverage["operators"],
        operators_delegated=coverage["delegated"],
        delegate_partitions=coverage["partitions"],
        inserted_transposes=coverage["inserted_transposes"],
        outside=[_outside(group) for group in cuts.cut(coverage["outside"], _LINES, "groups of operators")],
        outputs_agree=accuracy["ok"],
        against_same_dtype=_deviation(accuracy["lowering"]),
        against_fp32=_deviation(accuracy["precision"]),
        warnings=cuts.cut(facts["warnings"], _LINES, "warnings"),
        left_out=cuts.left_out,
        next="`profile` with `program` as its model"
        if accuracy["ok"]
        else "the outputs differ from PyTorch's by more than rounding: find out why before measuring",
    )


def _outside(group: Json) -> answers.Outside:
    named = ", ".join(f"{count} x {operator}" for operator, count in group["operators"])
    return answers.Outside(
        what=f"{named}: {group['reason']}",
        where=[*group["sources"][:5], *group["modules"][:5]],
        instead=group["remedy"],
    )


def _deviation(found: Json | None) -> answers.Deviation | None:
    if found is None:
        return None
    return answers.Deviation(
        agrees=found["ok"],
        max_rel=found["max_rel"],
        accepted_max_rel=found["tolerance"],
        cosine=found["cosine"],
    )


def _profiled(root: Root, facts: Json, ended: Ended) -> answers.ProfileAnswer:
    several: Json | None = facts.get("side_by_side")
    profiles: Sequence[Json] = list(facts["profiles"].values()) if several else [facts]
    made = [_made(root, run) for found in profiles for run in found["runs"]]
    warnings = dict.fromkeys(line for found in profiles for line in found["warnings"])
    return answers.ProfileAnswer(
        programs=[root.shown(found["program"]) for found in profiles],
        why_here=list(dict.fromkeys(found["targets"] for found in profiles)),
        runs=made,
        dtypes_verdict=several["verdict"] if several else None,
        failed=ended.lines("error")[:_LINES],
        warnings=list(warnings)[:_LINES],
        next=f"`summary` of {made[0].run}, then `top_operators` and `advice`"
        if made
        else "nothing was measured: see `failed`",
    )


def _made(root: Root, run: Json) -> answers.MadeRun:
    return answers.MadeRun(
        run=root.shown(run["run_dir"]),
        state=run["state"],
        target=run["target"]["name"],
        cpu=run["cpu"],
        answers=answers.Answers.model_validate(run["answers"]),
        report=root.shown(run["report"]),
    )
