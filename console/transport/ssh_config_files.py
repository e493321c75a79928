"""Whether the files of OpenSSH's client configuration treat all host names alike.

Then two answers of `ssh -G` stand for those of all names, which saves a process for each node. Whatever is not plainly
alike counts as different.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Programs whose system-wide files are known; a script or another build may read others.
_PROGRAMS = ("/usr/bin/ssh", "/bin/ssh")
_SYSTEM = (Path("/etc/ssh/ssh_config"), Path("/usr/etc/ssh/ssh_config"))
#: Keywords by which names differ: `Match` may run programs, the others rewrite names.
_DIFFER = frozenset({"match", "hostname", "canonicalizehostname", "canonicaldomains", "canonicalizepermittedcnames"})
_LINE = re.compile(r"\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*?)\s*$")
#: Names that OpenSSH takes as they are: it lowers the case of others.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,252}")
#: Files that are read at most; OpenSSH allows includes 16 deep.
_MOST_FILES = 64


class _Different(Exception):
    """A file names hosts, or cannot be judged."""


def is_plain(name: str) -> bool:
    """Whether OpenSSH takes a host name as it is."""
    return _PLAIN.fullmatch(name) is not None


def treats_names_alike(program: str, system: Sequence[Path] = _SYSTEM, user: Path | None = None) -> bool:
    """Whether no file that `program` reads distinguishes host names. `user`: the user's folder of OpenSSH."""
    if program not in _PROGRAMS:
        return False
    try:
        with Path(program).open("rb") as file:
            if file.read(4) not in (b"\x7fELF", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe"):
                return False  # a script that calls ssh with other files
        user = user or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
        waiting = [(path, path.parent) for path in system] + [(user / "config", user)]
        for number, (path, folder) in enumerate(waiting):
            if number >= _MOST_FILES:
                return False
            waiting += [(included, folder) for included in _includes(path, folder)]
    except (_Different, OSError, KeyError, UnicodeDecodeError):
        return False
    return True


def _includes(path: Path, folder: Path) -> Iterator[Path]:
    """Files that a file includes. Raises _Different if it distinguishes names, OSError if it cannot be read."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                raise _Different
            continue
        keyword, rest = match[1].lower(), match[2]
        if keyword in _DIFFER or (keyword == "host" and rest.strip('"') != "*"):
            raise _Different
        if keyword == "include":
            if re.search(r"[%$\"'\\]", rest):
                raise _Different
            for pattern in rest.split():
                place = Path(pattern).expanduser()
                anchor = Path(place.anchor) if place.is_absolute() else folder
                yield from sorted(anchor.glob(str(place.relative_to(anchor) if place.is_absolute() else place)))
