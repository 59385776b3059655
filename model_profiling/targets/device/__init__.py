"""A phone as a machine: its clusters of CPUs, battery and temperatures, its power settings, its energy."""
