"""A store of many runs: tables in Parquet files, added completely or not at all, queried with DuckDB."""
