"""Sweeps: many cells measured on many devices, with Dask."""
