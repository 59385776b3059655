"""Many cells on many devices: what is exported where, whose turn a device is at, on Dask."""
