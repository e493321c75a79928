"""SQL over sessions and live records: the DuckDB engine, its worker process, views and limits."""
