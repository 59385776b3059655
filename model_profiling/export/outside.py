"""Why operators stayed outside the backend, node by node, in the partitioner's own words.

XNNPACK's partitioner has a rule for each operator it can take. It examines a node up to twice (before and
after decomposition) and writes its refusals only to its debug log, which is captured here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from model_profiling.export.catalogue import CONSTANTS
from model_profiling.export.rewrites import CATALOGUE
from model_profiling.export.tracing import (
    call_of,
    dtypes_of,
    made_tensors,
    module_of,
    operator_name,
    source_of,
)
from model_profiling.program.flow import flow_of, input_independent
from model_profiling.program.graph_file import COMPUTED_ONCE, VARYING, Undelegated, WhyOutside
from model_profiling.program.records import Instruction, Method

if TYPE_CHECKING:
    import torch
    from executorch.exir.backend.canonical_partitioners.config_partitioner import (
        ConfigerationBasedPartitioner,
    )


# What to write instead of an operator that stays outside XNNPACK: only rows that were seen to help.
# `tests/integration/test_replacements.py` exports each before and after, and compares both with PyTorch.


@dataclass(frozen=True, slots=True)
class Replacement:
    """What to write, and when: each condition is a regular expression that must match the whole text."""

    instead: str
    """In words."""
    call: str = ".*"
    operator: str = ".*"
    reason: str = ".*"
    module_class: str = ".*"
    dtype: str = ".*"
    """Of the operator's output: XNNPACK takes no integers, however they are computed."""
    made_by: str = ""
    """A call that produced one of the operator's inputs."""
    constant: bool = False
    """Applies only if no input of the model reaches the operator."""
    rewrite: str = ""
    """The rewrite of the catalogue that does the same to the exported graph, where it fits."""

    def fits(self, outside: Undelegated, made_by: frozenset[str]) -> bool:
        texts = ("call", "operator", "reason", "module_class", "dtype")
        return (
            all(re.fullmatch(getattr(self, name), getattr(outside, name)) for name in texts)
            and (outside.constant or not self.constant)
            and (not self.made_by or any(re.fullmatch(self.made_by, call) for call in made_by))
        )


_COPY = r"dim_order_ops\._to_dim_order_copy\.default"
_FLOAT = "float.*"
_ARITHMETIC = "[ir]?(add|sub|mul|div|truediv)"
_UNPARAMETRISE = (
    "remove the parametrisation before export, which leaves a plain weight: "
    "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"
)
_OWN_DTYPE = "the model's own dtype everywhere: no .float(), .to() or dtype= in between"
_CONVERSION = r"dtype conversion from float\d+ to float\d+ is not supported"
_UNNORM = "remove the weight norm before export: torch.nn.utils.remove_weight_norm(module)"


def _rewritten(name: str, of: str = "", **conditions: Any) -> Replacement:
    """What a rewrite of the catalogue does, to be written by hand; `of` is its operator if it has several."""
    instead = next(each.instead for each in CATALOGUE[name] if not of or of in each.operators)
    return Replacement(instead, rewrite=name, **conditions)


REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(_UNPARAMETRISE, module_class=r"torch\.nn\.utils\.parametrizations\..*", rewrite=CONSTANTS),
    Replacement(
        _UNPARAMETRISE,
        reason="Expected weight to be a static param",
        module_class=r"torch\.nn\.utils\.parametrize\.Parametrized.*",
        rewrite=CONSTANTS,
    ),
    Replacement(_UNNORM, call="weight_norm", rewrite=CONSTANTS),
    Replacement(
        _UNNORM, reason="Expected weight to be a static param", made_by="weight_norm", rewrite=CONSTANTS
    ),
    _rewritten("attention", call="scaled_dot_product_attention"),
    _rewritten("recurrent layers", module_class=r"torch\.nn\.modules\.rnn\..*"),
    _rewritten("batched matmul", call="matmul", operator=r"aten\.expand_copy\.default", dtype=_FLOAT),
    Replacement(
        "a dimension of 1, times a buffer of ones, instead of the repetition: (x.reshape(n, c, 1, l) * "
        "ones).reshape(n, 2 * c, l)",
        call="repeat_interleave",
        dtype=_FLOAT,
    ),
    _rewritten("hard sigmoid", call="hardsigmoid"),
    _rewritten("half-precision activations", call="silu", operator=_COPY),
    _rewritten("glu", call="glu", operator=_COPY),
    _rewritten("adaptive pool", call="adaptive_avg_pool[12]d"),
    _rewritten(
        "numbers",
        call=_ARITHMETIC,
        operator=_COPY,
        reason=r"invalid dtype \(int\d+ to float.*\)|dtype conversion from float32 to float16 .*",
    ),
    _rewritten("roll", call="roll"),
    Replacement(
        COMPUTED_ONCE,
        call="masked_fill|where",
        operator=r"aten\.where\.self",
        constant=True,
        rewrite=CONSTANTS,
    ),
    _rewritten(
        "masks",
        call="masked_fill|where",
        operator=r"aten\.(where\.self|scalar_tensor\.default)",
        dtype=_FLOAT,
    ),
    Replacement(COMPUTED_ONCE, constant=True, rewrite=CONSTANTS),
    _rewritten(
        "half-precision activations",
        "aten.gelu.default",
        operator=r"aten\.gelu\.default",
        reason="GELU does not support fp16",
    ),
    _rewritten("means", operator=r"aten\.mean\.dim", reason=r"mean\.dim only supports keepdim=True"),
    _rewritten("softmax", operator=r"aten\._softmax\.default", reason="dim must be the last dim.*"),
    Replacement(
        "a ConvTranspose2d that copies each channel, if the scale is a whole number: kernel and stride "
        "equal to the scale, groups of 16 channels, weights of 1 on the diagonal of each group (one group "
        "per channel is slower than before)",
        operator=r"aten\.upsample_nearest2d\..*",
        dtype=_FLOAT,
    ),
    _rewritten(
        "average pool",
        operator=r"aten\.avg_pool2d\.default",
        reason="(ceil mode|zero-padding in the averaging calculation) is not supported",
    ),
    _rewritten("slices", operator=r"aten\.split(_with_sizes)?_copy\..*", dtype=_FLOAT),
    _rewritten("slices", "aten.unbind.int", call="unbind", operator=r"aten\.squeeze_copy\..*", dtype=_FLOAT),
    _rewritten(
        "slices",
        "aten.slice.Tensor",
        operator=r"aten\.slice_copy\.Tensor",
        reason=".*without a reason",
        dtype=_FLOAT,
    ),
    _rewritten("reshapes", operator=r"aten\.(un)?squeeze_copy\..*", dtype=_FLOAT),
    _rewritten("slices", "aten.select.int", operator=r"aten\.select_copy\.int", dtype=_FLOAT),
    _rewritten("powers", operator=r"aten\.pow\.Tensor_Scalar", reason=r".*got (0\.5|3(\.0)?)"),
    Replacement(
        "F.linear over the last dimension with weights of 1/n, which is the mean",
        operator=r"aten\.mean\.dim",
        reason=r"mean\.dim only supports averaging 4D tensors, got.*",
        dtype=_FLOAT,
        rewrite="means",
    ),
    _rewritten("group norm", operator=r"aten\.native_group_norm\.default", dtype=_FLOAT),
    _rewritten("layer norm", operator=r"aten\.native_layer_norm\.default", dtype=".*" + _FLOAT),
    Replacement(_OWN_DTYPE, call="softmax|to|float|half|type_as", operator=_COPY, reason=_CONVERSION),
    Replacement("x * ones, a buffer of ones of the larger shape", call="expand", dtype=_FLOAT),
)
"""The first match counts: replacements of whole calls, then of constant operators, then of single operators.
"""


NO_RULE = "the backend has no rule for this operator"
PORTABLE = "the portable backend runs every operator itself"
_UNSAID = "the backend has a rule for this operator, but refused it without a reason"
_DROPPED = "the backend accepted this operator at first, but left it out of its partitions"
_TAKEN_BY = "xnn_partitioner_config"
"""The key under which the partitioner marks each node that a rule took."""


def with_instructions(
    left: Sequence[tuple[torch.fx.Node, Undelegated]],
    handles: Mapping[int, int | Sequence[int]],
    method: Method,
) -> tuple[Undelegated, ...]:
    """Give each operator its instruction in `method`, and whether an input reaches it. They are matched by
    debug handle (`handles`, by instruction), then by name, then by order. A write that to_executorch()
    made one in place has no handle: by name and order, if there are as many."""
    waiting: dict[tuple[object, str], list[Instruction]] = {}
    for step in method.operators:
        waiting.setdefault((handles.get(step.instruction_id), _stem(step.name)), []).append(step)
    flow = flow_of(method)
    same = {flow.steps[index].place for index in input_independent(flow)}
    found: list[tuple[Instruction | None, Undelegated]] = []
    replaced: dict[str, list[int]] = {}
    for place, (node, account) in enumerate(left):
        stem = _stem(account.operator)
        steps = waiting.get((node.meta.get("debug_handle"), stem), [])
        found.append((steps.pop(0) if steps else None, replace(account, method=method.name)))
        if found[-1][0] is None:
            replaced.setdefault(stem, []).append(place)
    for stem, places in replaced.items():
        steps = waiting.get((None, stem), [])
        if len(steps) == len(places):
            for place, step in zip(places, steps, strict=True):
                found[place] = step, found[place][1]
    return tuple(
        replace(
            account,
            instruction=step.instruction_id,
            constant=(step.chain_index, step.instruction_id, -1) in same,
        )
        if step
        else account
        for step, account in found
    )


def _stem(operator: str) -> str:
    """`aten.gelu` for both `aten.gelu.default` and `aten::gelu.out`; the name before to_executorch()."""
    space, mark, rest = operator.partition("::")
    if not mark:
        return operator.rpartition(".")[0]
    return f"{space}.{rest.partition('.')[0]}".removesuffix("_")


Reasons = dict[str, tuple[str, frozenset[str]]]
"""By node: why it was refused, and the calls that made its inputs."""


class _Listener(logging.Handler):
    def __init__(self, refusals: Reasons) -> None:
        super().__init__(logging.DEBUG)
        self.refusals = refusals
        """Of the method that is partitioned now."""

    def emit(self, record: logging.LogRecord) -> None:
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", None)
        if node is not None and reason:
            made_by = frozenset(call_of(source) for source in node.all_input_nodes)
            said = " ".join(str(reason).split()).replace("torch.", "")
            # The first reason is the precise one; the general ones that follow from it are dropped.
            self.refusals.setdefault(str(node), (said, made_by))


@dataclass(slots=True)
class Refusals:
    """The partitioner's refusals while it worked; `partitioner` is None for the portable backend."""

    partitioner: ConfigerationBasedPartitioner | None
    reasons: Reasons = field(default_factory=dict)

    def account_of(self, node: torch.fx.Node) -> Undelegated:
        """Describe `node`, which stayed outside, and why."""
        why, reason = self._reason(node)
        module_path, module_class = module_of(node)
        read, made = dtypes_of(node)
        if reason == "invalid dtype" and not all(map(made_tensors, node.all_input_nodes)):
            reason = VARYING  # XNNPACK calls a size that is an input of the node a dtype
        elif reason == "invalid dtype":
            reason = f"invalid dtype ({read if read == made else f'{read} to {made}'})"
        source, code = source_of(node)
        return Undelegated(
            operator=operator_name(node),
            node=node.name,
            module_path=module_path,
            module_class=module_class,
            call=call_of(node),
            source=source,
            code=code,
            dtype=made,
            reads=read,
            why=why,
            reason=reason,
        )

    def with_replacement(self, account: Undelegated) -> Undelegated:
        """Add what to write instead, which may depend on whether an input of the model reaches it."""
        if account.why == "portable":
            return account
        _, made_by = self.reasons.get(account.node, ("", frozenset[str]()))
        row = next((row for row in REPLACEMENTS if row.fits(account, made_by)), None)
        return replace(account, replacement=row.instead, rewrite=row.rewrite) if row else account

    def _reason(self, node: torch.fx.Node) -> tuple[WhyOutside, str]:
        if self.partitioner is None:
            return "portable", PORTABLE
        from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name

        name = str(getattr(node.target, "__name__", ""))
        if format_target_name(name) not in self.partitioner.target_partitioner_configs:
            return "no rule", NO_RULE
        if node.meta.get(_TAKEN_BY):
            return "dropped", _DROPPED
        return "refused", self.reasons.get(node.name, (_UNSAID, frozenset()))[0]


@contextmanager
def listening(methods: Sequence[Refusals]) -> Iterator[None]:
    """Note why nodes are refused, by method: partitioners work one after another, and two methods have nodes
    of the same name."""
    listener = _Listener(methods[0].reasons)

    def turn_to(found: Refusals, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: object) -> object:
            listener.refusals = found.reasons
            return call(*given)

        return called

    for found in methods:
        for step in ("ops_to_not_decompose", "partition") if found.partitioner else ():
            setattr(found.partitioner, step, turn_to(found, getattr(found.partitioner, step)))
    logger = logging.getLogger("executorch.backends.xnnpack")
    level, disabled = logger.level, logging.root.manager.disable
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logging.disable(disabled)
