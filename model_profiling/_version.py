"""The version of the kit, stated once."""

__version__ = "1.0.0"
