"""The kit's own runner: its source, build cache and result, and the switch for CPU features."""
