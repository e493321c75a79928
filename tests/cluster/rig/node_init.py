"""Process 1 of a node: sets up the node's mounts and hostname, then reaps zombies until the rig closes stdin.

Run as `python -I -S node_init.py` in new namespaces, with one JSON line on stdin (`plan`, below). Prints "ready" or an
error on stdout. It exits at the end of stdin, and the kernel then kills every process of the node: nothing
outlives a rig that was killed.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 32, 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2
CGROUPS, CGROUPS_ASIDE = "/sys/fs/cgroup", "/run/.cgroup"

libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags, options=None):
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    if libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or 'bind'} {source} on {target}: {os.strerror(number)}")


def bind(source, target, read_only=False):
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def make_target(path, is_folder):
    if is_folder:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def mount_system():
    """Mount a /proc and a /sys of this node's namespaces; the control groups stay mounted."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    has_cgroups = Path(CGROUPS).is_dir()
    if has_cgroups:
        Path(CGROUPS_ASIDE).mkdir()
        bind(CGROUPS, CGROUPS_ASIDE)
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if has_cgroups:
        mount(CGROUPS_ASIDE, CGROUPS, None, MS_MOVE)
        Path(CGROUPS_ASIDE).rmdir()


def arrange(plan):
    """Apply the plan.

    hostname   the node's name
    covers     [path, mode, noexec]: folders replaced by a tmpfs of the node
    keeps      paths under those folders that stay visible, read-only
    binds      [source, target]: files and folders bind-mounted at another path
    folders    [path, uid, gid, mode]: created at the end (homes)
    copies     [source, target, uid, gid]: a folder of folders of files, copied without access for others
    read_only  mounts that become read-only at the very end
    """
    mount(None, "/", None, MS_PRIVATE | MS_REC)
    libc.umount2(b"/run/netns", MNT_DETACH)  # otherwise each node would keep every other node's network alive
    # Held open, because the parent folders are about to be covered.
    kept = [(path, os.open(path, os.O_PATH), True) for path in plan["keeps"]]
    kept += [(target, os.open(source, os.O_PATH), False) for source, target in plan["binds"]]
    for path, mode, noexec in plan["covers"]:
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | (MS_NOEXEC if noexec else 0), f"mode={mode}")
    mount_system()
    for target, descriptor, read_only in kept:
        source = f"/proc/self/fd/{descriptor}"
        make_target(Path(target), Path(source).is_dir())
        bind(source, target, read_only)
        os.close(descriptor)
    for path, uid, gid, mode in plan["folders"]:
        Path(path).mkdir(parents=True, exist_ok=True)
        os.chown(path, uid, gid)
        Path(path).chmod(mode)
    for copy in plan["copies"]:
        copy_folders(*copy)
    for path in plan["read_only"]:
        mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    if Path("/dev/kmsg").exists():
        bind("/dev/null", "/dev/kmsg")  # the machine's kernel log and history are not those of a node
    if Path("/var/log/wtmp").exists():
        bind("/dev/null", "/var/log/wtmp")
    for path in ("/var/log/journal", "/var/lib/systemd/coredump", "/var/crash", "/var/spool/abrt"):
        if Path(path).is_dir():
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    socket.sethostname(plan["hostname"])


def copy_folders(source, target, uid, gid):
    for folder, _, names in os.walk(source):
        place = Path(target, os.path.relpath(folder, source))
        place.mkdir(0o700)
        os.chown(place, uid, gid)
        for name in names:
            original = Path(folder, name)
            file = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, original.stat().st_mode & 0o700)
            os.write(file, original.read_bytes())
            os.fchown(file, uid, gid)
            os.close(file)


def reap_until_let_go():
    """Reap orphans; return when stdin ends."""
    wake_read, wake_write = os.pipe()
    for end in (wake_read, wake_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        readable, _, _ = select.select([0, wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 512)
            reap()
        if 0 in readable and not os.read(0, 512):
            return


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # no child left


def main():
    try:
        arrange(json.loads(sys.stdin.buffer.raw.readline()))
    except OSError as error:
        print(error, flush=True)
        return 1
    print("ready", flush=True)
    os.chdir("/")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    reap_until_let_go()
    return 0


if __name__ == "__main__":
    sys.exit(main())
