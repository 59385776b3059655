"""Builds ExecuTorch's own executor_runner from a source checkout. See docs/how-to/source_builds.md.

The kit's own runner needs none of this.
"""
