"""Numbers to facts: centre and spread of latencies, speedups with confidence, stability, equality of outputs."""
