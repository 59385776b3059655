"""JSON that a person writes, to a checked config."""
