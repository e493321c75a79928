"""Small files of /proc and /sys, one value each; what is not there, or refuses to be read, is None."""


def read_text(path: str) -> "str | None":
    """The text without the blanks around it; None for an empty file, too."""
    try:
        with open(path) as f:
            return f.read().strip() or None
    except OSError:  # absent, forbidden, or one that answers EINVAL while its link is down
        return None


def read_number(path: str) -> "int | None":
    """A whole number; None where the file has another word."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None
