"""The fields of a run's records that may be sent to others; everything else is left out.

A shared page is rendered from records that went through `SharedFields`: numbers, flags and words of a fixed
set pass; a text passes only if its field has a rule here, as what the rule makes of it. A field without a
rule becomes empty, so that what somebody adds to a record later is not shared by accident.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from pathlib import Path, PurePosixPath
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from model_profiling.config import names
from model_profiling.config.remarks import KINDS, NOTE
from model_profiling.config.series import default_label, switch_in_name
from model_profiling.runner.features import FEATURES, SME2_ONLY
from model_profiling.runner.machine import PlatformName, TargetKind
from model_profiling.statistics.speedup import Speedup

Record = TypeVar("Record")
Rule = Callable[["SharedFields", str, Any], str]
"""What is shared of a text, from the text and its record."""

NOT_SHARED = "the reason is not shared"
MODEL = "model"
"""What every model is called."""
_NAME = re.compile(r"[\w.:<>\[\](),#$ +*-]{1,200}")
_HEX = re.compile(r"[0-9a-f]{8,64}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?")
_DEVICE = re.compile(r"[\w ().,@+-]{1,120}")
_DTYPE = re.compile(r"[a-z]{1,6}\d{0,2}[a-z0-9]{0,6}")
_CAUSE = re.compile(r"[a-z ]{1,40}")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){1,4}(?:(?:a|b|rc|\.dev|\.post)\d{1,9})?(?:\+cpu(?!\w))?")
_COMPILER = re.compile(r"(?:Apple )?(?:g\+\+|gcc|clang\+\+|clang|zig)(?![\w+])")
_SYSTEM = re.compile(r"\b(Debian|Ubuntu|Fedora|Android|macOS|kernel)\b\D{0,16}?(\d{1,9}(?:\.\d{1,9}){0,4})")
_FUNCTION = re.compile(r"(?:xnn_|kai_|pthreadpool_|mem|__)\w{1,200}")
_FORMAT = re.compile(r"(?:xnnpack|portable)_(?:fp32|fp16|int8-dynamic|int8|q8|int4(?:-\d+)?)(?:-kept)?")
_OWN_WORDS = frozenset(["on", "off", "no", "without", "all", "baseline", "trace", "ladder", "neon"]).union(
    FEATURES, get_args(PlatformName), get_args(TargetKind)
)
"""Names of experiments that consist of these words were made by the kit."""
_METHODS = frozenset(
    (
        "forward", "prefill", "decode", "use_kv_cache", "get_vocab_size", "get_n_layers", "get_max_seq_len",
        "get_max_context_len",
    )
)  # fmt: skip
_WHY_OUTSIDE = {
    "no rule": "the backend has no such operator",
    "refused": "the backend refused this one",
    "dropped": "the backend took it and gave it back",
    "portable": "the program has no backend",
}


def _matching(pattern: re.Pattern[str]) -> Rule:
    return lambda _, text, __: text if pattern.fullmatch(text) else ""


def _one_of(words: Collection[str]) -> Rule:
    return lambda _, text, __: text if text in words else ""


def _instead(words: str) -> Rule:
    """Share only that there was a text."""
    return lambda _, text, __: words if text else ""


def _version(_: SharedFields, text: str, __: object) -> str:
    found = _VERSION.search(text)
    return found[0] if found else ""


def _compiler(_: SharedFields, text: str, __: object) -> str:
    name, versions = _COMPILER.match(text), _VERSION.findall(text)
    return f"{name[0]} {versions[-1]}" if name and versions else ""


def _system(_: SharedFields, text: str, __: object) -> str:
    return ", ".join(f"{word} {number}" for word, number in _SYSTEM.findall(text))


def _class(_: SharedFields, text: str, __: object) -> str:
    """A class of PyTorch in full; of others the name alone, because their modules are named after folders."""
    shown = text if text.startswith("torch.") else text.rpartition(".")[2]
    return shown if _NAME.fullmatch(shown) else ""


def _method(fields: SharedFields, text: str, _: object) -> str:
    """The usual names of methods; files of a run are named after its method."""
    return text if text in _METHODS else fields.number("method", text)


def _label(fields: SharedFields, _: str, pair: Any) -> str:
    return default_label(fields.of(pair.baseline), fields.of(pair.candidate))


def _reason(_: SharedFields, __: str, found: Speedup) -> str:
    return found.in_short if found.ratio is not None else NOT_SHARED


def _remark(_: SharedFields, __: str, remark: Any) -> str:
    kind = remark.code if remark.code in KINDS else NOTE
    return f"the run has a warning of the kind `{kind}`, whose words are not shared"


_experiment: Rule = lambda fields, text, _: fields.experiment(text)  # noqa: E731 - a row of the table below
_name, _dtype, _moment, _hex = map(_matching, (_NAME, _DTYPE, _MOMENT, _HEX))
_device, _feature = _matching(_DEVICE), _one_of((*FEATURES, SME2_ONLY))
_governor = _one_of(("performance", "powersave", "schedutil", "ondemand", "conservative", "walt"))

_RULES: Mapping[str, Rule] = {
    # experiments
    **dict.fromkeys(
        (
            "Series.experiment", "Result.experiment", "Latency.experiment", "Entry.experiment",
            "StandsFor.experiment", "StandsFor.names", "Manifest.experiments",
        ),
        _experiment,
    ),
    "Result.mode": _one_of(("timing", "xnntrace")),
    "Result.disable": _feature,
    "Result.features_present": _feature,
    "Result.features_masked": _feature,
    "Result.runner_path": lambda _, text, __: text if text in ("", "builtin") else "own",
    "Result.problem": _instead("it failed"),
    "Result.kernels_note": _instead(NOT_SHARED),
    "Result.etdump_launches": lambda fields, text, _: fields.number("launch", text),
    "Session.started": _moment,
    "Session.ended": _moment,
    "Session.problem": _instead(NOT_SHARED),
    # comparisons and remarks
    "Pair.label": _label,
    "PairSpeedup.label": _label,
    "PairParity.label": _label,
    "Pair.not_comparable": _instead(NOT_SHARED),
    "PairParity.reason": _instead(NOT_SHARED),
    "Speedup.reason": _reason,
    "OutputParity.dtype": _dtype,
    "Diagnostic.code": lambda _, text, __: text if text in KINDS else NOTE,
    "Diagnostic.seen": _remark,
    # the machine and versions
    "MachineFacts.cpu": _device,
    "MachineFacts.machine": _one_of(("aarch64", "arm64", "x86_64")),
    "MachineFacts.features": _feature,
    "MachineFacts.os": _system,
    "MachineFacts.governor": _governor,
    "MachineFacts.versions": _version,
    "Cluster.cpu": _device,
    "Cluster.governor": _governor,
    "DeviceState.model": _device,
    "DeviceState.soc": _device,
    "DeviceState.android": _version,
    "DeviceState.boot_id": lambda fields, text, _: fields.number("start", text),
    "TargetFacts.name": lambda _, text, __: _one_of(get_args(TargetKind))(_, text.partition(":")[0], __),
    "TargetFacts.platform": _one_of(get_args(PlatformName)),
    "ExecuTorch.version": _version,
    "ExecuTorch.sha": _hex,
    "Runner.build_id": _hex,
    "Runner.compiler": _compiler,
    "Manifest.kit_version": _version,
    # the program
    "Manifest.model": lambda fields, text, _: fields.program(text),
    "Metrics.model": lambda fields, text, _: fields.program(text),
    "RobustStats.model": lambda fields, text, _: fields.program(text),
    "RobustStats.unit": _one_of(("ms",)),
    "Manifest.model_sha256": _hex,
    **dict.fromkeys(
        ("Manifest.method", "Method.name", "Undelegated.method", "MatrixOperator.method"), _method
    ),
    "ProgramGraph.sha256": _hex,
    "Program.source": lambda fields, text, _: fields.program(text),
    "EtRecord.source": _instead(f"{MODEL}.etrecord"),
    "EtRecord.inputs": lambda _, text, __: text if _NAME.fullmatch(text) else "input",
    "Instruction.name": _name,
    "Delegate.backend": _name,
    "GraphNode.kind": _name,
    "Tensor.dtype": _dtype,
    "OutputFacts.dtype": _dtype,
    "SourceRef.node": _instead("node"),
    "SourceRef.target": _name,
    "SourceRef.module_path": _name,
    "SourceRef.module_class": _class,
    "SourceRef.dtype": _dtype,
    "SourceRef.call": _name,
    "Undelegated.operator": _name,
    "Undelegated.module_path": _name,
    "Undelegated.module_class": _class,
    "Undelegated.reason": lambda _, __, left: _WHY_OUTSIDE[left.why],
    "Undelegated.call": _name,
    "Undelegated.dtype": _dtype,
    "Undelegated.replacement": _instead("a change that the owner's report of this run names"),
    "ModelSource.dtype": _one_of(("fp32", "fp16", "int8", "int8-dynamic", "int4")),
    "ModelSource.backend": _one_of(("xnnpack", "portable")),
    # kernels, and what other runs proved
    "Entry.started": _moment,
    "Entry.problem": _instead("it failed"),
    "Entry.launch": lambda fields, text, _: fields.number("launch", text),
    "Entry.features_present": _feature,
    "Entry.features_masked": _feature,
    "Entry.executorch_version": _version,
    "Entry.kernels_note": _instead(NOT_SHARED),
    "Evidence.model_sha256": _hex,
    "Evidence.place": _one_of(("emulated",)),
    "Evidence.cpu": _device,
    "Evidence.made": _moment,
    "Evidence.executorch": _version,
    "Evidence.problem": _instead("no emulated run showed it"),
    "Evidence.fix": _instead("emulate it"),
    "KernelCall.name": _name,
    "KernelList.note": _instead(NOT_SHARED),
    "OperatorProof.isa": _one_of(("SME2", "SME")),
    "OperatorProof.not_tested": _instead(NOT_SHARED),
    "OperatorProof.unseen": _name,
    "MatrixOperator.name": _name,
    "MatrixOperator.kind": _name,
    "MatrixOperator.backend": _name,
    "MatrixOperator.why_not": lambda _, __, one: one.cause if _CAUSE.fullmatch(one.cause) else "",
    "MatrixOperator.module_path": _name,
    "MatrixOperator.cause": _matching(_CAUSE),
    "MatrixOperator.precision": _name,
    "SampledFile.name": lambda fields, text, _: fields.number("file", text),
    "SampledFunction.name": _matching(_FUNCTION),
    "Samples.unavailable": _instead(NOT_SHARED),
    "Samples.unknown_operators": _instead(NOT_SHARED),
}  # fmt: skip
_KEYS: Mapping[str, Rule] = {
    "MachineFacts.versions": _one_of(("python", "executorch", "compiler", "qemu")),
    "Result.kernels_at_load": _name,
    "Entry.kernels": _name,
    "Entry.kernels_at_load": _name,
    "Entry.kernel_sizes": _name,
    **dict.fromkeys(("EtRecord.sources", "EtRecord.handles", "EtRecord.inputs"), _method),
}
"""Rules for the keys of a field; without one, the field becomes empty."""


class SharedFields:
    """What is shared of one run. The same name gets the same replacement in all its records."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        """By name: what an experiment is called in what is shared."""
        self._numbers: dict[tuple[str, str], str] = {}

    def of(self, record: Record) -> Record:
        """Return a copy of `record` in which only what may be shared is left."""
        shared: Record = self._value(record, ())
        return shared

    def experiment(self, name: str) -> str:
        """Return the kit's own names as they are, and others as `experiment_1`, `experiment_2_sme2_on`."""
        if name not in self.experiments:
            if name and _OWN_WORDS.issuperset(name.split("_")):
                self.experiments[name] = name
            else:
                switch = switch_in_name(name)
                made = f"experiment_{len(self.experiments) + 1}"
                self.experiments[name] = f"{made}_sme2_{switch}" if switch else made
        return self.experiments[name]

    def program(self, path: str) -> str:
        """Return `model_xnnpack_fp16.pte`: of a program's name, the backend and number format alone."""
        if not path:
            return ""
        _, variant = names.variant_of(Path(PurePosixPath(path).name))
        backend, _, own = variant.partition("_own-")
        if own and backend in ("xnnpack", "portable"):
            return f"{MODEL}_{backend}_own-quantizer.pte"
        return f"{MODEL}_{variant}.pte" if _FORMAT.fullmatch(variant) else f"{MODEL}.pte"

    def number(self, kind: str, text: str) -> str:
        """Return `launch_3`, the same for the same text."""
        count = sum(known == kind for known, _ in self._numbers)
        return self._numbers.setdefault((kind, text), f"{kind}_{count + 1}") if text else ""

    def _value(self, value: Any, fields: tuple[str, ...], record: object = None) -> Any:
        """`fields` are the names of the field that holds `value`, in its record's class and its bases."""
        if value is None or isinstance(value, bool | int | float | Enum):
            return value
        if isinstance(value, str):
            rule = next((_RULES[name] for name in fields if name in _RULES), None)
            return rule(self, value, record) if rule else ""
        if isinstance(value, Path):
            return None
        if isinstance(value, tuple | list):
            shared = (self._value(each, fields, record) for each in value)
            return tuple(each for each in shared if each != "")
        if isinstance(value, Mapping):
            return self._mapping(value, fields, record)
        kind: type = type(value)
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"nobody has decided whether a {kind.__name__} may be shared")
        kept = {
            name: getattr(value, name) if fixed else self._value(getattr(value, name), named, value)
            for name, fixed, named in _fields(kind)
        }
        return kind(**kept)

    def _mapping(self, value: Mapping[Any, Any], fields: tuple[str, ...], record: object) -> dict[Any, Any]:
        rule = next((_KEYS[name] for name in fields if name in _KEYS), None)
        shared: dict[Any, Any] = {}
        for key, each in value.items():
            if isinstance(key, int):
                shared[key] = self._value(each, fields, record)
            elif rule and (name := rule(self, key, record)):
                shared[name] = self._value(each, fields, record)
        return shared


@cache
def _fields(kind: type) -> tuple[tuple[str, bool, tuple[str, ...]], ...]:
    """Each field of a record: its name, whether its type allows only fixed words, its names in the tables."""
    hints = get_type_hints(kind)
    return tuple(
        (
            field.name,
            _is_fixed(hints[field.name]),
            tuple(f"{base.__name__}.{field.name}" for base in kind.__mro__),
        )
        for field in dataclasses.fields(kind)
    )


def _is_fixed(hint: Any) -> bool:
    """Whether a type is a choice of literals, or None."""
    if get_origin(hint) in (Union, UnionType):
        return all(each is NoneType or _is_fixed(each) for each in get_args(hint))
    return get_origin(hint) is Literal
