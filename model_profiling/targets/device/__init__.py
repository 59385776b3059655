"""A phone as a machine: CPU clusters, battery, temperatures, power settings, energy."""
