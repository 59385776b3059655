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
from model_profiling.config.names import IN_NAMES
from model_profiling.config.series import KINDS, NOTE, default_label, switch_in_name
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
_FORMAT = re.compile(rf"(?:xnnpack|portable)_(?!own){IN_NAMES}")
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
    version = _VERSION.search(text)
    return version[0] if version else ""


def _compiler(_: SharedFields, text: str, __: object) -> str:
    name, versions = _COMPILER.match(text), _VERSION.findall(text)
    return f"{name[0]} {versions[-1]}" if name and versions else ""


def _system(_: SharedFields, text: str, __: object) -> str:
    return ", ".join(f"{word} {number}" for word, number in _SYSTEM.findall(text))


def _class(_: SharedFields, text: str, __: object) -> str:
    """A class of PyTorch in full; of others the name alone, because their modules are named after folders."""
    name = text if text.startswith("torch.") else text.rpartition(".")[2]
    return name if _NAME.fullmatch(name) else ""


def _method(fields: SharedFields, text: str, _: object) -> str:
    """The usual names of methods; files of a run are named after its method."""
    return text if text in _METHODS else fields.number("method", text)


def _label(fields: SharedFields, _: str, pair: Any) -> str:
    return default_label(fields.of(pair.baseline), fields.of(pair.candidate))


def _reason(_: SharedFields, __: str, speedup: Speedup) -> str:
    return speedup.in_short if speedup.ratio is not None else NOT_SHARED


def _remark(_: SharedFields, __: str, remark: Any) -> str:
    kind = remark.code if remark.code in KINDS else NOTE
    return f"the run has a warning of the kind `{kind}`, whose words are not shared"


_experiment: Rule = lambda fields, text, _: fields.experiment(text)  # noqa: E731 - a row of the table below
_name, _dtype, _moment, _hex = map(_matching, (_NAME, _DTYPE, _MOMENT, _HEX))
_device, _feature = _matching(_DEVICE), _one_of((*FEATURES, SME2_ONLY))
_governor = _one_of(("performance", "powersave", "schedutil", "ondemand", "conservative", "walt"))

# What is shared of each field; fields of one rule stand together.
_OF_FIELDS: tuple[tuple[Rule, str], ...] = (
    (
        _experiment,
        "Series.experiment Result.experiment Latency.experiment Entry.experiment StandsFor.experiment "
        "StandsFor.names Manifest.experiments",
    ),
    (
        lambda fields, text, _: fields.program(text),
        "Manifest.model Metrics.model RobustStats.model Program.source",
    ),
    (_method, "Manifest.method Method.name Undelegated.method MatrixOperator.method"),
    (
        _name,
        "Instruction.name Delegate.backend GraphNode.kind SourceRef.target SourceRef.module_path "
        "SourceRef.call Undelegated.operator Undelegated.module_path Undelegated.call KernelCall.name "
        "MatrixOperator.name MatrixOperator.kind MatrixOperator.backend "
        "MatrixOperator.module_path MatrixOperator.precision",
    ),
    (_class, "SourceRef.module_class Undelegated.module_class"),
    (_dtype, "OutputParity.dtype Tensor.dtype OutputFacts.dtype SourceRef.dtype Undelegated.dtype"),
    (
        _feature,
        "Result.disable Result.features_present Result.features_masked MachineFacts.features "
        "Entry.features_present Entry.features_masked",
    ),
    (_device, "MachineFacts.cpu DeviceState.model DeviceState.soc Evidence.cpu"),
    (_governor, "MachineFacts.governor"),
    (_moment, "Session.started Session.ended Entry.started Evidence.made"),
    (_hex, "ExecuTorch.sha Runner.build_id Manifest.model_sha256 ProgramGraph.sha256 Evidence.model_sha256"),
    (
        _version,
        "MachineFacts.versions DeviceState.android ExecuTorch.version Manifest.kit_version "
        "Entry.executorch_version Evidence.executorch",
    ),
    (_compiler, "Runner.compiler"),
    (_system, "MachineFacts.os"),
    (_label, "Pair.label PairSpeedup.label PairParity.label"),
    (_reason, "Speedup.reason"),
    (_remark, "Diagnostic.seen"),
    (_matching(_CAUSE), "MatrixOperator.cause"),
    (_matching(_FUNCTION), "SampledFunction.name"),
    (_one_of(("timing", "xnntrace")), "Result.mode"),
    (_one_of(("aarch64", "arm64", "x86_64")), "MachineFacts.machine"),
    (_one_of(get_args(PlatformName)), "TargetFacts.platform"),
    (_one_of(("ms",)), "RobustStats.unit"),
    (_one_of(("emulated",)), "Evidence.place"),
    (_one_of(("SME2", "SME")), "OperatorProof.isa"),
    (
        _instead(NOT_SHARED),
        "Result.kernels_note Session.problem Pair.not_comparable PairParity.reason Entry.kernels_note "
        "KernelList.note OperatorProof.not_tested Samples.unavailable Samples.unknown_operators",
    ),
    (_instead("it failed"), "Result.problem Entry.problem"),
    (_instead(f"{MODEL}.etrecord"), "EtRecord.source"),
    (_instead("node"), "SourceRef.node"),
    (_instead("a change that the owner's report of this run names"), "Undelegated.replacement"),
    (_instead("no emulated run showed it"), "Evidence.problem"),
    (_instead("emulate it"), "Evidence.fix"),
    (lambda fields, text, _: fields.number("launch", text), "Result.etdump_launches Entry.launch"),
    (lambda fields, text, _: fields.number("file", text), "SampledFile.name"),
    (lambda _, text, __: text if text in ("", "builtin") else "own", "Result.runner_path"),
    (lambda _, text, __: text if text in KINDS else NOTE, "Diagnostic.code"),
    (lambda _, text, __: _one_of(get_args(TargetKind))(_, text.partition(":")[0], __), "TargetFacts.name"),
    (lambda _, text, __: text if _NAME.fullmatch(text) else "input", "EtRecord.inputs"),
    (lambda _, __, left: _WHY_OUTSIDE[left.why], "Undelegated.reason"),
    (lambda _, __, one: one.cause if _CAUSE.fullmatch(one.cause) else "", "MatrixOperator.why_not"),
)
_RULES: Mapping[str, Rule] = {field: rule for rule, fields in _OF_FIELDS for field in fields.split()}
_KEYS: Mapping[str, Rule] = {
    "Manifest.rewrites": _matching(re.compile(r"[a-z -]{1,40}")),
    "MachineFacts.versions": _one_of(("python", "executorch", "compiler", "qemu")),
    "Entry.kernels": _name,
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
        count = sum(numbered == kind for numbered, _ in self._numbers)
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
            shared = (self._value(item, fields, record) for item in value)
            return tuple(item for item in shared if item != "")
        if isinstance(value, Mapping):
            return self._mapping(value, fields, record)
        kind: type = type(value)
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"nobody has decided whether a {kind.__name__} may be shared")
        fields_shared = {
            name: getattr(value, name) if fixed else self._value(getattr(value, name), named, value)
            for name, fixed, named in _fields(kind)
        }
        return kind(**fields_shared)

    def _mapping(self, value: Mapping[Any, Any], fields: tuple[str, ...], record: object) -> dict[Any, Any]:
        rule = next((_KEYS[name] for name in fields if name in _KEYS), None)
        shared: dict[Any, Any] = {}
        for key, item in value.items():
            if isinstance(key, int):
                shared[key] = self._value(item, fields, record)
            elif rule and (name := rule(self, key, record)):
                shared[name] = self._value(item, fields, record)
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
        return all(choice is NoneType or _is_fixed(choice) for choice in get_args(hint))
    return get_origin(hint) is Literal
