"""Whether a line of source belongs to a loop that waits for a condition: `while not path.exists(): time.sleep(0.1)`."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

#: Lines of a loop that only waits, lines above the current one among which its head is searched, and lines below the
#: head that are looked at.
MAX_BODY, MAX_ABOVE, MAX_BELOW = 16, 40, 48
_INDENT = re.compile(r"[ \t]*")
_FUNCTION = re.compile(r"\s*(async\s+def|def|class)\b")
_HEAD = re.compile(r"\s*(while|for|async\s+for)\b(.*)")
_ENDLESS = re.compile(r"\s*\(?(True|1)\)?\s*:")
_ENDS = re.compile(r"\s*(if\b.*:\s*)?(break|return)\b")
#: A name that the loop counts or moves on: the loop ends by its own work, as in `while step < steps`.
_ASSIGNED = re.compile(r"\s*(\w+)\s*[-+*/]?=[^=]")
_NAME = re.compile(r"\w+")


def poll_loop(lines: "Sequence[str]", number: int) -> "str | None":
    """The head of the innermost loop around a line (from 1), if that is a `while` that ends on a condition.

    None for a loop that counts, or that goes on for ever: that one may do the work of the process. Loops are recognised
    by indentation.
    """
    if not 0 < number <= len(lines):
        return None
    head = _head(lines, number - 1)
    if head is None:
        return None
    match = _HEAD.match(lines[head])
    if match is None or match.group(1) != "while":
        return None
    body = _body(lines, head)
    condition = match.group(2)
    if len(body) > MAX_BODY or (_ENDLESS.match(condition) and not any(map(_ENDS.match, body))):
        return None
    assigned = {match.group(1) for match in map(_ASSIGNED.match, body) if match and "(" not in match.string}
    return None if assigned.intersection(_NAME.findall(condition)) else lines[head].strip()


def _head(lines: "Sequence[str]", index: int) -> "int | None":
    """The index of the head of the innermost loop; None outside of any loop of the same function."""
    if _HEAD.match(lines[index]):
        return index
    depth = _depth(lines[index])
    for above in range(index - 1, max(-1, index - MAX_ABOVE), -1):
        line = lines[above]
        if not line.strip() or line.lstrip().startswith("#") or _depth(line) >= depth:
            continue
        depth = _depth(line)
        if _FUNCTION.match(line):
            return None
        if _HEAD.match(line):
            return above
    return None


def _body(lines: "Sequence[str]", head: int) -> "list[str]":
    depth, body = _depth(lines[head]), []
    for line in lines[head + 1 : head + MAX_BELOW]:
        if line.strip() and _depth(line) <= depth:
            break
        if line.strip() and not line.lstrip().startswith("#"):
            body.append(line)
    return body


def _depth(line: str) -> int:
    match = _INDENT.match(line)
    return len(match.group().expandtabs()) if match else 0
