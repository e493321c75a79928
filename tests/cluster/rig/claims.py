"""The prefix and folder a rig owns, and the removal of what a crashed run left behind.

Everything a rig makes on the machine begins with `gct<pid of the owner><letter>`, so that two rigs never collide and a
leftover names its dead owner. Names of network devices may have 15 characters: 3 + 7 (pid) + 1 + kind + node number.
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
_lock = threading.RLock()  # a signal handler that closes rigs may interrupt its holder


@dataclass(frozen=True)
class Claim:
    """A prefix of this process's own, and the folder of the rig that holds it."""

    prefix: str
    folder: Path

    @property
    def link_group(self) -> int:
        """A number no other rig has, below 2^31: the group by which ip(8) deletes all its links in one step."""
        return os.getpid() * 26 + ord(self.prefix[-1]) - ord("a") + 1

    def note_process(self, pid: int) -> None:
        """Remember a background process, so that a later run can end it should this one be killed."""
        with (self.folder / "processes").open("a") as file:
            file.write(f"{pid} {processes.start_ticks(pid)}\n")

    def release(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with _lock:
            _taken.discard(self.prefix)


def claim() -> Claim:
    """Take a free prefix and make its folder (0700, in the machine's folder for temporary files)."""
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
    """End and remove what rigs of dead owners left: processes, folders, network namespaces and links."""
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
    # Another rig may be removing the same ones at this moment: failures here are not ours to report.
    for listing, removal in ((("-o", "link"), ("link", "del")), (("netns", "list"), ("netns", "del"))):
        for name in _names_of_dead_owners(_ip(*listing)):
            _ip(*removal, name)


def _names_of_dead_owners(listing: str) -> list[str]:
    names = set(re.findall(r"\bgct\d+[a-z][a-z]\d+\b", listing))
    return sorted(name for name in names if processes.start_ticks(int(_OWNER.match(name)[1])) is None)


def _ip(*argv: str) -> str:
    program = shutil.which("ip", path=TOOL_PATH) or "ip"
    return subprocess.run([program, *argv], capture_output=True, text=True, check=False).stdout
