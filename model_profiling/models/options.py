"""Variants of a registered model: `NAME@option=value,option=value` wherever a model is named. File names
include the options, such as `edgetam_image_encoder_size512_xnnpack_fp16.pte` for `@size=512`."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.hints import pip_install

MARK = "@"
NO_CACHE_OPERATORS = "ExecuTorch's operators for a cache cannot be loaded"


@dataclass(frozen=True, slots=True)
class ModelOption:
    """A keyword of a model's class: a positive whole number or `default`, or a file if that is None."""

    name: str
    default: int | None
    meaning: str

    def read(self, model: str, text: str) -> int | Path:
        if self.default is None:
            path = Path(text).expanduser()
            if not path.is_file():
                raise InputError(f"{self.name} of '{model}': there is no file {path}", "correct the path")
            return path
        if text != str(self.default) and not re.fullmatch(r"[1-9]\d{0,8}", text):
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
    """A registered model, and the options that differ from its defaults."""

    model: str
    values: Mapping[str, int | Path]

    @property
    def source(self) -> str:
        """How an export's record tells apart models with the same file name."""
        options = ",".join(f"{key}={value}" for key, value in self.values.items())
        return f"kit:{self.model}{MARK}{options}" if options else "kit"

    @property
    def file_name(self) -> str:
        words = [self.model]
        for key, value in self.values.items():
            if isinstance(value, Path):
                words += [key, re.sub("[^A-Za-z0-9]+", "_", value.stem).strip("_")]
            else:
                words.append(f"{key}{value}")
        return "_".join(words)


def chosen_options(model: str, text: str, declared: Iterable[ModelOption]) -> Chosen:
    """Parse `size=512,checkpoint=FILE`; the result has the order in which the model declares its options."""
    options = {option.name: option for option in declared}
    spelled = ",".join(option.shown for option in options.values())
    usage = f"write {model}{MARK}{spelled}" if spelled else f"write only {model}: it has no options"
    written: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InputError(f"'{part}' is not an option of '{model}'", usage)
        if key not in options:
            hint = did_you_mean(key, options)
            fix = f"{hint}{' ' if hint else ''}{usage}"
            raise InputError(f"'{model}' has no option '{key}'", fix)
        if key in written:
            raise InputError(f"{key} of '{model}' is given twice", "give it only once")
        written[key] = value
    values = {key: option.read(model, written[key]) for key, option in options.items() if key in written}
    return Chosen(model, {key: value for key, value in values.items() if value != options[key].default})


# Finding the user's line in a failure that passed through library code.

_KIT = Path(__file__).resolve().parents[1]
_KIT_MODELS = Path(__file__).resolve().parent
_LIBRARIES = tuple(
    f"{Path(place).resolve()}/lib" for place in {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix}
)
_EDGE_OPERATOR = re.compile(r"<EdgeOpOverload: (\S+)>: schema = .*? with args:")
_QUOTED_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)')


def is_user_code(filename: str) -> bool:
    """Whether a source file belongs to a model, not to a library or this kit. A notebook's cell is no file,
    but its lines are known."""
    path = Path(filename)
    if not path.is_absolute() or not (path.is_file() or filename in linecache.cache):
        return False
    path = path.resolve()
    if path.is_relative_to(_KIT):
        return path.is_relative_to(_KIT_MODELS) and path.parent != _KIT_MODELS
    return "site-packages" not in path.parts and not str(path).startswith(_LIBRARIES)


@contextmanager
def blaming(
    what: str,
    fix: str | Callable[[BaseException], str],
    kind: type[ProfilingError] = InputError,
    find: Callable[[BaseException], str] | None = None,
) -> Iterator[None]:
    """Turns exceptions in the user's code, or in libraries working on it, into errors that name the user's
    line. `sys.exit()` counts, too. `fix` may depend on the exception; `find` gives the line if the stack has
    none."""
    try:
        yield
    except ProfilingError:
        raise
    except (Exception, SystemExit) as problem:
        where = place_in_user_code(problem) or (find(problem) if find else "")
        # The first line, plus the second if the first only announces it.
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
        message = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
        message = _EDGE_OPERATOR.sub(r"\1", message).rstrip(".")
        text = f"{what}: {type(problem).__name__}: {message}".rstrip(": ")
        cure = fix if isinstance(fix, str) else fix(problem)
        if any(type(link).__module__.partition(".")[0] in _NETWORK for link in _chain(problem)):
            text, cure = f"{what}: its weights cannot be downloaded ({message})", _DOWNLOAD_FIX
        raise kind(text + (f" at {where}" if where else ""), cure) from problem


_DOWNLOAD_FIX = (
    "give this machine access to the internet (https_proxy names a proxy), or export where there is access "
    "and copy the .pte here"
)
_NETWORK = {"urllib", "http", "socket", "ssl", "requests", "urllib3", "httpx", "huggingface_hub"}


def loading_fix(problem: BaseException, other: str = "correct that line") -> str:
    """What to do if a model's own code fails: by the cause, or else `other`."""
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        package = problem.name.partition(".")[0]
        if sys.modules.get(package) is None and not package.startswith("_"):
            return f"{pip_install(package)}, or correct the file"
    if isinstance(problem, ImportError):
        return "install the missing package, or correct the file"
    if isinstance(problem, FileNotFoundError) and problem.filename:
        return "put the file there, or correct its path (a relative one starts in the working folder)"
    if _GPU.search(str(problem)):
        return "stay on the CPU: no .cuda() or device=, and torch.load(..., map_location='cpu')"
    return other


_GPU = re.compile(r"not compiled with (CUDA|MPS)|NVIDIA driver|CUDA device|CUDA error|MPS (device|backend)")


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """The exception, its cause, and so on."""
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def passed_through(problem: BaseException, folder: str) -> bool:
    """Whether `problem` or its cause was raised in a file whose path contains `folder`."""
    frames = (frame for link in _chain(problem) for frame in traceback.extract_tb(link.__traceback__))
    return any(folder in frame.filename for frame in frames)


def place_in_user_code(problem: BaseException) -> str:
    """`file.py:12 in forward: the line` of the innermost user frame of `problem`; empty if there is none."""
    frames = [
        (file, int(line), function.strip())
        for file, line, function in _QUOTED_FRAME.findall(str(problem))
        if is_user_code(file)
    ]
    for link in () if frames else _chain(problem):
        if isinstance(link, SyntaxError) and link.filename and is_user_code(link.filename):
            frames = [(link.filename, link.lineno or 0, "<module>")]
        else:
            stack = traceback.extract_tb(link.__traceback__)
            users = (frame for frame in stack if is_user_code(frame.filename))
            frames = [(frame.filename, frame.lineno or 0, frame.name) for frame in users]
        if frames:
            break
    if not frames:
        return ""
    file, line, function = frames[-1]
    source = linecache.getline(file, line).strip()
    return f"{Path(file).name}:{line} in {function}" + (f": {source}" if source else "")


def language_options(layers: int, prompt: int = 512, context: int = 2048) -> list[ModelOption]:
    """The options of every language model."""
    return [
        ModelOption("layers", layers, "how many"),
        ModelOption("prompt", prompt, "tokens in the longest prompt"),
        ModelOption("context", context, "tokens in the cache"),
        ModelOption("methods", 2, "2 for prefill and decode, 1 for one method forward"),
    ]
