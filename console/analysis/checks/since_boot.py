"""Checks of what happened since the node booted: older faults in its kernel log, and the boot itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...records import Host, Log
from ...text.format import duration, iso, plural
from ..health.kernel import LASTS_NS, WORDS
from .result import Measured, NodeCheck, NodeFacts

_SECOND_NS: Final = 1_000_000_000
#: Seconds after a boot in which services may still start.
_STARTING_S: Final = 600.0
#: The kernel's clock, by which messages are dated, and the uptime differ by less.
_MARGIN_NS: Final = 60 * _SECOND_NS
#: Classes of faults that are shown; heat is an event and no finding, so it is shown from the start.
_HEAT: Final = {"thermal": "a processor or the board was too hot"}
_CLASSES: Final = {**WORDS, **_HEAT}
_MOST_LISTED: Final = 8


def _since_boot(facts: NodeFacts) -> Measured:
    """Faults of this boot that no finding is about any more."""
    host = facts.host
    if host is None or host.uptime_s is None:
        return None
    counts: dict[tuple[str, str], int] = {}
    newest: dict[tuple[str, str], Log] = {}
    seen = set()
    for fault in facts.faults:
        key = (fault.fault or "", fault.subject or "")
        identity = (key, fault.text, (fault.at or 0) // _SECOND_NS)  # a later agent reports it again
        if key[0] in _CLASSES and not fault.is_over and identity not in seen and _is_shown(fault, host):
            seen.add(identity)
            counts[key] = counts.get(key, 0) + 1
            newest[key] = fault
    words = [
        f"{_CLASSES[key[0]]} ({plural(count, 'message')}, the last at {iso(newest[key].at)}): {newest[key].text}"
        for key, count in counts.items()
    ]
    more = len(words) - _MOST_LISTED
    return words[-_MOST_LISTED:] + ([f"{plural(more, 'more device')}"] if more > 0 else [])


def _is_shown(fault: Log, host: Host) -> bool:
    if fault.at is None or host.uptime_s is None or fault.at < host.t - host.uptime_s * _SECOND_NS - _MARGIN_NS:
        return False
    return fault.fault in _HEAT or host.t - fault.at > LASTS_NS


def _uptime(facts: NodeFacts) -> Measured:
    uptime_s = facts.host.uptime_s if facts.host is not None else None
    if uptime_s is None:
        return None
    return [f"booted {duration(int(uptime_s * 1e9))} ago"] if uptime_s < _STARTING_S else []


def _check(id: str, what: str, source: str, limit: str, remedy: str, **traits: object) -> NodeCheck:
    fields: Mapping[str, object] = {"severity": "info", "owner": "operator", "own_remedy": remedy, **traits}
    return NodeCheck(id=id, what=what, source=source, limit=limit, **fields)  # type: ignore[arg-type]


#: In the order in which they are shown.
CHECKS: Final[tuple[NodeCheck, ...]] = (
    _check("kernel_since_boot", "faults in the kernel log since boot: XID, SXid, network adapters, PCIe, machine "
           "checks, blocked tasks, lack of memory, file servers, disks; heat also of the last hour", "/dev/kmsg",
           "none", "See dmesg -T around the time; drain the node if hardware is named and it recurs.",
           missing="kernel_log", watch_s=3, measure=_since_boot),
    _check("uptime", "time since the boot", "/proc/uptime", "10 min", "Wait until its services have started "
           "(systemctl is-system-running).", measure=_uptime),
)  # fmt: skip
