"""What every room may use: files, processes, records, words, errors."""
