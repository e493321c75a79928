"""Which NCCL a rank has loaded, as far as the file of the library tells; one linked into torch itself stays unknown."""

import os
import re

#: A rank loads it with torch, some seconds after its start; a slow one is looked at once more. Then no more: to list
#: what a process has mapped costs milliseconds.
FIRST_S, AGAIN_S = 10.0, 60.0

_LIBRARY = re.compile(rb"(/\S*/libnccl\.so[^\s(]*)")
_NUMBERED = re.compile(r"/libnccl\.so\.(\d+\.\d+[0-9.]*)$")
_PIP_PLACE = "/nvidia/nccl/lib/"
_PIP_NAME = re.compile(r"nvidia_nccl_cu\d+-(\d[0-9a-z.]*)\.dist-info$")


class NcclVersions(object):
    """The versions of the ranks of one node, by (pid, start_ticks)."""

    def __init__(self, procfs):
        self._procfs = procfs
        self._known = {}
        self._due = {}  # (when, is it the last look)

    def of(self, key):
        """The version, or None."""
        return self._known.get(key)

    def look(self, keys, now):
        """Look at one of the ranks that are due; those of `keys` whose version has become known."""
        for key in [key for key in self._due if key not in keys]:
            del self._due[key]
            self._known.pop(key, None)
        for key in keys:
            due, is_last = self._due.setdefault(key, (now + FIRST_S, False))
            if now < due:
                continue
            self._due[key] = (float("inf") if is_last else now + AGAIN_S, True)
            version = loaded_by(self._procfs, key[0])
            if version is None:
                return []
            self._known[key] = version
            self._due[key] = (float("inf"), True)
            return [key]
        return []


def loaded_by(procfs, pid):
    """The version of the NCCL that a process has loaded; None where it has none, or nothing tells."""
    try:
        match = _LIBRARY.search(procfs.read(pid, "maps", 16 << 20))
        if match is None:
            return None
        path = match.group(1).decode("utf-8", "replace")
        numbered = _NUMBERED.search(path)
        if numbered is not None:
            return numbered.group(1)
        place, found, _ = path.partition(_PIP_PLACE)
        names = os.listdir(procfs.path(pid, "root") + place) if found else ()
    except OSError:
        return None  # gone, or not for us
    versions = [match.group(1) for match in map(_PIP_NAME.match, names) if match is not None]
    return versions[0] if len(versions) == 1 else None
