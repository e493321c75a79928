"""NCCL version of a rank, from the path of its library; unknown if NCCL is linked into torch."""

import re

from ..proc import apart
from ..proc.user_files import names_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection

    from ..proc.procfs import ProcFs

    ProcessKey = tuple[int, int]  # (pid, start_ticks)

#: Seconds after the start of a rank, and after the first attempt. NCCL is loaded with torch, some seconds after the
#: start; there are only two attempts, because reading the maps of a process takes milliseconds.
FIRST_S, AGAIN_S = 10.0, 60.0

#: Characters of a path; a longer one is cut in front.
LONGEST_PATH = 1 << 17
#: Names in a folder of packages.
MOST_NAMES = 20_000

_NUMBERED = re.compile(r"/libnccl\.so\.(\d+\.\d+[0-9.]*)$")
_PIP_FOLDER = "/nvidia/nccl/lib/"
_PIP_NAME = re.compile(r"nvidia_nccl_cu\d+-(\d[0-9a-z.]*)\.dist-info$")


class NcclVersions(object):
    """NCCL versions of the ranks of one node, by (pid, start_ticks)."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._versions: "dict[ProcessKey, str]" = {}
        self._due: "dict[ProcessKey, tuple[float, bool]]" = {}  # (when, is the last attempt)

    def get(self, key: "ProcessKey") -> "str | None":
        """The version, or None."""
        return self._versions.get(key)

    def refresh(self, keys: "Collection[ProcessKey]", now: float) -> "list[ProcessKey]":
        """Read the maps of one rank that is due; returns the rank if its version was found."""
        for key in [key for key in self._due if key not in keys]:
            del self._due[key]
            self._versions.pop(key, None)
        for key in keys:
            due, is_last = self._due.setdefault(key, (now + FIRST_S, False))
            if now < due:
                continue
            self._due[key] = (float("inf") if is_last else now + AGAIN_S, True)
            version = loaded_version(self._procfs, key[0])
            if version is None:
                return []
            self._versions[key] = version
            self._due[key] = (float("inf"), True)
            return [key]
        return []


def loaded_version(procfs: "ProcFs", pid: int) -> "str | None":
    """Version of the NCCL library that a process has mapped; None if there is none or it is unknown.

    The search takes linear time: a path may be as long as all of maps.
    """
    try:
        path = apart.read(procfs, pid, ("maps",), _library_path)
        if path is None:
            return None
        path = apart.as_text(path, LONGEST_PATH)
        numbered = _NUMBERED.search(path)
        if numbered is not None:
            return numbered.group(1)
        site, is_pip, _ = path.partition(_PIP_FOLDER)
        names = names_in(procfs, pid, site, MOST_NAMES) if is_pip else []
    except (OSError, KeyError, ValueError):
        return None  # ended, or no permission
    versions = [match.group(1) for match in map(_PIP_NAME.match, names) if match is not None]
    return versions[0] if len(versions) == 1 else None


def _library_path(procfs: "ProcFs", pid: int) -> "str | None":
    maps = procfs.maps(pid)
    index = maps.find(b"/libnccl.so")
    if index < 0:
        return None
    start = max(maps.find(b"/", maps.rfind(b"\n", 0, index) + 1), index - LONGEST_PATH + 256)
    return (maps[start:index] + maps[index : index + 256].split(None, 1)[0]).decode("utf-8", "replace")
