"""Checks that a run directory holds what it promises; each failure comes with its fix."""
