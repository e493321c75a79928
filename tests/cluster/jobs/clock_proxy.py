"""A proxy of a rank's worker server that shifts timestamps by the error of its node's clock.

All nodes of the rig share one clock. In the tests, agents read it with a known error (`skewed_clocks`), and the
ranks' timestamps need the same error: the proxy replaces the worker server, forwards requests to the real
one, and changes the timestamps in its responses. An agent finds it as it finds a worker server, by a thread of that
name in accept().
"""

import bisect
import contextlib
import ctypes
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torch._C._distributed_c10d import _WorkerServer

NAME = "pt_workerserver"
_HIDDEN = b"pt_behind"
_INSTANTS = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
_PR_SET_NAME = 15  # linux/prctl.h
_DEADLINE_S = 60.0
#: torch stamps with the processor's counter, converted to CLOCK_REALTIME.
_GRACE_NS = 1_000_000


class NodeClock:
    """This node's clock error from CLOCKS: the offset at the epoch, plus a rate."""

    def __init__(self) -> None:
        clocks = json.loads(os.environ["CLOCKS"])
        self._epoch = clocks["epoch"]
        self._offset, self._ppb = clocks["nodes"].get(os.uname().nodename, (0, 0))

    def shifted(self, real: int) -> int:
        """The reading of this node's CLOCK_REALTIME at the true time `real`."""
        ago = time.clock_gettime_ns(time.CLOCK_REALTIME) - real
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - ago
        return real + self._offset + (raw - self._epoch) * self._ppb // 1_000_000_000


class Plans:
    """Planned arrival times of this rank at each collective of some groups.

    A shared machine with two cores adds hundreds of microseconds of jitter: for these groups the planned time replaces
    the actual arrival time, so that smaller lateness can be tested.
    """

    def __init__(self) -> None:
        self._planned: dict[str, list[int]] = {}

    def add(self, group: str, real: int) -> None:
        """Record a planned time, true CLOCK_REALTIME in ns, before the rank arrives."""
        self._planned.setdefault(group, []).append(real)

    def planned(self, group: str, real: int) -> int:
        """The latest plan before the actual timestamp; the timestamp itself if there is none."""
        plans = self._planned.get(group, [])
        index = bisect.bisect_right(plans, real + _GRACE_NS)
        return plans[index - 1] if index else real


@contextlib.contextmanager
def worker_server(clock: NodeClock, plans: Plans) -> Iterator[None]:
    """A worker server behind the proxy."""
    with tempfile.TemporaryDirectory(prefix="gct-") as folder:
        path = f"{folder}/worker"
        server = _WorkerServer(path, -1)
        _ask(path, b"GET /handler/ HTTP/1.0\r\nHost: localhost\r\n\r\n")  # all of its threads exist once it responds
        _hide_threads()
        link = socket.create_server(("::", 0), family=socket.AF_INET6)
        threading.Thread(target=_serve, args=(link, path, _shift(clock, plans)), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def _hide_threads() -> None:
    """Rename the real server's threads, so that the agent finds the proxy's."""
    for comm in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            if comm.read_text().strip() == NAME:
                comm.write_bytes(_HIDDEN)


def _shift(clock: NodeClock, plans: Plans) -> Callable[[dict], None]:
    def shift(entry: dict) -> None:
        entry["time_created_ns"] = plans.planned(entry["process_group"][1], entry["time_created_ns"])
        for name in _INSTANTS:
            if entry.get(name):
                entry[name] = clock.shifted(entry[name])

    return shift


def _serve(link: socket.socket, path: str, shift: Callable[[dict], None]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode(), 0, 0, 0)
    while True:
        asker, _ = link.accept()
        asker.settimeout(_DEADLINE_S)
        with contextlib.suppress(OSError), asker:  # the client disconnected
            asker.sendall(_answer(path, _request(asker), shift))


def _request(asker: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        piece = asker.recv(4096)
        if not piece:
            break
        request += piece
    return request


def _answer(path: str, request: bytes, shift: Callable[[dict], None]) -> bytes:
    head, _, body = _ask(path, request).partition(b"\r\n\r\n")
    if b"trace_json" in request.partition(b"\r\n")[0]:
        dump = json.loads(body)
        for entry in dump.get("entries", []):
            shift(entry)
        body = json.dumps(dump).encode()
    status = head.partition(b"\r\n")[0]
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def _ask(path: str, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_DEADLINE_S)
        link.connect(path)
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(1 << 18), b""))
