"""Why operators stayed outside the backend: the partitioner's own words, node by node.

XNNPACK's partitioner has a rule for each operator it can take. It looks at a node up to twice (before and
after it is taken apart) and writes why it refuses one to its debug log only, where this listens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from model_profiling.export.nodes import call_of, dtypes_of, module_of, operator_name, source_of
from model_profiling.export.replacements import replacement_for
from model_profiling.program.flow import flow_of, input_independent
from model_profiling.program.records import Instruction, Method
from model_profiling.program.undelegated import Undelegated, WhyOutside

if TYPE_CHECKING:
    import torch
    from executorch.exir.backend.canonical_partitioners.config_partitioner import (
        ConfigerationBasedPartitioner,
    )

NO_RULE = "the backend has no rule for this operator"
PORTABLE = "the portable backend runs every operator itself"
_UNSAID = "the backend has a rule for this operator and refused it without saying why"
_DROPPED = "the backend took this operator at first and left it out when it formed its partitions"
_TAKEN_BY = "xnn_partitioner_config"
"""What the partitioner notes at each node that one of its rules took."""


def with_instructions(
    left: Sequence[tuple[torch.fx.Node, Undelegated]],
    handles: Mapping[int, int | Sequence[int]],
    method: Method,
) -> tuple[Undelegated, ...]:
    """Tell each operator which instruction of `method` runs it, and whether an input reaches that.

    What was taken apart shares a debug handle: then the operator's name tells, and at last the order, which
    the program keeps. `handles` are the emitter's, by instruction.
    """
    waiting: dict[tuple[object, str], list[Instruction]] = {}
    for step in method.operators:
        waiting.setdefault((handles.get(step.instruction_id), _stem(step.name)), []).append(step)
    flow = flow_of(method)
    same = {flow.steps[index].place for index in input_independent(flow)}
    found = []
    for node, account in left:
        steps = waiting.get((node.meta.get("debug_handle"), _stem(account.operator)), [])
        told = replace(account, method=method.name)
        if steps:
            step = steps.pop(0)
            constant = (step.chain_index, step.instruction_id, -1) in same
            told = replace(told, instruction=step.instruction_id, constant=constant)
        found.append(told)
    return tuple(found)


def _stem(operator: str) -> str:
    """`aten.gelu` of `aten.gelu.default` and of `aten::gelu.out`."""
    return operator.replace("::", ".").rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    made_by: frozenset[str]
    """What the model called to make the inputs of the refused node."""


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.refusals: dict[str, _Refusal] = {}

    def emit(self, record: logging.LogRecord) -> None:
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", None)
        if node is not None and reason:
            made_by = frozenset(call_of(source) for source in node.all_input_nodes)
            said = " ".join(str(reason).split()).replace("torch.", "")
            # A precise reason comes before the general one that follows from it.
            self.refusals.setdefault(str(node), _Refusal(said, made_by))


@dataclass(slots=True)
class Refusals:
    """What the partitioner said while it worked; `partitioner` is None for the portable backend."""

    partitioner: ConfigerationBasedPartitioner | None
    _listener: _Listener = field(default_factory=_Listener)

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("executorch.backends.xnnpack")
        level, disabled = logger.level, logging.root.manager.disable
        logger.addHandler(self._listener)
        logger.setLevel(logging.DEBUG)
        logging.disable(logging.NOTSET)
        try:
            yield
        finally:
            logger.removeHandler(self._listener)
            logger.setLevel(level)
            logging.disable(disabled)

    def account_of(self, node: torch.fx.Node) -> Undelegated:
        """Why `node`, which stayed outside, did."""
        why, reason = self._reason(node)
        module_path, module_class = module_of(node)
        read, made = dtypes_of(node)
        if reason == "invalid dtype":
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
        """With what to write instead; it may depend on whether an input of the model reaches it."""
        if account.why == "portable":
            return account
        refusal = self._listener.refusals.get(account.node)
        return account.with_replacement(replacement_for(account, refusal.made_by if refusal else frozenset()))

    def _reason(self, node: torch.fx.Node) -> tuple[WhyOutside, str]:
        if self.partitioner is None:
            return "portable", PORTABLE
        from executorch.exir.backend.canonical_partitioners.config_partitioner import format_target_name

        name = str(getattr(node.target, "__name__", ""))
        if format_target_name(name) not in self.partitioner.target_partitioner_configs:
            return "no rule", NO_RULE
        if node.meta.get(_TAKEN_BY):
            return "dropped", _DROPPED
        refusal = self._listener.refusals.get(node.name)
        return "refused", refusal.reason if refusal else _UNSAID
