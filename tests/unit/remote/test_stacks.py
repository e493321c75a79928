"""Captures of real processes of this machine by the real py-spy: what is read, what is not and why."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakeproc import check
from hypothesis import given, settings
from hypothesis import strategies as st

from gconsole_remote import clock, native, pyspy, sources, stacks
from gconsole_remote.procfs import ProcFs
from gconsole_remote.samplers.processes import ChildRef, RankRef, Seen
from gconsole_remote.sources import Sources

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
READY = "\nimport sys; sys.stdout.write('ready\\n'); sys.stdout.flush()\n"
SLEEP = READY + "import time\ndef rest():\n    time.sleep(600)\nrest()\n"
LOCK = READY + (
    "import threading\nlock = threading.Lock()\nlock.acquire()\ndef take():\n    with lock:\n        pass\ntake()\n"
)
SPIN = READY + "while True: pass\n"
UNICODE = (
    "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), name='wörk\\x1b [b]', daemon=True).start()\n"
    + READY + "time.sleep(600)\n"
)
THREADS = (
    "import threading, time\n"
    "for _ in range(200): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n" + READY
    + "time.sleep(600)\n"
)


class Blobs:
    """py-spy as a node has it, or lacks it."""

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
        """Run some code until it has come to rest, or to whatever state."""
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
        return Seen(tuple(refs), tuple(children), 0, 0, 0, 0)

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


@pytest.fixture
def ranks():
    ranks = Ranks()
    yield ranks
    ranks.end()


def capture(seen, *, samples=1, every_ms=50, deadline_s=20.0, blobs=None, jobs=None, ahead_s=0.0, **more):
    """The answer of the verb, and its records."""
    at = clock.realtime_ns() + int(ahead_s * 1e9)
    plan = stacks.Plan({
        "id": "c", "at": at, "jobs": jobs, "samples": samples, "every_ms": every_ms,
        "deadline": at + int(deadline_s * 1e9), **more,
    })  # fmt: skip
    said = []
    answer = stacks.Capture(plan, seen, blobs or Blobs(), lambda facts: said.extend(facts)).run()
    return answer, [check(kind, fields) for kind, fields in said]


def main_thread(records, rank=0):
    return next(one for one in records if one.rank == rank and one.thread_name in ("MainThread", None))


def test_a_rank_is_read_with_its_frames_outermost_first(ranks):
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen())
    stack = main_thread(records)
    assert [frame.function for frame in stack.frames] == ["<module>", "rest"]
    assert (stack.status, stack.engine, stack.mode, stack.proc_state) == ("ok", "py-spy", "nonblocking", "S")
    assert stack.at <= stack.looked <= stack.began <= stack.ended
    assert stack.tracer_pid == 0
    assert answer["statuses"] == {"ok": 1}
    assert answer["stopped_since"] == 0


def test_a_rank_in_a_lock_says_so_by_its_system_call(ranks):
    ranks.python(LOCK)
    _, records = capture(ranks.seen())
    stack = main_thread(records)
    assert stack.frames[-1].function == "take"
    assert stack.syscall == "futex"


def test_a_stopped_rank_is_read_and_stays_stopped(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    _, records = capture(ranks.seen())
    assert main_thread(records).status == "ok"
    assert main_thread(records).proc_state == "T"
    assert ranks.state(0) == "T", "it was stopped by somebody else, and only they let it go on"


def test_an_uninterruptible_rank_is_read_and_the_capture_ends(ranks, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    code = READY + (  # the parent of a vfork waits in D until its child has opened the pipe
        "import os\nos.posix_spawn('/bin/true', ['true'], {}, "
        f"file_actions=[(os.POSIX_SPAWN_OPEN, 0, {str(tmp_path / 'fifo')!r}, os.O_RDONLY, 0)])\n"
    )
    ranks.python(code, until="D")
    began = time.monotonic()
    _, records = capture(ranks.seen())
    assert time.monotonic() - began < 3
    assert main_thread(records).proc_state == "D"
    assert main_thread(records).status == "ok"
    with (tmp_path / "fifo").open("wb"):
        pass  # lets the child of the vfork go


def test_nothing_is_left_stopped_by_a_capture(ranks):
    ranks.python(SPIN, until="R")
    for code in (SLEEP, LOCK):
        ranks.python(code)
    answer, _ = capture(ranks.seen(), samples=3)
    assert answer["stopped_since"] == 0
    assert all(ranks.state(number) not in "Tt" for number in range(3))


def test_a_rank_that_has_ended_is_gone_with_how(ranks):
    ranks.python(SLEEP)
    seen = ranks.seen()
    ranks.processes[0].kill()
    ranks.until_state(0, "Z")
    _, [stack] = capture(seen)
    assert (stack.status, stack.frames, stack.proc_state) == ("gone", None, "Z")
    assert "SIGKILL" in stack.reason


def test_a_pid_that_is_anothers_by_now_is_gone(ranks):
    ranks.python(SLEEP)
    seen = ranks.seen()
    seen.ranks[0].start_ticks -= 1
    _, [stack] = capture(seen)
    assert (stack.status, stack.proc_state) == ("gone", None)


def test_a_rank_that_is_no_python_says_so_and_keeps_its_figures(ranks):
    ranks.start(["/bin/sh", "-c", "echo ready; exec sleep 600"])
    _, [stack] = capture(ranks.seen())
    assert stack.status == "not_python"
    assert stack.proc_state is not None


def test_a_node_without_py_spy_says_why(ranks):
    ranks.python(SLEEP)
    _, [stack] = capture(ranks.seen(), blobs=Blobs(None, "the console has no py-spy for riscv64"))
    assert (stack.status, stack.reason) == ("tool_missing", "the console has no py-spy for riscv64")
    assert "gconsole bundle" in stack.try_
    assert stack.syscall is not None, "/proc says what it says"


def a_slow_py_spy(tmp_path, code="sleep 600 & sleep 600\n"):
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\n{code}")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return Blobs(str(tool))


def test_a_reader_that_hangs_is_killed_with_all_it_started_and_not_tried_again(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "PROCESS_S", 0.3)
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(), samples=2, blobs=a_slow_py_spy(tmp_path))
    assert [stack.status for stack in records] == ["timed_out", "timed_out"]
    assert answer["samples"] == 2
    [group] = (tmp_path / "pids").read_text().split()
    assert living_of(int(group)) == []


def living_of(group):
    """The processes of a group that run; dead ones may still be there, until init has taken note."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(path.parent.name)
    return found


def test_a_capture_ends_by_its_deadline_with_what_it_has(ranks, tmp_path):
    for _ in range(4):
        ranks.python(SLEEP)
    began = time.monotonic()
    _, records = capture(ranks.seen(), deadline_s=0.5, blobs=a_slow_py_spy(tmp_path))
    assert time.monotonic() - began < 3
    assert {stack.status for stack in records} == {"timed_out"}
    assert len(records) == 4, "each rank has a record, also the one whose turn did not come"


def test_a_read_that_makes_no_sense_is_made_again(ranks, tmp_path):
    ranks.python(SLEEP)
    torn = f"""[ -e {tmp_path}/torn ] && exec {PY_SPY} "$@"\ntouch {tmp_path}/torn\necho '[{{"pid"'\n"""
    _, records = capture(ranks.seen(), blobs=a_slow_py_spy(tmp_path, torn))
    assert main_thread(records).status == "ok"


def test_what_never_makes_sense_is_unreadable(ranks, tmp_path):
    ranks.python(SLEEP)
    _, [stack] = capture(ranks.seen(), blobs=a_slow_py_spy(tmp_path, "echo '[]'\n"))
    assert stack.status == "unreadable"


def test_samples_tell_who_worked_between_them(ranks):
    ranks.python(SPIN, until="R")
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(), samples=3, every_ms=200)
    spun = [stack.cpu_delta_s for stack in records if stack.rank == 0]
    slept = [stack.cpu_delta_s for stack in records if stack.rank == 1]
    assert spun[0] is None and spun[-1] > 0
    assert slept[-1] == 0
    assert answer["samples"] == 3


def test_a_stack_that_was_sent_is_not_sent_again(ranks):
    for _ in range(3):
        ranks.python(SLEEP)
    _, records = capture(ranks.seen(), samples=2)
    assert len({stack.path for stack in records}) == 1
    assert [stack.frames is not None for stack in records] == [True] + [False] * 5


def test_workers_of_a_rank_are_read_under_its_number(ranks):
    ranks.python(SLEEP)
    ranks.python(SLEEP)
    answer, records = capture(ranks.seen(roles=(None, "dataloader_worker")))
    assert {(stack.role, stack.rank) for stack in records} == {("rank", 0), ("dataloader_worker", 0)}
    assert (answer["ranks"], answer["processes"]) == (1, 2)


def test_only_the_jobs_that_were_asked_for_are_read(ranks):
    ranks.python(SLEEP)
    assert capture(ranks.seen(), jobs=["another"])[0]["processes"] == 0


def test_a_capture_begins_at_the_instant_that_was_asked_for(ranks):
    for _ in range(8):
        ranks.python(SLEEP)
    _, records = capture(ranks.seen(), ahead_s=0.3)
    assert all(0 <= stack.looked - stack.at < 200_000_000 for stack in records)


def test_a_plan_of_another_year_is_refused():
    now = clock.realtime_ns()
    with pytest.raises(stacks.BadPlan, match="clocks"):
        stacks.Plan({"id": "c", "at": now + 10**15, "deadline": now + 2 * 10**15})


def test_names_with_control_characters_and_two_hundred_threads_do_no_harm(ranks):
    ranks.python(UNICODE)
    ranks.python(THREADS)
    _, records = capture(ranks.seen())
    assert "wörk  [b]" in {stack.thread_name for stack in records}
    assert sum(stack.rank == 1 for stack in records) == 201


def test_a_process_that_may_not_be_read_says_what_would_help(monkeypatch):
    monkeypatch.setattr(pyspy.os, "geteuid", lambda: 1000)
    assert "uid 0" in pyspy.remedy(0) and 'run_as = "sudo"' in pyspy.remedy(0)
    monkeypatch.setattr(pyspy, "_ptrace_scope", lambda: 1)
    assert "kernel.yama.ptrace_scope=0 (is 1)" in pyspy.remedy(1000)
    monkeypatch.setattr(pyspy.os, "geteuid", lambda: 0)
    assert "SYS_PTRACE" in pyspy.remedy(1000)


@pytest.mark.parametrize(("said", "status"), [
    ("Error: Failed to find python version from target process\n\nStack backtrace:\n 0: x", "not_python"),
    ("Error: Unsupported version of Python: 3.19.0", "unsupported_python"),
    ("Permission Denied: Try running again with elevated permissions", "no_permission"),
    ("Error: Failed to copy PyThreadState head pointer", "unreadable"),
])
def test_py_spys_words_have_a_status(said, status):
    assert pyspy.refusal(said, 1).status == status


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"active": true}]', b"\xff[", b'[{"frames": 3}]'])
def test_what_is_not_py_spys_form_is_told(data):
    with pytest.raises(ValueError):
        pyspy.parse(data)


_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_ANY = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
_FRAME = st.fixed_dictionaries({"name": _LEAF, "filename": _LEAF, "line": _LEAF})
_THREAD = st.fixed_dictionaries({
    "thread_id": _LEAF, "os_thread_id": _LEAF, "thread_name": _LEAF, "active": _LEAF, "owns_gil": _LEAF,
    "frames": st.lists(_FRAME | _ANY, max_size=4) | _ANY,
})  # fmt: skip


@given(st.lists(_THREAD | _ANY, max_size=3) | _ANY)
@settings(max_examples=300, deadline=None)
def test_whatever_py_spy_says_is_threads_or_told(said):
    """What is taken for threads also makes records that fit."""
    try:
        threads = pyspy.parse(json.dumps(said).encode())
    except ValueError:
        return
    maker = stacks.Capture.__new__(stacks.Capture)
    maker._paths, maker._sources = {}, Sources(ProcFs())
    maker.plan = stacks.Plan({"id": "c", "at": 0, "deadline": 1})
    me = stacks.Target(RankRef({
        "job": "j", "attempt": 0, "rank": 0, "local_rank": 0, "pid": os.getpid(), "start_ticks": 1, "gpu": None,
        "ns_pid": None,
    }), "rank")  # fmt: skip
    for thread in threads:
        place = {"capture": "c", "sample": 0, "job": "j", "rank": 0, "pid": 1, "start_ticks": 1, "status": "ok"}
        check("stack", dict(place, **maker._thread_fields(me, thread)))


def test_a_nest_without_end_is_told():
    with pytest.raises(ValueError):
        pyspy.parse(b"[" * 100_000)


#: Takes the agent's folder, py-spy and a pid; prints the records of a capture of that process.
ELSEWHERE = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from gconsole_remote import clock, stacks
from gconsole_remote.procfs import ProcFs
from gconsole_remote.samplers.processes import RankRef, Seen
class Blobs(object):
    def path(self, name): return sys.argv[2]
pid = int(sys.argv[3])
fields = dict(job="j", attempt=0, rank=0, local_rank=0, pid=pid, start_ticks=ProcFs().stat(pid).start_ticks,
              gpu=None, ns_pid=None)
now = clock.realtime_ns()
plan = stacks.Plan({"id": "c", "at": now, "samples": 2, "every_ms": 10, "deadline": now + 10 ** 10})
seen = Seen((RankRef(fields),), (), 0, 0, 0, 0)
stacks.Capture(plan, seen, Blobs(), lambda facts: [print(json.dumps(fact)) for fact in facts]).run()
"""


def interpreters():
    """Every Python on this machine, oldest first."""
    found = Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python")
    return [str(path) for path in sorted(found, key=lambda path: int(path.parts[-3].split(".")[1]))] or [sys.executable]


@pytest.mark.parametrize("interpreter", interpreters())
def test_the_oldest_agent_reads_every_python(ranks, tmp_path, interpreter):
    (tmp_path / "gconsole_remote").symlink_to(Path(stacks.__file__).parent)
    target = ranks.start([interpreter, "-c", SLEEP])
    ranks.until_state(0, "S")
    argv = [interpreters()[0], "-B", "-c", ELSEWHERE, str(tmp_path), PY_SPY, str(target.pid)]
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout
    records = [check(*json.loads(line)) for line in said.splitlines()]
    assert [stack.status for stack in records] == ["ok", "ok"], records
    assert [frame.function for frame in records[0].frames] == ["<module>", "rest"]


CALLS = READY + (
    "import time\ndef recv(src, secret='s3'):\n    time.sleep(600)\ndef send(src):\n    recv(src + 1)\nsend(1)\n"
)


def test_variables_are_read_by_name_and_no_others(ranks):
    ranks.python(CALLS)
    _, records = capture(ranks.seen(), locals=["src"])
    stack = main_thread(records)
    found = [(stack.frames[one.frame].function, one.name, one.value) for one in stack.locals]
    assert found == [("send", "src", "1"), ("recv", "src", "2")]
    assert "s3" not in str(records)


def test_variables_may_be_asked_for_of_one_function_only(ranks):
    ranks.python(CALLS)
    _, records = capture(ranks.seen(), locals=["recv:src"])
    assert [one.value for one in main_thread(records).locals] == ["2"]


def test_without_being_asked_no_variable_is_read(ranks):
    ranks.python(CALLS)
    assert main_thread(capture(ranks.seen())[1]).locals is None


def test_only_the_processes_that_were_named_are_read(ranks):
    ranks.python(SLEEP)
    ranks.python(SLEEP)
    _, records = capture(ranks.seen(), only=[ranks.processes[1].pid])
    assert {record.rank for record in records} == {1}


def test_native_calls_are_read_last_and_the_process_goes_on(ranks):
    ranks.python(LOCK)
    answer, records = capture(ranks.seen(), native=[ranks.processes[0].pid])
    plain, whole = [record for record in records if record.thread_name == "MainThread"]
    assert (plain.native, plain.mode, whole.native, whole.mode) == (False, "nonblocking", True, "blocking")
    assert whole.sample == plain.sample + 1
    assert whole.began < whole.ended
    assert [frame.function for frame in whole.frames if not frame.native] == ["<module>", "take"]
    assert any("acquire_lock" in frame.function for frame in whole.frames if frame.native)
    assert answer["stopped_since"] == 0
    ranks.until_state(0, "S")


def test_nobody_attaches_to_what_is_stopped(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    _, records = capture(ranks.seen(), native=[ranks.processes[0].pid])
    assert [record.native for record in records] == [False]
    assert ranks.state(0) == "T"


def test_a_process_that_was_stopped_by_the_reading_is_let_go(ranks):
    ranks.python(SLEEP)
    ranks.processes[0].send_signal(signal.SIGSTOP)
    ranks.until_state(0, "T")
    native.let_go(ProcFs(), ranks.seen().ranks[0])
    ranks.until_state(0, "S")


def test_the_line_of_source_comes_with_the_jobs_own_innermost_call(ranks, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(READY + "import json, threading\ndef rest():\n    threading.Event().wait()\nrest()\n")
    ranks.start([sys.executable, str(script)])
    ranks.until_state(0, "S")
    stack = main_thread(capture(ranks.seen())[1])
    assert [frame.source for frame in stack.frames if frame.source] == ["threading.Event().wait()"]
    assert stack.frames[1].source == "threading.Event().wait()"


def test_a_source_that_cannot_be_read_is_left_out(ranks):
    ranks.python(SLEEP)  # "<string>" is no file
    assert [frame.source for frame in main_thread(capture(ranks.seen())[1]).frames] == [None, None]


def test_a_file_system_that_hangs_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_lines_of", lambda path: time.sleep(60))
    monkeypatch.setattr(sources, "PATIENCE_S", 0.05)
    reader = sources.Sources(ProcFs())
    began = time.monotonic()
    frames = [(f"f{number}", f"/x/{number}.py", 1, False) for number in range(9)]
    for frame in frames:
        reader.frames(os.getpid(), [frame])
    assert time.monotonic() - began < 5
