"""Sessions: storage format, recording, recovery, replay, SQL queries, export and management.

DuckDB and matplotlib are imported only by the modules that need them.
"""
