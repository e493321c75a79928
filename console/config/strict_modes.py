"""Who could have written a configuration file: as OpenSSH's StrictModes, because hosts.toml names programs to run."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


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
