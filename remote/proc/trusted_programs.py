"""Programs that only root, or also the agent's own user, can have put where they are."""

import os
import stat

#: Parts of a path, those of its links included.
MOST_PARTS = 256


def trusted_path(path: str, is_of_root: bool = False) -> "str | None":
    """The program at a path; None unless only root and the agent's user can have chosen or can change it.

    `is_of_root`: only root.

    Every part is examined before it is followed: a link that another user placed may lead to any program of the system,
    whose own path is beyond doubt.
    """
    if not path.startswith("/"):
        return None
    owners = (0,) if is_of_root else (0, os.geteuid())
    rest, place = [part for part in path.split("/") if part][::-1], "/"
    for _ in range(MOST_PARTS):
        try:
            status = os.lstat(place)
            is_link = stat.S_ISLNK(status.st_mode)
            is_open = not is_link and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid not in owners or (is_open and not status.st_mode & stat.S_ISVTX):
                return None
            if is_link:
                target = os.readlink(place)
                rest += [part for part in target.split("/") if part][::-1]
                place = "/" if target.startswith("/") else os.path.dirname(place)
            elif not rest:
                return place if stat.S_ISREG(status.st_mode) and os.access(place, os.X_OK) else None
            else:
                part = rest.pop()
                place = os.path.dirname(place) if part == ".." else place if part == "." else os.path.join(place, part)
        except OSError:
            return None
    return None
