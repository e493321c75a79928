"""Jobs that gconsole started, as their nodes tell of them, and the lines they wrote: a part of the store."""

from __future__ import annotations

from collections import deque
from typing import Final

from ..records import Job, JobNode, Log
from ..table import Table

#: So many records of output are kept, each of several lines; the whole output is in files on the nodes.
OUTPUT: Final = 20_000


class Jobs:
    """`ordered` by job; `nodes` by (job, node); `output` as (version, record), oldest first."""

    def __init__(self) -> None:
        self.ordered: Table[str, Job] = Table()
        self.nodes: Table[tuple[str, str], JobNode] = Table()
        self.output: deque[tuple[int, Log]] = deque(maxlen=OUTPUT)

    def add(self, record: Job, version: int) -> None:
        """Every node of a job says the same of it; one that is none of them has no say in it."""
        known = self.ordered.get(record.job)
        if known is None or record.node in (known.node, *known.nodes):
            self.ordered.put(record.job, record, version)

    def add_node(self, record: JobNode, version: int) -> None:
        self.nodes.put((record.job, record.node), record, version)

    def add_output(self, record: Log, version: int) -> None:
        self.output.append((version, record))
