"""Memory limit of the SQL process."""

import subprocess
import sys

import pytest

CODE = """
import resource
from gconsole.session.format import memory_limit
held = bytearray(300 << 20)  # what the process has before counts on top, not against the limit
memory_limit.LIMIT_BYTES = 100 << 20
with memory_limit.bounded_memory():
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
