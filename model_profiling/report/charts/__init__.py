"""Pictures of a run's numbers, each declared once with Altair: live in report.html, SVG beside report.md."""
