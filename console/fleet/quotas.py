"""Per-node quotas: how much of the console's time, memory and warnings one node may use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..records import (
    Collective,
    Connection,
    Gap,
    GpuEvent,
    Log,
    Node,
    PgStatus,
    Place,
    Rank,
    RankStat,
    RankTraffic,
    RawRecord,
    Record,
    Stack,
)
from ..records.kinds import PER_NODE, SPECS, KindSpec, is_gone, key_getter
from ..text import format

#: Share of the event loop per node, and burst in seconds. A node of eight GPUs uses 0.0002
#: (tests/bench/RESULTS.md); an hour of a lingering agent's backlog is still processed within seconds.
SHARE, SHARE_BURST_S = 0.1, 0.5
#: Bytes of JSON held per node; the processes of a busy node take 26 MB.
MAX_HELD: Final = 64 << 20
#: Bytes of JSON per record: a process or GPU takes 3 KB at most; large kinds list many entities.
MAX_RECORD: Final = 16 << 10
MAX_LARGE_RECORD: Final = 1 << 20
#: Records per capture: 8 ranks with 16 workers, 4 threads each, 100 samples; and as many operations again.
MAX_CAPTURE_RECORDS: Final = 131_072
#: Bytes of JSON per capture.
MAX_CAPTURE_BYTES: Final = 128 << 20
#: Requested captures remembered per node.
_CAPTURES: Final = 64
#: Events per second, and burst: ten minutes of disconnection accumulate some hundred.
EVENTS_S, EVENTS_BURST = 10.0, 2_000
#: Bytes of JSON that count as one event.
EVENT_BYTES: Final = 1 << 10
#: Records of unknown kinds per second, and burst: only a lingering agent of another version sends them, and only
#: the recording keeps them.
UNKNOWN_S, UNKNOWN_BURST = 100.0, 20_000
#: Warnings about malformed input per second and node, and burst.
WARNINGS_S, WARNINGS_BURST = 0.5, 20


class TokenBucket:
    """Token bucket: fills at `rate` per second up to `burst`."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._level, self._updated = burst, clock()

    @property
    def level(self) -> float:
        """Current tokens; negative after overspending."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._updated) * self._rate)
        self._updated = now
        return self._level

    @property
    def is_half_full(self) -> bool:
        """Whether little was spent recently."""
        return self.level >= self._burst / 2

    def consume(self, amount: float = 1.0) -> bool:
        """Take `amount` tokens, or none and return False."""
        if self.level < amount:
            return False
        self._level -= amount
        return True

    def spend(self, amount: float) -> float:
        """Take `amount` tokens even into debt; the seconds until the debt is repaid."""
        level = self.level
        self._level = level - amount
        return max(0.0, -self._level / self._rate)


class _Rules(msgspec.Struct, frozen=True):
    """What applies to the records of one kind, found once: a console of many nodes admits 20,000 records a second."""

    spec: KindSpec
    max_bytes: int
    quota: str | None  # row of `PER_NODE`
    key: Callable[[Any], Any]  # of its entities within their node
    has_end: bool  # whether its entities end
    is_gpu: bool
    event: Callable[[Any], bool] | None  # as in its spec; of gaps there are few
    is_special: bool  # of a capture, a log, or of an agent's start


_CAPTURED: Final = (Stack, Connection, Collective, PgStatus)
_RULES: Final[dict[type[Record] | type[RawRecord], _Rules]] = {
    kind: _Rules(
        spec, MAX_LARGE_RECORD if spec.is_large else MAX_RECORD, spec.quota, key_getter(kind), spec.gone is not None,
        spec.is_gpu,
        None if kind is Gap else spec.event, kind in (*_CAPTURED, Log, Node),
    )
    for kind, spec in SPECS.items()
}  # fmt: skip


def fair_share() -> TokenBucket:
    """Event-loop seconds that one connection may use."""
    return TokenBucket(SHARE, SHARE_BURST_S)


class NodeQuota:
    """Admission of one node's records; call `refusal` for each, in order of arrival.

    Counts mirror what the store keeps of the node.
    """

    def __init__(self, inherits: bool = False) -> None:
        """`inherits`: the agent served an earlier console and may still send one of its captures."""
        self._events = TokenBucket(EVENTS_S, EVENTS_BURST)
        self._unknown = TokenBucket(UNKNOWN_S, UNKNOWN_BURST)
        self._sizes: dict[type[Record], dict[object, int]] = {}  # by kind and key: bytes of the latest record
        self._held_bytes = 0  # sum of `_sizes`
        self._gpus: set[str] = set()
        self._agent = ""  # sender of the last `node` record
        self._captures: dict[str, _CaptureUsage] = {}  # requested, oldest first
        self._inherits = inherits

    def expect(self, capture: str) -> None:
        """Register a requested capture."""
        self._captures[capture] = _CaptureUsage()
        while len(self._captures) > _CAPTURES:
            del self._captures[next(iter(self._captures))]

    def refusal(self, record: Record | RawRecord, size: int) -> str | None:
        """Why a record of `size` bytes of JSON is rejected; None if accepted."""
        rules = _RULES.get(type(record))
        if rules is None:
            return self._check_unknown(size)
        if rules.is_special:
            if isinstance(record, _CAPTURED):
                return self._check_capture(record.capture, size)
            if isinstance(record, Log) and record.source == "job":
                return None  # limited in the store
        if size > rules.max_bytes:
            return f"a record of more than {format.size(rules.max_bytes)} ({rules.spec.name})"
        if rules.is_special and isinstance(record, Node):
            self._on_agent(record.agent)
        if rules.is_gpu and (refusal := self._check_gpu(record.uuid or "")):  # type: ignore[union-attr]
            return refusal
        if rules.quota is not None:
            refusal = self._check_entities(record, rules, PER_NODE[rules.quota], size)  # type: ignore[arg-type]
            if refusal is not None:
                return refusal
        if rules.event is not None and rules.event(record) and not self._events.consume(max(1.0, size / EVENT_BYTES)):
            return f"more than {EVENTS_S:g} events per second"
        return None

    def _on_agent(self, agent: str) -> None:
        """After a change of agent drop counts of records that end with their agent, as the store does."""
        if self._agent not in ("", agent):
            for kind in [kind for kind in self._sizes if SPECS[kind].ends_with_agent]:
                self._held_bytes -= sum(self._sizes.pop(kind).values())
            self._gpus = {key[0] for key in self._sizes.get(GpuEvent, ()) if isinstance(key, tuple)}
        self._agent = agent

    def _check_capture(self, capture: str, size: int) -> str | None:
        usage = self._captures.get(capture)
        if usage is None:
            if not self._inherits:
                return "a capture that was not requested"
            self._inherits = False
            usage = self._captures[capture] = _CaptureUsage()
        if usage.records >= MAX_CAPTURE_RECORDS:
            return f"more than {MAX_CAPTURE_RECORDS} records of one capture"
        if usage.bytes + size > MAX_CAPTURE_BYTES:
            return f"more than {format.size(MAX_CAPTURE_BYTES)} of one capture"
        usage.records += 1
        usage.bytes += size
        return None

    def _check_unknown(self, size: int) -> str | None:
        if size > MAX_RECORD:
            return f"a record of more than {format.size(MAX_RECORD)} (unknown kind)"
        if not self._unknown.consume(max(1.0, size / EVENT_BYTES)):
            return f"more than {UNKNOWN_S:g} records of unknown kinds per second"
        return None

    def _check_gpu(self, uuid: str) -> str | None:
        """Limit the number of GPUs that records name."""
        if uuid not in self._gpus:
            if len(self._gpus) >= PER_NODE["devices"]:
                return f"more than {PER_NODE['devices']} GPUs"
            self._gpus.add(uuid)
        return None

    def _check_entities(self, record: Record, rules: _Rules, limit: int, size: int) -> str | None:
        kind, key = type(record), rules.key(record)
        sizes = self._sizes.get(kind)
        if sizes is None:
            sizes = self._sizes[kind] = {}
        previous = sizes.get(key)
        if rules.has_end and is_gone(record):
            self._forget(kind, key)
            if kind is Rank:
                self._forget(RankStat, key)
                self._forget(Place, key)
                self._forget(RankTraffic, key)
            return None
        if previous is None and len(sizes) >= limit:
            return f"more than {limit} records of one kind ({rules.spec.name})"
        held_bytes = self._held_bytes + size - (previous or 0)
        if held_bytes > MAX_HELD and size > (previous or 0):
            return f"more than {format.size(MAX_HELD)} of records held"
        sizes[key], self._held_bytes = size, held_bytes
        return None

    def _forget(self, kind: type[Record], key: object) -> None:
        self._held_bytes -= self._sizes.get(kind, {}).pop(key, 0)


class _CaptureUsage(msgspec.Struct):
    """What was received of a capture."""

    records: int = 0
    bytes: int = 0
