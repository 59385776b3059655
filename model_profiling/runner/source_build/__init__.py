"""Runners built from an ExecuTorch source checkout, for those who want ExecuTorch's own executor_runner.

The kit's own runner needs none of this. See docs/source_builds.md.
"""
