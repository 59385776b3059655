"""Measures what a config asks for into a run directory."""
