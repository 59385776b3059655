"""What users of the earlier kit know: its scripts and tools, its files, and how it spelled a config."""
