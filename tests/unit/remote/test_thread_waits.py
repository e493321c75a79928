"""What threads of real processes wait for, and who holds the other end, as a capture reads it."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_ranks import READY, SLEEP, capture, main_thread

from gconsole.records import Connection
from gconsole_remote.proc.activity import parse_syscall
from gconsole_remote.proc.last_run import LastRuns
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import connections
from gconsole_remote.stacks.capture import BadCaptureRequest
from gconsole_remote.stacks.readers import PARSERS
from gconsole_remote.stacks.thread_waits import ThreadWaits, ancestors

#: Listens; the next two accept and never send, or never accept.
SERVER = "import socket\ns = socket.create_server(('127.0.0.1', {port}))\n" + READY
SILENT = SERVER + "c, _ = s.accept()\nimport time\ntime.sleep(600)\n"
DEAF = SERVER + "import time\ntime.sleep(600)\n"


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def client(port, wait):
    connect = f"import socket, select, selectors\nc = socket.create_connection(('127.0.0.1', {port}))\n"
    return f"{connect}{READY}{wait}\n"


def until_blocked(ranks, number, *calls):
    """Wait until the main thread of a rank is in one of these system calls."""
    pid, deadline = ranks.processes[number].pid, time.monotonic() + 30
    while True:
        call = parse_syscall(Path(f"/proc/{pid}/syscall").read_bytes())
        if call is not None and call[0] in calls:
            return
        assert time.monotonic() < deadline, call
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("wait", "call"),
    [
        ("c.recv(1)", "recvfrom"),
        ("c.settimeout(600); c.recv(1)", "poll"),
        ("select.select([c], [], [])", "select pselect6"),
        ("p = select.poll(); p.register(c, select.POLLIN); p.poll()", "poll ppoll"),
        ("s = selectors.EpollSelector(); s.register(c, 1); s.select()", "epoll_wait epoll_pwait"),
        ("c.makefile('rb').read(1)", "recvfrom"),
        ("import os; os.read(c.fileno(), 1)", "read"),
    ],
    ids=["recv", "recv with timeout", "select", "poll", "epoll", "makefile", "read"],
)
def test_thread_in_any_call_on_a_socket_leads_to_the_rank_at_its_other_end(ranks, port, wait, call):
    ranks.python(SILENT.format(port=port), until="S")
    ranks.python(client(port, wait), until="S")
    until_blocked(ranks, 1, *call.split())
    _, records = capture(ranks.seen())
    stack = main_thread(records, rank=1)
    [target] = stack.waits_for
    assert (target.kind, target.direction, target.pids) == ("tcp", "read", (ranks.processes[0].pid,))
    assert target.remote == f"127.0.0.1 {port}"
    assert target.moved_bytes is not None
    assert (stack.thread_state, stack.thread_syscall in call) == ("S", True)


def test_connection_that_is_not_accepted_yet_leads_to_the_rank_that_listens(ranks, port):
    ranks.python(DEAF.format(port=port))
    ranks.python(client(port, "c.recv(1)"))
    until_blocked(ranks, 1, "recvfrom")
    _, records = capture(ranks.seen())
    assert main_thread(records, rank=1).waits_for[0].pids == (ranks.processes[0].pid,)


def test_threads_that_are_not_read_as_python_threads_show_the_sockets_of_a_library(ranks, port):
    ranks.python(SILENT.format(port=port), until="S")
    wait = "import threading, time\nthreading.Thread(target=c.recv, args=(1,)).start()\ntime.sleep(600)"
    process = ranks.python(client(port, wait), until="S")
    waits = ThreadWaits(ProcFs(), [process.pid for process in ranks.processes], PARSERS)
    deadline = time.monotonic() + 30
    while not (targets := waits.native_waits(process.pid, [process.pid])):
        assert time.monotonic() < deadline
        time.sleep(0.01)
        waits = ThreadWaits(ProcFs(), [process.pid for process in ranks.processes], PARSERS)
    assert [(target["kind"], target["pids"]) for target in targets] == [("tcp", [ranks.processes[0].pid])]
    threads = [int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()]
    assert waits.native_waits(process.pid, threads) == []


def test_shared_memory_that_two_ranks_have_open_is_a_wait_of_both(ranks):
    code = "import os\nos.open('/dev/shm/gconsole-test-%d', os.O_RDWR | os.O_CREAT)\n%s"
    try:
        pids = [ranks.python(code % (os.getpid(), SLEEP), until="S").pid for _ in range(2)]
        _, records = capture(ranks.seen())
    finally:
        Path(f"/dev/shm/gconsole-test-{os.getpid()}").unlink()
    for rank in (0, 1):
        [target] = next(stack.native_waits for stack in records if stack.rank == rank and stack.native_waits)
        assert (target.kind, target.pids) == ("memory", (pids[1 - rank],))


def test_rank_waiting_for_a_connection_is_shown_as_listening(ranks, port):
    ranks.python((SERVER + "s.accept()\n").format(port=port))
    until_blocked(ranks, 0, "accept4", "accept")
    _, records = capture(ranks.seen())
    assert [target.kind for target in main_thread(records).waits_for] == ["listener"]


def test_thread_that_reads_a_pipe_leads_to_the_process_that_only_writes_it(ranks):
    ours, theirs = os.pipe()
    code = f"import os\n{READY}os.read({ours}, 1)\n"
    for number, (keep, program) in enumerate(((ours, code), (theirs, SLEEP))):
        os.set_inheritable(keep, True)
        process = ranks_process(ranks, program, keep)
        assert process.stdout.readline() == "ready\n", number
    os.close(ours), os.close(theirs)
    until_blocked(ranks, 0, "read")
    _, records = capture(ranks.seen())
    [target] = main_thread(records).waits_for
    assert (target.kind, target.pids) == ("pipe", (ranks.processes[1].pid,))


def ranks_process(ranks, code, fd):
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, pass_fds=(fd,)
    )
    ranks.processes.append(process)
    return process


def test_file_that_is_being_opened_is_named(ranks, tmp_path):
    os.mkfifo(tmp_path / "shard")
    ranks.python(f"{READY}open({str(tmp_path / 'shard')!r})\n")
    until_blocked(ranks, 0, "openat")
    _, records = capture(ranks.seen())
    [target] = main_thread(records).waits_for
    assert (target.kind, target.path) == ("file", str(tmp_path / "shard"))


def test_socket_pair_leads_to_the_process_at_its_other_end(ranks):
    one, other = socket.socketpair()
    ranks_process(ranks, f"import socket\ns = socket.socket(fileno={one.fileno()})\n{READY}s.recv(1)\n", one.fileno())
    ranks_process(ranks, SLEEP, other.fileno())
    for process in ranks.processes:
        assert process.stdout.readline() == "ready\n"
    one.close(), other.close()
    until_blocked(ranks, 0, "recvfrom")
    _, records = capture(ranks.seen())
    [target] = main_thread(records).waits_for
    assert (target.kind, target.pids) == ("unix", (ranks.processes[1].pid,))


def test_pair_that_a_process_wakes_itself_with_has_no_holder(ranks):
    ranks.python(f"import asyncio\n{READY}asyncio.run(asyncio.sleep(600))\n")
    until_blocked(ranks, 0, "epoll_wait", "epoll_pwait")
    _, records = capture(ranks.seen())
    assert [(target.kind, target.pids) for target in main_thread(records).waits_for] == [("event", ())]


def test_lock_on_a_file_leads_to_its_holder_and_not_to_others_that_wait(ranks, tmp_path):
    path = tmp_path / "lock"
    code = f"import fcntl\nf = open({str(path)!r}, 'w')\n"
    ranks.python(code + "fcntl.flock(f, 2)\n" + SLEEP)
    ranks.python(code + READY + "fcntl.flock(f, 2)\n")
    ranks.python(code + READY + "fcntl.flock(f, 2)\n")
    for number in (1, 2):
        until_blocked(ranks, number, "flock")
    _, records = capture(ranks.seen())
    for rank in (1, 2):
        [target] = main_thread(records, rank=rank).waits_for
        assert (target.direction, target.pids) == ("lock", (ranks.processes[0].pid,))


def test_database_that_another_process_has_locked_is_found_while_sqlite_sleeps(ranks, tmp_path):
    path = str(tmp_path / "runs.db")
    code = f"import sqlite3\nd = sqlite3.connect({path!r}, timeout=600, isolation_level=None)\n"
    ranks.python(code + "d.execute('BEGIN IMMEDIATE')\nd.execute('CREATE TABLE t (x)')\n" + SLEEP)
    ranks.python(code + READY + "d.execute('BEGIN IMMEDIATE')\n")
    until_blocked(ranks, 1, "clock_nanosleep", "nanosleep")
    _, records = capture(ranks.seen())
    locked = [target for target in main_thread(records, rank=1).native_waits if target.kind == "file"]
    assert [(target.direction, target.path, target.pids) for target in locked] == [
        ("lock", path, (ranks.processes[0].pid,))
    ]
    assert not [target for target in main_thread(records).native_waits if target.kind == "file"]


def test_parent_waits_for_the_child_that_it_names(ranks):
    ranks.python(
        "import os, sys, time\nchildren = []\n"
        "for _ in range(2):\n    pid = os.fork()\n    if not pid:\n        sys.stdout.close(); time.sleep(600)\n"
        "    children.append(pid)\n"
        "sys.stderr.write(''); print('ready', flush=True)\nos.waitpid(children[1], 0)\n"
    )
    until_blocked(ranks, 0, "wait4")
    _, records = capture(ranks.seen())
    [target] = main_thread(records).waits_for
    pid = ranks.processes[0].pid
    children = sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    try:
        assert (target.kind, target.pids) == ("child", (children[1],))
    finally:
        for child in children:
            os.kill(child, 9)


def test_each_thread_has_its_own_state_and_target(ranks, port):
    ranks.python(SILENT.format(port=port))
    start = "import threading, time\nthreading.Thread(target=c.recv, args=(1,), daemon=True).start()\n"
    wait = start + "time.sleep(600)"
    ranks.python(client(port, wait))
    until_blocked(ranks, 1, "clock_nanosleep")
    _, records = capture(ranks.seen())
    threads = {record.thread_name: record for record in records if record.rank == 1}
    main = threads.pop("MainThread")
    [other] = threads.values()
    assert (main.thread_syscall, main.waits_for) == ("clock_nanosleep", ())
    assert other.thread_syscall == "recvfrom"
    assert other.waits_for[0].pids == (ranks.processes[0].pid,)


def test_bytes_moved_on_a_connection_count_up(ranks, port):
    feeds = "c, _ = s.accept()\nimport time\nwhile True:\n    c.sendall(b'x' * 1000); time.sleep(0.01)\n"
    ranks.python((SERVER + feeds).format(port=port))
    ranks.python(client(port, "while True: c.recv(1)"), until="S")
    deadline, seen = time.monotonic() + 60, []
    while len(set(seen)) < 3:
        _, records = capture(ranks.seen())
        targets = main_thread(records, rank=1).waits_for or ()
        seen += [target.moved_bytes for target in targets]
        assert time.monotonic() < deadline, seen
    assert seen == sorted(seen)


def test_time_since_a_thread_ran_is_never_longer_than_it_slept(ranks):
    began = time.monotonic()
    ranks.python(SLEEP)
    until_blocked(ranks, 0, "clock_nanosleep")
    blocked = time.monotonic()
    time.sleep(0.5)
    _, records = capture(ranks.seen())
    slept = main_thread(records).thread_slept_s
    if slept is None:
        pytest.skip("this kernel has no /proc/PID/sched")
    assert 0.4 < slept <= time.monotonic() - began
    assert slept <= time.monotonic() - blocked + 0.1


def test_sleep_of_a_thread_that_waits_for_another_processor_is_unknown(tmp_path):
    """The kernel sets the field to 0 when it moves a thread that wakes up; the thread seemed to sleep since boot."""
    for process, ran in (("7/task/7", "0.000000"), ("7/task/8", "5000.000000"), ("thread-self", "9000.000000")):
        (tmp_path / process).mkdir(parents=True)
        (tmp_path / process / "sched").write_text(f"python (7, #threads: 2)\nse.exec_start   :   {ran}\n")
    last_runs = LastRuns(ProcFs(str(tmp_path)))
    processor = min(os.sched_getaffinity(0))
    assert last_runs.slept_s(7, 7, processor) is None
    assert 3.9 < last_runs.slept_s(7, 8, processor) < 60


def test_thread_that_runs_has_not_slept(ranks):
    ranks.python(READY + "while True: pass\n", until="R")
    _, records = capture(ranks.seen())
    assert (main_thread(records).thread_slept_s or 0.0) < 0.5


def test_holders_of_asked_for_connections_are_posted(ranks, port):
    ranks.python(SILENT.format(port=port))
    ranks.python(client(port, "print(c.getsockname()[1], flush=True); c.recv(1)"))
    own = int(ranks.processes[1].stdout.readline())
    until_blocked(ranks, 1, "recvfrom")
    end = [f"127.0.0.1 {port}", f"127.0.0.1 {own}"]
    _, records = capture(ranks.seen(), sockets=[end, ["10.9.9.9 1", "10.9.9.9 2"]])
    [record] = [record for record in records if isinstance(record, Connection)]
    assert [record.local, record.remote] == end
    assert record.pids == (ranks.processes[0].pid,)


def test_holder_that_is_no_rank_is_searched_among_all_processes(ranks, port):
    ranks.python(SILENT.format(port=port))
    ranks.python(client(port, "print(c.getsockname()[1], flush=True); c.recv(1)"))
    own = int(ranks.processes[1].stdout.readline())
    until_blocked(ranks, 1, "recvfrom")
    seen = ranks.seen()
    seen.ranks = seen.ranks[1:]  # the server is no rank
    _, records = capture(seen, sockets=[[f"127.0.0.1 {port}", f"127.0.0.1 {own}"]])
    [record] = [record for record in records if isinstance(record, Connection)]
    assert record.pids == (ranks.processes[0].pid,)


def test_process_outside_of_the_job_is_read_with_what_it_waits_for(ranks, port):
    ranks.python(SILENT.format(port=port).replace("import time\ntime.sleep(600)", "c.recv(1)"))
    ranks.python(client(port, "c.recv(1)"))
    for number in range(2):
        until_blocked(ranks, number, "recvfrom")
    seen = ranks.seen()
    seen.ranks = seen.ranks[1:]
    pid = ranks.processes[0].pid
    _, records = capture(seen, only=[], peers=[[pid, "llama", 3], [1 << 22, "llama", 3]])
    [stack, gone] = sorted(records, key=lambda record: record.pid)
    assert (gone.status, gone.reason) == ("gone", f"no process with pid {1 << 22}")
    assert (stack.role, stack.pid, stack.rank, stack.job, stack.attempt) == ("peer", pid, None, "llama", 3)
    assert [target.pids for target in stack.waits_for] == [(ranks.processes[1].pid,)]


def test_pipe_from_the_parent_leads_to_the_parent_although_it_is_no_rank(ranks):
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read(1)'], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    process = ranks.start([sys.executable, "-c", parent], ready=False)
    child = int(process.stdout.readline())
    procfs = ProcFs()
    deadline = time.monotonic() + 30
    while True:
        waits = ThreadWaits(procfs, [child, *ancestors(procfs, [child])], PARSERS)
        targets = waits.fields(child, [child], time.monotonic())[0].get("waits_for") or [{}]
        if targets[0].get("kind") == "pipe":
            break
        assert time.monotonic() < deadline, targets
        time.sleep(0.05)
    assert targets[0]["pids"] == [process.pid]


@pytest.mark.parametrize(
    "peers",
    ["x", 7, [1], [[1, "job"]], [["1", "job", 0]], [[True, "job", 0]], [[1, "job", 0]] * 17],
    ids=["text", "number", "no list", "no attempt", "no number", "truth value", "too many"],
)
def test_invalid_list_of_peers_is_refused(ranks, peers):
    with pytest.raises(BadCaptureRequest, match="peers"):
        capture(ranks.seen(), peers=peers)


@pytest.mark.parametrize(
    "sockets",
    ["x", [1], [["a"]], [["10.0.0.1", "b 1"]], [["a 1", "b x"]], [["a 1", "b 1"]] * (connections.MAX_ENDS + 1)],
    ids=["text", "number", "one end", "no port", "no number", "too many"],
)
def test_invalid_list_of_sockets_is_refused(ranks, sockets):
    with pytest.raises(BadCaptureRequest, match="sockets"):
        capture(ranks.seen(), sockets=sockets)


@pytest.mark.parametrize(
    ("wait", "lasts_s"),
    [
        ("import time; time.sleep(600)", 600),
        ("import threading; threading.Event().wait(600)", 600),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=600)", 600),
        ("import select; select.select([], [], [], 600)", 600),
        ("import ctypes; ctypes.CDLL(None).usleep(600_000_000)", 600),
        ("import socket; a, b = socket.socketpair(); a.settimeout(600); a.recv(1)", 600),
        ("import socket; a, b = socket.socketpair(); a.recv(1)", None),
        ("import select; select.poll().poll()", None),
        ("import threading; threading.Event().wait()", None),
        ("import os; r, w = os.pipe(); os.read(r, 1)", None),
    ],
    ids=[
        "sleep", "event", "lock", "select", "usleep", "socket", "socket without a limit", "poll without a limit",
        "event without a limit", "pipe",
    ],
)  # fmt: skip
def test_sleep_and_wait_with_a_limit_show_when_they_end(ranks, wait, lasts_s):
    ranks.python(f"{READY}{wait}\n", until="S")
    until_blocked(ranks, 0, "clock_nanosleep", "nanosleep", "futex", "select", "pselect6", "read", "poll", "recvfrom")
    _, records = capture(ranks.seen())
    left_s = main_thread(records, rank=0).thread_wakes_in_s
    assert (left_s is None) if lasts_s is None else (lasts_s - 60 < left_s <= lasts_s)
