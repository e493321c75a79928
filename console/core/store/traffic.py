"""The traffic of ranks in short intervals, of the last minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .entities import ProcessKey, key_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...records import RankTraffic

#: Seconds that are kept, and ranks.
KEPT_S: Final = 300
MOST_RANKS: Final = 1024


class TrafficCurve:
    """Bytes that one rank exchanged, by interval."""

    def __init__(self, source: str, every_ms: int) -> None:
        import numpy as np

        self.source, self.every_ms = source, every_ms
        self.newest = -1  # number of the newest interval since the boot of the node; -1: none yet
        self.rx = 0  # console time of the newest record, ns
        self._values = np.full(KEPT_S * 1000 // every_ms, np.nan, np.float32)

    def add(self, record: RankTraffic) -> None:
        """Add intervals that follow those before; what is missing between is unknown."""
        import numpy as np

        self.rx = max(self.rx, record.rx)
        size = len(self._values)
        first = record.began // (self.every_ms * 1_000_000)
        newest = first + len(record.moved_bytes) - 1
        if self.newest < 0 or newest > self.newest + size:
            self._values[:] = np.nan
        elif newest > self.newest:
            self._values[np.arange(self.newest + 1, newest + 1) % size] = np.nan
        self.newest = max(self.newest, newest)
        numbers = np.arange(first, newest + 1)
        is_kept = numbers > self.newest - size
        self._values[numbers[is_kept] % size] = np.array(record.moved_bytes, np.float32)[is_kept]

    def values(self) -> NDArray[np.float32]:
        """The intervals of the last minutes up to the newest one, NaN where unknown."""
        import numpy as np

        return np.roll(self._values, -(self.newest + 1) % len(self._values))

    def seconds(self) -> tuple[int, NDArray[np.float64]]:
        """Number of the newest whole second since the boot of the node, and bytes by second up to it.

        A second of which less than half is known is unknown; what another one lacks is taken for as busy as the rest.
        """
        import numpy as np

        in_second = 1000 // self.every_ms
        values = self.values()[: len(self._values) - (self.newest + 1) % in_second].astype(float)
        whole = values[len(values) % in_second :]
        intervals = whole.reshape(-1, in_second)
        is_known = ~np.isnan(intervals)
        counts = is_known.sum(axis=1)
        sums = np.where(is_known, intervals, 0.0).sum(axis=1) * in_second / np.maximum(counts, 1)
        return (self.newest + 1) // in_second - 1, np.where(2 * counts >= in_second, sums, np.nan)


class TrafficTable:
    """The curves of ranks, by process."""

    def __init__(self) -> None:
        self._curves: dict[ProcessKey, TrafficCurve] = {}

    def get(self, key: ProcessKey) -> TrafficCurve | None:
        """The curve of a rank; None without a record of it."""
        return self._curves.get(key)

    def add(self, record: RankTraffic) -> None:
        """Add a record; another source or length of intervals begins another curve."""
        if not record.moved_bytes:
            return
        key = key_of(record)
        curve = self._curves.pop(key, None)
        if curve is None or (curve.source, curve.every_ms) != (record.source, record.every_ms):
            curve = TrafficCurve(record.source, record.every_ms)
        self._curves[key] = curve
        curve.add(record)
        if len(self._curves) > MOST_RANKS:
            del self._curves[next(iter(self._curves))]  # the one that was silent for longest

    def drop(self, key: ProcessKey) -> None:
        """Forget a rank."""
        self._curves.pop(key, None)

    def forget(self, node: str) -> None:
        """Forget the ranks of a node, whose clock may begin again."""
        for key in [key for key in self._curves if key[0] == node]:
            del self._curves[key]
