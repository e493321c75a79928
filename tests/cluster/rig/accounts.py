"""Accounts of the nodes. In namespaces mode nodes have their own /etc/passwd: the machine gets no new accounts."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from .kinds import PASSWORD_HASH


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    home: str
    shell: str


# On the nodes only. "ops" logs in, "other" is another user whose jobs run there.
OPS = Account("ops", 61801, 61801, "/home/ops", "/bin/sh")
OTHER = Account("other", 61802, 61802, "/home/other", "/bin/sh")
GUESTS = (OPS, OTHER)


def current() -> Account:
    """The account this test process runs under."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return Account(str(os.getuid()), os.getuid(), os.getgid(), os.environ.get("HOME", "/"), "/bin/sh")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def find(user: str | int) -> Account:
    """An account of the nodes by name or uid; a uid without an account has no home."""
    accounts = (current(), *GUESTS)
    for account in accounts:
        if user in (account.name, account.uid):
            return account
    if isinstance(user, int):
        return Account(str(user), user, user, "/", "/bin/sh")
    entry = pwd.getpwnam(user)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell or "/bin/sh")


def write_files(folder: Path) -> list[tuple[str, str]]:
    """Write the nodes' passwd, group and shadow to `folder`; the list of (file, target in a node) to bind."""
    folder.mkdir()
    me = current()
    system_accounts = [
        line
        for line in Path("/etc/passwd").read_text().splitlines()
        if line.split(":")[0] not in {me.name, *(guest.name for guest in GUESTS)}
    ]
    mine = [
        f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:{account.shell}" for account in (me, *GUESTS)
    ]
    groups = [f"{guest.name}:x:{guest.gid}:" for guest in GUESTS] + Path("/etc/group").read_text().splitlines()
    shadow = [f"{account.name}:{PASSWORD_HASH}:20000:0:99999:7:::" for account in (me, *GUESTS)]
    contents = {"passwd": (mine + system_accounts, 0o644), "group": (groups, 0o644), "shadow": (shadow, 0o600)}
    binds = []
    for name, (lines, mode) in contents.items():
        file = folder / name
        file.write_text("\n".join(lines) + "\n")
        file.chmod(mode)
        binds.append((str(file), f"/etc/{name}"))
    return binds
