"""The supervisor that is forked before its job: independent of its agent, and gone with it if no job came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gconsole_remote.jobs import job_dir, requests
from gconsole_remote.jobs.waiting_supervisor import WaitingSupervisor
from tests.unit.remote.test_jobs import Agent, a_spec, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the agent runs on Linux")

#: An agent with one open file, which becomes nice after the fork and ends at a line of its input.
_AGENT = """
import os, sys
from gconsole_remote.jobs.waiting_supervisor import WaitingSupervisor
held = open(os.devnull)
waiting = WaitingSupervisor()
os.nice(10)
print(waiting._pid, flush=True)
folder = sys.stdin.readline().strip()
if folder:
    assert waiting.is_alive()
    assert waiting.start(folder)
sys.stdin.readline()
os._exit(0)
"""


def an_agent() -> tuple[subprocess.Popen[str], int]:
    """An agent in a process of its own, which has one thread; the pid of its supervisor."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", _AGENT], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_job_outlives_its_agent_and_has_nothing_of_it(tmp_path):
    before = os.nice(0)
    command = f"nice; until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
    (tmp_path / "spec.json").write_text(json.dumps(a_spec(tmp_path, command)))
    agent, supervisor = an_agent()
    agent.communicate(f"{tmp_path}\n\n", timeout=60)  # it ends
    until(lambda: (tmp_path / "supervisor.json").exists())

    assert json.loads((tmp_path / "supervisor.json").read_text())["pid"] == supervisor
    assert os.getsid(supervisor) == supervisor
    argv = Path(f"/proc/{supervisor}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert argv[-1] == os.fsencode(tmp_path / "supervisor.py")
    links = {str(fd.readlink()) for fd in Path(f"/proc/{supervisor}/fd").iterdir()}
    allowed = {os.devnull, str(tmp_path / "supervisor.log"), str(tmp_path / "writes.log"), "anon_inode:inotify"}
    assert links <= allowed
    output = tmp_path / "ranks/env/attempt_0/0/output.log"
    until(lambda: "\n" in output.read_text())
    assert int(output.read_text().splitlines()[0]) == before

    (tmp_path / "go").touch()
    until(lambda: (tmp_path / "exit.json").exists())
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 3
    until(lambda: is_gone(supervisor))
    assert (tmp_path / "supervisor.log").read_text() == ""


def test_without_a_job_it_ends_with_its_agent():
    agent, supervisor = an_agent()
    agent.communicate("\n\n", timeout=60)
    until(lambda: is_gone(supervisor))


def test_a_failure_is_in_its_log(tmp_path):
    (tmp_path / "spec.json").write_text("{")
    agent, supervisor = an_agent()
    agent.communicate(f"{tmp_path}\n\n", timeout=60)
    until(lambda: is_gone(supervisor))
    assert "JSONDecodeError" in (tmp_path / "supervisor.log").read_text()


class Ended:
    """A supervisor that ended after the job was prepared."""

    has_ended = False

    def is_alive(self) -> bool:
        return not self.has_ended

    start = WaitingSupervisor.start
    _reap = WaitingSupervisor._reap

    def __init__(self) -> None:
        reader, self._order = os.pipe()
        os.close(reader)
        self._pid = -1


def test_a_job_whose_waiting_supervisor_was_killed_gets_a_new_one(tmp_path):
    agent = Agent(tmp_path / "cache")
    Path(agent.place.root).mkdir(0o700)
    agent.waiting_supervisor = Ended()
    spec = a_spec(tmp_path, "exit 0")
    folder = job_dir.JobFolder(requests.prepare(agent, {"spec": spec})["folder"])
    assert not Path(folder.file("supervisor.py")).exists()
    requests.begin(agent, {"job": spec["job"]})
    until(lambda: folder.read(job_dir.EXIT) is not None)
    assert folder.read(job_dir.EXIT)["code"] == 0
    assert agent.waiting_supervisor is None
