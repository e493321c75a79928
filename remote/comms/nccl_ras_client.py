"""NCCL's RAS service on this node: found among the sockets that ranks hold, asked as its own client asks.

Every NCCL process may listen at the one port (localhost:28028, or NCCL_RAS_ADDR), those of other jobs too; whoever
accepts answers for its own job. So it is asked only where a rank of ours holds the socket, and what comes must name
one of our ranks.
"""

import time

from . import nccl_ras, sockets
from .errors import NoFlight

PORT = 28028
VARIABLES = ("NCCL_RAS_ADDR", "NCCL_RAS_ENABLE")
MOST_BYTES = 64 << 20
#: What a process that uses NCCL has mapped, whether it is linked with it or loads it. Tables of sockets cost 10 ms on a
#: busy node: they are read only for such.
_LIBRARIES = (b"libcuda.so", b"libnccl.so")
_MOST_MAPS = 16 << 20
#: The answer takes a leg's timeout where a node is gone; RAS is told this many seconds (its default is 5).
LEG_S = 2
#: With several jobs on one port chance decides who answers: so often it is tried.
TRIES = 4


def port_of(env):
    """The port that a rank with this environment serves RAS at; None where it is switched off."""
    if env.get("NCCL_RAS_ENABLE", "").strip() == "0":
        return None
    word = env.get("NCCL_RAS_ADDR", "").rpartition(":")[2]
    return int(word) if word.isdigit() and 0 < int(word) < 65536 else PORT


def find(procfs, pid, env):
    """The Place where a rank serves RAS; None where it does not. Raises NoFlight."""
    port = port_of(env)
    if port is None or not _may_use_nccl(procfs, pid):
        return None
    places = sockets.listens_at(procfs, pid, port)
    if not places:
        return None
    try:
        for inode in sockets.inodes_of(procfs, pid):
            if inode in places:
                return places[inode]
    except PermissionError:
        raise NoFlight(
            "no_permission",
            "something listens at port %d, and its owner may not be looked up" % port,
            'run_as = "sudo"',
        )
    except OSError:
        pass  # gone
    return None


def _may_use_nccl(procfs, pid):
    try:
        maps = procfs.read(pid, "maps", _MOST_MAPS)
    except OSError:
        return False
    return any(name in maps for name in _LIBRARIES)


def status(procfs, place, deadline, pids):
    """The Ras of the job that one of `pids` (as their own PID namespace counts) is in, and how many bytes it was.

    Raises NoFlight.
    """
    for _ in range(TRIES):
        data = _ask(procfs, place, deadline)
        try:
            said = nccl_ras.parse(data)
        except nccl_ras.BadRas as error:
            raise NoFlight("unreadable", "RAS: %s" % error)
        named = {group["pid"] for group in said.groups}
        if not named - {None} or named & pids:
            return said, len(data)
    raise NoFlight("elsewhere", "RAS at %s answers for another job" % place)


def _ask(procfs, place, deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        raise NoFlight("timed_out", "its turn did not come before the capture's deadline")
    link = sockets.connect(procfs, place, left)
    try:
        lines = _Lines(link, deadline)
        if not lines.ask("CLIENT PROTOCOL 2").startswith("SERVER PROTOCOL"):
            raise NoFlight("refused", "what listens at %s is not RAS" % place)
        lines.ask("TIMEOUT %d" % LEG_S)
        lines.ask("SET FORMAT json")  # before 2.28.7 an unknown command, and the answer is text
        link.sendall(b"VERBOSE STATUS\n")
        return lines.rest + b"".join(sockets.receive(link, deadline, MOST_BYTES, time.monotonic))
    except OSError as error:
        raise NoFlight("refused", "the connection broke: %s" % error)
    finally:
        link.close()


class _Lines(object):
    """Commands and their answers of one line."""

    def __init__(self, link, deadline):
        self._link, self._deadline = link, deadline
        self.rest = b""

    def ask(self, command):
        self._link.sendall(command.encode() + b"\n")
        pieces = sockets.receive(self._link, self._deadline, 1 << 16, time.monotonic)
        while b"\n" not in self.rest:
            piece = next(pieces, None)
            if piece is None:
                raise NoFlight("refused", "it closed the connection after %s" % command)
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()
