"""A page as one HTML file that opens from disk: no network, nothing but what it carries runs."""

from model_profiling.report.html.page import render_html

__all__ = ["render_html"]
