"""Facts to files: CSV, JSON, Markdown, HTML. Nothing here reads a dump or a program."""
