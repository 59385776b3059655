"""The command line: each file holds one or a few commands, which parse, call the library and print."""
