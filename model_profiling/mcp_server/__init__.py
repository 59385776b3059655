"""The kit's commands as tools for coding assistants: the Model Context Protocol, over stdin and stdout."""
