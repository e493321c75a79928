"""The newest captures: records of kinds `stack`, `connection`, `collective` and `pg_status`."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from ...records import Collective, Connection, PgStatus, Stack, StackFrame
from ...records.kinds import SPECS
from ..versioned_table import Table

#: Captures kept; people compare a few, and a recording has them all. Beyond them stay the newest ones of each job, as
#: many as a diagnosis makes: a job that stands still is diagnosed every ten minutes, and other jobs in between.
CAPTURES: Final = 16
OF_JOB: Final = 8
MOST_CAPTURES: Final = 128
#: Stack records of all captures together.
STACKS: Final = SPECS[Stack].kept_total or 0
#: Collective and group records of all captures together.
FLIGHT: Final = SPECS[Collective].kept_total or 0
#: Connections of all captures together, and of one.
CONNECTIONS: Final = SPECS[Connection].kept_total or 0
OF_CAPTURE: Final = CONNECTIONS // CAPTURES


class CaptureNow(msgspec.Struct):
    """Everything received of one capture. `stacks` have their frames, also those that were sent only once."""

    id: str
    started_rx: int  # console time of its first record, ns
    ended_rx: int  # console time of its newest record, ns
    stacks: list[Stack] = msgspec.field(default_factory=list)
    collectives: list[Collective] = msgspec.field(default_factory=list)
    earlier: list[Collective] = msgspec.field(default_factory=list)  # before these, since the last capture
    groups: list[PgStatus] = msgspec.field(default_factory=list)
    connections: list[Connection] = msgspec.field(default_factory=list)
    ranks: set[tuple[str, int]] = msgspec.field(default_factory=set)  # (node, pid) of those that something has come of
    jobs: set[str] = msgspec.field(default_factory=set)  # of its stacks
    lost: int = 0  # stacks whose frames never came: the record that had them is in a gap
    dropped: int = 0  # records beyond `STACKS`, `FLIGHT` and `CONNECTIONS`
    paths: dict[tuple[str, int], tuple[StackFrame, ...]] = msgspec.field(default_factory=dict)  # by (agent, path)
    frames: dict[tuple[StackFrame, ...], tuple[StackFrame, ...]] = msgspec.field(
        default_factory=dict
    )  # nodes share those that are equal


class CaptureTable:
    """Captures by id, oldest first; beyond the limits the oldest are dropped."""

    def __init__(self) -> None:
        self.table: Table[str, CaptureNow] = Table()
        self._held = 0
        self._held_flight = 0
        self._held_connections = 0

    def __len__(self) -> int:
        return len(self.table)

    def values(self) -> list[CaptureNow]:
        """All captures, oldest first."""
        return self.table.values()

    def get(self, id_: str) -> CaptureNow | None:
        """The capture, or None."""
        return self.table.get(id_)

    def add(self, record: Stack, version: int) -> None:
        """Add a stack, with the frames that an earlier record of its agent carried."""
        capture = self._capture(record, version)
        if record.role == "rank":
            capture.ranks.add((record.node, record.pid))
        self._make_room(capture, version)
        if self._held >= STACKS:
            capture.dropped += 1
            return
        self._held += 1
        capture.jobs.add(record.job)
        capture.stacks.append(self._whole(capture, record))

    def add_flight(self, record: Collective | PgStatus, version: int) -> None:
        """Add a record of a communication library."""
        capture = self._capture(record, version)
        self._make_room(capture, version)
        if self._held_flight >= FLIGHT:
            capture.dropped += 1
            return
        self._held_flight += 1
        if isinstance(record, Collective):
            (capture.earlier if record.is_earlier else capture.collectives).append(record)
        else:
            capture.groups.append(record)

    def add_connection(self, record: Connection, version: int) -> None:
        """Add the holders of a TCP end."""
        capture = self._capture(record, version)
        self._make_room(capture, version)
        if len(capture.connections) >= OF_CAPTURE or self._held_connections >= CONNECTIONS:
            capture.dropped += 1
        else:
            self._held_connections += 1
            capture.connections.append(record)

    def _capture(self, record: Stack | Connection | Collective | PgStatus, version: int) -> CaptureNow:
        capture = self.table.get(record.capture)
        if capture is None:
            capture = CaptureNow(record.capture, record.rx, record.rx)
            self.table.put(record.capture, capture, version)
            if len(self.table) > CAPTURES:
                self._drop(self._outdated(), version)
        else:
            self.table.touch(record.capture, version)
        capture.ended_rx = max(capture.ended_rx, record.rx)
        return capture

    def _whole(self, capture: CaptureNow, record: Stack) -> Stack:
        if record.path is None:
            return record
        key = (record.agent, record.path)
        frames: tuple[StackFrame, ...] | None
        if record.frames is not None:
            frames = capture.paths[key] = capture.frames.setdefault(record.frames, record.frames)
        else:
            frames = capture.paths.get(key)
            capture.lost += frames is None
        return msgspec.structs.replace(record, frames=frames)

    def _make_room(self, newest: CaptureNow, version: int) -> None:
        while (
            self._held >= STACKS
            or self._held_flight >= FLIGHT
            or self._held_connections >= CONNECTIONS
            or len(self.table) > MOST_CAPTURES
        ):
            oldest = next((capture for capture in self.table.values() if capture is not newest), None)
            if oldest is None:
                return
            self._drop(oldest, version)

    def _outdated(self) -> CaptureNow | None:
        """The oldest capture of whose jobs there are enough newer ones; None if each has the newest of a job."""
        newer, outdated = Counter[str](), None
        for capture in reversed(self.table.values()):
            if all(newer[job] >= OF_JOB for job in capture.jobs) and newer.total():
                outdated = capture
            newer.update(capture.jobs or ("",))
        return outdated

    def _drop(self, capture: CaptureNow | None, version: int) -> None:
        if capture is not None:
            self._held -= len(capture.stacks)
            self._held_flight -= len(capture.collectives) + len(capture.earlier) + len(capture.groups)
            self._held_connections -= len(capture.connections)
            self.table.drop(capture.id, version)
