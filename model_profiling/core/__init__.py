"""Shared helpers for every package: files, processes, records, formatting, errors."""
