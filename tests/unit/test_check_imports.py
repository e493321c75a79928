"""What `gconsole check` loads: it starts often, in prologs and on every node of a fleet."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
import gconsole.cli.check, gconsole.cli.live, gconsole.monitor.node_checks, gconsole.session.query.own_checks
print(*[name for name in ("numpy", "pandas", "duckdb", "textual", "networkx", "pyarrow") if name in sys.modules])
"""


def test_a_check_loads_no_library_of_analyses_or_of_the_screen():
    run = subprocess.run([sys.executable, "-P", "-c", _SCRIPT], capture_output=True, text=True, check=True)

    assert run.stdout.split() == []
