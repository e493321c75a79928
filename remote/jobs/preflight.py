"""Whether a job could run here: what the console cannot know from samples, asked once before a start."""

import array
import fcntl
import os
import shutil
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..samplers.base import Fields

#: linux/sockios.h
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B


def ready(args: "Fields") -> "Fields":
    """What this node says to a job that wants to run in `workdir`, start `programs` and perhaps listen at a port.

    {"workdir": path, "problems": [text], "port": a free one of `ports` or None, "addresses": [[interface, address,
    prefix length]], "ssh_address": where this agent's console came in, or None, "disk_free_bytes"}
    """
    problems = []
    workdir = os.path.expanduser(args.get("workdir") or "~")
    brings = args.get("brings")
    if brings is not None:
        problems += _cannot_take(workdir, brings)
    elif not os.path.isdir(workdir):
        problems.append("the folder %s is not there" % workdir)
    elif not os.access(workdir, os.R_OK | os.X_OK):
        problems.append("the folder %s may not be entered" % workdir)
    for program in args.get("programs", ()):
        if find_program(program, workdir) is None:
            problems.append("the program %s is not there" % program)
    if os.geteuid() == 0 and os.environ.get("SUDO_UID"):
        problems.append('the agent is root here (run_as = "sudo"); a job would be root\'s, too: set run_as = "self"')
    return {
        "workdir": workdir,
        "problems": problems,
        "port": free_port(args.get("ports", ())),
        "addresses": addresses(),
        "ssh_address": _ssh_address(),
        "disk_free_bytes": _disk_free(_nearest(workdir)),
    }


def _cannot_take(workdir: str, brings: int) -> "list[str]":
    """Why a folder of so many bytes cannot be copied to `workdir`, which need not be there yet."""
    there = _nearest(workdir)
    if not os.path.isdir(there):
        return ["%s is no folder" % there]
    if not os.access(there, os.W_OK | os.X_OK):
        return ["the folder %s may not be written" % there]
    free = _disk_free(there)
    if free is not None and free < brings:
        return ["%.1f GiB free at %s, %.1f GiB are to be copied" % (free / 2.0**30, there, brings / 2.0**30)]
    return []


def _nearest(path: str) -> str:
    """The path, or the first above it that is there."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def find_program(program: str, workdir: str) -> "str | None":
    """The path of what would be executed, as execvp in `workdir` finds it; None where nothing is."""
    if "/" in program:
        path = os.path.join(workdir, os.path.expanduser(program))
        return path if os.path.isfile(path) and os.access(path, os.X_OK) else None
    return shutil.which(program)


def free_port(ports: "Iterable[int]") -> "int | None":
    """The first port that nobody listens at or is bound to; None."""
    for port in ports:
        if is_free(port):
            return port
    return None


def is_free(port: int) -> bool:
    """Whether a port can be bound on every address, IPv4 and, where there is one, IPv6."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what only waits to be forgotten is free
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if family == socket.AF_INET6 and error.errno != 98:  # EADDRINUSE; all else means there is no IPv6
                continue
            return False
        finally:
            probe.close()
    return True


def addresses() -> "list[Any]":
    """[[interface, IPv4 address, prefix length]] of the interfaces that are up, as the kernel lists them."""
    found: list[Any] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = array.array("B", b"\0" * 40 * 256)
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), SIOCGIFCONF, request))[0]
        data = buffer.tobytes()[:used]
        for at in range(0, used, 40):  # struct ifreq
            name = data[at : at + 16].partition(b"\0")[0]
            address = socket.inet_ntoa(data[at + 20 : at + 24])
            try:
                mask = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, struct.pack("256s", name[:15]))[20:24]
            except OSError:
                continue  # it went just now
            found.append([name.decode("ascii", "replace"), address, bin(struct.unpack("!I", mask)[0]).count("1")])
    return found


def _ssh_address() -> "str | None":
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else None


def _disk_free(path: str) -> "int | None":
    try:
        usage = os.statvfs(path)
    except OSError:
        return None
    return usage.f_bavail * usage.f_frsize
