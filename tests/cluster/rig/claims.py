"""Names and the folder of a rig, and cleanup of leftovers of a crashed run.

Everything a rig creates on the machine begins with `gct<pid of the owner><letter>`, so that rigs do not collide and a
leftover identifies its dead owner. Network device names are limited to 15 characters: 3 + 7 (pid) + 1 + kind + number.
"""

import json
import os
import re
import shutil
import string
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from . import processes
from .detect import TOOL_PATH

FILTER_VARIABLE = "GCONSOLE_RIG_NODE"
_OWNER = re.compile(r"\bgct(\d+)[a-z]")
_taken: set[str] = set()
_lock = threading.RLock()  # a signal handler that closes rigs may interrupt the lock holder


@dataclass(frozen=True)
class Claim:
    """A unique prefix, and the folder of the rig that owns it."""

    prefix: str
    folder: Path

    @property
    def link_group(self) -> int:
        """A unique group number below 2^31, by which ip(8) deletes all links of the rig in one command."""
        return os.getpid() * 26 + ord(self.prefix[-1]) - ord("a") + 1

    def note_process(self, pid: int) -> None:
        """Record a background process, so that a later run can kill it if this one is killed."""
        with (self.folder / "processes").open("a") as file:
            file.write(f"{pid} {processes.start_ticks(pid)}\n")

    def release(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with _lock:
            _taken.discard(self.prefix)


def claim() -> Claim:
    """Claim a free prefix and create its folder (0700, in the temporary folder)."""
    with _lock:
        letters = (f"gct{os.getpid()}{letter}" for letter in string.ascii_lowercase)
        prefix = next((text for text in letters if text not in _taken), None)
        if prefix is None:
            raise RuntimeError("26 rigs are open in this process: close some")
        _taken.add(prefix)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
    owner = {"pid": os.getpid(), "start_ticks": processes.start_ticks(os.getpid())}
    (folder / "owner.json").write_text(json.dumps(owner))
    return Claim(prefix, folder)


def remove_leftovers() -> None:
    """Remove leftovers of rigs with dead owners: processes, folders, network namespaces and links."""
    for folder in Path(tempfile.gettempdir()).glob("gct*-*"):
        match = _OWNER.match(folder.name)
        if match and not _owner_lives(folder, int(match[1])):
            _end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)
    if os.geteuid() == 0 and shutil.which("ip", path=TOOL_PATH):
        _remove_dead_links()


def _owner_lives(folder: Path, pid: int) -> bool:
    try:
        owner = json.loads((folder / "owner.json").read_text())
        return processes.start_ticks(pid) == owner["start_ticks"]
    except (OSError, ValueError, KeyError):
        return processes.start_ticks(pid) is not None


def _end_processes(folder: Path) -> None:
    prefix = folder.name.split("-")[0]
    doomed = {process.outer for process in processes.with_variable(FILTER_VARIABLE, f"{prefix}.", exact=False)}
    try:
        noted = [line.split() for line in (folder / "processes").read_text().splitlines()]
    except OSError:
        noted = []
    for pid, ticks in noted:
        if str(processes.start_ticks(int(pid))) == ticks:
            doomed |= {int(pid), *processes.descendants(int(pid))}
    processes.end(doomed)


def _remove_dead_links() -> None:
    # Another rig may be removing the same ones concurrently: failures are ignored.
    for listing, removal in ((("-o", "link"), ("link", "del")), (("netns", "list"), ("netns", "del"))):
        for name in _names_of_dead_owners(_ip(*listing)):
            _ip(*removal, name)


def _names_of_dead_owners(listing: str) -> list[str]:
    names = set(re.findall(r"\bgct\d+[a-z][a-z]\d+\b", listing))
    return sorted(name for name in names if processes.start_ticks(int(_OWNER.match(name)[1])) is None)


def _ip(*argv: str) -> str:
    program = shutil.which("ip", path=TOOL_PATH) or "ip"
    return subprocess.run([program, *argv], capture_output=True, text=True, check=False).stdout
