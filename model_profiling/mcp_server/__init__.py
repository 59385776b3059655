"""The kit for coding assistants: its verbs as tools of the Model Context Protocol, over stdin and stdout.

Facts are those of the command line: what reads calls the same library functions here, what exports or
measures is `sme2prof ... --json` in a process of its own.
"""
