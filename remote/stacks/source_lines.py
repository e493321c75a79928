"""The line of source at which a job stands, where the node can read the file: it says more than its number."""

import os
import re
import threading

from ..proc.procfs import printable

#: Larger files are no source that a person wrote.
MOST_BYTES = 1 << 20
#: The file system that hangs the job may be the one with its source: so long is waited for a file, once.
PATIENCE_S = 0.2
_MOST_LINE = 160
#: Installed packages and the standard library are known by their names; only the job's own code is shown.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3?[.\d]*t?/|^<")


def is_library(file):
    """Whether a file is of an installed package or of Python itself, and not of the job."""
    return _LIBRARY.search(file) is not None


class Sources(object):
    """Reads each file once in a capture."""

    def __init__(self, procfs):
        self._procfs = procfs
        self._lines = {}  # path → its lines, or [] where it cannot be read
        self._given_up = False

    def frames(self, pid, frames):
        """The `frames` of a record, the line itself with the innermost call of the job's own."""
        own = [at for at, frame in enumerate(frames) if not frame[3] and frame[2] and not is_library(frame[1])]
        found = []
        for at, (function, file, line, native) in enumerate(frames):
            fields = {"function": function, "file": file, "line": line}
            if native:
                fields["native"] = True
            if own and at == own[-1]:
                source = self._line(pid, file, line)
                if source:
                    fields["source"] = source
            found.append(fields)
        return found

    def _line(self, pid, file, line):
        if not os.path.isabs(file):
            return None
        path = self._procfs.path(pid, "root") + file  # as the process sees it: it may be in a container
        if path not in self._lines:
            self._lines[path] = self._read(path)
        lines = self._lines[path]
        return printable(lines[line - 1].strip(), _MOST_LINE) if line <= len(lines) else None

    def _read(self, path):
        if self._given_up:
            return []
        found = []
        reading = threading.Thread(target=lambda: found.append(_lines_of(path)), name="gconsole-source", daemon=True)
        reading.start()
        reading.join(PATIENCE_S)
        self._given_up = not found
        return found[0] if found else []


def _lines_of(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if os.fstat(fd).st_size > MOST_BYTES:
                return []
            return os.read(fd, MOST_BYTES).decode("utf-8", "replace").splitlines()
        finally:
            os.close(fd)
    except OSError:
        return []
