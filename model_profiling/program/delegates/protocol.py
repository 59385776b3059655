"""The interface of a backend: a delegate, or the runtime's own kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_profiling.program.category import UNKNOWN, Category, OperatorClass
from model_profiling.program.records import GraphNode, Tensor

Payload = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Graph:
    """A delegate's payload, as far as it is understood."""

    nodes: tuple[GraphNode, ...] = ()
    output_count: int = 0
    arguments: tuple[tuple[int, int], ...] = ()
    """Position among a call's arguments, and the value id in this graph."""


class Backend:
    """A backend's knowledge about itself; the defaults are those of an unknown backend."""

    name: str = ""
    undivided: frozenset[str] = frozenset()
    """Kinds of node that always run as one operator each: their number tells programs apart."""

    def read_graph(self, payload: Payload, source: str, origin: int) -> Graph:
        """Read a payload that begins at byte `origin` of `source`; raise FormatError if it is damaged."""
        del payload, source, origin
        return Graph()

    def resized(self, graph: Graph, resized: Callable[[Tensor], Tensor]) -> Graph:
        """The graph with each tensor as `resized` makes it, and the work that this means."""
        del resized
        return graph

    def align(self, nodes: Sequence[GraphNode], events: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """For each event of a call, the indexes of the nodes it stands for, the main one first."""
        del nodes
        return ((),) * len(events)

    def ran_in(self, events: Sequence[str], mains: Sequence[GraphNode | None]) -> tuple[str, ...]:
        """The type that each event of a call computed in: its node's, unless the backend chose another."""
        del events
        return tuple(node.dtype if node else "" for node in mains)

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        """Classify an operator by the name of its event and the main node of that event."""
        del event, node
        return UNKNOWN

    def multiplies(self, node: GraphNode) -> tuple[Category, str] | None:
        """Category and kind of a node that multiplies matrices; None for any other."""
        del node
        return None

    def path_of(self, node: GraphNode) -> str:
        """The kind of a node that multiplies matrices, as finely as kernels differ; empty if unknown."""
        del node
        return ""
