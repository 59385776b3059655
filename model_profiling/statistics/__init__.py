"""Statistics on measurements: spread of latencies, speedups with confidence, stability, equal outputs."""
