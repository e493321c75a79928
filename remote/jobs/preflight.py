"""Whether a job could run on this node; checked once before a start."""

import array
import fcntl
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..samplers.base import Fields

#: linux/sockios.h
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B


def check(args: "Fields") -> "Fields":
    """Whether a job can run in `workdir`, start `programs` and listen at one of `ports`.

    {"workdir": path, "problems": [text], "port": a free one of `ports` or None, "addresses": [[interface, address,
    prefix length]], "ssh_address": this end of the console's SSH connection or None, "disk_free_bytes"}
    """
    problems = []
    workdir = os.path.expanduser(args.get("workdir") or "~")
    brings = args.get("brings")
    if brings is not None:
        problems += _cannot_take(workdir, brings)
    elif not os.path.isdir(workdir):
        problems.append("folder %s does not exist" % workdir)
    elif not os.access(workdir, os.R_OK | os.X_OK):
        problems.append("no permission to enter folder %s" % workdir)
    for program in args.get("programs", ()):
        if find_program(program, workdir) is None:
            problems.append("program %s not found" % program)
    if os.geteuid() == 0 and os.environ.get("SUDO_UID"):
        problems.append('the agent runs as root (run_as = "sudo"), and so would the job; set run_as = "self"')
    return {
        "workdir": workdir,
        "problems": problems,
        "port": free_port(args.get("ports", ())),
        "addresses": addresses(),
        "ssh_address": _ssh_address(),
        "disk_free_bytes": _disk_free(_nearest(workdir)),
    }


def lack_of_space(free: int, place: str, needed: int) -> str:
    """The words for a file system with too few free bytes."""
    return "%s free at %s, %s needed" % (size(free), place, size(needed))


def size(value: float) -> str:
    """Bytes in binary units, as the console prints them: `812 B`, `42.0 GiB`."""
    if value < 1024:
        return "%d B" % value
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024.0
        if value < 1023.95:
            return "%.1f %s" % (value, unit)
    return "%.1f TiB" % (value / 1024.0)


def _cannot_take(workdir: str, brings: int) -> "list[str]":
    """Why a folder of `brings` bytes cannot be copied to `workdir`, which need not exist."""
    there = _nearest(workdir)
    if not os.path.isdir(there):
        return ["%s is not a folder" % there]
    if not os.access(there, os.W_OK | os.X_OK):
        return ["no permission to write to folder %s" % there]
    free = _disk_free(there)
    if free is not None and free < brings:
        return [lack_of_space(free, there, brings)]
    return []


def _nearest(path: str) -> str:
    """The path, or the nearest folder above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def find_program(program: str, workdir: str) -> "str | None":
    """The path that execvp would execute in `workdir`; None if there is none."""
    if "/" in program:
        folders = [os.path.join(workdir, os.path.dirname(os.path.expanduser(program)))]
    else:
        folders = os.get_exec_path()  # shutil.which would load three compression libraries
    for folder in folders:
        path = os.path.join(folder, os.path.basename(program))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def free_port(ports: "Iterable[int]") -> "int | None":
    """The first port that is free, or None."""
    for port in ports:
        if is_free(port):
            return port
    return None


def is_free(port: int) -> bool:
    """Whether a port can be bound on all IPv4 addresses and, if the node has IPv6, on all of those."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT counts as free
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if family == socket.AF_INET6 and error.errno != 98:  # EADDRINUSE; any other error: no IPv6
                continue
            return False
        finally:
            probe.close()
    return True


def addresses() -> "list[Any]":
    """[[interface, IPv4 address, prefix length]] of the interfaces that are up, as the kernel lists them."""
    entries: list[Any] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        buffer = array.array("B", b"\0" * 40 * 256)
        request = struct.pack("iL", len(buffer), buffer.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), SIOCGIFCONF, request))[0]
        data = buffer.tobytes()[:used]
        for offset in range(0, used, 40):  # struct ifreq
            name = data[offset : offset + 16].partition(b"\0")[0]
            address = socket.inet_ntoa(data[offset + 20 : offset + 24])
            try:
                mask = fcntl.ioctl(sock.fileno(), SIOCGIFNETMASK, struct.pack("256s", name[:15]))[20:24]
            except OSError:
                continue  # removed meanwhile
            entries.append([name.decode("ascii", "replace"), address, bin(struct.unpack("!I", mask)[0]).count("1")])
    return entries


def _ssh_address() -> "str | None":
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else None


def _disk_free(path: str) -> "int | None":
    try:
        usage = os.statvfs(path)
    except OSError:
        return None
    return usage.f_bavail * usage.f_frsize
