"""A store of many runs: an SQLite file, or a PostgreSQL server, filled and queried through SQLAlchemy."""
