"""Causes of time that could be saved, seen in one series: a module for each family."""
