"""A page as one HTML file that opens from disk, needs no network and runs only what it carries."""

from model_profiling.report.html.page import render_html

__all__ = ["render_html"]
