"""The backends that the kit knows; to add one, add a folder here and a row in the table."""

from collections.abc import Sequence

from model_profiling.program.category import OperatorClass
from model_profiling.program.delegates.protocol import Backend, Portable
from model_profiling.program.delegates.xnnpack import Xnnpack
from model_profiling.program.records import GraphNode

BACKENDS: tuple[Backend, ...] = (Xnnpack(), Portable())


def delegate_named(backend: str) -> Backend:
    return next((known for known in BACKENDS if known.name == backend), Backend())


def delegate_of_events(events: Sequence[str]) -> Backend:
    """The delegate that alone uses such event names, if no program names it."""
    whose = (known for known in BACKENDS if any(known.describe(event).family for event in events))
    return next(whose, Backend())


def describe(event: str, backend: str = "", node: GraphNode | None = None) -> OperatorClass:
    """Classify an operator by its own backend or, if that does not know the name, by any other."""
    own = delegate_named(backend).describe(event, node)
    others = (other.describe(event) for other in BACKENDS)
    return own if own.known else next((what for what in others if what.known), own)
