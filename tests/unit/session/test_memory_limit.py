"""Memory limit of the SQL process."""

import subprocess
import sys

import pytest

CODE = """
import resource
from gconsole.session.format import duckdb_connection
held = bytearray(300 << 20)  # what the process has before counts on top, not against the limit
duckdb_connection.LIMIT_BYTES = 100 << 20
with duckdb_connection.bounded_memory():
    bytearray(20 << 20)
    try:
        bytearray(200 << 20)
    except MemoryError:
        print("limited")
bytearray(200 << 20)
print("restored")
"""


@pytest.mark.slow
def test_memory_limit_excludes_prior_usage_and_ends_with_the_query():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["limited", "restored"], done.stderr
