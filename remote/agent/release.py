"""Lets the GPUs go for a while: no reset and no update of the driver works while a process has a GPU open.

The time until which they are let go is a file in the cache folder, which every agent of this user reads at each tick.
"""

import os
import re
import time

from . import cache_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields
    from .agent import Agent

#: Longest time that GPUs are let go, and how long a request waits for the agents to do so, s.
MOST_S, WAIT_S = 3600, 12.0
#: Processes that are named as holders of a GPU.
MOST_HOLDERS = 64


def _path(root: str) -> str:
    return os.path.join(root, "run", "gpus_released")


def left_s(root: "str | None") -> float:
    """Seconds for which the GPUs are still let go; 0.0 if they are not, or without a cache folder."""
    try:
        with open(_path(root or "")) as f:
            left = int(f.read(32)) - time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError):
        return 0.0
    return left if 0 < left <= MOST_S + 1 else 0.0  # else it is of another boot


def release(agent: "Agent", args: "Fields") -> "Fields":
    """Let the GPUs go for `for_s` seconds, 0: use them again. Raises OSError if the cache cannot be written.

    The answer: {"left_s": seconds, or None without a cache folder, "holders": [{"pid", "uid", "program"}]}.
    """
    root, seconds = agent.place.root, min(max(0, int(args.get("for_s", 0))), MOST_S)
    if root is None:
        return {"left_s": None, "holders": []}
    path, draft = _path(root), "%s.%d" % (_path(root), os.getpid())
    if not seconds:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        return {"left_s": 0, "holders": []}
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write("%d\n" % (time.clock_gettime(time.CLOCK_BOOTTIME) + seconds))
    os.rename(draft, path)
    deadline = time.monotonic() + WAIT_S
    while True:
        agents = {fact.get("pid") for fact in cache_users.users(root)[0]}
        held = holders(agent.context.proc)
        if not any(pid in agents or parent in agents for pid, parent in held) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    described = [_described(agent.context.proc, pid) for pid, _ in held[:MOST_HOLDERS]]
    return {"left_s": seconds, "holders": [each for each in described if each is not None]}


def holders(proc: str) -> "list[tuple[int, int]]":
    """(pid, pid of the parent) of the processes that have a GPU open, as far as this user may see them."""
    held = []
    for name in os.listdir(proc):
        if name.isdigit() and any(re.match(r"/dev/nvidia[0-9]+$", link) for link in _links("%s/%s/fd" % (proc, name))):
            held.append((int(name), _parent(proc, name)))
    return sorted(held)


def _links(folder: str) -> "list[str]":
    links = []
    try:
        for name in os.listdir(folder):
            links.append(os.readlink("%s/%s" % (folder, name)))
    except OSError:
        pass  # gone, or not readable
    return links


def _parent(proc: str, pid: str) -> int:
    try:
        with open("%s/%s/stat" % (proc, pid), "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _described(proc: str, pid: int) -> "Fields | None":
    try:
        with open("%s/%d/comm" % (proc, pid), "rb") as f:
            program = f.read(64).decode("utf-8", "replace").strip()
        return {"pid": pid, "uid": os.stat("%s/%d" % (proc, pid)).st_uid, "program": program}
    except OSError:
        return None  # it has ended
