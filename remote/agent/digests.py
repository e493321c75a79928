"""Digests: one record for the samples of some seconds, of kinds that the console does not need at full rate.

A digest is the last sample with the lowest, mean and highest value of each figure that changed. It ends early, and the
sample that ends it is sent at once, where anything changes that is not a figure, where a counter of errors grew, and
where a figure crosses one of the thresholds of the order: then all samples of a digest mean the same to a rule. The
samples of the next seconds are sent, too, so that a rule on what must last is decided as early as with every sample;
not where only the load changed, which it does all the time.

Of NVLinks, which are many and are read every 10 s, nothing is summed up: a link has a record when something but its
throughput has changed, and once a minute; where records are held back, every five minutes.
"""

import bisect
import operator

from ..clocks import stamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from ..samplers.base import Fact, Fields

#: Seconds. Limits of the period of an order.
LEAST_S, MOST_S = 2, 60
#: Seconds. The longest time for which records are held back: an agent that gets no frame for 15 s ends.
MOST_HOLD_S = 10
#: Figures and clock event reasons of GPUs that depend on their load alone.
_LOAD, _IDLE = frozenset(("util_pct", "sm_pct")), frozenset(("gpu_idle",))
#: Seconds in which samples are sent after such a change; what a rule waits for lasts 5 s.
AFTER_S = 6
#: Thresholds of one figure, and names in an order, which must fit into the pipe of the GPU process.
MOST_VALUES, MOST_NAMES = 32, 32
#: % of a tick from which a clock event reason explains a low clock, as in the console's checks.
_REASON_PCT = 1.0
_ENDLESS = float("inf")
_REASONS, _SHARES = "clocks_event_reasons", "clocks_event_share_pct"
#: By kind: the fields that identify the entity, its figures, and fields that may change within a digest.
KINDS = {
    "gpu": (
        ("uuid",),
        ("util_pct", "mem_util_pct", "encoder_pct", "decoder_pct", "mem_used_bytes", "bar1_used_bytes", "power_w",
         "power_instant_w", "temp_c", "mem_temp_c", "temp_margin_c", "fan_pct", "sm_clock_mhz", "mem_clock_mhz",
         "video_clock_mhz", "sm_pct", "sm_occupancy_pct", "tensor_pct", "dram_pct", "pcie_rx_bytes_s",
         "pcie_tx_bytes_s", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s"),
        ("energy_j", "pstate", _REASONS, _SHARES),
    ),
    "host": (
        (),
        ("cpu_pct", "load_1m", "mem_used_bytes", "mem_available_bytes", "swap_used_bytes", "cpu_stall_pct",
         "mem_stall_pct", "io_stall_pct", "disk_read_bytes_s", "disk_write_bytes_s", "net_rx_bytes_s",
         "net_tx_bytes_s", "processes"),
        ("uptime_s",),
    ),
    "nic": (
        ("device", "port"),
        ("rx_bytes_s", "tx_bytes_s", "rx_packets_s", "tx_packets_s"),
        (),
    ),
}  # fmt: skip
#: Seconds between two records of a link in which nothing but these figures has changed, and the same where records are
#: held back, because nothing shows them: with 8 simulated GPUs, those of links were half of all records there.
LINK_S, HELD_LINK_S = 60, 300
_LINK, _LINK_FIGURES = "gpu_link", frozenset(("rx_bytes_s", "tx_bytes_s"))


class Order(object):
    """What comes as digests, as the console ordered it. Raises ValueError with the reason for a malformed order."""

    def __init__(self, fields: "Fields") -> None:
        self.fields = fields  # as the console sent it
        self.kinds = frozenset(_texts(fields, "kinds"))
        for kind in sorted(self.kinds):
            if kind not in KINDS and kind != _LINK:
                kinds = ", ".join(sorted(KINDS) + [_LINK])
                raise ValueError("no digests of %r; there are digests of %s" % (kind, kinds))
        period_s: "Any" = fields.get("period_s")
        if not _is_number(period_s) or not LEAST_S <= period_s <= MOST_S:
            raise ValueError("the period of digests must be %d to %d s, not %r" % (LEAST_S, MOST_S, period_s))
        self.period_s = float(period_s)
        hold_s: "Any" = fields.get("hold_s", 0)
        if not _is_number(hold_s) or not 0 <= hold_s <= MOST_HOLD_S:
            raise ValueError("records can be held back for 0 to %d s, not %r" % (MOST_HOLD_S, hold_s))
        self.hold_s = float(hold_s)  # for which records may wait, see Outbox.hold
        self.reasons = frozenset(_texts(fields, "reasons"))  # whose begin and end is sent at once
        self.thresholds: "list[tuple[str, list[float]]]" = []  # of figures of GPUs
        self.share_thresholds: "list[tuple[str, list[float]]]" = []  # of shares of clock event reasons
        by_name = fields.get("thresholds", {})
        if not isinstance(by_name, dict) or len(by_name) > MOST_NAMES:
            raise ValueError("thresholds must be an object of at most %d fields" % MOST_NAMES)
        for name, values in sorted(by_name.items()):
            if not isinstance(values, list) or len(values) > MOST_VALUES or not all(map(_is_number, values)):
                raise ValueError("thresholds of %r must be at most %d numbers" % (name, MOST_VALUES))
            field, _, reason = name.partition(".")
            if field == _SHARES and reason:
                self.share_thresholds.append((reason, sorted(values)))
            elif name in KINDS["gpu"][1]:
                self.thresholds.append((name, sorted(values)))
            else:
                raise ValueError("thresholds of %r: not a figure of gpu records" % (name,))

    def digester(self) -> "Digester":
        """What makes the digests of one sampler."""
        return Digester(self)

    def side(self, kind: str, fields: "Fields") -> "tuple[Any, ...]":
        """A value that is equal as long as a sample means the same to the console's rules."""
        discrete = {name: value for name, value in fields.items() if name not in _CONTINUOUS[kind]}
        if kind != "gpu":
            return (discrete,)
        sides = [_side(fields.get(name), values) for name, values in self.thresholds]
        shares = fields.get(_SHARES) or {}
        sides += [_side(shares.get(name), values) for name, values in self.share_thresholds]
        reasons = fields.get(_REASONS) or ()
        is_slow = any(
            name == "sm_clock_mhz" and values and side < len(values)
            for side, (name, values) in zip(sides, self.thresholds)  # noqa: B905 - Python 3.6
        )
        explained = bool(reasons) or any(share >= _REASON_PCT for share in shares.values())
        return discrete, sides, self.reasons.intersection(reasons), is_slow, is_slow and explained

    def without_load(self, side: "tuple[Any, ...]", kind: str) -> "tuple[Any, ...]":
        """The parts of a side that do not change with the load of a GPU."""
        if kind != "gpu":
            return side
        discrete, sides, reasons, is_slow, is_explained = side
        names = [name for name, _ in self.thresholds]
        places = [place for name, place in zip(names, sides) if name not in _LOAD]  # noqa: B905 - Python 3.6
        return discrete, places, sides[len(names) :], reasons - _IDLE, is_slow, is_explained

    def has_same_shares(self, shares: "dict[str, float]", before: "dict[str, float]") -> bool:
        """Whether shares of clock event reasons are on the same sides of their thresholds."""
        return all(
            _side(shares.get(name), values) == _side(before.get(name), values)
            for name, values in self.share_thresholds
        )  # fmt: skip


_CONTINUOUS = {kind: frozenset(figures + loose) for kind, (_, figures, loose) in KINDS.items()}


class Digester(object):
    """Makes digests of the records of one sampler, by one order."""

    def __init__(
        self, order: "Order", realtime_ns: "Callable[[], int]" = stamps.realtime_ns,
        mono_ns: "Callable[[], int]" = stamps.mono_ns,
    ) -> None:  # fmt: skip
        self.order = order
        self._clocks = realtime_ns, mono_ns
        self._entities: "dict[tuple[Any, ...], _Samples]" = {}
        self._links: "dict[tuple[Any, Any], tuple[Fields, int]]" = {}  # (GPU, link): what it was, when it was sent

    def digest(self, facts: "Iterable[Fact]", interval_s: float) -> "list[Fact]":
        """What is to be sent now in place of the records of one instant. `interval_s`: until the next ones."""
        t, mono = self._clocks[0](), self._clocks[1]()
        step = int(max(1.0, interval_s) * 1e9)
        sent: "list[Fact]" = []
        for kind, fields in facts:
            if kind not in self.order.kinds or (kind == _LINK and self._is_due(fields, mono)):
                sent.append((kind, fields))
            elif kind != _LINK:
                self._add(kind, fields, t, mono, step, sent)
        for samples in self._entities.values():
            if samples.fields and mono - samples.mono > 1.5 * step:  # it is gone, or lost
                sent.append(samples.take(self.order.period_s, is_old=True))
        return sent

    def flush(self) -> "list[Fact]":
        """The digests that were begun."""
        begun = [samples for samples in self._entities.values() if samples.fields]
        return [samples.take(self.order.period_s, is_old=True) for samples in begun]

    def _is_due(self, fields: "Fields", mono: int) -> bool:
        """Whether a link is sent now."""
        key = (fields.get("uuid"), fields.get("link"))
        state = {name: value for name, value in fields.items() if name not in _LINK_FIGURES}
        before, sent = self._links.get(key, (None, 0))
        if state == before and mono - sent < (HELD_LINK_S if self.order.hold_s else LINK_S) * 1e9:
            return False
        self._links[key] = (state, mono)
        return True

    def _add(self, kind: str, fields: "Fields", t: int, mono: int, step: int, sent: "list[Fact]") -> None:
        period, after = int(self.order.period_s * 1e9), int(AFTER_S * 1e9)
        key = (kind,) + tuple(fields.get(name) for name in KINDS[kind][0])
        samples = self._entities.get(key)
        if samples is None:
            samples = self._entities[key] = _Samples(kind, self.order, mono)
        is_new = not samples.fits(fields)
        if is_new and samples.changes_more_than_load and mono - samples.began > after:
            samples.sends_until = mono + after
        if samples.fields and (is_new or samples.mono // period != mono // period):
            sent.append(samples.take(self.order.period_s, is_old=True))
        samples.add(fields, t, mono)
        is_due = is_new or mono < samples.sends_until
        if is_due or fields.get("grown") or (mono + step) // period != mono // period:
            sent.append(samples.take(self.order.period_s, is_old=False))
        if kind == "nic" and fields.get("state") == "gone":
            del self._entities[key]


class _Samples(object):
    """The samples of one entity since its last record, and on which side of the thresholds they are."""

    def __init__(self, kind: str, order: "Order", began: int) -> None:
        self.kind, self.began = kind, began  # of a new sampler, the second sample knows more than the first
        self.fields: "list[Fields]" = []
        self.mono = self.sends_until = 0
        self.changes_more_than_load = False  # the last sample that did not fit
        self._order = order
        self._t = self._first_mono = 0
        self._side: "tuple[Any, ...] | None" = None
        self._last: "Fields" = {}
        self._discrete: "Callable[[Fields], Any]" = len  # the values that are no figures
        self._unknown: "list[str]" = []  # figures of GPUs that have no value
        self._ranges: "list[tuple[str, float, float]]" = []  # in which figures of GPUs may change

    def fits(self, fields: "Fields") -> bool:
        """Whether a sample means the same as the last one; else the next ones are compared with it."""
        if self._is_alike(fields):
            return True
        side, before = self._order.side(self.kind, fields), self._side
        self._side, self._last = side, fields
        self.changes_more_than_load = before is not None and self._order.without_load(side, self.kind) != (
            self._order.without_load(before, self.kind)
        )
        names = [name for name in fields if name not in _CONTINUOUS[self.kind]]
        self._discrete = operator.itemgetter(*names) if names else len
        if self.kind == "gpu":
            places = list(zip(side[1], self._order.thresholds))  # noqa: B905 - Python 3.6
            self._unknown = [name for place, (name, _) in places if place < 0]
            self._ranges = [
                (name, values[place - 1] if place else -_ENDLESS, values[place] if place < len(values) else _ENDLESS)
                for place, (name, values) in places if place >= 0
            ]  # fmt: skip
        return side == before

    def _is_alike(self, fields: "Fields") -> bool:
        """Whether a sample is clearly on the side of the last one: the usual case, without making its side."""
        last = self._last
        if len(fields) != len(last) or fields.get(_REASONS) != last.get(_REASONS):
            return False
        try:
            if self._discrete(fields) != self._discrete(last):
                return False
            for name, least, beyond in self._ranges:
                if not least <= fields[name] < beyond:
                    return False
        except (KeyError, TypeError):  # a field is new, or its value is unknown now
            return False
        if self.kind != "gpu":
            return True
        if self._side is None or self._side[3]:  # of a slow GPU every reason counts
            return False
        for name in self._unknown:
            if fields.get(name) is not None:
                return False
        shares, before = fields.get(_SHARES), last.get(_SHARES)
        return shares == before or self._order.has_same_shares(shares or {}, before or {})

    def add(self, fields: "Fields", t: int, mono: int) -> None:
        if not self.fields:
            self._first_mono = mono
        self.fields.append(fields)
        self._t, self.mono = t, mono

    def take(self, period_s: float, is_old: bool) -> "Fact":
        """The record of the samples; they are over. `is_old`: it is sent later than its last sample was taken."""
        count, last = len(self.fields), self.fields[-1]
        record: "Fields" = {"t": self._t, "mono": self.mono} if is_old else {}
        record.update(last, period_s=period_s)
        if count > 1:
            low, mean, high = _statistics(self.kind, self.fields)
            record.update(samples=count, first_mono=self._first_mono, low=low, mean=mean, high=high)
        self.fields = []
        return self.kind, record


def _statistics(kind: str, samples: "list[Fields]") -> "tuple[Fields, Fields, Fields]":
    """(lowest, mean, highest) of each figure that differs among the samples; unknown values do not count."""
    low: "Fields" = {}
    mean: "Fields" = {}
    high: "Fields" = {}
    last = samples[-1]
    for name in KINDS[kind][1]:
        values = [fields.get(name) for fields in samples]
        if values.count(values[0]) < len(values):  # else it did not change, or there is none
            measured = [value for value in values if value is not None]
            _add(name, measured, last.get(name), low, mean, high)
    for reason in last.get(_SHARES) or ():
        values = [fields[_SHARES][reason] for fields in samples if reason in (fields.get(_SHARES) or ())]
        _add("%s.%s" % (_SHARES, reason), values, last[_SHARES][reason], low, mean, high)
    return low, mean, high


def _add(name: str, values: "list[Any]", last: "Any", low: "Fields", mean: "Fields", high: "Fields") -> None:
    least, most = min(values), max(values)
    if least != most or last is None:
        low[name], high[name], mean[name] = least, most, round(float(sum(values)) / len(values), 3)


def _side(value: "Any", thresholds: "list[float]") -> int:
    return -1 if value is None else bisect.bisect_right(thresholds, value)


def _is_number(value: "Any") -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


def _texts(fields: "Fields", name: str) -> "list[str]":
    texts: "list[str]" = fields.get(name, [])
    is_list = isinstance(texts, list) and len(texts) <= MOST_NAMES
    if not is_list or not all(isinstance(text, str) and len(text) <= 64 for text in texts):
        raise ValueError("%s must be a list of at most %d names" % (name, MOST_NAMES))
    return texts
