"""The kit's own runner: its source, its build cache, its result, and the CPU-feature switch."""
