"""Runs a new program once on the ExecuTorch runtime and compares its outputs with PyTorch's."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core.errors import ExportError, InputError
from model_profiling.export.accuracy_layers import noise_by_layer
from model_profiling.export.overflow import Search, first_not_finite
from model_profiling.export.records import Accuracy, Deviation
from model_profiling.export.tracing import (
    CONVOLUTIONS_IN_FP32,
    OTHER_REWRITES,
    STATIC_CACHE,
    Eager,
    Traced,
    like,
    only_tensors,
    run_in_turn,
)
from model_profiling.statistics.parity import OutputParity, compare_arrays, together

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import ExampleInputs

    Tensors = list[torch.Tensor]


# Keeping the prints of torch and the native runtime away from the user, but available for errors.


class Captured:
    """The captured text; complete once the block has ended."""

    text = ""


@contextlib.contextmanager
def quietly(enabled: bool = True) -> Iterator[Captured]:
    """Capture Python warnings, log lines and everything written to the process's stdout and stderr."""
    captured = Captured()
    if not enabled:
        yield captured
        return
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    disabled = logging.root.manager.disable
    with tempfile.TemporaryFile() as sink:
        try:  # from here on, also an interrupt must give the streams back
            for number in saved:
                os.dup2(sink.fileno(), number)
            logging.disable(logging.WARNING)
            # In a notebook or under a test runner, sys.stdout and sys.stderr are not the process's own.
            with (
                os.fdopen(os.dup(sink.fileno()), "w", encoding="utf-8", errors="replace") as text,
                contextlib.redirect_stdout(text),
                contextlib.redirect_stderr(text),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                yield captured
        finally:
            logging.disable(disabled)
            sys.stdout.flush()
            sys.stderr.flush()
            for number, original in saved.items():
                os.dup2(original, number)
                os.close(original)
            sink.seek(0)
            captured.text = sink.read().decode("utf-8", "replace")


LOWERING_TOLERANCE = {"fp32": 1e-4, "fp16": 3e-2, "int8": 0.1, "int8-dynamic": 0.1, "int4": 0.1, "own": 0.1}
"""Against PyTorch in the same dtype: only the order of rounding may differ. In fp16 a correct
MobileNetV3-small differs by 0.015 on aarch64 and by 0.0235 on x86_64."""
PRECISION_TOLERANCE = {
    "fp32": 1e-4,
    "fp16": 5e-2,
    **dict.fromkeys(("int8", "int8-dynamic", "int4", "own"), 0.25),
}
"""Against float32: beyond this the dtype probably harms the model's answers."""
_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] (?P<operator>\S+)")


def check_outputs(
    pte: Path,
    traced: Mapping[str, Traced],
    methods: Mapping[str, Eager],
    *,
    search: Search,
    written_inputs: Mapping[str, int],
    batches: Sequence[ExampleInputs] = (),
    by_layer: bool = False,
) -> Accuracy:
    """Compare the program's methods, called in turn, with eager PyTorch (`methods` in float32), and the first
    method with float32 on `batches` if there are some; if it does not run or gives no numbers, `problem` says
    so, and `search` finds where that begins."""
    name, kind = search.name, search.wanted.kind
    first, rewritten = next(iter(traced)), any(each.rewrites for each in traced.values())
    with quietly():  # a model may warn in every call
        same_dtype = only_tensors(run_in_turn([each.eager for each in traced.values()]))
        float32 = only_tensors(run_in_turn(list(methods.values())))
    if any(hasattr(tensor, "fake_mode") for tensor in (*same_dtype, *float32)):
        raise ExportError(
            f"'{name}' keeps tensors of one call for the next outside its buffers",
            f"use buffers; {STATIC_CACHE}",
        )

    def agrees(outputs: Tensors) -> bool:
        return deviation(outputs, methods[first].run(), PRECISION_TOLERANCE[kind]).ok

    # What takes rows from a table of a vocabulary may give scores for it.
    words = max((getattr(part, "num_embeddings", 0) for part in methods[first].module.modules()), default=0)

    def run(calls: Mapping[str, Eager]) -> Tensors:
        answers = run_program(name, pte, calls)
        return [tensor for method, made in answers.items() for tensor in made[written_inputs[method] :]]

    try:
        produced = run({method: each.eager for method, each in traced.items()})
        got, want = ([tuple(t.shape) for t in side] for side in (produced, same_dtype))
        if got != want:
            raise ExportError(
                f"the exported program of '{name}' returns shapes {got} where PyTorch returns {want}",
                "return plain tensors from forward(), in a fixed order",
            )
        # If PyTorch overflows and the backend, with wider sums, does not, compare with float32.
        overflowed = count_not_finite(same_dtype) and not count_not_finite(produced)
        compared = Accuracy(
            lowering=deviation(produced, float32, PRECISION_TOLERANCE[kind], words)
            if overflowed
            else deviation(produced, same_dtype, LOWERING_TOLERANCE[kind], words),
            precision=deviation(produced, float32, PRECISION_TOLERANCE[kind], words),
        )
        if batches and kind != "fp32":
            some = batches[:_MOST_BATCHES]
            compared = replace(
                compared,
                precision=_on_real_inputs(
                    lambda given: run({first: given}),
                    traced[first].eager,
                    methods[first],
                    some,
                    tolerance=PRECISION_TOLERANCE[kind],
                    words=words,
                ),
                real_inputs=len(some),
            )
        if by_layer:
            with quietly():
                compared = replace(compared, layers=noise_by_layer(search, batches))
    except (ExportError, InputError) as found:
        return Accuracy(
            problem=found.problem, fix=f"{OTHER_REWRITES}; {found.fix}" if rewritten else found.fix
        )

    problem, fix = _not_finite(
        search, traced[first], agrees, produced=produced, same_dtype=same_dtype, float32=float32
    )
    if problem or compared.ok or kind != "fp16":
        wrong = rewritten and not problem and compared.lowering and not compared.lowering.ok
        return replace(compared, problem=problem, fix=OTHER_REWRITES if wrong else fix)
    where, fix = search.cure(search.first_in_program(traced[first]), agrees, "export fp32")
    return replace(compared, where=where, fix=fix)


_MOST_BATCHES = 32
"""More inputs take longer and change a worst case little."""


def _on_real_inputs(
    run: Callable[[Eager], Tensors],
    traced: Eager,
    eager: Eager,
    batches: Iterable[ExampleInputs],
    *,
    tolerance: float,
    words: int,
) -> Deviation:
    """Compare the program, run by `run`, with float32 on `batches`, all of an output's values together."""
    import torch

    rows: list[tuple[Tensors, Tensors]] = []
    for batch in batches:
        given = replace(traced, args=like(batch, traced.args))
        rows.append((run(given), replace(eager, args=batch).run()))
    produced, wanted = (
        [torch.cat([torch.atleast_1d(one) for one in each]) for each in zip(*side, strict=True)]
        for side in zip(*rows, strict=True)
    )
    return deviation(produced, wanted, tolerance, words)


def run_program(name: str, pte: Path, calls: Mapping[str, Eager]) -> dict[str, Tensors]:
    """The output tensors of the program's methods, called in turn."""
    from executorch.runtime import Runtime

    try:
        with quietly() as said:
            program = Runtime.get().load_program(pte)
            # All are loaded first: loading one sets the buffers that they share to their initial values.
            loaded = [program.load_method(method) for method in calls]
            turns = zip(calls.items(), loaded, strict=True)
            # Copied, because the next call may use the memory again.
            outputs = {
                called: [each.clone() for each in only_tensors(method.execute(given.inputs()))]
                for (called, given), method in turns
            }
    except Exception as failure:
        if missing := _MISSING_OPERATOR.search(said.text):
            raise ExportError(
                f"the ExecuTorch runtime has no kernel for {missing['operator']}, which '{name}' needs",
                "replace that operator in the model, or register a kernel for it",
            ) from failure
        last = [line for line in said.text.splitlines() if line.strip()][-1:]
        raise ExportError(
            f"the exported program of '{name}' does not run: {failure} {' '.join(last)}".strip(),
            f"--dtype fp16 or --backend portable may still work; {CONVOLUTIONS_IN_FP32}",
        ) from failure
    return outputs


_OVERFLOW = "export fp32, or scale the activations down"


def count_not_finite(tensors: Tensors) -> int:
    return sum(int((~t.isfinite()).sum()) for t in tensors if t.is_floating_point())


def _not_finite(
    search: Search,
    traced: Traced,
    agrees: Callable[[Tensors], bool],
    *,
    produced: Tensors,
    same_dtype: Tensors,
    float32: Tensors,
) -> tuple[str, str]:
    """The problem and its fix if outputs are NaN, or infinite where they are not in float32."""
    name, dtype = search.name, search.wanted.text
    if any(bool(t.isnan().any()) for t in float32 if t.is_floating_point()):
        origin = first_not_finite(traced)
        return (
            f"'{name}' returns NaN in PyTorch too, on its example inputs{origin.text if origin else ''}",
            "use example inputs that the model is made for",
        )
    meant = count_not_finite(float32)
    count = count_not_finite(produced) - meant
    if count <= 0:
        return "", ""
    values = "1 output value is" if count == 1 else f"{count} output values are"
    if count_not_finite(same_dtype) > meant:
        where, fix = search.cure(first_not_finite(traced), agrees, _OVERFLOW)
        return f"'{name}' overflows in {dtype}: {values} NaN or infinite{where}", fix
    where, fix = search.cure(search.first_in_program(traced), agrees, _OVERFLOW)
    return (
        f"the program of '{name}' gives no numbers in {dtype}, though PyTorch does: {values} NaN or "
        f"infinite{where}",
        fix,
    )


def deviation(produced: Tensors, wanted: Tensors, tolerance: float, words: int = 0) -> Deviation:
    """`words`: size of the model's vocabulary."""
    outputs = tuple(
        _compared(got, want, tolerance, index, words)
        for index, (got, want) in enumerate(zip(produced, wanted, strict=True))
    )
    with_fraction = [
        output.largest
        for output, want in zip(outputs, wanted, strict=True)
        if want.is_floating_point() and want.numel()
    ]
    return Deviation(
        max_abs=max((output.max_abs for output in outputs), default=0.0),
        max_rel=max(map(_relative, outputs), default=0.0),
        tolerance=tolerance,
        largest=max(with_fraction, default=None),
        verdict=together(outputs).verdict,
        outputs=outputs,
    )


def _compared(
    got: torch.Tensor, want: torch.Tensor, tolerance: float, index: int, words: int
) -> OutputParity:
    import torch

    got, want = got.detach().cpu(), want.detach().cpu()
    dtype = str(want.dtype).removeprefix("torch.")
    if dtype == "bfloat16":  # numpy has no bfloat16, and float32 holds it exactly
        got, want = got.to(torch.float32), want.to(torch.float32)
    scores = want.dim() == 3 and want.shape[-1] == words
    sides = want.numpy(), got.numpy()
    return compare_arrays(*sides, dtype, index=index, relative=tolerance, of_tokens=scores)


def _relative(output: OutputParity) -> float:
    if output.dtype.startswith(("int", "uint", "bool")):
        return output.differing / max(output.elements, 1)
    return output.of_largest or 0.0
