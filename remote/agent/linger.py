"""An agent that outlives its connection: it listens on a unix socket, and the process on the channel is a relay.

The socket is in the cache's `run` folder (0700), named after the console and the system (boot, PID namespace,
hostname): each console has its own agent on each of the containers that share the folder. Only connections of the same
uid are accepted (SO_PEERCRED).
"""

import fcntl
import os
import socket
import struct
import time

from ..proc.threads import Thread
from . import cache, cache_users, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from typing import IO, Any, Callable, NoReturn

    from ..samplers.base import Fields
    from .agent import Agent
    from .cache import Cache

#: Seconds to wait for a lingering agent before it is replaced and its records are lost: the node may be overloaded.
#: Less than the console waits for a hello.
DESCRIBE_TIMEOUT_S = 10.0
#: Seconds until the next connection is accepted after a failure to do so.
PAUSE_S = 0.5


class AgentNotResponding(Exception):
    """The process behind the socket does not respond."""


def attach(stdin: "BufferedReader", start: "Fields", place: "Cache", make_agent: "Callable[[], Agent]") -> None:
    """Connect this channel to the lingering agent of this console; start one if there is none. Does not return.

    `make_agent` is called in the process of a new agent.
    """
    folder = place.folder("run") or _own_folder(start["console"])
    path = os.path.join(folder, cache_users.socket_name(start["console"]))
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two channels at once (a fast reconnect) start one agent
        try:
            peer = _connect(path, start)
        except AgentNotResponding:
            peer = None
        if peer is None:
            cache_users.end_own(place.root, start["console"])  # one that does not respond, or of an earlier release
            listener = _listen(path)
            child = os.fork()
            if child == 0:
                _detach(lock)
                agent = make_agent()
                agent.end_on_signals()
                _serve_forever(agent, listener, path, None if place.root else folder)
            listener.close()
            os.waitpid(child, 0)
            peer = _connect(path, start)
    assert peer is not None
    os.nice(10)  # the agent sets its own niceness
    peer.sendall(wire.encode({"start": start}))
    _relay(stdin, peer, start["config"].get("orphan_s", 15))


def _own_folder(console: str) -> str:
    """A folder for the socket of an agent without cache; the agent removes it."""
    folder = "/tmp/gconsole-%d-%s" % (os.geteuid(), cache_users.socket_name(console)[:-5])
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass  # checked below
    cache.check(folder, os.geteuid())
    return folder


def describe(path: str, timeout_s: float = DESCRIBE_TIMEOUT_S) -> "Fields | None":
    """The description of the agent behind a socket, or None if there is none. Raises AgentNotResponding."""
    try:
        with _send(path, {"who": True}, timeout_s) as connection:
            return wire.decode(connection.makefile("rb").readline(wire.MAX_LINE))
    except socket.timeout:
        raise AgentNotResponding()
    except (OSError, wire.BadFrame):
        return None


def request_stop(path: str) -> bool:
    """Send a stop request to the agent behind a socket; True if it was received."""
    try:
        with _send(path, {"stop": True}, 2.0) as connection:
            connection.recv(1)  # closed when the agent ends
            return True
    except OSError:
        return False


def _send(path: str, frame: "Fields", timeout_s: float) -> "socket.socket":
    """A connection to the socket at `path` on which a frame was sent. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(wire.encode(frame))
    except OSError:
        connection.close()
        raise
    return connection


def _connect(path: str, start: "Fields") -> "socket.socket | None":
    """A connection to the agent behind `path`, or None. One of another version is stopped."""
    description = describe(path)
    identity = start["console"], cache_users.system_id()
    if description is None or (description.get("console"), description.get("system")) != identity:
        return None
    if description.get("bundle") != start["bundle"]:
        request_stop(path)
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _listen(path: str) -> "socket.socket":
    _remove(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(4)
    return listener


def _detach(lock: "IO[Any]") -> None:
    """Become a daemon: a new session, and no inherited descriptor but the listener."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    os.close(lock.fileno())


def _serve_forever(agent: "Agent", listener: "socket.socket", path: str, own_folder: "str | None") -> "NoReturn":
    own = OwnedSocket(path)

    def farewell() -> None:
        own.remove()
        if own_folder:
            os.rmdir(own_folder)

    agent.farewell = farewell
    Thread(target=agent.watch, args=(agent.linger_s,), name="gconsole-watch").start()
    while True:
        try:
            connection, _ = listener.accept()
            if _uid_of_peer(connection) in (os.geteuid(), 0):
                Thread(target=_serve, args=(agent, connection), name="gconsole-reader").start()
            else:
                connection.close()
        except Exception:  # noqa: BLE001 - without memory, threads or descriptors: the console tries again
            time.sleep(PAUSE_S)


def _serve(agent: "Agent", connection: "socket.socket") -> None:
    """Serve one connection, and close it whatever happens: the console would take it for one that works."""
    sink = _Sink(connection)
    try:
        _serve_frames(agent, connection, sink)
    finally:
        agent.disconnect(sink)
        sink.close()


def _serve_frames(agent: "Agent", connection: "socket.socket", sink: "_Sink") -> None:
    """Serve one connection according to its first frame."""
    reader = connection.makefile("rb")
    try:
        first = wire.decode(reader.readline(wire.MAX_LINE))
    except (OSError, wire.BadFrame):
        return
    if "who" in first:
        connection.sendall(wire.encode(agent.describe()))
    elif "stop" in first:
        agent.end()
    elif "start" in first:
        agent.last_received = time.monotonic()
        start = first["start"]
        after = start.get("after") if start.get("agent") == agent.id else None
        agent.connect(sink, after, start["config"].get("rows"))
        agent.serve(reader)


class OwnedSocket(object):
    """The socket at `path` as it is now."""

    def __init__(self, path: str) -> None:
        self._path, self._inode = path, _inode(path)

    def remove(self) -> None:
        """Remove it and its lock, unless another agent has replaced it."""
        if _inode(self._path) == self._inode:
            _remove(self._path, self._path + ".lock")


def _inode(path: str) -> "int | None":
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


class _Sink(object):
    """A socket as the sink of the writer."""

    def __init__(self, connection: "socket.socket") -> None:
        self._connection = connection

    def write(self, data: bytes) -> int:
        return self._connection.send(data)

    def close(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # closed by the peer
        self._connection.close()


def _relay(stdin: "BufferedReader", peer: "socket.socket", orphan_s: float) -> "NoReturn":
    """Copy both ways until either side closes or the console is silent for `orphan_s`; then end this process."""
    last_received = [time.monotonic()]
    Thread(target=_copy_out, args=(peer,)).start()
    Thread(target=_end_when_silent, args=(last_received, orphan_s)).start()
    try:
        for data in iter(lambda: stdin.read1(1 << 16), b""):
            last_received[0] = time.monotonic()
            peer.sendall(data)
    except OSError:
        pass  # the agent is gone
    finally:
        os._exit(0)


def _end_when_silent(last_received: "list[float]", orphan_s: float) -> "NoReturn":
    while time.monotonic() - last_received[0] <= orphan_s:
        time.sleep(1.0)
    os._exit(0)


def _copy_out(peer: "socket.socket") -> "NoReturn":
    try:
        while True:
            data = peer.recv(1 << 16)
            if not data:
                break
            while data:
                data = data[os.write(1, data) :]
    except OSError:
        pass  # the channel or the agent is gone
    finally:
        os._exit(0)


def _uid_of_peer(connection: "socket.socket") -> int:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", packed)[1])


def _remove(*paths: str) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
