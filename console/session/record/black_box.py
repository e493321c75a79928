"""The black box of a console: the last minutes of its records on disk, also while nothing is recorded.

Each console writes a ring of its own, in the user's state folder; `manage.keep` makes a session of it.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from ... import __version__
from ...config.sections import ConsoleConfig
from ...core.bus import Hub, Published
from ...core.control import BlackBoxStatus, KeptRecords
from ...records import Log, Record
from ...text.format import file_stamp
from ..format.layout import Meta, RecorderRun, Session, SessionError, now
from ..format.writer import create_session
from ..manage import black_boxes
from .recording import OpenPast, Past
from .ring import RingLimits, RingWriter

#: Seconds. The ring of a console that ran for a shorter time, or saw no node, is deleted when it ends.
_LEAST_S: Final = 10.0
#: Records of a snapshot that are taken at a time: about a millisecond of the event loop.
_SLICE_RECORDS: Final = 2_000
#: Seconds that a recording waits for the black box that it begins with.
_PAST_S: Final = 5.0


class BlackBox:
    """Sink of the bus that keeps the newest records in a ring below `folder`; see `[console] black_box`.

    `initial` returns the current state, with which every segment begins. `target` identifies what is watched.
    """

    def __init__(
        self, hub: Hub, folder: Path, config: ConsoleConfig, initial: Callable[[], Iterable[Published]],
        cluster: str = "", target: str = "", *, is_wanted: bool = True,
    ) -> None:  # fmt: skip
        """Nothing is written before `start`; and never, unless `is_wanted`."""
        self._hub, self._folder, self._config, self._initial = hub, folder, config, initial
        self._cluster, self._target, self._is_wanted = cluster, target, is_wanted
        self._ring: RingWriter | None = None
        self._opening: asyncio.Task[None] | None = None
        self._number = 0
        self._outbox: deque[Record] = deque()  # from the thread of the ring to the bus
        hub.subscribe(self)

    def __call__(self, records: Sequence[Published]) -> None:
        ring = self._ring
        if ring is not None:
            self._number += 1
            ring.offer(self._number, records)
            if ring.wants_snapshot:
                self._begin_segment(ring)
        while self._outbox:
            self._hub.publish_own(self._outbox.popleft())

    @property
    def session(self) -> Session | None:
        """The ring, while it is written."""
        return self._ring.session if self._ring is not None else None

    def status(self) -> BlackBoxStatus | None:
        """Return its progress; None while nothing is written."""
        ring = self._ring
        if ring is None:
            return None
        active = ring.status()
        return BlackBoxStatus(since=ring.covered_since, bytes=active.bytes, trouble=active.trouble)

    async def keep_last(self, name: str, last_s: float, sessions: Path) -> KeptRecords:
        """Make a session of the last seconds, also of an earlier console of the same target. Raises SessionError."""
        if self._ring is None:
            raise SessionError("nothing is kept: the black box is not written; see [console] black_box")
        try:
            return await asyncio.to_thread(self._keep_last, name, last_s, sessions)
        except OSError as error:
            raise SessionError(f"{name}: cannot write in {sessions}: {error.strerror or error}") from error

    def _keep_last(self, name: str, last_s: float, sessions: Path) -> KeptRecords:
        boxes = black_boxes.list_black_boxes(self._folder, flushed=True)
        return black_boxes.keep_last(black_boxes.choose(boxes, self._target, self._target), last_s, name, sessions)

    async def settle(self) -> None:
        """Wait until no segment is being begun, so that `past` can begin one; not longer than a second."""
        for _ in range(20):
            if self._ring is None or not self._ring.is_beginning:
                return
            await asyncio.sleep(0.05)

    def past(self, last_s: float) -> OpenPast:
        """Return what opens the last seconds up to now, in another thread. Raises SessionError."""
        ring = self._ring
        if ring is None or ring.trouble:
            raise SessionError(f"the black box is not written{': ' + ring.trouble if ring else ''}; leave out --since")
        instant = self._begin_segment(ring)

        @contextmanager
        def opened() -> Iterator[Past]:
            deadline = time.monotonic() + _PAST_S
            while not ring.has_begun(instant):
                if time.monotonic() > deadline:
                    raise SessionError(ring.trouble or "its disk is too slow")
                time.sleep(0.02)
            boxes = black_boxes.choose(black_boxes.list_black_boxes(self._folder), self._target, self._target)
            boxes = [box for box in boxes if box.session == ring.session or not box.is_running]
            with black_boxes.open_past(boxes, last_s, instant) as past:
                yield past

        return opened

    def start(self) -> None:
        """Begin to write, unless it is switched off; the files are opened in the background."""
        if self._is_wanted and self._config.black_box and self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="black box")

    async def close(self) -> None:
        """End writing; the ring is kept for later, unless it holds nothing of use."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait({opening})
        ring, self._ring = self._ring, None
        if ring is not None:
            await asyncio.to_thread(_end, ring)

    async def _open(self) -> None:
        try:
            ring = await asyncio.to_thread(self._open_ring)
        except (OSError, SessionError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            text = f"black box: cannot write in {self._folder}: {reason}; the last minutes are not kept"
            try_ = "switch it off: [console] black_box = false"
            self._hub.publish_own(Log(source="console", severity="warning", text=text, try_=try_))
            return
        self._ring = ring
        self._begin_segment(ring)

    def _begin_segment(self, ring: RingWriter) -> int:
        """Begin a segment; its snapshot is taken in slices, because that of a large cluster takes 0.1 s."""
        instant = ring.begin_segment()
        records, snapshot = iter(self._initial()), list[Published]()
        loop = asyncio.get_running_loop()

        def take_slice() -> None:
            piece = list(islice(records, _SLICE_RECORDS))
            snapshot.extend(piece)
            if len(piece) == _SLICE_RECORDS:
                loop.call_soon(take_slice)
            else:
                ring.complete_segment(snapshot)

        take_slice()
        return instant

    def _open_ring(self) -> RingWriter:
        """Create the ring of this console. Raises SessionError, OSError."""
        black_boxes.delete_stale(self._folder, self._config.black_box_bytes, now())
        session = Session(self._folder / _ring_name(self._cluster))
        part = RecorderRun(began=now(), console=self._hub.console_id, version=__version__)
        meta = create_session(session, Meta(cluster=self._cluster, target=self._target, parts=(part,)))
        try:
            lock = session.take_lock()
            try:
                return RingWriter(session, meta, lock, self._outbox.append, _limits(self._config))
            except BaseException:
                os.close(lock)
                raise
        except BaseException:
            shutil.rmtree(session.path, ignore_errors=True)
            raise


def _limits(config: ConsoleConfig) -> RingLimits:
    return RingLimits(config.black_box_bytes, config.black_box_s)


def _ring_name(cluster: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", cluster).strip("-")[:28] or "console"
    return f"{plain}-{file_stamp(now())}-{secrets.token_hex(3)}"


def _end(ring: RingWriter) -> None:
    """Close a ring; delete it if it is of no use."""
    ring.stop()
    began = ring.meta.parts[-1].began
    if not ring.meta.counts.get("node") or now() - began < _LEAST_S * 1e9:
        shutil.rmtree(ring.session.path, ignore_errors=True)
