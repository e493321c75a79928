"""An agent that is root opens, runs and connects to what another user names only as that user, seen by strace.

The ranks of another uid name paths of theirs, and some that they may not read, wherever a rank can: `hostile_rank.py`.
The agent samples them as usual, takes a capture with variables and Flight Recorders, and reports a crash.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fork_server
import pytest
from jobs import start_plain
from program import GCONSOLE, batch
from rig import Rig, pythons

SOMEBODY = 65_534
RANK = Path(__file__).with_name("hostile_rank.py")
#: What ranks name contains one of these; and the port of their RAS.
MARKED = re.compile(r"gcyhostile|named-secret|torchelastic_named|named-trap")
RAS_PORT = 28_100
#: Calls that look at, open, run or connect to something; and those that change whose rights a thread has.
LOOKS = ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2")
OPENS = ("open", "openat", "openat2", "creat")
RUNS = ("execve", "execveat")
TRACED = ",".join((*LOOKS, *OPENS, *RUNS, "connect", "setuid", "setreuid", "setresuid", "setfsuid", "clone", "clone3",
                   "fork", "vfork"))  # fmt: skip
#: What root may look at although a user named it, without opening it: (pattern of the call, reason).
LOOKED_AT_BY_ROOT = (
    (r'"/proc/\d+/fd/\d+"', "the kind of file behind a descriptor that a thread waits for: nothing is opened"),
    (r'"torchelastic_named"', "the owner of a log folder, whose rights are taken to open it: in a folder open to all"),
    (r'"/tmp/torchelastic_named"', "the same, on an older Python"),
)
_LINE = re.compile(r"^(?P<tid>\d+) +(?P<call>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<tid>\d+) +<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)$")
_RESULT = re.compile(r"\) += (?P<value>-?\d+)")


@dataclass
class Call:
    """One complete system call of a thread, with the uid by which the kernel judges its access to files."""

    tid: int
    name: str
    text: str
    result: int | None
    fsuid: int = 0
    euid: int = 0


@dataclass
class Trace:
    """The calls of an agent and of its children, in the order in which they began."""

    calls: list[Call] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Trace:
        trace, pending = cls(), {}
        for line in text.splitlines():
            if (match := _RESUMED.match(line)) and (call := pending.pop(int(match["tid"]), None)):
                call.text += match["rest"]
            elif match := _LINE.match(line):
                call = Call(int(match["tid"]), match["call"], match["rest"], None)
                trace.calls.append(call)
                if call.text.endswith("<unfinished ...>"):
                    call.text = call.text.removesuffix("<unfinished ...>")
                    pending[call.tid] = call
                    continue
            else:
                continue
            if result := _RESULT.search(call.text):
                call.result = int(result["value"])
        trace._follow_ids()
        return trace

    def _follow_ids(self) -> None:
        ids: dict[int, tuple[int, int]] = {}  # thread: (effective uid, uid for access to files)
        for call in self.calls:
            euid, fsuid = ids.setdefault(call.tid, (0, 0))
            call.euid, call.fsuid = euid, fsuid
            if call.name in ("clone", "clone3", "fork", "vfork") and call.result and call.result > 0:
                ids[call.result] = (euid, fsuid)
            numbers = [int(word) for word in re.findall(r"-?\d+", call.text.partition(")")[0])]
            if call.name == "setfsuid" and numbers and numbers[0] >= 0:
                ids[call.tid] = (euid, numbers[0])
            elif call.name in ("setuid", "setreuid", "setresuid") and call.result == 0:
                new = numbers[0] if call.name == "setuid" else numbers[1]
                ids[call.tid] = (new, new) if new >= 0 else (euid, euid)

    def readers(self) -> list[Call]:
        """The starts of py-spy and pystack."""
        return [call for call in self.calls if call.name in RUNS and '"dump"' in call.text and call.result == 0]

    def connected(self) -> list[Call]:
        """Connections to what listens in a rank."""
        theirs = re.compile(rf"/proc/self/fd/|named-trap|{RAS_PORT}")
        return [call for call in self.calls if call.name == "connect" and theirs.search(call.text)]

    def has_connected(self) -> bool:
        """Whether RAS and a worker server were connected to."""
        texts = [call.text for call in self.connected()]
        return all(any(part in text for text in texts) for part in (str(RAS_PORT), "/proc/self/fd/"))

    def has_opened(self, *parts: str) -> bool:
        """Whether paths with each of these parts were opened."""
        texts = [call.text for call in self.named(*OPENS)]
        return all(any(part in text for text in texts) for part in parts)

    def named(self, *calls: str) -> Iterator[Call]:
        """Calls on what another user named: by their arguments, or by what they opened."""
        for call in self.calls:
            if call.name in calls and MARKED.search(_subject(call)):
                yield call


def _subject(call: Call) -> str:
    """Arguments and result of a call, without those that name nothing: the words of a program, an open descriptor."""
    if call.name in RUNS:
        return call.text.partition(", [")[0]
    if call.name in LOOKS and '""' in call.text:
        return ""  # of an open descriptor
    return call.text


@pytest.fixture(scope="module")
def trace(needs_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    if shutil.which("strace") is None:
        pytest.skip("no strace on this machine")
    if os.geteuid() != 0:
        pytest.skip("needs root, as which the agent runs")
    with Rig(nodes=1, name="gcy-least", is_first_start=True) as rig:
        node = rig.nodes[0]
        home = make_home(node.folder, node.inside)
        node.output(["sh", "-c", "echo loop > /root/named-secret; chmod 600 /root/named-secret"])
        script = node.folder / RANK.name
        shutil.copy(RANK, script)
        env = {"HOSTILE_HOME": f"{node.inside}/{home.name}"}
        with start_plain(rig, Path(node.inside, script.name), env=env, user=SOMEBODY) as job:
            job.wait_ready()
            deadline = time.monotonic() + 30
            while not all((home / f"stdout{rank}").exists() for rank in (0, 1)):
                assert time.monotonic() < deadline, job.output()
                time.sleep(0.05)
            _trace_python(node.folder / "bin" / "python3", f"{node.inside}/trace")
            hosts = rig.write_hosts_toml(tmp_path_factory.mktemp("least") / "hosts.toml")
            _run(hosts, node.folder, home)
            return Trace.read((node.folder / "trace").read_text(errors="replace"))


def make_home(folder: Path, inside: str) -> Path:
    """The home of the user, with an interpreter by another name."""
    home = folder / "gcyhostile"
    for name in ("work", "venv/bin", "inspector", "lib", "bin", "modules", "cache"):
        (home / name).mkdir(parents=True)
    (home / "venv/bin/python3").symlink_to(f"{inside}/bin/python3-of-user")
    (folder / "bin" / "python3-of-user").symlink_to(pythons.own_python())
    for path in (home, *home.rglob("*")):
        os.lchown(path, SOMEBODY, SOMEBODY)
    return home


def _trace_python(python: Path, output: str) -> None:
    python.unlink()
    traced = f"strace -f --seccomp-bpf -qq -y -s 4096 -A -e trace={TRACED} -o {output} {pythons.own_python()}"
    python.write_text(f'#!/bin/sh\nexec {traced} "$@"\n')
    python.chmod(0o755)


#: What a capture opens, and what an agent that watches a job and its crash does, by parts of their paths; on a busy
#: machine under strace, one capture may leave out what takes longer than its time limits.
OF_CAPTURE = ("flight_0", "nccl.", "x-pid", "train.py", "dump_0.pipe")
OF_CRASH = ("stdout0", "stdout1", "attempt_0", "torchelastic_named", "site")
CAPTURES, CRASH_S = 5, 120.0


def _run(hosts: Path, folder: Path, home: Path) -> None:
    """Captures with everything that they may read, until all was read; then the crash of rank 1, once its output is
    read, until its files were."""
    options = ("--set", "console.read_only=false", "--flight-pipe", "--locals", "seconds", "--samples", "2")
    for _ in range(CAPTURES):
        run = batch(hosts, "--for", "4s", "--capture", *options, deadline_s=240)
        assert run.node("node1")["state"] == "ok", run.stderr
        trace = _trace_of(folder, 0)
        if trace.has_opened(*OF_CAPTURE) and len(trace.readers()) > 4 and trace.has_connected():
            break
    begin = (folder / "trace").stat().st_size
    argv = [str(GCONSOLE), "batch", str(hosts), "--for", f"{CRASH_S:.0f}s", "--set", "agent.linger_s=0"]
    process = fork_server.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _await(process, lambda: _trace_of(folder, begin).has_opened("stdout1"))
        (home / "crash").touch()
        _await(process, lambda: _trace_of(folder, begin).has_opened(*OF_CRASH))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()


def _trace_of(folder: Path, begin: int) -> Trace:
    with (folder / "trace").open("rb") as file:
        file.seek(begin)
        return Trace.read(file.read().decode(errors="replace"))


def _await(process: Any, is_done: Callable[[], bool]) -> None:
    """Wait until something was seen, or the process has ended, at the latest after its own time."""
    while process.poll() is None and not is_done():
        time.sleep(0.5)


def test_root_opens_nothing_that_another_user_names(trace: Trace) -> None:
    opened = list(trace.named(*OPENS))
    assert [call.text for call in opened if call.fsuid == 0] == []
    assert {call.fsuid for call in opened} >= {SOMEBODY}, "nothing was opened"
    for word in (*OF_CAPTURE, *OF_CRASH):
        assert [call for call in opened if word in call.text], word


def test_root_runs_no_program_that_another_user_names_and_reads_ranks_as_their_user(trace: Trace) -> None:
    assert [call.text for call in trace.named(*RUNS) if call.euid == 0] == []
    assert len(trace.readers()) > 4
    assert {call.euid for call in trace.readers()} == {SOMEBODY}


def test_root_connects_to_no_socket_of_another_user(trace: Trace) -> None:
    assert {call.euid for call in trace.connected()} == {SOMEBODY}
    assert trace.has_connected()


def test_root_looks_at_nothing_that_another_user_names(trace: Trace) -> None:
    looked = [call for call in trace.named(*LOOKS) if call.fsuid == 0]
    excused = [pattern for pattern, reason in LOOKED_AT_BY_ROOT if reason]
    assert [call.text for call in looked if not any(re.search(pattern, call.text) for pattern in excused)] == []


def test_ids_of_threads_are_followed() -> None:
    lines = (
        "1 clone3({flags=CLONE_VM}, 88 <unfinished ...>", '2 openat(AT_FDCWD</>, "/a", O_RDONLY) = 3</a>',
        "1 <... clone3 resumed>) = 2", "2 setfsuid(7) = 0", '2 openat(AT_FDCWD</>, "/b", O_RDONLY) = 3</b>',
        "2 setfsuid(-1) = 7", "2 setfsuid(0) = 7", '2 openat(AT_FDCWD</>, "/c", O_RDONLY) = 3</c>',
        "2 setresuid(8, 8, 0) = 0", "2 vfork() = 3", '3 execve("/d", ["d"], 0x1 /* 2 vars */) = 0',
        '1 openat(AT_FDCWD</>, "/e", O_RDONLY) = 3</e>', "2 setresuid(9, 9, 9) = -1 EPERM (Operation not permitted)",
        '2 openat(AT_FDCWD</>, "/f", O_RDONLY) = 3</f>',
    )  # fmt: skip
    uids = {match[1]: call.fsuid for call in Trace.read("\n".join(lines)).calls
            if (match := re.search(r'"/(\w)"', call.text))}  # fmt: skip
    assert uids == {"a": 0, "b": 7, "c": 0, "d": 8, "e": 0, "f": 8}
