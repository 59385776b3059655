"""Analysis of event tables: attribution, categories, operators, latency, comparison, kernels, advice."""
