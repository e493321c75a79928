"""Memory limit of processes that exist for queries alone; any other process keeps the limit that it has."""

import resource
import subprocess
import sys

import pytest
from click.testing import CliRunner
from session_builders import a_job, a_session
from session_queries import run

from gconsole.cli.query import stat
from gconsole.session.format import reader
from gconsole.session.manage.compact import compact

CODE = """
from gconsole.text import memory_limit
held = bytearray(300 << 20)  # what the process has before counts on top, not against the limit
memory_limit.limit_memory(100 << 20)
bytearray(20 << 20)
try:
    bytearray(200 << 20)
except MemoryError:
    print("limited")
"""


@pytest.mark.slow
def test_memory_limit_excludes_prior_usage():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["limited"], done.stderr


@pytest.mark.slow
def test_queries_in_a_process_with_other_uses_set_no_limit_for_it(tmp_path, monkeypatch):
    session = a_session(tmp_path, a_job())
    compact(session)
    limits = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: limits.append(limit))

    assert run(session.path, "SELECT count(*) AS n FROM gpu").exit_code == 0
    assert CliRunner().invoke(stat, [str(session.path)], standalone_mode=False).return_value == 0
    for path in session.segments():
        path.unlink()
    assert len(list(reader.records(session.path))) == len(a_job())

    assert limits == []


COMMAND = """
import resource, sys
from gconsole.cli.main import main
set_limit = resource.setrlimit
def note(which, limit):
    print("limit", which == resource.RLIMIT_DATA, limit[0] < 6 << 30)
    set_limit(which, limit)
resource.setrlimit = note
main()
"""


@pytest.mark.slow
def test_the_command_limits_its_own_process(tmp_path):
    path = a_session(tmp_path, a_job()).path

    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "query", path, "SELECT count(*) FROM gpu"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0 and "limit True True" in done.stdout, done
