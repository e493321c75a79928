"""Jobs that gconsole started: their plan, state per node, and followed output."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from ...records import Job, JobNode, Log
from ...records.kinds import SPECS
from ..versioned_table import Table, newer

#: Output records kept, and characters in them; the whole output is in files on the nodes.
OUTPUT: Final = SPECS[Log].kept_total or 0
OUTPUT_CHARS: Final = 64 << 20


class RecentOutput:
    """The newest output of followed jobs, in order of arrival."""

    def __init__(self, kept: Iterable[tuple[int, Log]] = ()) -> None:
        self._kept: deque[tuple[int, Log]] = deque(kept)
        self._chars = sum(len(record.text) for _, record in self._kept)

    def add(self, record: Log, version: int) -> None:
        """Append output; the oldest is dropped beyond the limits."""
        self._kept.append((version, record))
        self._chars += len(record.text)
        while len(self._kept) > OUTPUT or (self._chars > OUTPUT_CHARS and len(self._kept) > 1):
            self._chars -= len(self._kept.popleft()[1].text)

    @property
    def version(self) -> int:
        """Store version of the newest record; -1 where there is none."""
        return self._kept[-1][0] if self._kept else -1

    def since(self, version: int) -> list[Log]:
        """Output that arrived after a store version, oldest first."""
        return newer(self._kept, version)

    def copied(self) -> RecentOutput:
        """A copy."""
        return RecentOutput(self._kept)


class JobTables:
    """`ordered` by job; `nodes` by (job, node)."""

    def __init__(self) -> None:
        self.ordered: Table[str, Job] = Table()
        self.nodes: Table[tuple[str, str], JobNode] = Table()
        self.output = RecentOutput()

    def add(self, record: Job, version: int) -> None:
        """Replace the plan of a job; only nodes of the job may change it."""
        job = self.ordered.get(record.job)
        if job is None or record.node in (job.node, *job.nodes):
            self.ordered.put(record.job, record, version)

    def add_node(self, record: JobNode, version: int) -> None:
        """Replace the job's state on one node."""
        self.nodes.put((record.job, record.node), record, version)
