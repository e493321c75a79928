"""The agent on the oldest Python of this machine captures ranks on all others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_proc import check
from live_ranks import PY_SPY, SLEEP

from gconsole_remote.stacks import capture

#: argv: the agent's folder, py-spy, a pid. Prints the records of a capture of that process.
ELSEWHERE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from gconsole_remote.clocks import stamps as clock; from gconsole_remote.stacks import capture as stacks
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.process_snapshot import ProcessSnapshot, RankRef
class Blobs(object):
    def path(self, name): return sys.argv[2]
pid = int(sys.argv[3])
fields = dict(job="j", attempt=0, rank=0, local_rank=0, pid=pid, start_ticks=ProcFs().stat(pid).start_ticks,
              gpu=None, ns_pid=None)
now = clock.realtime_ns()
request = stacks.CaptureRequest({"id": "c", "at": now, "samples": 2, "every_ms": 10, "deadline": now + 10 ** 10})
seen = ProcessSnapshot((RankRef(fields),), (), 0, 0, {})
stacks.Capture(request, seen, Blobs(), lambda facts: [print(json.dumps(fact)) for fact in facts]).run()
"""


def interpreters():
    """Every Python on this machine, oldest first."""
    found = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python")
    return [str(path) for path in sorted(found, key=lambda path: int(path.parts[-3].split(".")[1]))] or [sys.executable]


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", interpreters())
def test_the_oldest_agent_reads_every_python(ranks, tmp_path, interpreter):
    (tmp_path / "gconsole_remote").symlink_to(Path(capture.__file__).parents[1])
    target = ranks.start([interpreter, "-c", SLEEP])
    ranks.until_state(0, "S")
    argv = [interpreters()[0], "-B", "-c", ELSEWHERE, str(tmp_path), PY_SPY, str(target.pid)]
    output = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=90).stdout
    records = [check(*json.loads(line)) for line in output.splitlines()]
    assert [stack.status for stack in records] == ["ok", "ok"], records
    assert [frame.function for frame in records[0].frames] == ["<module>", "rest"]
