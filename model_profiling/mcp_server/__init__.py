"""The kit for coding assistants: its verbs as tools of the Model Context Protocol, over stdin and stdout.

Its facts are those of the command line: tools that read call the same library functions; exporting and
measuring run `sme2prof ... --json` in a separate process.
"""
