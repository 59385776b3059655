"""Event tables to facts: attribution, categories, operators, latency, comparison, kernels, advice."""
