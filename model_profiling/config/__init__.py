"""Configs and sweeps: from the JSON that a person writes to checked settings."""
