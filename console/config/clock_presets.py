"""Presets of [clock], warnings for unusual values, errors for values that cannot work together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from .model import ConfigError, Origin, Setting
from .schema import shown

#: Defaults of each preset.
PRESETS: Final[Mapping[str, Mapping[str, int]]] = {
    "low": {"probe_cadence_us": 20_000, "probe_window_s": 8, "packet_spacing_us": 200, "snapshot_period_ms": 200,
            "cpu_cap_pct": 5},
    "default": {},
    "high": {"probe_cadence_us": 800, "packet_spacing_us": 50, "snapshot_period_ms": 50, "peers": 8,
             "cpu_cap_pct": 60},
    "debug": {"probe_cadence_us": 1000, "probe_window_s": 2, "cpu_cap_pct": 60},
}  # fmt: skip
#: µs of CPU per packet of the requester and the replier, measured on two cores of a server (34-58 and 19-31).
REQUEST_US, REPLY_US = 46, 25
#: The clock estimate rejects windows with fewer bins.
LEAST_BINS: Final = 10
#: Pings of each node over SSH for which a window lasts at least: some may be lost.
PINGS_PER_WINDOW: Final = LEAST_BINS + 2
_PACKETS: Final = 3


class Range(msgspec.Struct, frozen=True):
    """Recommended range of a key, and the effects of values outside it."""

    low: float
    high: float
    below: str
    above: str


RECOMMENDED: Final[Mapping[str, Range]] = {
    "clock.probe_cadence_us": Range(
        800,
        20_000,
        "costs more CPU than it improves the bound; the CPU cap will lengthen it",
        "few probes per window: wider bounds",
    ),
    "clock.probe_window_s": Range(
        2, 8, "few probes per window: wider bounds", "clock drift varies by more than the probe noise within a window"
    ),
    "clock.packet_spacing_us": Range(
        50,
        500,
        "shorter than a sleep can be: packets queue behind each other",
        "caches and links are idle again when the second packet arrives: larger errors",
    ),
    "clock.snapshot_period_ms": Range(
        50,
        200,
        "frequent wake-ups, and more than 8 kB/s per node while probing",
        "clock steps are detected late, and windows have few bins",
    ),
    "clock.peers": Range(4, 8, "a bad edge cannot be detected", "each peer costs CPU on both nodes"),
    "clock.cpu_cap_pct": Range(
        5, 60, "the cadence will be lengthened: wider bounds", "probing may use most of a core on every node"
    ),
    "clock.max_bound_us": Range(
        20, 500, "few networks achieve it: expect clock_unsynced", "smaller skew is not detected"
    ),
    "skew.max_ms": Range(0.2, 1000, "below the usual error bound of a clock", "only very late ranks are reported"),
}


def with_preset(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings with defaults replaced by those of the preset, and the spacing by one that fits the cadence."""
    preset = str(settings["clock.preset"].value)
    changed = {
        f"clock.{name}": Setting(f"clock.{name}", value, Origin("default", f"preset {preset}"))
        for name, value in PRESETS[preset].items()
        if settings[f"clock.{name}"].origin.kind == "default"
    }
    settings = {**settings, **changed}
    spacing = settings["clock.packet_spacing_us"]
    longest = int(_number(settings, "probe_cadence_us")) // (_PACKETS + 1)
    if spacing.origin.kind == "default" and longest < int(_number(settings, "packet_spacing_us")):
        origin = Origin("default", "a quarter of clock.probe_cadence_us")
        settings[spacing.key] = Setting(spacing.key, longest, origin)
    return settings


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
        between = f"{shown(usual.low)} to {shown(usual.high)} is recommended"
        text = f"{shown(setting.value)} is unusual ({between}): {cost}{_core(name, settings)}"
        yield str(ConfigError(str(setting.origin), name, text))


def _core(name: str, settings: Mapping[str, Setting]) -> str:
    """Estimated CPU cost of probing, for the keys that determine it."""
    if name not in ("clock.probe_cadence_us", "clock.peers"):
        return ""
    per_s = _number(settings, "peers") / 2 * _PACKETS * 1e6 / _number(settings, "probe_cadence_us")
    return f"; about {per_s * (REQUEST_US + REPLY_US) / 1e4:.1f} % of a core on every node while probes run"


def _number(settings: Mapping[str, Setting], name: str) -> float:
    return float(settings[f"clock.{name}"].value)  # type: ignore[arg-type]  # all of these are numbers
