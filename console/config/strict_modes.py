"""Who could have written a configuration file: as OpenSSH's StrictModes, because hosts.toml names programs to run.

A hosts.toml that was found in the working directory may have been unpacked or cloned: what it may run or use needs an
agreement of the user, once. Naming the file as TARGET is an agreement, too.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import platformdirs

from ..text.atomic_files import make_folder, write_atomically
from .model import ConfigError, Setting

if TYPE_CHECKING:
    from .document import Contents, Document


def reason_to_reject(path: Path, opened: os.stat_result) -> str | None:
    """Why a file may not be used: others own it or can change it, or a folder above it; None if it may.

    `opened` is the status of the opened file. Owners may be root, this user, and the caller of sudo. A group may write
    if it is the private group of this user. Folders that are sticky, as /tmp, are accepted.
    """
    if opened.st_uid not in _owners():
        return f"belongs to another user ({_user(opened.st_uid)})"
    if stat.S_ISREG(opened.st_mode) and _is_open(opened):
        return "can be changed by other users"
    for folder in Path(os.path.realpath(path)).parents:
        try:
            status = folder.stat()
        except OSError:
            continue  # not readable: then the file was reached through a descriptor
        if status.st_uid not in _owners():
            return f"lies below {folder}, which belongs to another user ({_user(status.st_uid)})"
        if _is_open(status) and not status.st_mode & stat.S_ISVTX:
            return f"lies below {folder}, in which other users can replace it"
    return None


def _owners() -> frozenset[int]:
    caller = os.environ.get("SUDO_UID", "")
    by_sudo = {int(caller)} if os.geteuid() == 0 and caller.isascii() and caller.isdecimal() else set()
    return frozenset({0, os.geteuid(), *by_sudo})


def _is_open(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)


def _is_private(gid: int) -> bool:
    """Whether a group has this user as its only member, as many distributions create one for each user."""
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


# -- files that were found ---------------------------------------------------------------------------------------------

#: Keys that name a program to run or a file of the user to use, by full name; None: whatever their value is.
_POWERS: Final[Mapping[str, str | None]] = {
    "ssh.transport": "local", "ssh.gateway_command": None, "agent.python": None, "ssh.identity_file": None,
    "ssh.known_hosts": None,
}  # fmt: skip
#: Agreements that are remembered; the oldest is dropped.
_MOST: Final = 256
_found: set[str] = set()


def mark_found(path: Path) -> None:
    """From now on, this process uses the file only with an agreement."""
    _found.add(os.path.realpath(path))


def powers(contents: Contents) -> list[Setting]:
    """The settings that need an agreement, in the order of the file."""
    settings = [*contents.settings.values(), *(own for entry in contents.entries for own in entry.own.values())]
    return [
        setting
        for setting in settings
        if setting.key in _POWERS and _POWERS[setting.key] in (None, setting.value) and setting.value is not None
    ]


def is_agreed(document: Document) -> bool:
    """Whether the user has agreed to this file with this content."""
    return _agreements().get(os.path.realpath(document.path)) == _digest(document)


def agree(document: Document) -> None:
    """Remember that the user has agreed to this content. Raises OSError."""
    path = os.path.realpath(document.path)
    kept = [(name, digest) for name, digest in _agreements().items() if name != path][1 - _MOST :]
    file = agreements_path()
    make_folder(file.parent)
    write_atomically(file, msgspec.json.encode(dict([*kept, (path, _digest(document))])))


def require_agreement(document: Document, contents: Contents) -> None:
    """Raises ConfigError for a file that was found, and has changed in what needs an agreement."""
    if os.path.realpath(document.path) in _found and (named := powers(contents)) and not is_agreed(document):
        text = f"found in the working directory, and sets {keys_of(named)}; to agree, start gconsole again"
        raise ConfigError(document.name, "", text)


def keys_of(settings: Sequence[Setting]) -> str:
    """The keys, each once."""
    return ", ".join(dict.fromkeys(setting.key for setting in settings))


def agreements_path() -> Path:
    """The file of all agreements: SHA-256 by path."""
    return platformdirs.user_state_path("gconsole") / "agreed_files.json"


def _agreements() -> dict[str, str]:
    try:
        return msgspec.json.decode(agreements_path().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}


def _digest(document: Document) -> str:
    return hashlib.sha256(document.text.encode()).hexdigest()
