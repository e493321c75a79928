"""The presets of [clock], and what its values cost: what is unusual is said, what cannot work is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from .model import ConfigError, Origin, Setting
from .schema import shown

#: What each preset sets, of the keys that nobody set.
PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "low": {"probe_cadence_us": 20_000, "probe_window_s": 8, "packet_spacing_us": 200, "snapshot_period_ms": 200,
            "cpu_cap_pct": 5},
    "default": {},
    "high": {"probe_cadence_us": 800, "packet_spacing_us": 50, "snapshot_period_ms": 50, "peers": 8,
             "cpu_cap_pct": 60},
    "debug": {"probe_cadence_us": 1000, "probe_window_s": 2, "cpu_cap_pct": 60},
}  # fmt: skip
#: Measured on two cores of a server: what one packet costs who asks and who answers, µs of CPU (34-58 and 19-31).
ASK_US, ANSWER_US = 46, 25
#: Windows with fewer bins are refused by the estimate.
LEAST_BINS: Final = 10
_PACKETS: Final = 3


class Range(msgspec.Struct, frozen=True):
    """Between which values a key does what it is for, and what it costs to leave them."""

    low: float
    high: float
    below: str
    above: str


RECOMMENDED: Final[Mapping[str, Range]] = {
    "clock.probe_cadence_us": Range(
        800,
        20_000,
        "probing takes more of a core than it gains; the cap will lengthen it",
        "a window has few probes: bounds grow",
    ),
    "clock.probe_window_s": Range(
        2, 8, "few probes a window: bounds grow", "crystals wander by more than the probes' noise in so long"
    ),
    "clock.packet_spacing_us": Range(
        50,
        500,
        "a sleep is not that short: packets pile up behind each other",
        "the second packet no longer finds the way warm: errors grow",
    ),
    "clock.snapshot_period_ms": Range(
        50,
        200,
        "each node wakes so often, and sends more than 8 kB/s while it probes",
        "steps of a clock are noticed late, and a window has few bins",
    ),
    "clock.peers": Range(4, 8, "a wrong edge cannot be told from a right one", "each peer costs CPU on both ends"),
    "clock.cpu_cap_pct": Range(
        5, 60, "the cadence will be lengthened, and bounds grow", "probing may take most of a core on every node"
    ),
    "clock.max_bound_us": Range(20, 500, "few networks allow it: expect clock_unsynced", "skew below it stays unseen"),
    "skew.max_ms": Range(0.2, 1000, "it is below what a clock's bound usually is", "only very late ranks are told"),
}


def with_preset(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings with what the preset says in the place of defaults."""
    preset = str(settings["clock.preset"].value)
    changed = {
        f"clock.{name}": Setting(f"clock.{name}", value, Origin("default", f"preset {preset}"))
        for name, value in PRESETS[preset].items()
        if settings[f"clock.{name}"].origin.kind == "default"
    }
    return {**settings, **changed}


def check(settings: Mapping[str, Setting]) -> tuple[str, ...]:
    """A warning for each value out of its usual range. Raises ConfigError for values that cannot work together."""
    _refuse(settings)
    return tuple(_warnings(settings))


def _refuse(settings: Mapping[str, Setting]) -> None:
    cadence, spacing, window, period, peers = (
        _number(settings, name)
        for name in ("probe_cadence_us", "packet_spacing_us", "probe_window_s", "snapshot_period_ms", "peers")
    )
    if cadence < (_PACKETS + 1) * spacing:
        text = f"three packets {spacing:g} µs apart need a cadence of {4 * spacing:g} µs or more, it is {cadence:g}"
        raise _error(settings, ("packet_spacing_us", "probe_cadence_us"), text)
    if window * 1000 < LEAST_BINS * period:
        text = f"a window of {window:g} s has fewer than {LEAST_BINS} snapshots {period:g} ms apart"
        raise _error(settings, ("snapshot_period_ms", "probe_window_s"), text)
    if peers % 2:
        raise _error(settings, ("peers",), f"must be even (rings through all nodes), is {peers:g}")


def _error(settings: Mapping[str, Setting], names: tuple[str, ...], text: str) -> ConfigError:
    """An error at the first of these keys that is set explicitly."""
    keys = [settings[f"clock.{name}"] for name in names]
    blamed = next((setting for setting in keys if setting.origin.kind != "default"), keys[0])
    return ConfigError(str(blamed.origin), blamed.key, text)


def _warnings(settings: Mapping[str, Setting]) -> Iterator[str]:
    for name, usual in RECOMMENDED.items():
        setting = settings[name]
        value = float(setting.value)  # type: ignore[arg-type]  # all of these are numbers
        if usual.low <= value <= usual.high:
            continue
        cost = usual.below if value < usual.low else usual.above
        between = f"{shown(usual.low)} to {shown(usual.high)} is usual"
        text = f"{shown(setting.value)} is unusual ({between}): {cost}{_core(name, settings)}"
        yield str(ConfigError(str(setting.origin), name, text))


def _core(name: str, settings: Mapping[str, Setting]) -> str:
    """What probing will cost at most, where the key is one of those that say."""
    if name not in ("clock.probe_cadence_us", "clock.peers"):
        return ""
    per_s = _number(settings, "peers") / 2 * _PACKETS * 1e6 / _number(settings, "probe_cadence_us")
    return f"; about {per_s * (ASK_US + ANSWER_US) / 1e4:.1f} % of a core on every node while probes run"


def _number(settings: Mapping[str, Setting], name: str) -> float:
    return float(settings[f"clock.{name}"].value)  # type: ignore[arg-type]  # all of these are numbers
