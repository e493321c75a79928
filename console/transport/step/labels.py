"""What `srun --label` writes: lines of tasks behind their numbers, and lines of srun itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...config.nodeset import expand
from ...config.nodeset_parser import BadNodeSet

#: Bytes of one line: slurmstepd cuts those of a task at 1,024, srun adds the number.
MAX_LINE = 4096
_LABEL = re.compile(rb" *(\d{1,7}): ")
#: An end of tasks: "srun: error: node[1-2]: tasks 0,3-4: Exited with exit code 127", "…: task 3: Killed".
_END = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_STATUS = re.compile(r"Exited with exit code (\d+)")


class LabelledLines:
    """Splits a stream of srun into lines."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """The complete lines: number of the task, None for srun itself, and the rest. Raises ValueError if too long."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            label = _LABEL.match(line)
            if label is None:
                yield None, line
            else:
                yield int(label[1]), line[label.end() :]
        if len(self._partial) > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE} bytes")


class EndedTask(NamedTuple):
    """An end that srun reports; `node` is "" where the message does not say which one it is."""

    number: int
    node: str
    how: str


def ended_tasks(line: str) -> list[EndedTask]:
    """The tasks whose end a line of srun reports, one on each node."""
    end = _END.match(line)
    if end is None or len(line) > MAX_LINE:
        return []
    try:
        nodes = [address.name for address in expand(end[1])]
        numbers = [int(address.name) for address in expand(f"[{end[2]}]")]
    except BadNodeSet:
        return []
    if len(nodes) != len(numbers):
        nodes = [""] * len(numbers)
    return [EndedTask(number, node, end[3].strip()) for number, node in zip(numbers, nodes, strict=True)]


def exit_status(how: str) -> int | None:
    """The exit status in the words of srun; None after a signal."""
    status = _STATUS.search(how)
    return int(status[1]) if status else None
