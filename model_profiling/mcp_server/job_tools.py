"""The tools that export and measure: arguments become a `sme2prof` command, its facts become the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import printable
from model_profiling.core.number_formats import FORMATS, parse_format
from model_profiling.mcp_server.answers import ExportAnswer, LanguageAnswer, ProfileAnswer, answer
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.jobs import Jobs, Outcome
from model_profiling.mcp_server.tools import SEE_DOCTOR, arg, language_answer, tool
from model_profiling.runner.machine import TargetKind

Json = Mapping[str, Any]
Backend = Literal["xnnpack", "portable"]
Client = Context[Any, Any]

OutDir = Annotated[
    str | None,
    arg(
        "Folder to write to, relative to the root. Default: out_<model> in the root (for a program in a "
        "folder `artifacts`, the folder above it)."
    ),
]
_FORMATS = f"{', '.join(FORMATS)}, int4:32 (a scale per 32 weights), or path/file.py:quantizer in the root"
Keep = Annotated[
    tuple[Annotated[str, arg("", pattern=r"^[A-Za-z_0-9][A-Za-z_0-9.]*$")], ...],
    arg("Modules that stay in fp32, by path in the model.", examples=[["features.0"]], max_length=256),
]
Calibration = Annotated[
    str | None,
    arg(
        "Real inputs, for the ranges of int8 and for accuracy: path/file.py:function that yields them, or "
        "path/file.npz, relative to the root.",
    ),
]
Profiled = Annotated[
    str,
    arg(
        "A name from `models`, path/file.py:factory, or path/program.pte that was exported before; paths are "
        "relative to the root.",
        examples=["toy_cnn", "my_model.py:make", "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"],
    ),
]
Place = Annotated[
    TargetKind,
    arg(
        "auto: measure here, and find SME2 kernels under emulation if this CPU has no SME2. emulated: "
        "kernels and outputs only, its times are not latencies. android: a phone that adb finds. ssh: a "
        "machine that the user allowed when starting the server."
    ),
]
Device = Annotated[
    str | None,
    arg(
        "android: the phone's serial; ssh: the host. Leave it out for other targets.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$",
    ),
]
ThreadCounts = Annotated[
    tuple[Annotated[int, arg("", ge=1, le=256)], ...],
    arg("Thread counts to measure, one after another.", min_length=1, max_length=8),
]
Resume = Annotated[
    bool, arg("Continue a run that was cancelled or interrupted; give the same other arguments.")
]
TimeLimit = Annotated[
    float, arg("Time limit in seconds; what was measured by then is kept.", gt=0, le=86_400)
]


@dataclass(frozen=True, slots=True)
class JobTools:
    """Jobs, one at a time; `ssh_hosts` are the machines that the user allowed."""

    root: Root
    jobs: Jobs
    ssh_hosts: tuple[str, ...] = ()

    @tool("Export a model to ExecuTorch", on_error=SEE_DOCTOR, read_only=False)
    async def export(
        self,
        client: Client,
        *,
        model: Annotated[
            str,
            arg(
                "A name from `models`, or path/file.py:factory relative to the root, where factory() "
                "returns (nn.Module, tuple of example inputs).",
                examples=["toy_cnn", "my_model.py:make"],
            ),
        ],
        dtype: Annotated[str, arg(f"Number format of the program: {_FORMATS}.")] = "fp32",
        keep: Keep = (),
        backend: Annotated[
            Backend, arg("xnnpack: optimized, with SME2; portable: reference kernels, slow.")
        ] = "xnnpack",
        name: Annotated[
            str | None,
            arg("Name for the files, instead of the model's name.", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        ] = None,
        calibration: Calibration = None,
        seed: Annotated[int, arg("Seed for weights and example inputs.", ge=0, le=2**31 - 1)] = 0,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ExportAnswer:
        """Lower a PyTorch model to a .pte program, run it once and compare it with PyTorch: what was
        delegated, what was not and why, whether outputs agree. Use it to see how a model is lowered;
        `profile` exports too. Takes 10 s to minutes. Runs the factory's code. Writes into the root and
        replaces an earlier export of the same name."""
        word = self.root.model(model)
        if word.endswith(".pte"):
            raise InputError(f"{model} is already exported", "call `profile` with it")
        options = {
            **self._exporting(dtype, keep, calibration),
            "--backend": backend,
            "--name": name,
            "--seed": seed or None,
            "--outdir": self.root.outputs(name or word, out_dir),
        }
        facts, _ = await self._run(client, ["export", word, *_words(options)], time_limit_s)
        folder, agree = Path(facts["folder"]), facts["accuracy"]["ok"]
        made = {
            "program": self.root.shown(folder / facts["pte"]),
            "etrecord": self.root.shown(folder / facts["etrecord"]),
            "outside": map(_outside, facts["coverage"]["outside"]),
            "next": "`profile` with `program` as its model"
            if agree
            else "the outputs differ from PyTorch by more than rounding: find out why before measuring",
        }
        return answer(ExportAnswer, **{**facts, **made})

    @tool("Measure a model", on_error=SEE_DOCTOR, read_only=False)
    async def profile(
        self,
        client: Client,
        *,
        model: Profiled,
        dtype: Annotated[
            str | None,
            arg(
                f"Number format to export to [fp32]: {_FORMATS}. Several with commas, or `all` that suit the "
                "model, are compared, and the answer says which to ship. Leave it out for a .pte."
            ),
        ] = None,
        keep: Keep = (),
        calibration: Calibration = None,
        backend: Annotated[
            Backend | None, arg("Backend to export for [xnnpack]; leave it out for a .pte.")
        ] = None,
        method: Annotated[
            str | None,
            arg("Method of a .pte that has several [all].", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        ] = None,
        lengths: Annotated[
            tuple[Annotated[str, arg("", pattern=r"^[A-Za-z0-9_.]+=[0-9]+([x,][0-9]+)*$")], ...],
            arg(
                "Length or all sizes of inputs that may vary [the longest]; several are measured one by one.",
                examples=[["tokens=32,128"], ["x=1x3x64x64"]],
                max_length=16,
            ),
        ] = (),
        values: Annotated[
            tuple[Annotated[str, arg("", pattern=r"^[A-Za-z0-9_.]+=[0-9eE+.,-]+$")], ...],
            arg("Values of inputs [made up].", examples=[["input_pos=256"]], max_length=16),
        ] = (),
        target: Place = "auto",
        device: Device = None,
        threads: ThreadCounts = (1,),
        budget_s: Annotated[
            float | None,
            arg("Time limit for measuring in seconds [30]; at least six launches are made.", gt=0, le=3600),
        ] = None,
        precision: Annotated[
            float | None,
            arg("Stop once every speedup is known to plus or minus this share [0.005].", gt=0, lt=1),
        ] = None,
        ladder: Annotated[
            bool, arg("Switch CPU features off one after the other, to see what each gains.")
        ] = False,
        sample: Annotated[
            bool, arg("Also sample which kernels run inside each operator; the report shows them.")
        ] = False,
        resume: Resume = False,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ProfileAnswer:
        """Measure a model: latency, where the time goes, and SME2 on and off if the CPU has it;
        otherwise a baseline, and emulation shows which SME2 kernels run. Exports first if needed. Takes
        about a minute (budget_s), longer under emulation; one job at a time. Do not use the machine for
        anything else meanwhile. An earlier finished run is kept under its date. Then call `summary`."""
        word = self.root.model(model)
        options = {
            "--target": self.target(target, device),
            **self._exporting(dtype, keep, calibration),
            "--backend": backend,
            "--method": method,
            "--length": list(lengths),
            "--input": list(values),
            "--threads": _listed(threads),
            "--budget": budget_s,
            "--precision": precision,
            "--ladder": ladder,
            "--sample": sample,
            "--resume": resume,
            "--outdir": self.root.outputs(word, out_dir),
        }
        facts, failed = await self._run(client, ["profile", word, *_words(options)], time_limit_s)
        several: Json | None = facts.get("side_by_side")
        profiles: list[Json] = list((facts.get("profiles") or facts.get("methods") or {"": facts}).values())
        runs = [self._made(run) for found in profiles for run in found["runs"]]
        return answer(
            ProfileAnswer,
            programs=[self.root.shown(found["program"]) for found in profiles],
            why_here=list(dict.fromkeys(found["targets"] for found in profiles)),
            runs=runs,
            dtypes_verdict=several["verdict"] if several else None,
            failed=failed,
            warnings=dict.fromkeys(line for found in profiles for line in found["warnings"]),
            next=f"`summary` of {runs[0]['run']}, then `top_operators` and `advice`"
            if runs
            else "nothing was measured: see `failed`",
        )

    @tool("Measure a language model", on_error=SEE_DOCTOR, read_only=False)
    async def profile_llm(
        self,
        client: Client,
        *,
        model: Profiled,
        prompts: Annotated[
            tuple[Annotated[int, arg("", ge=2, le=10**6)], ...],
            arg("Lengths of the prompt in tokens [32, 128, 512, as far as they fit].", max_length=8),
        ] = (),
        positions: Annotated[
            tuple[Annotated[int, arg("", ge=0, le=10**6)], ...],
            arg(
                "Tokens in the cache when a token of the answer is made [0, 256, 1024, as far as they fit].",
                max_length=8,
            ),
        ] = (),
        dtype: Annotated[
            str | None, arg(f"Number format to export to [fp32]: {_FORMATS}. Leave it out for a .pte.")
        ] = None,
        target: Place = "auto",
        device: Device = None,
        threads: ThreadCounts = (1,),
        budget_s: Annotated[
            float | None,
            arg("Time limit for each prompt and each position in seconds [10].", gt=0, le=3600),
        ] = None,
        resume: Resume = False,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> LanguageAnswer:
        """Measure a language model with its prompt (prefill) and its answer (decode) apart: time to the first
        token, tokens per second at several positions in the cache, kernels and the limit of each phase. Use
        it for any question about tokens per second; `profile` measures one inference. Takes a minute or more;
        one job at a time. `llm_summary` reads the result again."""
        word = self.root.model(model)
        options = {
            "--target": self.target(target, device),
            **self._exporting(dtype, (), None),
            "--prompt": _listed(prompts),
            "--context": _listed(positions),
            "--threads": _listed(threads),
            "--budget": budget_s,
            "--resume": resume,
            "--outdir": self.root.outputs(word, out_dir),
        }
        facts, failed = await self._run(client, ["llm", word, *_words(options)], time_limit_s)
        return language_answer(self.root, facts, Path(facts["report"]).parent, failed)

    def _exporting(
        self, dtype: str | None, keep: tuple[str, ...], calibration: str | None
    ) -> dict[str, object]:
        """Options of both commands; files that they name are inside the root, because their code runs."""
        if dtype is not None and dtype != "all":
            formats = [parse_format(word.strip()) for word in dtype.split(",")]
            dtype = ",".join(
                self.root.factory(each.text) if each.kind == "own" else each.text for each in formats
            )
        if calibration is not None:
            calibration = (
                self.root.word(self.root.file(calibration, ".npz"))
                if calibration.endswith(".npz")
                else self.root.factory(calibration)
            )
        kept = [f"{module}=fp32" for module in keep]
        return {"--dtype": dtype, "--keep": kept, "--calibrate": calibration}

    def target(self, kind: TargetKind, device: str | None) -> str:
        if kind not in ("android", "ssh"):
            if device is not None:
                raise InputError(f"target {kind} takes no device", "leave `device` out")
            return kind
        if kind == "ssh" and device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "none"
            raise InputError(
                f"ssh is allowed only to these hosts: {allowed}",
                "give one of them as `device`, or ask the user to start the server with --ssh HOST",
            )
        return f"{kind}:{device}" if device else kind

    async def _run(self, client: Client, words: list[str], time_limit_s: float) -> Outcome:
        async def tell(seconds: float, text: str) -> None:
            await client.report_progress(round(seconds, 3), None, printable(text))

        return await self.jobs.run(words, time_limit_s=time_limit_s, told=tell)

    def _made(self, run: Json) -> dict[str, Any]:
        places = {"run": run["run_dir"], "report": run["report"]}
        return {**run, **{name: self.root.shown(place) for name, place in places.items()}}


def _listed(numbers: Sequence[int]) -> str | None:
    return ",".join(map(str, numbers)) or None


def _words(options: Mapping[str, object]) -> list[str]:
    """The given options as words: a flag alone, any other option with its value or each of its values."""
    words: list[str] = []
    for option, value in options.items():
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else [value]:
                words += [option, str(each)]
    return words


def _outside(group: Json) -> Json:
    named = ", ".join(f"{count} x {operator}" for operator, count in group["operators"])
    where = [*group["sources"][:5], *group["modules"][:5]]
    return {**group, "what": f"{named}: {group['reason']}", "where": where}
