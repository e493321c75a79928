"""Names of users, without ever waiting for a directory server that is down.

Local names come from /etc/passwd. Others are asked of the system (LDAP, SSSD) on a thread of its own: a name that does
not come at once is None, and is there the next time if it came after all.
"""

import threading

PATIENCE_S = 0.2


class Users(object):
    """uid to login name."""

    def __init__(self, passwd: str = "/etc/passwd") -> None:
        self._names = _local(passwd)
        self._asked: set[int] = set()
        self._patience_s = PATIENCE_S

    def name(self, uid: "int | None") -> "str | None":
        """The login name of `uid`, or None while it is unknown."""
        if uid is None or uid in self._names:
            return self._names[uid] if uid is not None else None
        if uid not in self._asked:
            self._asked.add(uid)
            asking = threading.Thread(target=self._ask, args=(uid,), name="gconsole-user", daemon=True)
            asking.start()
            asking.join(self._patience_s)
            if asking.is_alive():
                self._patience_s = 0.0  # the directory is slow: nobody waits for it again
        return self._names.get(uid)

    def _ask(self, uid: int) -> None:
        import pwd

        try:
            self._names[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            self._names[uid] = None


def _local(path: str) -> "dict[int, str | None]":
    names: dict[int, str | None] = {}
    try:
        with open(path, errors="replace") as f:
            for line in f:
                fields = line.split(":")
                if len(fields) > 2 and fields[2].isdecimal():
                    names.setdefault(int(fields[2]), fields[0])
    except OSError:
        pass  # then every name is asked of the system
    return names
