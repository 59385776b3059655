"""Charts of a run's numbers, each declared once as Vega-Lite: live in report.html, SVG beside report.md."""
