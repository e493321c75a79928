"""The console hands its tables to the process of a query without loading DuckDB, which would stop its frame clock."""

import subprocess
import sys

PROGRAM = """
import sys
from gconsole.core.store import Store
from gconsole.session.query.views import tables_for
from gconsole.session.store_snapshot import snapshot_tables
from gconsole.session.query.worker import QueryWorkerClient

client = QueryWorkerClient()
tables = tables_for("SELECT count(*) FROM gpu")[0]
snapshot = snapshot_tables(Store(), tables)
result = client.query("SELECT count(*) FROM gpu", snapshot.tables(tables), limit=10, deadline_s=60.0)
client.close()
print([list(row) for row in result.rows], "duckdb" in sys.modules)
"""


def test_query_of_the_store_loads_no_duckdb_in_the_console():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[0]] False"
