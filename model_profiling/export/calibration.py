"""Real inputs of a model, for the ranges of int8 and for the comparison with PyTorch."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from model_profiling.core.errors import InputError
from model_profiling.export.tracing import ask
from model_profiling.models.catalog import NamedModel, load_attribute
from model_profiling.models.options import blaming, loading_fix

if TYPE_CHECKING:
    from model_profiling.models.base import ExampleInputs

_BATCHES = "yield tuples shaped like the example inputs, at least one"


def calibration_batches(
    named: NamedModel, source: str | Iterable[ExampleInputs] | None, example: ExampleInputs
) -> list[ExampleInputs] | None:
    """The inputs for ranges and for the comparison with PyTorch; None if there are only example inputs."""
    batches = (
        ask(named.name, "get_calibration_inputs", named.model.get_calibration_inputs)
        if source is None
        else _batches_of(source, example)
        if isinstance(source, str)
        else source
    )
    if batches is None:
        return None
    found: list[ExampleInputs] = []
    waiting = iter(batches)
    while True:
        with blaming(f"calibration of '{named.name}' failed at batch {len(found)}", _BATCHES):
            batch = next(waiting, None)
        if batch is None:
            break
        found.append(tuple(batch) if isinstance(batch, (tuple, list)) else (batch,))
    if not found:
        raise InputError(f"the calibration of '{named.name}' yields no inputs", _BATCHES)
    return found


def _batches_of(source: str, example: ExampleInputs) -> Iterable[ExampleInputs]:
    if source.endswith(".npz"):
        return _batches_in_file(Path(source), example)
    _, made = load_attribute(source)
    with blaming(f"{source} failed", loading_fix):
        batches = cast("Callable[[], object]", made)() if callable(made) else made
    if not isinstance(batches, Iterable):
        raise InputError(
            f"{source} is a {type(batches).__name__}, not an iterator of inputs",
            "give a function that yields tuples of input tensors",
        )
    return cast("Iterable[ExampleInputs]", batches)


def _batches_in_file(path: Path, example: ExampleInputs) -> list[ExampleInputs]:
    """Inputs from an .npz: an array for each input, in their order; the first dimension counts inferences."""
    import numpy as np
    import torch

    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = [torch.from_numpy(held[name]) for name in held.files]
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as problem:
        raise InputError(
            f"{path} cannot be read as .npz: {problem}", "write it with numpy.savez"
        ) from problem
    wanted = [leaf for leaf in example if isinstance(leaf, torch.Tensor)]
    fits = [
        array[0].numel() == leaf.numel() for array, leaf in zip(arrays, wanted, strict=False) if len(array)
    ]
    if (
        len(arrays) != len(example)
        or len(wanted) != len(example)
        or len(fits) != len(example)
        or not all(fits)
    ):
        shapes = ", ".join(f"Nx{'x'.join(map(str, leaf.shape))}" for leaf in wanted)
        raise InputError(f"the arrays in {path} do not fit the model's inputs", f"give arrays of {shapes}")
    return [
        tuple(part.reshape(leaf.shape).to(leaf.dtype) for part, leaf in zip(parts, wanted, strict=True))
        for parts in zip(*arrays, strict=False)
    ]
