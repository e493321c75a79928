"""Attacks of a local user on an agent that is root, by what their processes are, own and do meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_privilege_separation import ATTACKER, SLEEPS, VICTIM, context, rank_of

from gconsole_remote.agent import commands
from gconsole_remote.comms import sockets
from gconsole_remote.proc import apart, limited, user_files
from gconsole_remote.proc.process_reader import ProcessReader, Request
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.samplers.processes import ProcessSampler
from gconsole_remote.stacks.readers import PARSERS
from gconsole_remote.stacks.source_lines import SourceLines

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as which the agent runs")
VARIABLES = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"}


@contextmanager
def started(argv: list[str], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd="/", **options) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder of the attacker that all may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o111)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, ATTACKER, ATTACKER)
    return home


def ranks(ticks: int = 6) -> dict[int, dict[str, object]]:
    """What the sampler reports of each rank, by pid."""
    sampler = ProcessSampler(context())  # type: ignore[arg-type]
    sampler.start()
    facts = [fact for now in range(ticks) for fact in sampler.tick(float(now))]
    return {fields["pid"]: fields for kind, fields in facts if kind == "rank"}


def test_source_in_proc_of_another_process_leaves_no_line() -> None:
    """The rights of a user do not include those of tracing, which open the maps of any process."""
    with rank_of(0) as other, rank_of(ATTACKER) as pid:
        frames = [("step", f"/proc/{other}/maps", 1, False)]
        assert "source" not in SourceLines(ProcFs(), PARSERS).encode_frames(pid, frames)[0]
        own = [("step", f"/proc/{pid}/maps", 1, False)]
        assert "source" in SourceLines(ProcFs(), PARSERS).encode_frames(pid, own)[0]
        with pytest.raises(PermissionError), user_files.RightsOf.of_process(ProcFs(), pid):
            user_files.open_regular(ProcFs(), pid, f"/proc/{other}/maps")
    assert Path("/proc/1/status").read_text(), "the thread has its capabilities again"
    os.setgroups(os.getgroups())


def test_no_user_can_stop_a_child_that_reads() -> None:
    """The children were `nobody`, who may be a user; each has an uid of its own."""

    def sleeps(data: bytes, deadline: float) -> SimpleNamespace:
        time.sleep(0.3)
        return SimpleNamespace(uid=os.getuid())

    parser = limited.Parser([sleeps])
    try:
        uid = parser.parse(0, SimpleNamespace, b"x", time.monotonic() + 60).uid
        assert uid == limited._UNUSED_UIDS + parser._pid
        argv = [sys.executable, "-c", f"import os, signal; os.kill({parser._pid}, signal.SIGSTOP)"]
        done = subprocess.run(argv, user=65_534, group=65_534, capture_output=True, text=True, check=False, cwd="/")
        assert "PermissionError" in done.stderr or "Permission denied" in done.stderr
    finally:
        parser.close()


def test_memory_that_never_answers_delays_the_others_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As memory mapped from a file system of the user, whose reads do not end."""
    read = ProcessReader._values_of

    def hangs(reader: ProcessReader, environ: object, request: Request, inherited: object) -> object:
        if request.pid in hostile:
            time.sleep(600)
        return read(reader, environ, request, inherited)  # type: ignore[arg-type]

    monkeypatch.setattr(ProcessReader, "_values_of", hangs)
    monkeypatch.setattr(apart, "CHILD_S", 0.5)
    with ExitStack() as stack:
        hostile = {stack.enter_context(rank_of(ATTACKER)) for _ in range(2)}
        victim = stack.enter_context(rank_of(VICTIM))
        requests = [Request(pid, 1, 0) for pid in (*hostile, victim)]
        reader = ProcessReader(ProcFs(), ["RANK"], ())
        reader.prefetch(requests)
        assert reader.get(requests[2]).env == {"RANK": "0"}
        for request in requests[:2]:
            with pytest.raises(ValueError, match="of memory or"):
                reader.get(request)


def test_thousands_of_uids_of_one_user_do_not_start_as_many_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in range(1, 301):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Uid:\t{pid}\t{pid}\t{pid}\t{pid}\n")
        (tmp_path / str(pid) / "environ").write_text(f"RANK={pid}\0")
    calls: list[int] = []
    call = limited.call
    monkeypatch.setattr(limited, "call", lambda *args: [calls.append(1), call(*args)][1])
    monkeypatch.setattr(apart, "MOST_USERS", 4)
    monkeypatch.setattr(apart, "ALL_S", 60.0)
    procfs = ProcFs(str(tmp_path))
    values = apart.read_each(
        procfs, dict.fromkeys(range(1, 301), ("environ",)), lambda procfs, pid: procfs.read(pid, "environ").decode()
    )
    assert values == {pid: f"RANK={pid}\0" for pid in range(1, 301)}
    assert len(calls) == 4 + -(-296 // apart.BATCH)


def first_line(pid: int, file: str) -> str | None:
    [frame] = SourceLines(ProcFs(), PARSERS).encode_frames(pid, [("step", file, 1, False)])
    return frame.get("source")


def test_source_swapped_for_a_link_a_pipe_and_a_device_is_never_that_of_root(open_folder: Path) -> None:
    secret = open_folder.parent / "secret"
    secret.write_text("root's secret\n")
    secret.chmod(0o600)
    source = open_folder / "train.py"
    script = f"""
import os
os.chdir({str(open_folder)!r})
print(flush=True)
while True:
    for make in (lambda: os.symlink({str(secret)!r}, "x"), lambda: os.mkfifo("x"), lambda: open("x", "w").write("own"),
                 lambda: os.symlink("/dev/zero", "x"), lambda: os.symlink("/proc/1/environ", "x")):
        make()
        os.rename("x", "train.py")
"""
    with started(["/usr/bin/python3", "-c", script], user=ATTACKER, group=ATTACKER) as race, rank_of(ATTACKER) as pid:
        read = {first_line(pid, str(source)) for _ in range(400)}
        assert race.poll() is None
    assert read <= {"own", None}


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare on this machine")
def test_mounts_over_proc_in_a_namespace_change_nothing(open_folder: Path) -> None:
    fake = open_folder / "proc"
    (fake / "self").mkdir(parents=True)
    (fake / "self" / "environ").write_text("RANK=0\0WORLD_SIZE=1\0")
    script = 'mount --bind "$1" /proc && exec /usr/bin/python3 -c "$2"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(fake), f"import os; os.setuid({ATTACKER}); {SLEEPS}"]
    with started(argv, env={**VARIABLES, "PATH": os.environ["PATH"]}) as process, rank_of(VICTIM) as victim:
        reported = ranks()
        assert (reported[process.pid]["rank"], reported[process.pid]["world_size"]) == (1, 2)
        assert reported[victim]["rank"] == 0


def test_names_with_line_breaks_and_escapes_hide_no_rank(open_folder: Path) -> None:
    program = open_folder / "python3 (deleted)\n1 (x) S 1"
    shutil.copy("/usr/bin/python3", program)
    program.chmod(0o755)
    named = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) R 1\\n\\x1b]0;x\\x07', 0, 0, 0); " + SLEEPS
    with ExitStack() as stack:
        options = {
            "user": ATTACKER,
            "group": ATTACKER,
            "env": {**VARIABLES, "RANK": "\u0661\n\x1b[2J", "LOCAL_RANK": "1"},
        }
        hostile = stack.enter_context(started([str(program), "-c", named], **options))
        program.unlink()
        valid = stack.enter_context(
            started(["/usr/bin/python3", "-c", named], user=ATTACKER, group=ATTACKER, env=VARIABLES)
        )
        victim = stack.enter_context(rank_of(VICTIM))
        reported = ranks()
        assert hostile.pid not in reported
        assert {reported[pid]["rank"] for pid in (valid.pid, victim)} == {0, 1}
        assert all(str(value).isprintable() for value in reported[valid.pid].values())


def test_flood_of_sockets_with_forged_names_does_not_hide_the_real_one() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        server.bind(f"\0gcy-real-{os.getpid()}")
        server.listen()
        inode = os.fstat(server.fileno()).st_ino
        line = f"\n0000000000000000: 00000002 00000000 00010000 0001 01 {inode + 1} @x"
        for number in range(300):
            flood = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            flood.bind(f"\0gcy-{os.getpid()}-{number}{line[:80]}")
        pid = stack.enter_context(rank_of(VICTIM))
        listeners = sockets.find_listeners(ProcFs(), pid, inode)
        assert [listener.host for listener in listeners] == [f"@gcy-real-{os.getpid()}"]
        assert len(sockets.find_listeners(ProcFs(), pid, inode + 1)) <= sockets.MOST_CANDIDATES


def test_environment_of_a_rank_reaches_no_program_of_the_agent(open_folder: Path) -> None:
    tool = open_folder.parent / "py-spy"
    tool.write_text("#!/bin/sh\nexec env\n")
    tool.chmod(0o755)
    with rank_of(ATTACKER, LD_PRELOAD="/tmp/evil.so", PYTHONPATH="/tmp/evil", PYTHONSTARTUP="/tmp/evil.py") as pid:
        user = user_files.RightsOf.of_process(ProcFs(), pid)
        status, out, _ = commands.run_apart("py_spy_dump", 30.0, blob=str(tool), pid=pid, user=user)
    assert status == 0
    assert b"evil" not in out


def test_process_that_becomes_another_user_while_it_is_read_is_read_with_the_rights_of_one_of_them() -> None:
    """Ids are read once: what is opened then is that user's, or an error."""
    script = f"import os, time; print(flush=True); time.sleep(0.2); os.setresuid(0, {ATTACKER}, 0); time.sleep(600)"
    read: list[object] = []
    with started(["/usr/bin/python3", "-c", script], env=VARIABLES) as process:
        reader = ProcessReader(ProcFs(), ["RANK"], ())
        ends = time.monotonic() + 1.0

        def repeat() -> None:
            while time.monotonic() < ends:
                reader.prefetch([Request(process.pid, 1, 0)])
                read.append(reader.get(Request(process.pid, 1, 0)).env)

        thread = threading.Thread(target=repeat)
        thread.start()
        thread.join()
    assert {str(env) for env in read} <= {"{'RANK': '1'}", "None"}
