"""Starts gconsole commands by forking an interpreter that has imported gconsole already.

A command costs about 1 s of CPU time, and 0.9 s of that is imports. `Popen` has the interface of subprocess.Popen for a
command line that begins with the gconsole program: arguments, environment, folder, standard streams and exit status are
those of the command; only the imports are shared. Command lines that need more (another program, `preexec_fn`, other
PYTHON… variables) start a program as usual. At least one test of each start-up path uses subprocess.Popen itself.

`python fork_server.py FD` is the server: single-threaded, one request per command on the socket FD.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GCONSOLE = Path(sys.executable).with_name("gconsole")
#: Packages of gconsole that most commands import; those for the screen, SQL and HTTP are left to their commands.
PRELOADED = (
    "runtime", "cli.batch", "cli.main", "cli.run", "analysis", "config", "core", "fleet", "launch",
    "monitor", "present", "records", "report", "session.format", "session.record", "text", "topology", "transport",
)  # fmt: skip
#: Modules that import numpy or duckdb, which start threads of their own, contain one of these words.
HEAVY = ("clock", "duckdb", "metric_history", "parquet")
#: Seconds between two looks for ended commands.
POLL_S = 0.01
#: Bytes of one request: arguments and environment.
REQUEST_BYTES = 1 << 20


class Popen(subprocess.Popen):
    """A gconsole command started by the fork server of this process; see subprocess.Popen.

    `limits` has resource limits of the command, {resource.RLIMIT_…: value}, and `passwd` a file that it sees as
    /etc/passwd (root). Only a forked command can have them.
    """

    _status: socket.socket
    _limits: dict[int, int]
    _passwd: Path | None

    def __init__(self, args: Sequence[object], **options: Any) -> None:
        argv = [str(argument) for argument in args]
        self._limits = options.pop("limits", {})
        self._passwd = options.pop("passwd", None)
        self._is_forked = argv[0] == str(GCONSOLE) and _can_fork(options)
        if (self._limits or self._passwd) and not self._is_forked:
            raise ValueError("limits and passwd need a command that can be forked")
        super().__init__(argv, **options)

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        if not self._is_forked:
            super()._execute_child(args, *rest)
            return
        _, _, _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *more = rest
        streams = [own if end == -1 else end for own, end in ((0, p2cread), (1, c2pwrite), (2, errwrite))]
        self._status, theirs = socket.socketpair()
        request = {"argv": list(args), "env": dict(os.environ if env is None else env), "cwd": str(cwd or Path.cwd()),
                   "session": bool(more[5]), "limits": list(self._limits.items()),
                   "passwd": str(self._passwd or "")}  # fmt: skip
        socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
        theirs.close()
        self.pid = int(self._status.recv(16))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not self._is_forked:
            return super()._try_wait(wait_flags)
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = int(self._status.recv(16) or b"9")  # the server was killed: so was the command
        self._status.close()
        return self.pid, status

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if not self._is_forked:
            return super()._internal_poll(*args, **options)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(args: Sequence[object], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """A finished command, as subprocess.run(..., capture_output=True, stdin=DEVNULL) returns it."""
    process = Popen(
        args, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    )
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _can_fork(options: dict[str, Any]) -> bool:
    env = options.get("env")
    unchanged = env is None or all(
        env.get(name) == os.environ.get(name)
        for name in {*env, *os.environ}
        if name.startswith(("PYTHON", "LD_PRELOAD", "LC_", "LANG"))
    )
    return unchanged and not {"preexec_fn", "pass_fds", "user", "executable"} & options.keys()


_servers: dict[int, tuple[subprocess.Popen[bytes], socket.socket]] = {}


def _server() -> socket.socket:
    """The server of this process, started with its first command."""
    if os.getpid() not in _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
        argv = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        _servers[os.getpid()] = process, ours
    return _servers[os.getpid()][1]


@atexit.register
def close() -> None:
    """End the server, and wait for it, so that the CPU time of its commands is counted."""
    if os.getpid() in _servers:
        process, ours = _servers.pop(os.getpid())
        ours.close()
        process.wait(60)


def preload() -> None:
    """Import asyncssh and the packages in `PRELOADED`, all modules of each but the heavy ones; build the payload."""
    importlib.import_module("asyncssh")
    for name in PRELOADED:
        package = importlib.import_module(f"gconsole.{name}")
        for module in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
            if not any(heavy in module.name for heavy in HEAVY):
                with contextlib.suppress(ImportError):  # the command that needs it reports it
                    importlib.import_module(module.name)
    importlib.import_module("gconsole.fleet.deploy.agent_payload").build()


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request until the socket closes. In the forked command: its arguments; in the server: None."""
    commands: dict[int, socket.socket] = {}
    while True:
        if select.select([requests], [], [], POLL_S if commands else None)[0]:
            data, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
            if not data:
                break
            status = socket.socket(fileno=fds[3])
            pid = os.fork()
            if pid == 0:
                for connection in (requests, status, *commands.values()):
                    connection.detach()
                return _become(json.loads(data), fds)
            for fd in fds[:3]:
                os.close(fd)
            status.sendall(b"%16d" % pid)
            commands[pid] = status
        _report_ended(commands, os.WNOHANG)
    while commands:
        _report_ended(commands, 0)
    return None


def _report_ended(commands: dict[int, socket.socket], flags: int) -> None:
    while commands:
        pid, status = os.waitpid(-1, flags)
        if pid == 0:
            return
        with commands.pop(pid) as connection:
            try:
                connection.sendall(b"%16d" % status)
            except OSError:
                pass  # nobody waits for this command any more


def _become(request: dict[str, Any], fds: Sequence[int]) -> list[str]:
    """Take over the request's streams, environment and folder."""
    for target, fd in enumerate(fds[:3]):
        os.dup2(fd, target)
    os.closerange(3, 1 << 16)
    _reopen_streams()
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for limit, value in request["limits"]:
        resource.setrlimit(limit, (value, value))
    if request["passwd"]:
        _mount_passwd(request["passwd"])
    return request["argv"]


_server_streams: list[object] = []  # kept: freeing one would close its file descriptor


def _reopen_streams() -> None:
    """Open Python's streams again: those of the server remember whether the server's files were seekable."""
    for fd, (name, mode, buffering) in enumerate([("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1)]):
        old = getattr(sys, name)
        stream = open(fd, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        _server_streams.append(getattr(sys, f"__{name}__"))
        setattr(sys, f"__{name}__", stream)


def _mount_passwd(path: str) -> None:
    """Show this file as /etc/passwd to this process and its children only."""
    file = Path(__file__).with_name("rig") / "namespaces.py"
    spec = importlib.util.spec_from_file_location("rig_namespaces", file)
    assert spec is not None and spec.loader is not None
    namespaces = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(namespaces)
    namespaces.unshare(namespaces.CLONE_NEWNS)
    namespaces.make_mounts_private()
    namespaces.bind_mount(Path(path), "/etc/passwd")


def _run_and_exit() -> None:
    """Run the command and exit without freeing each object: that takes 50 ms of CPU time after a fork.

    Threads, exit handlers and streams are ended as usual; an uncaught exception takes the usual way altogether.
    """
    try:
        importlib.import_module("gconsole.cli.main").main()
    except SystemExit as ending:
        if not isinstance(ending.code, int):
            raise
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(ending.code)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    preload()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        command = serve(listening)
    if command is not None:
        sys.argv = command
        _run_and_exit()
