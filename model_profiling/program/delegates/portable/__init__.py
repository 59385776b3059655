"""ExecuTorch's own kernels, which run what no delegate took; they have no graph."""

from model_profiling.program.delegates.portable import operators
from model_profiling.program.delegates.protocol import Backend


class Portable(Backend):
    name = "portable"
    describe = staticmethod(operators.describe)
