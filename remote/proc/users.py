"""Login names, without blocking on a directory server that is down.

Local names come from /etc/passwd; others (LDAP, SSSD) are looked up on a thread. A name that does not arrive within
the timeout is None until it does.
"""

from .threads import Thread

LOOKUP_TIMEOUT_S = 0.2


class Users(object):
    """Login names by uid."""

    def __init__(self, passwd: str = "/etc/passwd") -> None:
        self._names = _local(passwd)
        self._requested: set[int] = set()
        self._timeout_s = LOOKUP_TIMEOUT_S

    def name(self, uid: "int | None") -> "str | None":
        """The login name of `uid`, or None while it is unknown."""
        if uid is None or uid in self._names:
            return self._names[uid] if uid is not None else None
        if uid not in self._requested:
            self._requested.add(uid)
            lookup = Thread(target=self._look_up, args=(uid,), name="gconsole-user")
            try:
                lookup.start()
            except RuntimeError:  # no memory or threads: looked up again
                self._requested.discard(uid)
                return None
            lookup.join(self._timeout_s)
            if lookup.is_alive():
                self._timeout_s = 0.0  # the directory is slow: later lookups do not wait
        return self._names.get(uid)

    def _look_up(self, uid: int) -> None:
        import pwd

        try:
            self._names[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            self._names[uid] = None
        except Exception:  # noqa: BLE001 - without memory: looked up again
            self._requested.discard(uid)


def _local(path: str) -> "dict[int, str | None]":
    names: dict[int, str | None] = {}
    try:
        with open(path, errors="replace") as f:
            for line in f:
                fields = line.split(":")
                if len(fields) > 2 and fields[2].isdecimal():
                    names.setdefault(int(fields[2]), fields[0])
    except OSError:
        pass  # then every name is looked up
    return names
