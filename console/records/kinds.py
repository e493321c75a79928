"""Traits of every record kind: identity, lifetime, quota and retention. The only place that states them.

The store, the per-node quotas, recordings, the session index and the export of a live console read this table; a new
kind needs its struct, an entry in `AnyRecord` and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from . import RawRecord, Record, capture, clock, event, gpu, node, process, topology

#: Entities of one kind that one node may have at a time. A busy node has a few thousand processes; `devices` are GPUs
#: with their MIG devices, ports, and distinct GPU events; `peers` are nodes it may probe the clocks of.
PER_NODE: Final[dict[str, int]] = {"entities": 65_536, "devices": 1_024, "peers": 16_384}
#: Events in the store, of all nodes together.
EVENTS: Final = 10_000

#: state: what something is, the newest record holds. figure: measured each tick, only the newest matters to the state.
#: series: measurements that are kept one by one. event: happens once. capture: part of a requested capture.
Category = Literal["state", "figure", "series", "event", "capture"]


class KindSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Traits of one record kind."""

    struct: type[Record]
    category: Category
    #: Fields that identify the entity within its node (or within the fleet, see `is_fleet_wide`); none: one a node.
    key: tuple[str, ...] = ()
    is_fleet_wide: bool = False  # the key identifies the entity without its node
    labels: tuple[str, ...] = ()  # further fields that identify the entity of a stored figure
    #: A field, and those of its values with which the entity has ended; None: it has no end of its own.
    gone: tuple[str, frozenset[object]] | None = None
    ends_with_agent: bool = False  # dropped when another agent introduces itself on the node
    event: Callable[[Any], bool] | None = None  # whether a record is in the list of events; None: none is
    quota: Literal["entities", "devices", "peers"] | None = None  # row of `PER_NODE`; None: not counted by entity
    is_large: bool = False  # lists many things: up to 1 MiB in one record instead of 16 KiB
    kept_each: int | None = None  # newest records in the store per entity, beyond the current one
    kept_total: int | None = None  # records in the store of all entities together; of a rank or finding, ended ones
    is_replaced: bool = False  # a later record of the entity makes an earlier one redundant in an index block
    is_always_recorded: bool = False  # recorded whatever kinds a recording selects
    is_resumed: bool = False  # read back into the store when a crashed recording is resumed
    metric_family: str | None = None  # `--metrics` word that selects it

    @property
    def name(self) -> str:
        """The kind's tag, as in `Record.kind` on the wire."""
        return str(self.struct.__struct_config__.tag)

    @property
    def is_figure(self) -> bool:
        """True for figures that are sampled each tick."""
        return self.category == "figure"

    @property
    def is_gpu(self) -> bool:
        """True for records about one GPU (by `uuid`)."""
        return self.key[:1] == ("uuid",)

    @property
    def per_node(self) -> int | None:
        """Entities of this kind that one node may have; None: not counted."""
        return PER_NODE[self.quota] if self.quota is not None else None


def _always(record: Record) -> bool:
    return True


_ENTITY: Final = {"ends_with_agent": True, "quota": "entities"}
_DEVICE: Final = {"ends_with_agent": True, "quota": "devices"}
_PROCESS: Final = ("pid", "start_ticks")
_GONE: Final = ("gone", frozenset({True}))


def _spec(struct: type[Record], category: Category, *key: str, **traits: Any) -> KindSpec:
    return KindSpec(struct=struct, category=category, key=key, **traits)


_ROWS: Final = (
    _spec(event.ConsoleRecord, "state", is_fleet_wide=True, is_always_recorded=True, is_resumed=True),
    _spec(
        node.NodeState, "state", gone=("state", frozenset({"removed"})), is_always_recorded=True, is_resumed=True
    ),  # an event only where `state` changes, which the store sees
    _spec(node.Node, "state", is_large=True, is_always_recorded=True, is_resumed=True),
    _spec(node.Inventory, "state", "of", **_DEVICE, is_replaced=True, is_resumed=True),
    _spec(node.NodeSetting, "state", "name", "subject", **_DEVICE, gone=_GONE, is_replaced=True, is_resumed=True),
    _spec(node.Capacity, "figure", "type", "path", **_DEVICE, gone=_GONE, is_resumed=True),
    _spec(node.Host, "figure", ends_with_agent=True, is_resumed=True, metric_family="host"),
    _spec(node.AgentCost, "figure", ends_with_agent=True, is_resumed=True),
    _spec(gpu.GpuInfo, "state", "uuid", **_DEVICE, is_replaced=True, is_resumed=True),
    _spec(gpu.Gpu, "figure", "uuid", **_DEVICE, labels=("index",), metric_family="gpu"),
    _spec(gpu.GpuDigest, "figure", "uuid", **_DEVICE, metric_family="gpu"),
    _spec(gpu.GpuLink, "figure", "uuid", "link", **_ENTITY, is_resumed=True, metric_family="gpu"),
    _spec(gpu.GpuEvent, "event", "uuid", "pci_bus_id", "index", "xid", quota="devices", event=_always, is_resumed=True),
    _spec(gpu.GpuProcess, "state", "uuid", "pid", **_ENTITY, gone=_GONE, is_replaced=True, is_resumed=True),
    _spec(
        topology.Nic, "figure", "device", "port", **_DEVICE, gone=("state", frozenset({"gone"})),
        event=lambda nic: nic.state == "gone", is_resumed=True, metric_family="nic",
    ),
    _spec(topology.Link, "state", "type", "a.kind", "a.id", "b.kind", "b.id", **_ENTITY, gone=_GONE, is_resumed=True),
    _spec(process.Process, "state", *_PROCESS, **_ENTITY, gone=_GONE, is_replaced=True, is_resumed=True),
    _spec(
        process.Rank, "state", *_PROCESS, **_ENTITY, gone=("status", frozenset({"exited", "withdrawn"})),
        event=lambda rank: rank.status != "present", kept_total=16_384, is_resumed=True,
    ),
    _spec(
        process.RankStat, "figure", *_PROCESS, **_ENTITY, labels=("job", "attempt", "rank"), is_resumed=True,
        metric_family="rank",
    ),
    _spec(process.RankSetting, "state", *_PROCESS, **_ENTITY, is_replaced=True, is_resumed=True),
    _spec(process.Place, "figure", *_PROCESS, **_ENTITY, is_resumed=True),
    _spec(process.RankTraffic, "figure", *_PROCESS, **_ENTITY),
    # of a job of 4,096 ranks: two outputs each, and their launchers
    _spec(
        process.Output, "state", *_PROCESS, "stream", "path", "attempt", quota="entities", is_large=True,
        kept_total=16_384, is_resumed=True,
    ),
    # 4,096 ranks × 4 threads × 3 samples, five times
    _spec(capture.Stack, "capture", "capture", "sample", *_PROCESS, "thread_id", kept_total=262_144),
    # of connections between nodes that a thread waits for: at most 512 per node and capture
    _spec(capture.Connection, "capture", "capture", "local", "remote", kept_total=65_536),
    # 1,024 ranks × 512 operations once; groups count with operations
    _spec(capture.Collective, "capture", "capture", "source", *_PROCESS, "record_id", kept_total=524_288),
    _spec(capture.PgStatus, "capture", "capture", "source", *_PROCESS, "pg_id", kept_total=524_288),
    _spec(process.Job, "state", "job", is_fleet_wide=True, quota="entities", is_large=True),
    _spec(process.JobNode, "state", "job", quota="entities", event=_always),
    _spec(event.Log, "event", "source", event=lambda log: log.source != "job", kept_total=20_000, is_resumed=True),
    _spec(event.Mark, "event", is_fleet_wide=True, event=_always, is_always_recorded=True, is_resumed=True),
    _spec(event.Gap, "event", "source", event=_always, is_always_recorded=True, is_resumed=True),
    _spec(
        event.Finding, "state", "id", "culprits", "job", is_fleet_wide=True, event=_always, kept_total=4_096,
        is_resumed=True,
    ),
    _spec(clock.ClockBins, "series", "dst", quota="peers", is_large=True),
    _spec(clock.ClockSnapshot, "series", kept_each=720),  # 12 min at one a second
    _spec(clock.ClockSource, "state", is_replaced=True),
    _spec(clock.GpuClock, "state", "index"),
    _spec(clock.ClockCost, "state", is_replaced=True),
    _spec(clock.ClockWindow, "series", "dst", kept_each=64),  # an hour of background windows
    _spec(clock.ClockNode, "series", kept_each=64),
)  # fmt: skip

SPECS: Final[dict[type[Record], KindSpec]] = {spec.struct: spec for spec in _ROWS}
_BY_NAME: Final = {spec.name: spec for spec in _ROWS}


def _getter(fields: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*fields) if fields else lambda record: ()


_KEYS: Final = {spec.struct: _getter(spec.key) for spec in _ROWS}
_IDENTITIES: Final = {
    spec.struct: _getter(spec.key if spec.is_fleet_wide else ("node", *spec.key)) for spec in _ROWS
}  # fmt: skip


_EVENTS: Final = {spec.struct: spec.event for spec in _ROWS if spec.event is not None}


def kind_of(record: Record | RawRecord) -> str:
    """The kind's name, also of a record of a newer kind, unknown to this version."""
    return record.kind if isinstance(record, RawRecord) else str(record.__struct_config__.tag)


def key_getter(kind: type[Record]) -> Callable[[Any], Any]:
    """What gives the key of an entity of this kind within its node: one value, or a tuple of several fields."""
    return _KEYS[kind]


def identity(record: Record) -> Any:
    """The entity's key in the store: its node, then its key; without the node where the kind is fleet-wide."""
    return _IDENTITIES[type(record)](record)


def is_gone(record: Record) -> bool:
    """True where the record is the last one of an entity that has ended."""
    gone = SPECS[type(record)].gone
    return gone is not None and getattr(record, gone[0]) in gone[1]


def is_event(record: Record) -> bool:
    """True where the record belongs in the list of events, which all nodes share."""
    belongs = _EVENTS.get(type(record))
    return belongs is not None and belongs(record)


def names_where(trait: Callable[[KindSpec], bool]) -> frozenset[str]:
    """Names of the kinds that have a trait."""
    return frozenset(spec.name for spec in _ROWS if trait(spec))


FIGURES: Final = names_where(lambda spec: spec.is_figure)
CHANGES: Final = frozenset(_BY_NAME) - FIGURES
