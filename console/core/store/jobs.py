"""Jobs that gconsole started, as their nodes tell of them, and the lines they wrote: a part of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from ...records import Job, JobNode, Log
from ...records.kinds import SPECS
from ..versioned_table import Table

#: So many records of output are kept, and characters in them; the whole output is in files on the nodes.
OUTPUT: Final = SPECS[Log].kept_total or 0
OUTPUT_CHARS: Final = 64 << 20


class JobOutput:
    """What the jobs that somebody looks at wrote of late, as it came."""

    def __init__(self, kept: Iterable[tuple[int, Log]] = ()) -> None:
        self._kept: deque[tuple[int, Log]] = deque(kept)
        self._chars = sum(len(record.text) for _, record in self._kept)

    def add(self, record: Log, version: int) -> None:
        self._kept.append((version, record))
        self._chars += len(record.text)
        while len(self._kept) > OUTPUT or (self._chars > OUTPUT_CHARS and len(self._kept) > 1):
            self._chars -= len(self._kept.popleft()[1].text)

    @property
    def version(self) -> int:
        """That of the newest record; -1 where there is none."""
        return self._kept[-1][0] if self._kept else -1

    def since(self, version: int) -> list[Log]:
        """What came in the batches after that version, oldest first."""
        found = []
        for at, record in reversed(self._kept):
            if at <= version:
                break
            found.append(record)
        return found[::-1]

    def copied(self) -> JobOutput:
        """The same, growing no more."""
        return JobOutput(self._kept)


class JobTables:
    """`ordered` by job; `nodes` by (job, node)."""

    def __init__(self) -> None:
        self.ordered: Table[str, Job] = Table()
        self.nodes: Table[tuple[str, str], JobNode] = Table()
        self.output = JobOutput()

    def add(self, record: Job, version: int) -> None:
        """Every node of a job says the same of it; one that is none of them has no say in it."""
        known = self.ordered.get(record.job)
        if known is None or record.node in (known.node, *known.nodes):
            self.ordered.put(record.job, record, version)

    def add_node(self, record: JobNode, version: int) -> None:
        self.nodes.put((record.job, record.node), record, version)
