"""Causes of avoidable time in one series; one module per family."""
