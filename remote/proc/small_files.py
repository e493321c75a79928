"""Reads one-value files of /proc and /sys; None if missing or not readable."""


def read_text(path: str) -> "str | None":
    """The stripped text; None also for an empty file."""
    try:
        with open(path) as f:
            return f.read().strip() or None
    except OSError:  # absent, forbidden, or one that answers EINVAL while its link is down
        return None


def read_number(path: str) -> "int | None":
    """An integer; None for any other content."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None
