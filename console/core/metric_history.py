"""Metric history: float32 ring buffers of 1 s for five minutes and of 10 s for an hour.

A `Series` has one family (GPUs, hosts, ranks) as an array [slot, entity, metric], NaN if unknown. Rows of expired
entities are reused, then the number of rows doubles. To stay within the budget, the hour is shortened, with a warning.
Values wait in a list, and are stored together once a second or when they are read: numpy takes as long to store one
digest as to store two among many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..text.format import size

#: Slots of one second each, and of ten seconds each.
FINE_SLOTS, COARSE_SLOTS = 300, 360
COARSE_S = 10
#: Minimum number of ten-second slots.
LEAST_COARSE_SLOTS = 6
#: Larger values are stored as unknown.
MOST = 1e30
_FIRST_ROWS = 64
#: Samples and digests that wait at most.
_MOST_WAITING = 1 << 12
_NEVER = -(1 << 40)

Floats = NDArray[np.float32]


class Curve(msgspec.Struct, frozen=True):
    """One metric of one entity, oldest first. `t` is in seconds of the console's clock; NaN is unknown."""

    t: NDArray[np.int64]
    minimum: Floats
    mean: Floats
    maximum: Floats


class HistorySnapshot(msgspec.Struct, frozen=True):
    """Copy of one family: `values` is [time, entity, metric], NaN if unknown."""

    keys: list[Hashable]
    t: NDArray[np.int64]  # seconds of the console's clock, oldest first; those of the hour are 10 s apart
    values: Floats


class Series:
    """The history of one family of entities, each with the same metrics."""

    def __init__(self, metrics: Sequence[str], coarse_slots: int = COARSE_SLOTS) -> None:
        self.metrics = tuple(metrics)
        self.coarse_slots = coarse_slots
        self._column = {name: i for i, name in enumerate(self.metrics)}
        self._row: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._now = _NEVER  # the second being written
        self._coarse_now = _NEVER  # last completed ten-second slot: t // COARSE_S
        self._newest = np.zeros(0, np.int64)  # the newest second of each row
        self._fine = _unknown(FINE_SLOTS, 0, len(self.metrics))
        #: Minimum and maximum of the digest to which a second belongs, NaN for samples; they exist once there is one.
        self._spread: tuple[Floats, Floats] | None = None
        self._coarse = [_unknown(coarse_slots, 0, len(self.metrics)) for _ in range(3)]  # minimum, mean, maximum
        self._counts = np.zeros((coarse_slots, 0), np.uint16)  # how many seconds are in a mean
        self._late: dict[int, set[int]] = {}  # rows to fold again, by ten-second slot; done at the next second
        #: What is not in the rings yet: (row, second, values), and (row, first and last second, (mean, low, high)).
        self._samples: list[tuple[int, int, Sequence[float | None]]] = []
        self._digests: list[tuple[int, int, int, tuple[Sequence[float | None], ...]]] = []
        self._sampled: set[int] = set()  # rows with samples that wait

    @property
    def nbytes(self) -> int:
        """Memory held by the rings."""
        rings = (self._fine, *(self._spread or ()), *self._coarse, self._counts, self._newest)
        return sum(ring.nbytes for ring in rings)

    def nbytes_with(self, rows: int) -> int:
        """Memory the rings would hold for that many entities."""
        fine_rings = 3 if self._spread is not None else 1
        slots = fine_rings * FINE_SLOTS + 3 * self.coarse_slots
        return rows * (len(self.metrics) * 4 * slots + 2 * self.coarse_slots + 8)

    @property
    def newest_s(self) -> int | None:
        """The newest second of any entity, of the console's clock; None without values."""
        return None if self._now == _NEVER else self._now

    @property
    def capacity(self) -> int:
        """Rows allocated."""
        return len(self._newest)

    def __len__(self) -> int:
        return len(self._row)

    def row(self, key: Hashable, reserve: Callable[[Series, int], None]) -> int:
        """The row of an entity; `reserve(self, rows)` is called before the rings grow."""
        row = self._row.get(key)
        if row is None:
            if not self._free and len(self._row) == self.capacity:
                self._free_expired_rows()
            row = self._free.pop() if self._free else len(self._row)
            if row >= self.capacity:
                rows = max(_FIRST_ROWS, self.capacity * 2)
                reserve(self, rows)
                self._grow(rows)
            self._row[key] = row
        return row

    def put(self, row: int, second: int, values: Sequence[float | None]) -> None:
        """Store the metrics of one entity at one second; None is unknown. Late values are merged into the hour.

        Values beyond `MOST` are unknown: float32 ends at 3e38, and sums overflow before that.
        """
        if second > self._now:
            self._advance(second)
        is_fine = second > self._now - FINE_SLOTS
        if is_fine:
            self._samples.append((row, second, values))
            self._sampled.add(row)
            if len(self._samples) >= _MOST_WAITING:
                self._flush()
        coarse = second // COARSE_S
        if self._coarse_now - self.coarse_slots < coarse <= self._coarse_now:
            if is_fine and coarse * COARSE_S > self._now - FINE_SLOTS:
                self._late.setdefault(coarse, set()).add(row)
            else:
                self._join(row, coarse, _bounded(values))
        if not is_fine and second > self._newest[row]:
            self._newest[row] = second

    def put_digest(
        self, row: int, first: int, second: int, low: Sequence[float | None], mean: Sequence[float | None],
        high: Sequence[float | None],
    ) -> None:  # fmt: skip
        """Store the extremes and means of the seconds from `first` to `second`, both included."""
        if second > self._now:
            self._advance(second)
        first = max(first, self._now - FINE_SLOTS + 1)
        if first > second:  # too late for its seconds
            self.put(row, second, mean)
            return
        if self._spread is None:
            self._spread = (_unknown(*self._fine.shape), _unknown(*self._fine.shape))
        if row in self._sampled:
            self._flush()
        self._digests.append((row, first, second, (mean, low, high)))
        if len(self._digests) >= _MOST_WAITING:
            self._flush()
        for coarse in range(first // COARSE_S, min(second // COARSE_S, self._coarse_now) + 1):
            if coarse > self._coarse_now - self.coarse_slots and coarse * COARSE_S > self._now - FINE_SLOTS:
                self._late.setdefault(coarse, set()).add(row)

    def _flush(self) -> None:
        """Store what waits: digests, then samples; no digest waits that came after a sample of its row."""
        digests, self._digests = self._digests, []
        if digests and self._spread is not None:
            rows, firsts, seconds = np.array([entry[:3] for entry in digests], np.int64).T
            values = _bounded([entry[3] for entry in digests])
            counts = seconds - firsts + 1
            each = np.repeat(np.arange(len(digests)), counts)  # the digest of each second
            slots = (firsts[each] + np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)) % FINE_SLOTS
            for number, ring in enumerate((self._fine, *self._spread)):
                ring[slots, rows[each]] = values[each, number]
            np.maximum.at(self._newest, rows, seconds)
        samples, self._samples, self._sampled = self._samples, [], set()
        if samples:
            rows, seconds = np.array([entry[:2] for entry in samples], np.int64).T
            slots = seconds % FINE_SLOTS
            self._fine[slots, rows] = _bounded([entry[2] for entry in samples])
            for ring in self._spread or ():
                ring[slots, rows] = np.nan
            np.maximum.at(self._newest, rows, seconds)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._row

    def forget(self, key: Hashable) -> None:
        """Drop an entity; its row can be reused."""
        self._flush()
        row = self._row.pop(key, None)
        if row is not None:
            for fine in (self._fine, *(self._spread or ())):
                fine[:, row] = np.nan
            for ring in self._coarse:
                ring[:, row] = np.nan
            self._counts[:, row] = 0
            self._newest[row] = _NEVER
            self._free.append(row)

    def recent(self, key: Hashable, metric: str, seconds: int = FINE_SLOTS) -> Floats:
        """The samples of the last `seconds` of one metric, one value per second, oldest first; NaN if unknown.

        Seconds of which there is only a digest are unknown: see `recent_curve`.
        """
        curve = self.recent_curve(key, metric, seconds)
        return np.where(curve.minimum == curve.maximum, curve.mean, np.float32(np.nan))

    def recent_curve(self, key: Hashable, metric: str, seconds: int = FINE_SLOTS) -> Curve:
        """The last `seconds` of one metric, oldest first: samples, and the extremes and mean of digests."""
        self._flush()
        row = self._row.get(key)
        seconds = min(seconds, FINE_SLOTS)
        times = np.arange(self._now - seconds + 1, self._now + 1)
        if row is None or self._now == _NEVER:
            unknown = np.full(seconds, np.nan, np.float32)
            return Curve(times, unknown, unknown, unknown)
        slots, column = times % FINE_SLOTS, self._column[metric]
        mean: Floats = self._fine[slots, row, column]
        if self._spread is None:
            return Curve(times, mean, mean, mean)
        low, high = (ring[slots, row, column] for ring in self._spread)
        return Curve(times, np.where(np.isnan(low), mean, low), mean, np.where(np.isnan(high), mean, high))

    def window(self, keys: Sequence[Hashable], metrics: Sequence[str], seconds: NDArray[np.int64]) -> Floats:
        """Values [second, entity, metric] at these seconds of the console's clock; NaN if unknown or not kept."""
        self._flush()
        rows = np.array([self._row.get(key, -1) for key in keys], np.int64)
        columns = np.array([self._column[metric] for metric in metrics], np.int64)
        if self._now == _NEVER or not len(rows):
            return np.full((len(seconds), len(rows), len(columns)), np.nan, np.float32)
        values: Floats = self._fine[np.ix_(seconds % FINE_SLOTS, rows, columns)]
        values[(seconds > self._now) | (seconds <= self._now - FINE_SLOTS)] = np.nan
        values[:, rows < 0] = np.nan
        return values

    def hour(self, key: Hashable, metric: str) -> Curve:
        """Minimum, mean and maximum of each ten seconds of the hour, oldest first."""
        self._refold()
        slots = self._coarse_now + np.arange(1 - self.coarse_slots, 1)
        row = self._row.get(key)
        if row is None or self._coarse_now == _NEVER:
            empty = np.full(self.coarse_slots, np.nan, np.float32)
            return Curve(slots * COARSE_S, empty, empty, empty)
        indices = slots % self.coarse_slots
        low, mean, high = (ring[indices, row, self._column[metric]] for ring in self._coarse)
        return Curve(slots * COARSE_S, low, mean, high)

    def known(self) -> HistorySnapshot:
        """A copy of everything: the hour before the fine slots, then the fine slots."""
        self._refold()
        keys, rows = list(self._row), list(self._row.values())
        if self._now == _NEVER:
            return HistorySnapshot([], np.zeros(0, np.int64), np.zeros((0, 0, len(self.metrics)), np.float32))
        fine = np.arange(self._now - FINE_SLOTS + 1, self._now + 1)
        coarse = self._coarse_now + np.arange(1 - self.coarse_slots, 1)
        coarse = coarse[(coarse + 1) * COARSE_S <= fine[0]]
        values = [self._coarse[1][coarse % self.coarse_slots][:, rows], self._fine[fine % FINE_SLOTS][:, rows]]
        return HistorySnapshot(keys, np.concatenate([coarse * COARSE_S, fine]), np.concatenate(values))

    def shrink(self, coarse_slots: int) -> None:
        """Keep only the newest `coarse_slots` of the ten-second slots."""
        self._refold()
        if self._coarse_now == _NEVER:
            self._coarse = [_unknown(coarse_slots, self.capacity, len(self.metrics)) for _ in range(3)]
            self._counts = np.zeros((coarse_slots, self.capacity), np.uint16)
        else:
            keep = self._coarse_now + np.arange(1 - coarse_slots, 1)
            self._coarse = [_moved(ring, keep, self.coarse_slots, coarse_slots) for ring in self._coarse]
            self._counts = _moved(self._counts, keep, self.coarse_slots, coarse_slots)
        self.coarse_slots = coarse_slots

    def _grow(self, rows: int) -> None:
        def wider(ring: Floats) -> Floats:
            bigger = _unknown(ring.shape[0], rows, ring.shape[2])
            bigger[:, : ring.shape[1]] = ring
            return bigger

        self._fine = wider(self._fine)
        if self._spread is not None:
            self._spread = (wider(self._spread[0]), wider(self._spread[1]))
        self._newest = np.concatenate([self._newest, np.full(rows - len(self._newest), _NEVER)])
        for i in range(3):  # one at a time, to limit peak memory
            self._coarse[i] = wider(self._coarse[i])
        counts = np.zeros((self.coarse_slots, rows), np.uint16)
        counts[:, : self._counts.shape[1]] = self._counts
        self._counts = counts

    def _free_expired_rows(self) -> None:
        """Drop the entities whose newest value has expired."""
        self._flush()
        oldest = self._now - max(FINE_SLOTS, self.coarse_slots * COARSE_S)
        for key in [key for key, row in self._row.items() if self._newest[row] <= oldest]:
            self.forget(key)

    def _advance(self, second: int) -> None:
        """Advance to `second`; skipped seconds are unknown until late values arrive."""
        self._refold()
        coarse = second // COARSE_S
        if self._now == _NEVER:
            self._coarse_now = coarse - 1
        elif coarse > self._coarse_now + 1:
            self._fold()  # before its seconds are overwritten
            self._skip_to(coarse - 1)
        first = max(self._now + 1, second - FINE_SLOTS + 1)
        for fine in (self._fine, *(self._spread or ())):
            fine[np.arange(first, second + 1) % FINE_SLOTS] = np.nan
        self._now = second

    def _fold(self) -> None:
        """Fold the current ten seconds into the hour."""
        self._coarse_now += 1
        self._store(self._coarse_now % self.coarse_slots, (_fine_slots(self._coarse_now), slice(None)))

    def _skip_to(self, coarse: int) -> None:
        """Mark the slots between the last folded one and `coarse` as unknown."""
        first = max(self._coarse_now + 1, coarse - self.coarse_slots + 1)
        for slot in range(first, coarse + 1):
            for ring in self._coarse:
                ring[slot % self.coarse_slots] = np.nan
            self._counts[slot % self.coarse_slots] = 0
        self._coarse_now = coarse

    def _refold(self) -> None:
        """Store what waits, and fold slots again in the rows that have late values, while their seconds are kept."""
        self._flush()
        if not self._late:
            return
        late, self._late = self._late, {}
        for coarse, rows in late.items():
            chosen = np.fromiter(rows, np.int64, len(rows))
            seconds = np.ix_(_fine_slots(coarse), chosen)
            self._store((coarse % self.coarse_slots, chosen), seconds)

    def _store(self, place: int | tuple[int, NDArray[np.int64]], seconds: tuple[Any, ...]) -> None:
        """Fold seconds into a slot, or into that of some rows."""
        block = low = high = self._fine[seconds]
        if self._spread is not None:
            low, high = np.fmin(block, self._spread[0][seconds]), np.fmax(block, self._spread[1][seconds])
        is_known = ~np.isnan(block)
        count = is_known.sum(axis=0)
        self._coarse[0][place] = np.fmin.reduce(low, axis=0)
        self._coarse[1][place] = np.where(is_known, block, 0).sum(axis=0) / np.where(count, count, np.nan)
        self._coarse[2][place] = np.fmax.reduce(high, axis=0)
        self._counts[place] = count.max(axis=-1, initial=0)

    def _join(self, row: int, coarse: int, values: NDArray[np.float64]) -> None:
        """Merge a late value into a slot whose seconds are no longer stored."""
        slot = coarse % self.coarse_slots
        new = values.astype(np.float32)
        low, mean, high = (ring[slot, row] for ring in self._coarse)
        count = int(self._counts[slot, row])
        self._coarse[0][slot, row] = np.fmin(low, new)
        self._coarse[2][slot, row] = np.fmax(high, new)
        merged = np.where(np.isnan(mean), new, mean + (new - mean) / (count + 1))
        self._coarse[1][slot, row] = np.where(np.isnan(new), mean, merged)
        self._counts[slot, row] = count + 1


class MetricHistory:
    """All series of one console, within one budget of bytes."""

    def __init__(
        self, families: Mapping[str, Sequence[str]], budget_bytes: int, warn: Callable[[str], None],
        coarse_slots: int = COARSE_SLOTS,
    ) -> None:  # fmt: skip
        self.series = {family: Series(metrics, coarse_slots) for family, metrics in families.items()}
        self._budget = budget_bytes
        self._warn = warn
        self._over = False  # whether the warning that the minimum does not fit was sent

    @property
    def nbytes(self) -> int:
        """Bytes of all series."""
        return sum(series.nbytes for series in self.series.values())

    @property
    def hour_s(self) -> int:
        """Seconds covered by the ten-second slots; less than an hour if the budget is too small."""
        return min(series.coarse_slots for series in self.series.values()) * COARSE_S

    def put(self, family: str, key: Hashable, second: int, values: Sequence[float | None]) -> None:
        """Store the metrics of one entity at one second of the console's clock."""
        series = self.series[family]
        series.put(series.row(key, self._reserve), second, values)

    def put_digest(
        self, family: str, key: Hashable, first: int, second: int, low: Sequence[float | None],
        mean: Sequence[float | None], high: Sequence[float | None],
    ) -> None:  # fmt: skip
        """Store extremes and means of one entity over some seconds of the console's clock, both ends included."""
        series = self.series[family]
        series.put_digest(series.row(key, self._reserve), first, second, low, mean, high)

    def _reserve(self, growing: Series, rows: int) -> None:
        """Before a series grows, halve the hour of every series until all fit; with a warning."""

        def needed() -> int:
            others = sum(series.nbytes for series in self.series.values() if series is not growing)
            return others + growing.nbytes_with(rows)

        shrunk = False
        while needed() > self._budget and growing.coarse_slots > LEAST_COARSE_SLOTS:
            for series in self.series.values():
                series.shrink(max(LEAST_COARSE_SLOTS, series.coarse_slots // 2))
            shrunk = True
        if needed() > self._budget:
            if not self._over:
                self._warn(f"history needs at least {size(needed())}, more than history_bytes ({size(self._budget)})")
            self._over = True
        elif shrunk:
            minutes = self.hour_s // 60
            self._warn(f"history covers {minutes} min, not 60, to stay within history_bytes ({size(self._budget)})")


def _fine_slots(coarse: int) -> NDArray[np.int64]:
    """Indices in the fine ring of the seconds of one ten-second slot."""
    return np.arange(coarse * COARSE_S, (coarse + 1) * COARSE_S) % FINE_SLOTS


def _bounded(values: Sequence[Any]) -> NDArray[np.float64]:
    """As an array, with NaN for what is unknown or beyond `MOST`."""
    array = np.array(values, np.float64)
    array[np.abs(array) > MOST] = np.nan
    return array


def _unknown(slots: int, rows: int, metrics: int) -> Floats:
    return np.full((slots, rows, metrics), np.nan, np.float32)


def _moved(ring: NDArray[np.generic], keep: NDArray[np.int64], old_slots: int, new_slots: int) -> NDArray[Any]:
    """The slots numbered `keep` of a ring of `old_slots`, as a ring of `new_slots`."""
    moved = np.empty((new_slots, *ring.shape[1:]), ring.dtype)
    moved[keep % new_slots] = ring[keep % old_slots]
    return moved
