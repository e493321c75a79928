"""Attacks of another user of a node on the agent, which runs as root: each is performed as that user would."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gconsole_remote.agent import commands
from gconsole_remote.clocks import services
from gconsole_remote.comms import flight_recorder_sources, sockets
from gconsole_remote.comms.values import SourceError
from gconsole_remote.proc.output_files import NoOutput, OutputFiles
from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.user_files import RightsOf, open_regular
from gconsole_remote.stacks import pystack
from gconsole_remote.stacks.readers import PARSERS
from gconsole_remote.stacks.source_lines import SourceLines

SOMEBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")
FAKE_RANK = Path(__file__).parents[1] / "unit" / "comms" / "fake_rank.py"


@contextmanager
def process_of(uid: int, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A process of another user that has printed a line."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, user=uid, group=uid, extra_groups=[], cwd="/")
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def sleeper_of(uid: int) -> Iterator[int]:
    with process_of(uid, "/bin/sh", "-c", "echo ready; exec sleep 600") as process:
        yield process.pid


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can enter."""
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_mode & 0o005 != 0o005 and part != Path("/"):
            part.chmod(part.stat().st_mode | 0o055)
    return tmp_path


# -- programs ----------------------------------------------------------------------------------------------------------


@needs_root
def test_link_of_another_user_to_a_program_of_the_system_is_not_run_as_pystack(open_folder: Path) -> None:
    folder = open_folder / "x"
    folder.mkdir()
    (folder / "pystack").symlink_to("/usr/bin/env")
    os.chown(folder, SOMEBODY, SOMEBODY)
    os.lchown(folder / "pystack", SOMEBODY, SOMEBODY)
    assert os.access(folder / "pystack", os.X_OK)
    assert pystack.trusted_path(str(folder / "pystack")) is None


@needs_root
def test_link_of_another_user_in_the_middle_of_a_path_is_not_followed(open_folder: Path) -> None:
    real = open_folder / "real"
    real.mkdir()
    program = real / "pystack"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    theirs = open_folder / "theirs"
    theirs.symlink_to(real)
    assert pystack.trusted_path(str(theirs / "pystack")) == str(program)
    os.lchown(theirs, SOMEBODY, SOMEBODY)
    assert pystack.trusted_path(str(theirs / "pystack")) is None


def test_circle_of_links_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "pystack").symlink_to("pystack")
    assert pystack.trusted_path(str(tmp_path / "pystack")) is None


# -- sockets -----------------------------------------------------------------------------------------------------------


def forged_name(inode: int) -> bytes:
    """The name of an abstract socket that adds a line with this inode, and the address of another socket, to /proc."""
    line = b"0000000000000000: 00000002 00000000 00010000 0001 01 %d @forged-%d" % (inode, os.getpid())
    return b"\0a\n" + line


@needs_root
@pytest.mark.parametrize("is_first", [False, True])
def test_flight_recorder_is_read_from_its_rank_beside_a_forged_line(open_folder: Path, is_first: bool) -> None:
    dump = open_folder / "dump.json"
    dump.write_text('{"entries": [], "pg_status": {}}')
    folder = open_folder / "sockets"
    folder.mkdir()
    os.chown(folder, SOMEBODY, SOMEBODY)
    with process_of(SOMEBODY, sys.executable, str(FAKE_RANK), "worker", str(folder / "ws"), str(dump)) as rank:
        procfs = ProcFs()
        [inode] = sockets.inodes_of(procfs, rank.pid)
        trap, forged = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        with trap, forged:
            trap.bind(b"\0forged-%d" % os.getpid())
            trap.listen()
            forged.bind(forged_name(inode))
            forged.listen()
            candidates = sockets.find_listeners(procfs, rank.pid, inode)
            assert len(candidates) == 2, "the line of the attacker counts as one"
            if is_first:
                candidates.sort(key=lambda candidate: not candidate.host.startswith("@"))
            else:
                candidates.sort(key=lambda candidate: candidate.host.startswith("@"))
            deadline = time.monotonic() + 20
            assert flight_recorder_sources.read_dumps(procfs, candidates, deadline) == [dump.read_bytes()]


@needs_root
def test_socket_of_another_process_is_refused_after_connecting(open_folder: Path) -> None:
    with sleeper_of(SOMEBODY) as pid, socket.socket(socket.AF_UNIX) as trap:
        trap.bind(b"\0trap-%d" % os.getpid())
        trap.listen()
        listener = sockets.ListeningSocket(pid, socket.AF_UNIX, f"@trap-{os.getpid()}")
        with pytest.raises(SourceError, match="belongs to another process"):
            sockets.connect(ProcFs(), listener, time.monotonic() + 20)


# -- files -------------------------------------------------------------------------------------------------------------


@needs_root
def test_source_file_that_its_process_may_not_read_leaves_no_line(open_folder: Path) -> None:
    secret, own = open_folder / "secret", open_folder / "train.py"
    secret.write_text("root:$6$hash\n")
    secret.chmod(0o600)
    own.write_text("step()\n")
    with sleeper_of(SOMEBODY) as pid:
        frames = SourceLines(ProcFs(), PARSERS).encode_frames(pid, [("f", str(secret), 1, False)])
        assert "source" not in frames[0]
        frames = SourceLines(ProcFs(), PARSERS).encode_frames(pid, [("f", str(own), 1, False)])
        assert frames[0]["source"] == "step()"


@needs_root
def test_terminal_named_as_a_source_file_is_not_opened(open_folder: Path) -> None:
    controller, terminal = pty.openpty()
    Path(os.ttyname(terminal)).chmod(0o666)
    try:
        with sleeper_of(SOMEBODY) as pid, pytest.raises(OSError, match="not a regular file"):
            open_regular(ProcFs(), pid, os.ttyname(terminal))
    finally:
        os.close(controller)
        os.close(terminal)


@needs_root
def test_absolute_link_is_resolved_below_the_root_of_the_process(open_folder: Path) -> None:
    root = open_folder / "root"
    root.mkdir()
    (root / "secret").write_text("inside\n")
    (root / "train.py").symlink_to("/secret")
    program = "import os, sys, time; os.chroot(sys.argv[1]); os.chdir('/'); print('ready', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        fd = open_regular(ProcFs(), process.pid, "/train.py")
        with os.fdopen(fd) as file:
            assert file.read() == "inside\n"
    finally:
        process.kill()
        process.wait()


@needs_root
def test_output_that_its_user_may_not_read_is_not_read(open_folder: Path) -> None:
    """A file that root opened for a process of a user, who may write to it, and not read what others write."""
    output, own = open_folder / "output", open_folder / "own"
    output.write_text("of others\n")
    output.chmod(0o600)
    own.write_text("his\n")
    os.chown(own, SOMEBODY, SOMEBODY)
    with output.open("a") as written, own.open("a") as his:
        process = subprocess.Popen(
            ["sleep", "600"], stdout=his, stderr=written, user=SOMEBODY, group=SOMEBODY, extra_groups=[]
        )
    try:
        files = OutputFiles(4)
        assert files.of_descriptor(ProcFs(), process.pid, 1).tail(4, 4) == "his\n"
        with pytest.raises(NoOutput, match="a file that its user may not read"):
            files.of_descriptor(ProcFs(), process.pid, 2)
        own_fd = files.of_descriptor(ProcFs(), process.pid, 1).fd
        files.release(files.of_descriptor(ProcFs(), process.pid, 1), (0, 0))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(own_fd)
    finally:
        process.kill()
        process.wait()


#: A process whose ids are those of a set-user-ID program of root: real ones of a user, effective ones of root.
SET_USER_ID = "import os, sys, time; os.setresuid(65534, 0, 0); print('ready', flush=True); time.sleep(600)"


@needs_root
def test_files_of_a_set_user_id_program_are_those_of_who_started_it(open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    with process_of(0, sys.executable, "-c", SET_USER_ID) as process, RightsOf.of_process(ProcFs(), process.pid):
        assert not can_read(secret)


#: In place of py-spy: what it is, and what it may do. Its limits are set once it runs.
SHOWS_ITSELF = """#!/bin/sh
grep -E '^(Uid|Gid|Groups|NoNewPrivs|CapPrm|CapEff|CapInh):' /proc/self/status
while [ "$(ulimit -f)" != 0 ]; do :; done
ulimit -f; ulimit -c; pwd; env | sort; ls /proc/self/fd
"""


@needs_root
def test_stack_reader_has_no_rights_but_those_of_its_user(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_ROOT", "x")
    program = open_folder / "reader"
    program.write_text(SHOWS_ITSELF)
    program.chmod(0o755)
    with sleeper_of(SOMEBODY) as pid:
        user = RightsOf.of_process(ProcFs(), pid)
        status, out, err = commands.run_apart("pystack_dump", 20.0, blob=str(program), pid=pid, user=user)
    assert (status, err) == (0, b"")
    lines = out.decode().split("\n")
    facts = dict(line.split(":", 1) for line in lines[:7])
    assert {facts["Uid"], facts["Gid"]} == {"\t" + "\t".join([str(SOMEBODY)] * 4)}
    assert facts["Groups"].strip() == ""
    assert facts["NoNewPrivs"].strip() == "1"
    may_trace = 0 if _yama() == 0 else 1 << 19
    assert {int(facts[name], 16) for name in ("CapPrm", "CapEff", "CapInh")} == {may_trace}
    assert lines[7:10] == ["0", "0", "/"]
    assert "SECRET_OF_ROOT" not in out.decode()
    assert [line for line in lines if line.startswith("PYTHONNOUSERSITE=")]
    assert [line for line in lines if line.isdigit() and int(line) > 3] == []
    assert not can_write_as_before(open_folder)


def can_write_as_before(folder: Path) -> bool:
    """Whether this thread has lost the rights of root: none of ours may."""
    (folder / "later").touch()
    return (folder / "later").stat().st_uid != 0


def _yama() -> int:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return int(scope.read_text()) if scope.exists() else 0


@needs_root
def test_rights_are_those_of_the_user_and_come_back(open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    with sleeper_of(SOMEBODY) as pid:
        with RightsOf.of_process(ProcFs(), pid):
            assert not can_read(secret)
        assert can_read(secret)


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e308", "²"])
def test_time_service_output_without_usable_numbers_is_a_failed_query(value: str) -> None:
    line = f"A,ref,2,1.0,{value},0.1,0.1,1.0,0,0,0.1,{value},64,Normal"
    with pytest.raises((ValueError, OverflowError)):
        services.parse_chrony(line)


def can_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True
