"""Which devices of each node have reported, of those that its inventory counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from ..core.store import GpuNow, Store
from ..records import Failure, Inventory
from ..text.format import plural

#: Seconds. Nodes still connecting after this are reported as failed, regardless of `--for`.
CONNECT_S: Final = 45.0
#: Kinds of devices whose records are counted, in words.
_WORDS: Final = {"gpu": "GPU", "link": "topology link", "nic": "network port"}


class NodeCoverage(msgspec.Struct, frozen=True):
    """GPUs of one node that should be there and that can be used, and what has not reported yet."""

    gpus_expected: int | None  # None if unknown
    gpus_seen: int  # without those that are lost or unusable; 0 while the driver cannot be used
    gpu_fault: Failure | None = None  # why the GPUs cannot be read
    awaits: tuple[str, ...] = ()  # "2 of 8 GPUs", "network ports"


def coverage_of(store: Store) -> dict[str, NodeCoverage]:
    """The coverage of every node."""
    seen = _seen(store)
    usable = Counter(node for (node, _), now in store.gpus.items() if _is_usable(now))
    return {name: _coverage(store, name, seen, usable[name]) for name in store.nodes}


def complete_nodes(store: Store) -> frozenset[str]:
    """Nodes that have reported all of their devices; those whose GPUs cannot be read are not among them."""
    seen = _seen(store)
    return frozenset(name for name in store.nodes if not any(_awaits(store, name, seen)) and _has_gpus(store, name))


def is_settled(store: Store) -> bool:
    """Whether every node has sent its first full sample or failed, even if it is connecting again."""
    nodes = store.nodes.values()
    return bool(nodes) and all(
        now.cost or now.failure or (now.state and now.state.state in ("failed", "lost")) for now in nodes
    )


def is_reported(store: Store) -> bool:
    """Whether every node that is ok has reported all of its devices, or why it cannot."""
    seen = _seen(store)
    is_ok = (name for name, now in store.nodes.items() if now.state is not None and now.state.state == "ok")
    return not any(word for name in is_ok for word in _awaits(store, name, seen) if not _is_broken(store, name))


def _is_broken(store: Store, name: str) -> bool:
    gpus = store.inventories.get((name, "gpu"))
    return gpus is not None and gpus.fault not in (None, "gpu_starting")


def _has_gpus(store: Store, name: str) -> bool:
    gpus = store.inventories.get((name, "gpu"))
    return gpus is not None and gpus.count is not None


def _seen(store: Store) -> Counter[tuple[str, str]]:
    """How many devices of each (node, kind) have records."""
    seen: Counter[tuple[str, str]] = Counter()
    for (node, _), now in store.gpus.items():
        if now.info is not None and now.info.parent is None:
            seen[node, "gpu"] += 1
    seen.update((node, "link") for node, *_ in store.links)
    seen.update((node, "nic") for node, *_ in store.nics)
    return seen


def _is_usable(now: GpuNow) -> bool:
    return now.info is not None and now.info.parent is None and now.info.lost is None and now.info.unusable is None


def _coverage(store: Store, name: str, seen: Counter[tuple[str, str]], usable: int) -> NodeCoverage:
    gpus = store.inventories.get((name, "gpu"))
    fault = Failure(gpus.fault, gpus.text, gpus.try_) if gpus is not None and gpus.fault is not None else None
    return NodeCoverage(expected_gpus(gpus), 0 if fault else usable, fault, tuple(_awaits(store, name, seen)))


def expected_gpus(gpus: Inventory | None) -> int | None:
    """Number of GPUs that a node should have, by its inventory; None if unknown."""
    if gpus is None:
        return None
    if gpus.count is None:
        return gpus.installed or None  # with a driver, none in sysfs is not a count
    return max(gpus.count + len(gpus.missing), 0)


def _awaits(store: Store, name: str, seen: Counter[tuple[str, str]]) -> Iterator[str]:
    if not any((name, kind) in store.inventories for kind in _WORDS):
        now = store.nodes[name]
        if now.agent_rx and now.cost is None:  # its agent runs and has not sent its first full sample
            yield f"{_WORDS['gpu']}s"
        return  # no agent yet, or one of a version without inventories
    for kind, word in _WORDS.items():
        inventory = store.inventories.get((name, kind))
        if inventory is None or inventory.count is None:
            yield f"{word}s"
        elif seen[name, kind] < inventory.count:
            yield f"{inventory.count - seen[name, kind]} of {plural(inventory.count, word)}"
