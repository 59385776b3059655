"""XNNPACK: the graphs in its payloads, the nodes behind its events, and the meaning of its operator names."""

from model_profiling.program.delegates.protocol import Backend
from model_profiling.program.delegates.xnnpack import alignment, graph, operators


class Xnnpack(Backend):
    name = "XnnpackBackend"
    undivided = alignment.UNDIVIDED
    read_graph = staticmethod(graph.read_graph)
    resized = staticmethod(graph.resized)
    align = staticmethod(alignment.align)
    ran_in = staticmethod(alignment.ran_in)
    describe = staticmethod(operators.describe)
    multiplies = staticmethod(operators.multiplies)
    path_of = staticmethod(operators.path_of)
