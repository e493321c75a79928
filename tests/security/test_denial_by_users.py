"""Input of one user of a node that needs a lot of CPU time or memory: the agent's use of both is bounded."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gconsole_remote.agent import commands
from gconsole_remote.comms import answers, collect, flight_recorder, flight_recorder_sources, nccl_log
from gconsole_remote.comms.flight_recorder import FlightRecorderDump
from gconsole_remote.comms.nccl_log import LogEntries
from gconsole_remote.comms.nccl_ras import RasStatus
from gconsole_remote.comms.values import SourceError
from gconsole_remote.proc import limited
from gconsole_remote.proc.environ import EnvironReader
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import py_spy

#: Maps a file whose path consists of 50,000 folders, each of one letter, on a file system that ends with the process.
MAPS_A_LONG_PATH = """
import mmap, os, time
for _ in range(50_000):
    os.mkdir("a"); os.chdir("a")
file = open("x", "wb+")
file.write(b"x" * 4096); file.flush()
mapped = mmap.mmap(file.fileno(), 4096)
print("ready", flush=True)
time.sleep(600)
"""
#: Every reader of maps, in a process that may use some seconds of CPU time.
READS_MAPS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
from gconsole_remote.comms import nccl_ras, nccl_version
from gconsole_remote.proc import programs
from gconsole_remote.proc.environ import EnvironReader
from gconsole_remote.proc.process_reader import ProcessReader, Request
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.unclaimed import _LIBRARIES
procfs, pid = ProcFs(), int(sys.argv[1])
assert max(map(len, procfs.read(pid, "maps", 1 << 26).split(b"\\n"))) > 100_000
assert nccl_version.loaded_version(procfs, pid) is None
assert _LIBRARIES.search(procfs.read(pid, "maps", 1 << 26)) is None
ProcessReader(procfs, ["RANK"], nccl_ras.LIBRARIES, always=True).get(Request(pid, 1, 0))
programs.version_of(procfs, pid)
EnvironReader(procfs, ["RANK"]).locate(pid)
print("read")
"""


@contextmanager
def mapping_of_a_long_path(folder: Path) -> Iterator[int]:
    """A process with one."""
    script = 'mount -t tmpfs none "$1" && cd "$1" && exec "$2" -c "$3"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(folder), sys.executable, MAPS_A_LONG_PATH]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_path_of_100_kb_in_maps_is_searched_in_linear_time(tmp_path: Path) -> None:
    with mapping_of_a_long_path(tmp_path) as pid:
        argv = [sys.executable, "-c", READS_MAPS, str(pid)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


# -- dumps -------------------------------------------------------------------------------------------------------------

#: Texts whose values take 20 to 64 times as much memory.
EXPANDING = {
    "lists in JSON": b'{"entries":[' + b"[]," * (5 << 20) + b"[]]}",
    "objects in JSON": b'{"entries":[' + b"{}," * (5 << 20) + b"{}]}",
    "lists in a pickle": b"\x80\x02(" + b"]" * (15 << 20) + b"l.",
}
READS_A_DUMP = """
import resource, sys, time
from gconsole_remote.agent import commands
from types import SimpleNamespace
from gconsole_remote.comms import collect, flight_recorder
data = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reader = collect.CollectivesReader(collect.CollectivesRequest({}), "c", [], None, print, time.monotonic() + 120)
try:
    reader._parse(SimpleNamespace(pid=None, start_ticks=0), "fr_dump", data, time.monotonic() + 120)
except ValueError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""


@pytest.mark.parametrize("data", EXPANDING.values(), ids=EXPANDING)
def test_dump_that_expands_takes_no_memory_of_the_agent(tmp_path: Path, data: bytes) -> None:
    assert len(data) < flight_recorder_sources.MAX_BYTES
    path = tmp_path / "dump"
    path.write_bytes(data)
    argv = [sys.executable, "-c", READS_A_DUMP, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reason, grown_mib = done.stdout.splitlines()
    assert "needs more than 256 MiB of memory or 5 s of CPU time" in reason or "MemoryError" in reason
    assert int(grown_mib) < 16


def test_dump_of_64_mib_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(SourceError, match="exceeds 16 MiB"):
        flight_recorder_sources.read_file(ProcFs(), os.getpid(), os.getuid(), str(path), None)


def test_large_dump_is_parsed_in_a_child_as_in_the_agent() -> None:
    entry = b'{"profiling_name":"nccl:all_reduce","record_id":%d,"pg_id":0,"process_group":["0","default_pg"]}'
    data = b'{"version":"2.5","entries":[' + b",".join(entry % number for number in range(20_000)) + b"]}"
    assert len(data) > limited.SMALL
    reader = collect.CollectivesReader(
        collect.CollectivesRequest({}), "c", [], ProcFs(), lambda facts: None, time.monotonic() + 120
    )
    nobody = SimpleNamespace(pid=None, start_ticks=0)
    made = reader._parse(nobody, "fr_dump", data, time.monotonic() + 120)
    assert isinstance(made, flight_recorder.FlightRecorderDump)
    expected = flight_recorder.parse(data)
    assert len(expected.earlier) > collect.MAX_EARLIER
    expected.earlier = [dict(entry, frames=None) for entry in expected.earlier[-collect.MAX_EARLIER :]]
    assert vars(made) == vars(expected)
    with pytest.raises(ValueError, match="invalid JSON"):
        reader._parse(nobody, "fr_dump", data[:-1], time.monotonic() + 120)


class Endless:
    """An object that takes all CPU time to be parsed."""

    def __init__(self, data: bytes) -> None:
        while data:
            pass


def test_parser_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(limited.SMALL + 1)
    monkeypatch.setattr(limited, "MOST_CPU_S", 1)
    with pytest.raises(ValueError, match="of CPU time"):
        limited.parse(Endless, Endless, data)


def test_parser_that_dies_or_does_not_end_is_replaced_and_the_next_input_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limited, "MOST_CPU_S", 1)

    def dies(data: bytes, deadline: float) -> SimpleNamespace:
        os.kill(os.getpid(), 9)
        return SimpleNamespace()

    def sleeps(data: bytes, deadline: float) -> SimpleNamespace:
        time.sleep(600)
        return SimpleNamespace()

    def length(data: bytes, deadline: float) -> SimpleNamespace:
        if not data:
            raise ValueError("empty")
        return SimpleNamespace(length=len(data), pid=os.getpid(), uid=os.getuid())

    parser = limited.Parser([dies, lambda data, deadline: Endless(b"x"), sleeps, length])
    first = parser.parse(3, SimpleNamespace, bytes(300_000), time.monotonic() + 60)
    assert first.length == 300_000
    assert first.uid == (limited._UNUSED_UIDS + first.pid if os.geteuid() == 0 else os.geteuid())
    assert parser.parse(3, SimpleNamespace, b"x", time.monotonic() + 60).pid == first.pid, "one child"
    with pytest.raises(ValueError, match="empty"):
        parser.parse(3, SimpleNamespace, b"", time.monotonic() + 60)
    for number, wait_s in ((0, 60), (1, 60), (2, 0.2)):
        with pytest.raises(ValueError, match="of memory or"):
            parser.parse(number, SimpleNamespace, b"x", time.monotonic() + wait_s)
        assert parser.parse(3, SimpleNamespace, b"xy", time.monotonic() + 60).length == 2
    last = parser.parse(3, SimpleNamespace, b"x", time.monotonic() + 60)
    parser.close()
    with pytest.raises(ProcessLookupError):
        os.kill(last.pid, 0)


#: A parser of an agent whose interpreter, as one in the home of root, cannot be read by nobody: it imports nothing.
IMPORTS_NOTHING = """
import sys, time
from types import SimpleNamespace
from gconsole_remote.proc import limited

class Refuses(object):
    def find_spec(self, name, path=None, target=None):
        raise ImportError(name)

def parse(data, deadline):
    sys.meta_path.insert(0, Refuses())
    return SimpleNamespace(size=len(data))

confine = limited._confine
def confined(*kept):
    sys.meta_path.insert(0, Refuses())
    confine(*kept)

limited._confine = confined
print(limited.Parser([parse]).parse(0, SimpleNamespace, b"xyz", time.monotonic() + 20).size)
print(limited.parse(SimpleNamespace, lambda data: parse(data, 0), bytes(limited.SMALL + 1)).size - limited.SMALL)
"""


def test_child_that_parses_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS_NOTHING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n1\n"), done.stderr


@pytest.mark.parametrize("answer", [b"[]", b'"\\ud800"', b"1", b"{", b"\xff"])
def test_answer_of_a_parser_that_was_taken_over_is_an_error_of_its_input(answer: bytes) -> None:
    with pytest.raises(ValueError):
        limited._restored(SimpleNamespace, answer)


DUMP = {"version": "2.1", "held": 1, "problems": [], "groups": [{"pg_id": 0, "ranks": [0, 1]}], "earlier": [],
        "entries": [{"record_id": 1, "retired": False, "profiling_name": "nccl:all_reduce", "process_group": ["0", ""],
                     "frames": [{"function": "f", "file": "/x", "line": 1}], "input_sizes": [[2]],
                     "duration_ms": 0.5}]}  # fmt: skip
RAS = {"version": "2", "problems": [], "repaired": False, "groups": [{"pid": 1, "op_counts": {"AllReduce": 1}}]}
LOG = {"bad": 0, "entries": [{"host": "n1", "pid": 1, "profiling_name": "nccl:AllReduce"}]}


@pytest.mark.parametrize(
    ("kind", "check", "good", "place", "value"),
    [
        (FlightRecorderDump, answers.check_dump, DUMP, place, value)
        for place, value in (
            (("held",), "1"), (("held",), 1 << 63), (("problems",), [1]), (("entries",), {}), (("entries",), [1]),
            (("more",), 1), (("entries", 0, "kind"), "finding"), (("entries", 0, "seq"), 1), (("entries", 0, "t"), 1),
            (("entries", 0, "record_id"), "1"), (("entries", 0, "record_id"), True), (("entries", 0, "retired"), 0),
            (("entries", 0, "profiling_name"), None), (("entries", 0, "profiling_name"), "x" * 5000),
            (("entries", 0, "process_group"), ["0"]), (("entries", 0, "frames"), [{}]),
            (("entries", 0, "frames", 0, "more"), 1), (("entries", 0, "input_sizes"), [[None]]),
            (("entries", 0, "duration_ms"), float("inf")), (("entries", 0, "duration_ms"), float("nan")),
            (("groups", 0, "ranks"), ["0"]), (("groups", 0, "job"), "other"), (("earlier",), [{}]),
        )
    ]
    + [
        (RasStatus, answers.check_ras, RAS, place, value)
        for place, value in (
            (("groups",), [{}]), (("groups", 0, "pid"), []), (("groups", 0, "op_counts"), {"x": "1"}),
            (("groups", 0, "node"), "n2"), (("repaired",), 1), (("version",), 2),
        )
    ]
    + [
        (LogEntries, answers.check_log, LOG, place, value)
        for place, value in (
            (("bad",), "0"), (("entries", 0), {"host": "n1"}), (("entries", 0, "host"), 1), (("entries", 0, "pid"), []),
            (("entries", 0, "rank"), 1),
        )
    ],
)  # fmt: skip
def test_records_of_a_parser_that_was_taken_over_are_refused(
    kind: type, check: Any, good: Any, place: tuple[Any, ...], value: object
) -> None:
    check(limited._restored(kind, json.dumps(good).encode()))
    answer = json.loads(json.dumps(good))
    target = answer
    for index in place[:-1]:
        target = target[index]
    target[place[-1]] = value
    with pytest.raises(ValueError):
        check(limited._restored(kind, json.dumps(answer).encode()))


@pytest.mark.parametrize("answer", [b"{}", b'{"version": null}'])
def test_incomplete_answer_of_a_parser_is_refused(answer: bytes) -> None:
    for kind, check in ((FlightRecorderDump, answers.check_dump), (RasStatus, answers.check_ras),
                        (LogEntries, answers.check_log)):  # fmt: skip
        with pytest.raises(ValueError):
            check(limited._restored(kind, answer))
    with pytest.raises(ValueError):
        limited._restored(py_spy.ThreadValues, answer).threads()


# -- readers of stacks -------------------------------------------------------------------------------------------------


def test_output_of_a_stack_reader_is_bounded_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "py-spy"
    endless.write_text("#!/bin/sh\nexec yes '[[[['\n")
    endless.chmod(0o755)
    parsed: list[int] = []
    monkeypatch.setattr(py_spy, "_parse", lambda out, names: parsed.append(len(out)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(py_spy.StackError, match="more than 16 MiB of output"):
        py_spy.read_threads(str(endless), os.getpid(), 60.0)
    assert parsed == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10
    assert commands._running == set()


def test_reader_that_writes_slowly_without_end_is_ended_in_time(tmp_path: Path) -> None:
    endless = tmp_path / "py-spy"
    endless.write_text("#!/bin/sh\nwhile :; do echo '['; sleep 0.05; done\n")
    endless.chmod(0o755)
    with pytest.raises(py_spy.StackError, match=r"took longer than 0\.5 s"):
        py_spy.read_threads(str(endless), os.getpid(), 0.5)
    assert commands._running == set()


def test_long_output_of_a_stack_reader_is_parsed_in_a_child_as_in_the_agent() -> None:
    frame = {"name": "step", "filename": "/x/train.py", "line": 3, "module": None,
             "locals": [{"name": "step", "addr": 4096, "arg": False, "repr": "<Step at 0x1000>"}]}  # fmt: skip
    threads = [{"thread_id": n, "os_thread_id": n, "thread_name": f"t{n}", "active": True, "owns_gil": False,
                "frames": [dict(frame, line=line) for line in range(40)]} for n in range(200)]  # fmt: skip
    data, names = json.dumps(threads).encode(), frozenset(["step", "step.number"])
    assert len(data) > limited.SMALL
    made, expected = py_spy.parse(data, names), py_spy._parse(data, names)
    slots = py_spy.PythonThread.__slots__
    assert [[getattr(one, name) for name in slots] for one in made] == [
        [getattr(one, name) for name in slots] for one in expected
    ]
    with pytest.raises(ValueError, match="no Python thread"):
        py_spy.parse(b"[" + b" " * limited.SMALL + b"]")


# -- rights of parsers -------------------------------------------------------------------------------------------------

#: In a child that parses: what it can still do. The agent is given a file that nobody else may read.
TRIES = """
import json, os, sys
from gconsole_remote.proc import limited
secret, own = open(sys.argv[1]), os.getpid()

class Tried(object):
    def __init__(self, data):
        self.able = []
        for name, attempt in (
            ("open", lambda: os.open(sys.argv[1], os.O_RDONLY)), ("inherited", lambda: os.read(secret.fileno(), 1)),
            ("signal", lambda: os.kill(own, 0)), ("pipe", os.pipe), ("chown", lambda: os.chown(sys.argv[1], 1, 1)),
            ("root", lambda: os.setuid(0)),
        ):
            try:
                attempt()
                self.able.append(name)
            except OSError:
                pass

print(json.dumps(limited.parse(Tried, Tried, bytes(limited.SMALL + 1)).able))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose rights are given up")
def test_parser_has_no_rights_and_no_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    done = subprocess.run([sys.executable, "-c", TRIES, str(secret)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# -- folders -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read from now on."""
    folders: list[str] = []
    scandir = os.scandir

    def scan(folder: str) -> object:
        folders.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    return folders


def test_folder_of_nccl_inspector_is_no_pattern(scanned: list[str]) -> None:
    env = {"NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": "/*" * 7}
    reader = collect.CollectivesReader(
        collect.CollectivesRequest({}), "c", [], ProcFs(), lambda facts: None, time.monotonic() + 120
    )
    reader._logged = [(SimpleNamespace(pid=os.getpid(), ns_pid=None), env)]
    assert reader._log_paths() == []
    assert len(scanned) <= 1


def test_pattern_reads_a_bounded_number_of_names(
    tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_log, "MAX_NAMES", 100)
    for number in range(300):
        (tmp_path / f"folder{number}" / "inner").mkdir(parents=True)
    assert nccl_log.matches(f"{tmp_path}/*/*/*.log") == []
    assert len(scanned) <= 101


def test_pattern_finds_the_newest_files(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"job[{number}]"
        folder.mkdir()
        (folder / f"rank-pid{number}.log").touch()
        os.utime(folder / f"rank-pid{number}.log", (number, number))
    assert nccl_log.matches(f"{tmp_path}/job*/*.log") == [
        f"{tmp_path}/job[{number}]/rank-pid{number}.log" for number in (2, 1, 0)
    ]
    assert nccl_log.matches("*-pid1.log", f"{tmp_path}/job[1]") == [f"{tmp_path}/job[1]/rank-pid1.log"]


# -- environments ------------------------------------------------------------------------------------------------------


def test_many_pointers_into_one_long_variable_copy_little() -> None:
    block = b"RANK=" + b"7" * (1 << 20) + b"\0"
    reader = EnvironReader(SimpleNamespace(read=lambda pid, name: block), ["RANK"])
    array = b"".join((4096).to_bytes(8, "little") for _ in range(8192))
    assert sum(map(len, reader._strings(1, -1, array, 4096))) < 64 << 20
