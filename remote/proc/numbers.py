"""Numbers in text that other users write: environment variables, arguments, titles, output of tools.

`str.isdigit` accepts characters that `int` does not, such as `\u00b2`, and digits of all scripts.
"""

import re

_COUNT = re.compile(r"[0-9]{1,18}\Z")


def parse_count(text: "str | None", most: int = (1 << 53) - 1) -> "int | None":
    """A count of ASCII digits alone, from 0 to `most`; None for anything else."""
    if not text or _COUNT.match(text) is None:
        return None
    value = int(text)
    return value if value <= most else None
