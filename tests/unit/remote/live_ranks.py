"""Real processes that act as ranks, and captures of them by the real py-spy."""

import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

from fake_proc import check

from gconsole_remote.clocks import stamps
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.process_snapshot import ChildRef, ProcessSnapshot, RankRef
from gconsole_remote.stacks import capture as stacks

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
READY = "\nimport sys; sys.stdout.write('ready\\n'); sys.stdout.flush()\n"
SLEEP = READY + "import time\ndef rest():\n    time.sleep(600)\nrest()\n"
LOCK = READY + (
    "import threading\nlock = threading.Lock()\nlock.acquire()\ndef take():\n    with lock:\n        pass\ntake()\n"
)


class Blobs:
    """Binaries of a node, with or without py-spy."""

    def __init__(self, path=PY_SPY, problem=None):
        self._path, self._problem = path, problem

    def path(self, name):
        return self._path

    def problem(self, name):
        return self._problem


class Ranks:
    """Real processes of one test, numbered as ranks."""

    def __init__(self):
        self.processes = []

    def python(self, code, until="S"):
        """Run Python code until its process is in state `until`, by default sleeping."""
        process = self.start([sys.executable, "-c", code])
        self.until_state(len(self.processes) - 1, until)
        return process

    def start(self, argv, ready=True):
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        if ready:
            assert process.stdout.readline() == "ready\n"
        return process

    def seen(self, roles=()):
        procfs = ProcFs()
        refs, children = [], []
        for number, process in enumerate(self.processes):
            fields = {
                "job": "j", "attempt": 0, "rank": number, "local_rank": number, "pid": process.pid,
                "start_ticks": procfs.stat(process.pid).start_ticks, "gpu": None, "ns_pid": None,
            }  # fmt: skip
            if number < len(roles) and roles[number]:
                children.append(ChildRef({**fields, "role": roles[number], "rank": 0}, 0))
            else:
                refs.append(RankRef(fields))
        return ProcessSnapshot(tuple(refs), tuple(children), 0, 0, {})

    def state(self, number):
        return ProcFs().stat(self.processes[number].pid).state

    def until_state(self, number, letter):
        deadline = time.monotonic() + 10
        while self.state(number) != letter:
            assert time.monotonic() < deadline, self.state(number)
            time.sleep(0.01)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


def capture(seen, *, samples=1, every_ms=50, deadline_s=20.0, blobs=None, jobs=None, ahead_s=0.0, **more):
    """The response to the capture request, and its records."""
    at = stamps.realtime_ns() + int(ahead_s * 1e9)
    request = stacks.CaptureRequest({
        "id": "c", "at": at, "jobs": jobs, "samples": samples, "every_ms": every_ms,
        "deadline": at + int(deadline_s * 1e9), **more,
    })  # fmt: skip
    sent = []
    answer = stacks.Capture(request, seen, blobs or Blobs(), lambda facts: sent.extend(facts)).run()
    return answer, [check(kind, fields) for kind, fields in sent]


def main_thread(records, rank=0):
    """The main thread of a rank itself, not of a process below it."""
    of_rank = [record for record in records if record.role == "rank" and record.rank == rank]
    return next(record for record in of_rank if record.thread_name in ("MainThread", None))


def a_slow_py_spy(tmp_path, code="sleep 600 & sleep 600\n"):
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\n{code}")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return Blobs(str(tool))
