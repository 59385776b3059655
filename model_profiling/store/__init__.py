"""Many runs: their tables in Parquet files, added whole or not at all, asked with DuckDB."""
