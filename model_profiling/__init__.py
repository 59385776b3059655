"""SME2 ExecuTorch Profiling Kit: where the time goes, what SME2 changes, what to do next."""

__version__ = "0.1.0"
