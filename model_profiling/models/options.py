"""Variants of a registered model: `NAME@option=value,option=value` wherever a model is named.

What is chosen stands in the name of the files (`edgetam_image_encoder@size=512` makes
`edgetam_image_encoder_size512_xnnpack_fp16.pte`), so that variants lie side by side and a run says which it
was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import InputError
from model_profiling.wording import did_you_mean

MARK = "@"


@dataclass(frozen=True, slots=True)
class ModelOption:
    """One keyword of a model's class: a whole number from 1, or a file where `default` is None."""

    name: str
    default: int | None
    meaning: str

    def read(self, model: str, text: str) -> int | Path:
        """The value a user wrote."""
        if self.default is None:
            return _existing_file(model, self.name, text)
        if not re.fullmatch(r"[1-9]\d{0,8}", text):
            raise InputError(
                f"{self.name} of '{model}' is '{text}'",
                f"give a whole number: {self.meaning} [{self.default}]",
            )
        return int(text)

    @property
    def shown(self) -> str:
        """`size=1024`, `checkpoint=FILE`."""
        return f"{self.name}={'FILE' if self.default is None else self.default}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A registered model and the options that differ from its own."""

    model: str
    values: Mapping[str, int | Path]

    @property
    def spec(self) -> str:
        """As it is named on the command line."""
        options = ",".join(f"{key}={value}" for key, value in self.values.items())
        return f"{self.model}{MARK}{options}" if options else self.model

    @property
    def source(self) -> str:
        """As an export's record tells it from others under the same file name."""
        return f"kit:{self.spec}" if self.values else "kit"

    @property
    def file_name(self) -> str:
        """As its files are called."""
        return "_".join((self.model, *(_in_name(key, value) for key, value in self.values.items())))

    @property
    def files(self) -> tuple[Path, ...]:
        """What an export of it reads."""
        return tuple(value for value in self.values.values() if isinstance(value, Path))


def chosen_options(model: str, text: str, known: Iterable[ModelOption]) -> Chosen:
    """Read `size=512,checkpoint=FILE`; options come out in the order the model declares them."""
    options = {option.name: option for option in known}
    written: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InputError(
                f"'{part}' is no option of '{model}'", f"write {_usage(model, options.values())}"
            )
        if key not in options:
            hint = did_you_mean(key, options)
            raise InputError(
                f"'{model}' has no option '{key}'",
                f"{hint}{' ' if hint else ''}write {_usage(model, options.values())}",
            )
        if key in written:
            raise InputError(f"{key} of '{model}' is given twice", "give it once")
        written[key] = value
    values = {key: option.read(model, written[key]) for key, option in options.items() if key in written}
    return Chosen(model, {key: value for key, value in values.items() if value != options[key].default})


def _usage(model: str, options: Iterable[ModelOption]) -> str:
    shown = ",".join(option.shown for option in options)
    return f"{model}{MARK}{shown}" if shown else f"{model} alone: it has none"


def _existing_file(model: str, option: str, text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise InputError(f"{option} of '{model}': there is no file {path}", "correct the path")
    return path


def _in_name(key: str, value: int | Path) -> str:
    if isinstance(value, int):
        return f"{key}{value}"
    return f"{key}_{re.sub(r'[^A-Za-z0-9]+', '_', value.stem).strip('_')}"
