"""The last output of ranks and launchers, as their nodes sent it: secrets are not redacted here."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ...records import Output
from ...records.kinds import SPECS, identity
from ..versioned_table import Table

#: An output: (node, pid, start_ticks, stream, path, attempt); without a process if its job had ended before.
OutputKey = tuple[str, int | None, int | None, str, str | None, int]

OUTPUTS: Final = SPECS[Output].kept_total or 0
#: Characters of one output, and of those of all together; beyond that only the end of a further one is kept.
MOST_CHARS: Final = 256 << 10
MOST_CHARS_IN_ALL: Final = 32 << 20
SHORT_CHARS: Final = 2_048


class OutputTable:
    """The newest record of each output; the oldest outputs are dropped beyond the limit."""

    def __init__(self) -> None:
        self.table: Table[OutputKey, Output] = Table()
        self._chars = 0

    def add(self, record: Output, version: int) -> None:
        """Add or replace an output."""
        key: OutputKey = identity(record)
        self._chars -= _size(self.table.get(key))
        most = MOST_CHARS if self._chars < MOST_CHARS_IN_ALL else SHORT_CHARS
        if record.text is not None and len(record.text) > most:
            record = replace(record, text=record.text[-most:])
        self._chars += _size(record)
        self.table.put(key, record, version)
        if len(self.table) > OUTPUTS:
            oldest = next(iter(self.table))
            self._chars -= _size(self.table.get(oldest))
            self.table.drop(oldest, version)

    def values(self) -> list[Output]:
        """All outputs, oldest first."""
        return self.table.values()

    def __len__(self) -> int:
        return len(self.table)


def _size(record: Output | None) -> int:
    return len(record.text or "") if record is not None else 0
