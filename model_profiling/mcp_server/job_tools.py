"""The tools that export and measure: arguments become a `sme2prof` command, its facts become the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import printable
from model_profiling.mcp_server.answers import ExportAnswer, ProfileAnswer, answer
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.jobs import Jobs, Outcome
from model_profiling.mcp_server.tools import SEE_DOCTOR, arg, tool
from model_profiling.runner.machine import TargetKind

Json = Mapping[str, Any]
Backend = Literal["xnnpack", "portable"]
Client = Context[Any, Any]

OutDir = Annotated[
    str | None,
    arg(
        "Folder relative to the root to write into; left out, out_<model> in the root (for a program "
        "in a folder `artifacts`, the folder above that)."
    ),
]
TimeLimit = Annotated[
    float, arg("Seconds after which the job is ended; what was measured by then is kept.", gt=0, le=86_400)
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
        dtype: Annotated[Literal["fp32", "fp16", "int8"], arg("Number format of the program.")] = "fp32",
        backend: Annotated[
            Backend, arg("xnnpack: optimized, with SME2; portable: reference kernels, slow.")
        ] = "xnnpack",
        name: Annotated[
            str | None,
            arg("Name for the files, instead of the model's.", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        ] = None,
        calibration: Annotated[
            str | None, arg("int8 only: path/file.py:function relative to the root that yields real inputs.")
        ] = None,
        seed: Annotated[int, arg("Seed for weights and example inputs.", ge=0, le=2**31 - 1)] = 0,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ExportAnswer:
        """Lower a PyTorch model to a .pte program, run it once and compare it with PyTorch: what was
        delegated, what stayed outside and why, whether outputs agree. Use it to see how a model lowers;
        `profile` exports by itself. Takes 10 s to minutes. Runs the factory's code. Writes into the root and
        replaces an earlier export of the same name."""
        word = self.root.model(model)
        if word.endswith(".pte"):
            raise InputError(f"{model} is exported already", "call `profile` with it")
        options = {
            "--dtype": dtype,
            "--backend": backend,
            "--name": name,
            "--calibration": calibration and self.root.factory(calibration),
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
            else "the outputs differ from PyTorch's by more than rounding: find out why before measuring",
        }
        return answer(ExportAnswer, **{**facts, **made})

    @tool("Measure a model", on_error=SEE_DOCTOR, read_only=False)
    async def profile(
        self,
        client: Client,
        *,
        model: Annotated[
            str,
            arg(
                "A name from `models`, path/file.py:factory, or path/program.pte that was exported "
                "before; paths are relative to the root.",
                examples=["toy_cnn", "my_model.py:make", "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"],
            ),
        ],
        dtype: Annotated[
            Literal["fp32", "fp16", "int8", "all"] | None,
            arg(
                "Number format to export as [fp32]; `all` measures the three side by side and says "
                "which to ship; leave it out for a .pte."
            ),
        ] = None,
        backend: Annotated[Backend | None, arg("To export for [xnnpack]; not for a .pte.")] = None,
        target: Annotated[
            TargetKind,
            arg(
                "auto: measure here and prove SME2 kernels under emulation where this CPU has no "
                "SME2. emulated: kernels and outputs only, its times are no latencies. android: a "
                "phone that adb sees. ssh: a machine the user allowed when starting the server."
            ),
        ] = "auto",
        device: Annotated[
            str | None,
            arg(
                "android: the phone's serial; ssh: the host. Nothing for other targets.",
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$",
            ),
        ] = None,
        threads: Annotated[
            tuple[Annotated[int, arg("", ge=1, le=256)], ...],
            arg("Thread counts to measure, each by itself.", min_length=1, max_length=8),
        ] = (1,),
        budget_s: Annotated[
            float | None,
            arg("Seconds of measuring at most [30]; six launches are made in any case.", gt=0, le=3600),
        ] = None,
        precision: Annotated[
            float | None,
            arg("Stop once every speedup is known to plus or minus this share [0.005].", gt=0, lt=1),
        ] = None,
        ladder: Annotated[
            bool, arg("Switch CPU features off one after the other: what does each buy?")
        ] = False,
        sample: Annotated[
            bool, arg("Also look which kernels run inside each operator; the report shows it.")
        ] = False,
        resume: Annotated[
            bool, arg("Continue a run that was cancelled or cut short, with the same other arguments.")
        ] = False,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ProfileAnswer:
        """Measure a model: latency, where the time goes, and SME2 on against off where the CPU has it;
        elsewhere a baseline, with SME2 kernels proven under emulation. Exports first where needed. Takes
        about a minute (budget_s), longer under emulation; one job at a time. Do not use the machine for
        anything else meanwhile. An earlier finished run is kept under its date. Then call `summary`."""
        word = self.root.model(model)
        options = {
            "--target": self.target(target, device),
            "--dtype": dtype,
            "--backend": backend,
            "--threads": ",".join(map(str, threads)),
            "--budget": budget_s,
            "--precision": precision,
            "--ladder": ladder,
            "--sample": sample,
            "--resume": resume,
            "--outdir": self.root.outputs(word, out_dir),
        }
        facts, failed = await self._run(client, ["profile", word, *_words(options)], time_limit_s)
        several: Json | None = facts.get("side_by_side")
        profiles: list[Json] = list(facts["profiles"].values()) if several else [facts]
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

    def target(self, kind: TargetKind, device: str | None) -> str:
        if kind not in ("android", "ssh"):
            if device is not None:
                raise InputError(f"target {kind} has no device", "leave `device` out")
            return kind
        if kind == "ssh" and device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "none"
            raise InputError(
                f"ssh is allowed to these hosts: {allowed}",
                "name one of them as `device`, or ask the user to start the server with --ssh HOST",
            )
        return f"{kind}:{device}" if device else kind

    async def _run(self, client: Client, words: list[str], time_limit_s: float) -> Outcome:
        async def tell(seconds: float, text: str) -> None:
            await client.report_progress(round(seconds, 3), None, printable(text))

        return await self.jobs.run(words, time_limit_s=time_limit_s, told=tell)

    def _made(self, run: Json) -> dict[str, Any]:
        places = {"run": run["run_dir"], "report": run["report"]}
        return {**run, **{name: self.root.shown(place) for name, place in places.items()}}


def _words(options: Mapping[str, object]) -> list[str]:
    """The given options as words: a flag alone, any other option with its value."""
    given = {option: value for option, value in options.items() if value is not None and value is not False}
    return [
        word
        for option, value in given.items()
        for word in ([option] if value is True else [option, str(value)])
    ]


def _outside(group: Json) -> Json:
    named = ", ".join(f"{count} x {operator}" for operator, count in group["operators"])
    where = [*group["sources"][:5], *group["modules"][:5]]
    return {**group, "what": f"{named}: {group['reason']}", "where": where}
