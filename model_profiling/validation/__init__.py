"""Whether a run directory holds what it promises, check by check, each failure with its cure."""
