"""Numbers to facts: spread of latencies, speedups with confidence, stability, equality of outputs."""
