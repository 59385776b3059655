"""The version of the kit, stated once."""

__version__ = "0.2.0.dev0"
